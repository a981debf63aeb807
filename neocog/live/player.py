"""Decodes a video or stream with FFmpeg; run as a program, since strangers choose what it decodes.

Its memory has a limit, and it opens what it was given alone: no playlist, no file that another one
names. It gets a line of JSON that says what to open, then a byte for each frame that is wanted. It
answers in lines of JSON; after one that says a shape come so many pixels.
"""

import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

MEMORY = 2**30
"""Bytes that decoding may take; a video of 7680 x 4320 pixels takes half of them."""

MAX_PIXELS = 2**25
"""Pixels of a frame (7680 x 4320 are 33.2 million); a larger one is refused by its header."""

FORMATS = (
    "asf,avi,dv,flv,gif,h264,hevc,ivf,m4v,matroska,mjpeg,mov,mpeg,mpegts,mpegvideo,mpjpeg,mxf,nut,"
    "obu,ogg,rm,rtsp,webm,yuv4mpegpipe"
)
"""What holds its pictures itself; lists of other files (hls, dash, concat, image2) do not."""

_OPTIONS = "OPENCV_FFMPEG_CAPTURE_OPTIONS"  # OpenCV takes FFmpeg's options from there
_QUIET = {"OPENBLAS_NUM_THREADS": "1", "OPENCV_FFMPEG_LOGLEVEL": "24", "OPENCV_LOG_LEVEL": "SILENT"}
_THREADS = 4  # of FFmpeg; each keeps a frame more
_WORDS = re.compile(rb"^\[OPENCV:FFMPEG:\d+\] (.+)", re.MULTILINE)
_LATE = "nothing came in time"
_LARGE = f"a frame takes more than {MEMORY >> 20} MB"

Say = Callable[..., None]
Words = Callable[[], str]


def play(asked: dict[str, Any], wanted: threading.Event, say: Say, words: Words) -> None:
    """Open what is asked for, and give its frames until it ends.

    Parameters
    ----------
    asked : dict
        ``address``; ``options``, of which the first that do are taken; ``silence``, seconds in
        which a frame comes; ``newest``, whether a frame is left out that nobody waits for.
    wanted : Event
        Set when a frame is wanted.
    say : callable
        Sends an answer, or pixels.
    words : callable
        Returns the first words of FFmpeg since it was last asked.
    """
    import cv2

    silence = asked["silence"]
    video, why = _opened(asked, silence, words)
    if video is None:
        say(end=why)
        return
    say(size=_size(video), fps=video.get(cv2.CAP_PROP_FPS))
    there = True  # the first frame came when it was opened
    while True:
        if not asked["newest"]:
            wanted.wait()
        start = time.monotonic()
        if not (there or video.grab()):
            break
        there = False
        if wanted.is_set():
            wanted.clear()
            say(frame=True)
            say(pixels=video.retrieve()[1])
    late = time.monotonic() - start >= silence
    say(end=_LATE if late else _LARGE if "memory" in words() else "")


def _opened(asked: dict[str, Any], silence: float, words: Words) -> tuple[Any, str]:
    """Return the video, at its first frame, or None and why there is none."""
    import cv2

    why = ""
    for options in asked["options"]:
        start = time.monotonic()
        os.environ[_OPTIONS] = options
        times = [
            *(cv2.CAP_PROP_OPEN_TIMEOUT_MSEC, round(2e3 * silence)),
            *(cv2.CAP_PROP_READ_TIMEOUT_MSEC, round(1e3 * silence)),
            *(cv2.CAP_PROP_N_THREADS, _THREADS),
        ]
        video = cv2.VideoCapture(asked["address"], cv2.CAP_FFMPEG, times)
        width, height = _size(video)
        if width * height > MAX_PIXELS:
            return None, f"its frames have {width} x {height} pixels, at most {MAX_PIXELS:,} do"
        if video.isOpened() and video.grab():
            return video, ""
        if time.monotonic() - start >= silence:
            return None, _LATE
        why = why or words()
    return None, why


def _size(video: Any) -> tuple[int, int]:
    import cv2

    return int(video.get(cv2.CAP_PROP_FRAME_WIDTH)), int(video.get(cv2.CAP_PROP_FRAME_HEIGHT))


def _bound() -> None:
    """Limit the memory, where the system has such limits."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))


def _overheard() -> Words:
    """Take stdout and stderr; of what is said there only the beginning is kept."""
    ear, mouth = os.pipe()
    for end in (ear, mouth):
        os.set_blocking(end, False)
    for printed in (1, 2):
        os.dup2(mouth, printed)

    def words() -> str:
        with suppress(BlockingIOError):
            if match := _WORDS.search(os.read(ear, 2**16)):
                return match[1].decode(errors="replace")
        return ""

    return words


def main() -> None:
    """Serve the program that started this one, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    own = os.environ.get(_OPTIONS)
    os.environ.update(_QUIET)
    _bound()
    asks, answers = os.fdopen(0, "rb", buffering=0), os.fdopen(os.dup(1), "wb")
    words = _overheard()
    asked = json.loads(asks.readline())
    if own:
        asked["options"] = [f"{options}|{own}" for options in asked["options"]]
    wanted = threading.Event()

    def listen() -> None:
        while asks.read(1):
            wanted.set()
        os._exit(0)

    def say(pixels: Any = None, **told: Any) -> None:
        answers.write(json.dumps(told if pixels is None else {"shape": pixels.shape}).encode())
        answers.write(b"\n")
        if pixels is not None:
            answers.write(memoryview(pixels).cast("B"))
        answers.flush()

    threading.Thread(target=listen, daemon=True).start()
    try:
        play(asked, wanted, say, words)
    except UnicodeError:
        say(end="its name is no UTF-8; rename it")
    except Exception as error:
        large = isinstance(error, MemoryError) or "memory" in str(error)
        say(end=_LARGE if large else "a frame could not be decoded")
    os._exit(0)  # no thread and no library is waited for


if __name__ == "__main__":
    main()
