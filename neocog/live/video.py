"""What a source of frames is; videos and streams, which FFmpeg decodes in another process.

That process runs this module as its program, since strangers choose what it decodes. Its memory is limited,
and it opens no other file (no playlist); if it hangs, a timer ends it. It gets a line of JSON, the arguments
of `Player`, then a byte for each frame that is wanted; it answers in lines of JSON, that of a frame followed
by its pixels.
"""

import json
import os
import re
import signal
import ssl
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import cv2
import numpy as np
from numpy.typing import NDArray

from neocog.batch.worker import end_after
from neocog.errors import InputError, UsageError
from neocog.programs import python
from neocog.text import printable, to_json
from neocog.vision.decode import check_size

Pixels: TypeAlias = NDArray[np.uint8]

SILENCE = 2.0
"""Seconds without a picture after which a stream counts as lost."""

_LONGEST = 10.0  # seconds that a frame of a file may take
_QUIET = {"OPENBLAS_NUM_THREADS": "1", "OPENCV_FFMPEG_LOGLEVEL": "24", "OPENCV_LOG_LEVEL": "SILENT"}

# what holds its pictures itself; lists of other files (hls, dash, concat, image2) do not
_ONLY = (
    "protocol_whitelist;{}|format_whitelist;asf,avi,dv,flv,gif,h264,hevc,ivf,m4v,matroska,mjpeg,mov,mpeg,mpegts,"
    "mpegvideo,mpjpeg,mxf,nut,obu,ogg,rm,rtsp,webm,yuv4mpegpipe"
)
_NEWEST = "fflags;nobuffer|flags;low_delay"  # a file that is opened so loses frames
_HTTP = f"{_NEWEST}|{_ONLY.format('http,https,httpproxy,tcp,tls')}|input_format;"
_RTSP = f"{_NEWEST}|{_ONLY.format('rtsp,rtp,tcp,tls,udp')}|rtsp_transport;tcp"
MEMORY = 2**30
"""Bytes that decoding may take; a video of 7680 x 4320 pixels takes half of them."""

MAX_PIXELS = 2**25
"""Pixels of a frame (7680 x 4320 are 33.2 million); a larger one is refused by its header."""

_OPTIONS = "OPENCV_FFMPEG_CAPTURE_OPTIONS"  # OpenCV takes FFmpeg's options from there
_WORDS = re.compile(rb"^\[OPENCV:FFMPEG:\d+\] (.+)", re.MULTILINE)
_LATE = "no data arrived in time"
_LARGE = f"a frame takes more than {MEMORY >> 20} MB"


class SourceLost(InputError):
    """A camera or stream that gave pictures gives none any more; it may come back."""


class Source:
    """Gives frames, one after another."""

    name = ""  # as people call it
    live = False  # goes on by itself: only its newest frame is of use, and once lost it may be back
    fps: float | None = None  # frames a second, where that is known
    files: tuple[Path, ...] = ()  # that it reads: no output may be one of them
    arrived = 0.0  # when the last frame was there, not yet decoded, by time.perf_counter

    def open(self) -> str:
        """Open it, and say in a few words what it grants; InputError if it cannot be opened."""
        raise NotImplementedError

    def read(self) -> Pixels | None:
        """Wait for a frame (H, W, 3), blue, green, red; None at the end, SourceLost if it broke off."""
        raise NotImplementedError

    def interrupt(self) -> None:
        """End a long wait for a frame."""

    def close(self) -> None:
        """Release it; it may be opened again."""


class VideoFile(Source):
    """A video file, every frame of it."""

    _no = "is not a video that neocog can decode"

    def __init__(self, path: str | Path) -> None:
        self.name, self.files = str(path), (Path(path),)
        # in a relative name FFmpeg takes what is before a colon for a protocol
        self._asked: dict[str, Any] = {
            "address": os.path.abspath(path), "options": [_ONLY.format("file")], "silence": _LONGEST,
        }  # fmt: skip
        self._how = ""  # it comes, where that is no file
        self._decoder: Any = None

    def open(self) -> str:
        self.close()
        try:  # it ends with its pipes; Ctrl-C is for the program that started it
            self._decoder = subprocess.Popen(
                python("-m", "neocog.live.video"), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                start_new_session=True, env=os.environ | _QUIET,
            )  # fmt: skip
        except OSError as error:
            raise InputError(f"{self.name}: cannot be opened ({error.strerror})") from None
        answer, _ = self._ask(to_json(self._asked).encode() + b"\n")
        if "end" in answer:
            self.close()
            raise InputError(f"{self.name}: {self._no}{_why(answer)}")
        jpegs = self._asked.get("jpegs")  # MJPEG does not say; FFmpeg says 25
        known = 0 < answer["fps"] < 1000 and not jpegs
        self.fps = answer["fps"] if known else None if self.live else 25.0
        return "{}x{}, {}".format(*answer["size"], self._how or f"{self.fps:g} frames a second")

    def read(self) -> Pixels | None:
        answer, pixels = self._ask(b"+")
        if "end" in answer and (answer["end"] or self.live):
            raise SourceLost(f"{self.name}: broke off{_why(answer)}")
        return pixels

    def interrupt(self) -> None:
        if self._decoder is not None:
            self._decoder.kill()

    def close(self) -> None:
        """Release it. The process is gone before its pipes are closed: a wait holds their locks."""
        if self._decoder is None:
            return
        self._decoder.kill()
        with suppress(subprocess.TimeoutExpired):
            self._decoder.wait(1.0)
        for pipe in (self._decoder.stdin, self._decoder.stdout):
            with suppress(OSError):
                pipe.close()

    def _ask(self, question: bytes) -> tuple[dict[str, Any], Pixels | None]:
        """Send a question; return what is answered (with an ``end`` for the last time)."""
        asked, answers = self._decoder.stdin, self._decoder.stdout
        try:
            with suppress(OSError, ValueError):  # who ended has said why
                asked.write(question)
                asked.flush()
            answer = json.loads(answers.readline())
            self.arrived = time.perf_counter() - answer.get("ms", 0.0) / 1e3
            if "shape" not in answer:
                return answer, None
            pixels = np.empty(answer["shape"], np.uint8)
            if answers.readinto(pixels.data.cast("B")) == pixels.size:
                return answer, pixels
        except (OSError, ValueError):  # it ended, or the pipe was closed
            pass
        return {"end": "its decoder ended"}, None


class Stream(VideoFile):
    """Pictures from a server that goes on sending: MJPEG over HTTP or RTSP; a password is sent along.

    UsageError if ``address`` is none. It counts as lost after ``silence`` seconds without a picture.
    """

    live = True
    _no = "is not a stream that neocog can read"

    def __init__(self, address: str, *, silence: float = SILENCE) -> None:
        scheme, _, rest = address.partition("://")
        shown = f"{scheme}://{rest.rpartition('@')[2]}"  # without a password
        if scheme.lower() not in ("http", "https", "rtsp", "rtsps"):
            raise UsageError(f"{shown}: {scheme} is not supported; use http, https or rtsp")
        try:
            parts = urlsplit(address)
        except ValueError as error:
            raise UsageError(f"{shown}: is not a valid address ({str(error).lower()})") from None
        super().__init__("")
        self.name, self.files = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl(), ()
        self._how = "MJPEG over HTTP" if (http := scheme.lower().startswith("http")) else "over RTSP"
        safe = f"|tls_verify;1|ca_file;{ssl.get_default_verify_paths().cafile or ''}"
        # some servers do not say in each part that it is a JPEG
        forms = [_HTTP + "mpjpeg", _HTTP + "mjpeg"] if http else [_RTSP]
        self._asked = {
            "address": address, "options": [form + safe for form in forms], "silence": silence,
            "newest": True, "jpegs": http,
        }  # fmt: skip


def _why(answer: dict[str, Any]) -> str:
    why = printable(answer.get("end", "").strip())
    return f" ({why})" if why else ""


@dataclass
class Player:
    """Gives the pictures of an address; of FFmpeg's ``options`` the first that give one are taken.

    A picture must come in ``silence`` seconds; with ``newest`` those nobody waits for are left out. With
    ``jpegs`` each is a JPEG, decoded if it is wanted (OpenCV takes all for as large as the first). ``words``
    returns what FFmpeg said lately.
    """

    words: Callable[[], list[str]]
    address: str
    options: list[str]
    silence: float
    newest: bool = False
    jpegs: bool = False
    _video: Any = None
    _arrived: float = 0.0
    _why: str = ""  # no picture comes

    def play(self, wanted: threading.Event, say: Callable[..., None]) -> None:
        """Give a picture whenever one is wanted, until it ends."""
        limit = 2 * self.silence + 5.0  # seconds after which FFmpeg hangs
        end_after(limit)
        pixels = self._open()
        end_after(0)
        if pixels is not None:
            say(size=pixels.shape[1::-1], fps=self._video.get(cv2.CAP_PROP_FPS))
        there = True  # the first picture came when it was opened
        while pixels is not None:
            if not self.newest:
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
        self.address.encode()  # UnicodeError: OpenCV would end the process
        settings = [  # each of four threads keeps a frame more
            *(cv2.CAP_PROP_OPEN_TIMEOUT_MSEC, round(2e3 * self.silence), cv2.CAP_PROP_N_THREADS, 4),
            *(cv2.CAP_PROP_READ_TIMEOUT_MSEC, round(1e3 * self.silence)),
            *((cv2.CAP_PROP_FORMAT, -1) if self.jpegs else ()),
        ]
        sides = cv2.CAP_PROP_FRAME_WIDTH, cv2.CAP_PROP_FRAME_HEIGHT
        own, start, said = os.environ.get(_OPTIONS), time.monotonic(), ""
        for options in self.options:
            os.environ[_OPTIONS] = f"{options}|{own}" if own else options
            self._video = video = cv2.VideoCapture(self.address, cv2.CAP_FFMPEG, settings)
            if video.isOpened():
                width, height = (int(video.get(side)) for side in sides)
                if not self.jpegs and width * height > MAX_PIXELS:
                    self._why = f"it has {width} x {height} pixels, at most {MAX_PIXELS:,} are read"
                    return None
                if self._grab() and (pixels := self._picture()) is not None:
                    return pixels
            said = said or self._why or next(iter(self.words()), "")
            if time.monotonic() - start >= self.silence:
                said = self._why or _LATE
                break
        self._why = said
        return None

    def _grab(self) -> bool:
        start = time.monotonic()
        if self._video.grab():
            self._arrived = time.perf_counter()
            return True
        if time.monotonic() - start >= self.silence:
            self._why = _LATE
        elif any("memory" in words for words in self.words()):
            self._why = _LARGE
        return False

    def _picture(self) -> Any:
        """Return the picture, or the next one that can be decoded; None if there is none."""
        start = time.monotonic()
        while True:
            done, pixels = self._video.retrieve()
            if done and pixels is not None and self.jpegs:
                try:
                    check_size(pixels.tobytes(), max_pixels=MAX_PIXELS)
                    pixels = cv2.imdecode(pixels, cv2.IMREAD_COLOR)
                except (InputError, cv2.error) as error:
                    self._why, pixels = str(error), None
            if done and pixels is not None:
                self._why = ""
                return pixels
            if time.monotonic() - start >= self.silence or not self._grab():
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
