"""What a source of frames is; videos and streams, which FFmpeg decodes in another process (`player`)."""

import json
import os
import ssl
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from neocog.errors import InputError, UsageError
from neocog.programs import python
from neocog.text import printable, to_json

Pixels: TypeAlias = NDArray[np.uint8]

SILENCE = 2.0
"""Seconds without a picture after which a stream counts as lost."""

_LONGEST = 10.0  # seconds that a frame of a file may take
_QUIET = {"OPENBLAS_NUM_THREADS": "1", "OPENCV_FFMPEG_LOGLEVEL": "24", "OPENCV_LOG_LEVEL": "SILENT"}
_USUAL_FPS = 25.0  # of a video file that does not say

# what holds its pictures itself; lists of other files (hls, dash, concat, image2) do not
_ONLY = (
    "protocol_whitelist;{}|format_whitelist;asf,avi,dv,flv,gif,h264,hevc,ivf,m4v,matroska,mjpeg,mov,mpeg,mpegts,"
    "mpegvideo,mpjpeg,mxf,nut,obu,ogg,rm,rtsp,webm,yuv4mpegpipe"
)
_NEWEST = "fflags;nobuffer|flags;low_delay"  # a file that is opened so loses frames
_HTTP = f"{_NEWEST}|{_ONLY.format('http,https,httpproxy,tcp,tls')}|input_format;"
_RTSP = f"{_NEWEST}|{_ONLY.format('rtsp,rtp,tcp,tls,udp')}|rtsp_transport;tcp"


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
                python("-m", "neocog.live.player"), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
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
        self.fps = answer["fps"] if known else None if self.live else _USUAL_FPS
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
