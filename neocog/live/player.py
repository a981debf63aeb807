"""Decodes a video or stream with FFmpeg; run as a program, since strangers choose what it decodes.

Its memory is limited, and it opens no other file (no playlist); if it hangs, a timer ends it. It gets a line
of JSON, the arguments of `Player`, then a byte for each frame that is wanted; it answers in lines of
JSON, that of a frame followed by its pixels.
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

import cv2

from neocog.batch.worker import end_after
from neocog.errors import InputError
from neocog.text import to_json
from neocog.vision.decode import check_size

MEMORY = 2**30
"""Bytes that decoding may take; a video of 7680 x 4320 pixels takes half of them."""

MAX_PIXELS = 2**25
"""Pixels of a frame (7680 x 4320 are 33.2 million); a larger one is refused by its header."""

_OPTIONS = "OPENCV_FFMPEG_CAPTURE_OPTIONS"  # OpenCV takes FFmpeg's options from there
_THREADS = 4  # of FFmpeg; each keeps a frame more
_WORDS = re.compile(rb"^\[OPENCV:FFMPEG:\d+\] (.+)", re.MULTILINE)
_LATE = "no data arrived in time"
_MORE = 5.0  # seconds beyond the time of two frames after which FFmpeg hangs
_LARGE = f"a frame takes more than {MEMORY >> 20} MB"


class Player:
    """Gives the pictures of an address; of FFmpeg's ``options`` the first that give one are taken.

    A picture must come in ``silence`` seconds; with ``newest`` those nobody waits for are left out. With
    ``jpegs`` each is a JPEG, decoded if it is wanted (OpenCV takes all for as large as the first). ``words``
    returns what FFmpeg said lately.
    """

    def __init__(
        self, words: Callable[[], list[str]], *, address: str, options: list[str], silence: float,
        newest: bool = False, jpegs: bool = False,
    ) -> None:  # fmt: skip
        self._words, self._address, self._options = words, address, options
        self._silence, self._newest, self._jpegs = silence, newest, jpegs
        self._video: Any = None
        self._arrived = 0.0
        self._why = ""  # no picture comes

    def play(self, wanted: threading.Event, say: Callable[..., None]) -> None:
        """Give a picture whenever one is wanted, until it ends."""
        limit = 2 * self._silence + _MORE
        end_after(limit)
        pixels = self._open()
        end_after(0)
        if pixels is not None:
            say(size=pixels.shape[1::-1], fps=self._video.get(cv2.CAP_PROP_FPS))
        there = True  # the first picture came when it was opened
        while pixels is not None:
            if not self._newest:
                wanted.wait()
            end_after(limit)
            if not (there or self._grab()):
                break
            there = False
            if wanted.is_set():
                wanted.clear()
                self._arrived = time.perf_counter()
                pixels = self._picture()
                end_after(0)
                if pixels is not None:
                    say(pixels, shape=pixels.shape, ms=1e3 * (time.perf_counter() - self._arrived))
        say(end=self._why)

    def _open(self) -> Any:
        """Return the first picture, None if there is none."""
        self._address.encode()  # UnicodeError: OpenCV would end the process
        settings = [
            *(cv2.CAP_PROP_OPEN_TIMEOUT_MSEC, round(2e3 * self._silence), cv2.CAP_PROP_N_THREADS, _THREADS),
            *(cv2.CAP_PROP_READ_TIMEOUT_MSEC, round(1e3 * self._silence)),
            *((cv2.CAP_PROP_FORMAT, -1) if self._jpegs else ()),
        ]
        own, start, said = os.environ.get(_OPTIONS), time.monotonic(), ""
        for options in self._options:
            os.environ[_OPTIONS] = f"{options}|{own}" if own else options
            self._video = video = cv2.VideoCapture(self._address, cv2.CAP_FFMPEG, settings)
            if video.isOpened():
                width, height = (
                    int(video.get(side)) for side in (cv2.CAP_PROP_FRAME_WIDTH, cv2.CAP_PROP_FRAME_HEIGHT)
                )
                if not self._jpegs and width * height > MAX_PIXELS:
                    self._why = f"it has {width} x {height} pixels, at most {MAX_PIXELS:,} are read"
                    return None
                if self._grab() and (pixels := self._picture()) is not None:
                    return pixels
            said = said or self._why or next(iter(self._words()), "")
            if time.monotonic() - start >= self._silence:
                said = self._why or _LATE
                break
        self._why = said
        return None

    def _grab(self) -> bool:
        start = time.monotonic()
        if self._video.grab():
            self._arrived = time.perf_counter()
            return True
        if time.monotonic() - start >= self._silence:
            self._why = _LATE
        elif any("memory" in words for words in self._words()):
            self._why = _LARGE
        return False

    def _picture(self) -> Any:
        """Return the picture, or the next one that can be decoded; None if there is none."""
        start = time.monotonic()
        while True:
            done, pixels = self._video.retrieve()
            if done and pixels is not None and self._jpegs:
                try:
                    check_size(pixels.tobytes(), max_pixels=MAX_PIXELS)
                    pixels = cv2.imdecode(pixels, cv2.IMREAD_COLOR)
                except (InputError, cv2.error) as error:
                    self._why, pixels = str(error), None
            if done and pixels is not None:
                self._why = ""
                return pixels
            if time.monotonic() - start >= self._silence or not self._grab():
                return None


def _overheard() -> Callable[[], list[str]]:
    """Take stdout and stderr; of what is said there only the beginning is kept."""
    if not hasattr(os, "set_blocking"):  # Windows before Python 3.12
        for printed in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), printed)
        return list
    ear, mouth = os.pipe()
    os.set_blocking(ear, False)
    os.set_blocking(mouth, False)
    for printed in (1, 2):
        os.dup2(mouth, printed)

    def words() -> list[str]:
        with suppress(BlockingIOError):
            lines = [line.decode(errors="replace") for line in _WORDS.findall(os.read(ear, 2**16))]
            return ["this format or address is not supported" if "whitelist" in one else one for one in lines]
        return []

    return words


def main() -> None:
    """Serve the program that started this one, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(ImportError, OSError, ValueError):  # where the system has such limits
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    asks, answers = os.fdopen(0, "rb", buffering=0), os.fdopen(os.dup(1), "wb")
    words, wanted = _overheard(), threading.Event()

    def say(pixels: Any = None, **told: Any) -> None:
        answers.write(to_json(told).encode() + b"\n")
        if pixels is not None:
            answers.write(memoryview(pixels).cast("B"))
        answers.flush()

    def listen() -> None:
        while asks.read(1):
            wanted.set()
        os._exit(0)

    asked = json.loads(asks.readline())
    threading.Thread(target=listen, daemon=True).start()
    try:
        Player(words, **asked).play(wanted, say)
    except UnicodeError:
        say(end="its name is not UTF-8; rename it")
    except Exception as error:
        large = isinstance(error, MemoryError) or "memory" in str(error)
        say(end=_LARGE if large else "a frame could not be decoded")
    os._exit(0)  # no thread and no library is waited for


if __name__ == "__main__":
    main()
