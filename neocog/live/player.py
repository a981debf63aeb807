"""Decodes a video or stream with FFmpeg; run as a program, since strangers choose what it decodes.

Its memory is limited, and it opens no other file (no playlist); who started it ends it if it hangs. It gets a
line of JSON that says what to open, then a byte for each frame that is wanted; it answers in lines of JSON
and, after a shape, pixels.
"""

import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import cv2

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
_LARGE = f"a frame takes more than {MEMORY >> 20} MB"


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be opened: an address, and FFmpeg's options, the first that give a picture.

    A picture must come in ``silence`` seconds; with ``newest`` those nobody waits for are left out. With
    ``jpegs`` each is a JPEG, decoded if it is wanted (OpenCV takes all for as large as the first).
    """

    address: str
    options: list[str]
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
        pixels = self._open()
        if pixels is not None:
            say(size=pixels.shape[1::-1], fps=self._video.get(cv2.CAP_PROP_FPS))
        there = True  # the first picture came when it was opened
        while pixels is not None:
            if not self._asked.newest:
                wanted.wait()
            if not (there or self._grab()):
                break
            there = False
            if wanted.is_set():
                wanted.clear()
                say(frame=True)
                if (pixels := self._picture()) is not None:
                    say(pixels=pixels)
        say(end=self._why)

    def _open(self) -> Any:
        """Return the first picture, None if there is none."""
        self._asked.address.encode()  # UnicodeError: OpenCV would end the process
        silence, said = self._asked.silence, ""
        settings = [
            *(cv2.CAP_PROP_OPEN_TIMEOUT_MSEC, round(2e3 * silence), cv2.CAP_PROP_N_THREADS, _THREADS),
            *(cv2.CAP_PROP_READ_TIMEOUT_MSEC, round(1e3 * silence)),
            *((cv2.CAP_PROP_FORMAT, -1) if self._asked.jpegs else ()),
        ]
        own = os.environ.get(_OPTIONS)
        start = time.monotonic()
        for options in self._asked.options:
            os.environ[_OPTIONS] = f"{options}|{own}" if own else options
            self._video = cv2.VideoCapture(self._asked.address, cv2.CAP_FFMPEG, settings)
            if self._video.isOpened():
                sides = cv2.CAP_PROP_FRAME_WIDTH, cv2.CAP_PROP_FRAME_HEIGHT
                width, height = (int(self._video.get(side)) for side in sides)
                if not self._asked.jpegs and width * height > MAX_PIXELS:
                    self._why = f"it has {width} x {height} pixels, at most {MAX_PIXELS:,} are read"
                    return None
                if self._grab() and (pixels := self._picture()) is not None:
                    return pixels
            said = said or self._why or next(iter(self._words()), "")
            if time.monotonic() - start >= silence:
                said = self._why or _LATE
                break
        self._why = said
        return None

    def _grab(self) -> bool:
        start = time.monotonic()
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
        while True:
            done, pixels = self._video.retrieve()
            if done and pixels is not None and self._asked.jpegs:
                try:
                    check_size(pixels.tobytes(), max_pixels=MAX_PIXELS)
                    pixels = cv2.imdecode(pixels, cv2.IMREAD_COLOR)
                except (InputError, cv2.error) as error:
                    self._why, pixels = str(error), None
            if done and pixels is not None:
                self._why = ""
                return pixels
            if time.monotonic() - start >= self._asked.silence or not self._grab():
                return None


def _overheard() -> Callable[[], list[str]]:
    """Take stdout and stderr; of what is said there only the beginning is kept."""
    if not hasattr(os, "set_blocking"):  # Windows before Python 3.12
        for printed in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), printed)
        return list
    ear, mouth = os.pipe()
    for end in (ear, mouth):
        os.set_blocking(end, False)
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
        answers.write(to_json(told if pixels is None else {"shape": pixels.shape}).encode() + b"\n")
        if pixels is not None:
            answers.write(memoryview(pixels).cast("B"))
        answers.flush()

    def listen() -> None:
        while asks.read(1):
            wanted.set()
        os._exit(0)

    asked = Asked(**json.loads(asks.readline()))
    say(started=True)
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
