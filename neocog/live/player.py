"""Decodes a video or stream with FFmpeg; run as a program, since strangers choose what it decodes.

Memory and time have limits, and it opens no other file (no playlist). It gets a line of JSON that says what
to open, then a byte for each frame that is wanted; it answers in lines of JSON and, after a shape, pixels.
"""

import faulthandler
import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from neocog.errors import InputError
from neocog.text import to_json
from neocog.vision.decode import check_size

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
_HANGS = 5.0  # seconds beyond its time after which a step of FFmpeg ends the process
_WORDS = re.compile(rb"^\[OPENCV:FFMPEG:\d+\] (.+)", re.MULTILINE)
_LATE = "no data arrived in time"
_OTHERS = "this format or address is not supported"
_LARGE = f"a frame takes more than {MEMORY >> 20} MB"


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be opened: an address, and FFmpeg's options, the first that give a picture.

    A picture must come in ``silence`` seconds; with ``newest`` those nobody waits for are left out. With
    ``jpegs`` each is a JPEG, decoded if it is wanted (OpenCV takes all for as large as the first).
    """

    address: str
    options: Sequence[str]
    silence: float
    newest: bool = False
    jpegs: bool = False


class Player:
    """Gives the pictures of what is asked for; ``words`` returns what FFmpeg said lately."""

    def __init__(self, asked: Asked, words: Callable[[], list[str]]) -> None:
        self._asked, self._words = asked, words
        self._video: Any = None
        self._why = ""  # no picture comes

    def play(self, wanted: threading.Event, say: Callable[..., None]) -> None:
        """Give a picture whenever one is wanted, until it ends."""
        import cv2

        pixels = self._open()
        if pixels is None:
            say(end=self._why)
            return
        height, width = pixels.shape[:2]
        say(size=(width, height), fps=self._video.get(cv2.CAP_PROP_FPS))
        there = True  # the first picture came when it was opened
        while True:
            if not self._asked.newest:
                wanted.wait()
            if not (there or self._grab()):
                break
            there = False
            if wanted.is_set():
                wanted.clear()
                say(frame=True)
                if (pixels := self._picture()) is None:
                    break
                say(pixels=pixels)
        say(end=self._why)

    def _open(self) -> Any:
        """Return the first picture, None if there is none."""
        import cv2

        self._asked.address.encode()  # UnicodeError: OpenCV would end the process
        silence = self._asked.silence
        settings = [
            *(cv2.CAP_PROP_OPEN_TIMEOUT_MSEC, round(2e3 * silence), cv2.CAP_PROP_N_THREADS, _THREADS),
            *(cv2.CAP_PROP_READ_TIMEOUT_MSEC, round(1e3 * silence)),
            *((cv2.CAP_PROP_FORMAT, -1) if self._asked.jpegs else ()),
        ]
        said = ""
        for options in self._asked.options:
            os.environ[_OPTIONS] = options
            start = time.monotonic()
            self._bound()
            self._video = cv2.VideoCapture(self._asked.address, cv2.CAP_FFMPEG, settings)
            if self._video.isOpened():
                width, height = (
                    int(self._video.get(side))
                    for side in (cv2.CAP_PROP_FRAME_WIDTH, cv2.CAP_PROP_FRAME_HEIGHT)
                )
                if not self._asked.jpegs and width * height > MAX_PIXELS:
                    self._why = f"it has {width} x {height} pixels, at most {MAX_PIXELS:,} are read"
                    return None
                if self._grab() and (pixels := self._picture()) is not None:
                    return pixels
            said = said or self._why or next(iter(self._words()), "")
            if time.monotonic() - start >= silence:
                self._why = self._why or _LATE
                return None
        self._why = said
        return None

    def _bound(self) -> None:
        """End the process if FFmpeg does not come back in time."""
        faulthandler.dump_traceback_later(2 * self._asked.silence + _HANGS, exit=True, file=2)

    def _grab(self) -> bool:
        start = time.monotonic()
        self._bound()
        if self._video.grab():
            return True
        if time.monotonic() - start >= self._asked.silence:
            self._why = _LATE
        elif any("memory" in words for words in self._words()):
            self._why = _LARGE
        return False

    def _picture(self) -> Any:
        """Return the picture, or the next one that can be decoded; None if there is none."""
        start = time.monotonic()
        self._bound()
        while (pixels := self._decoded()) is None:
            if time.monotonic() - start >= self._asked.silence or not self._grab():
                return None
        self._why = ""
        return pixels

    def _decoded(self) -> Any:
        import cv2

        done, pixels = self._video.retrieve()
        if not self._asked.jpegs or not done or pixels is None:
            return pixels if done else None
        try:
            check_size(pixels.tobytes(), max_pixels=MAX_PIXELS)
            return cv2.imdecode(pixels, cv2.IMREAD_COLOR)
        except (InputError, cv2.error) as error:
            self._why = str(error)
            return None


def _overheard() -> Callable[[], list[str]]:
    """Take stdout and stderr; of what is said there only the beginning is kept."""
    ear, mouth = os.pipe()
    for end in (ear, mouth):
        os.set_blocking(end, False)
    for printed in (1, 2):
        os.dup2(mouth, printed)

    def words() -> list[str]:
        with suppress(BlockingIOError):
            lines = [line.decode(errors="replace") for line in _WORDS.findall(os.read(ear, 2**16))]
            return [_OTHERS if "whitelist" in line else line for line in lines]
        return []

    return words


def main() -> None:
    """Serve the program that started this one, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    own = os.environ.get(_OPTIONS)
    os.environ.update(_QUIET)
    with suppress(ImportError, OSError, ValueError):  # where the system has such limits
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    asks, answers = os.fdopen(0, "rb", buffering=0), os.fdopen(os.dup(1), "wb")
    words = _overheard()
    asked = Asked(**json.loads(asks.readline()))
    if own:
        asked = replace(asked, options=[f"{options}|{own}" for options in asked.options])
    wanted = threading.Event()

    def listen() -> None:
        while asks.read(1):
            wanted.set()
        os._exit(0)

    def say(pixels: Any = None, **told: Any) -> None:
        faulthandler.cancel_dump_traceback_later()  # who takes it may take its time
        answers.write(to_json(told if pixels is None else {"shape": pixels.shape}).encode())
        answers.write(b"\n")
        if pixels is not None:
            answers.write(memoryview(pixels).cast("B"))
        answers.flush()

    threading.Thread(target=listen, daemon=True).start()
    try:
        Player(asked, words).play(wanted, say)
    except UnicodeError:
        say(end="its name is not UTF-8; rename it")
    except Exception as error:
        large = isinstance(error, MemoryError) or "memory" in str(error)
        say(end=_LARGE if large else "a frame could not be decoded")
    os._exit(0)  # no thread and no library is waited for


if __name__ == "__main__":
    main()
