"""Videos and streams: FFmpeg decodes them in a process of its own (`neocog.live.player`)."""

import json
import os
import ssl
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import numpy as np

from neocog.errors import InputError, UsageError
from neocog.jsontext import to_json
from neocog.live.player import FORMATS, Asked
from neocog.live.sources import Pixels, Source, SourceLost
from neocog.messages import printable
from neocog.programs import python
from neocog.watchdog import Watchdog

SILENCE = 2.0
"""Seconds without a picture after which a stream counts as lost."""

_LONGEST = 10.0  # seconds that a frame of a file may take
_STARTS = 30.0  # seconds in which the process says what it opened
_LATE = 5.0  # seconds beyond its time that the process is given to say so
_ENDS = 1.0  # seconds in which a killed process is gone
_USUAL_FPS = 25.0  # of a video file that does not say

_ONLY = "protocol_whitelist;{}|format_whitelist;" + FORMATS
_FILE = _ONLY.format("file")
_NEWEST = "fflags;nobuffer|flags;low_delay"  # a file that is opened so loses frames
_HTTP = f"{_NEWEST}|{_ONLY.format('http,https,httpproxy,tcp,tls')}|input_format;"
_RTSP = f"{_NEWEST}|{_ONLY.format('rtsp,rtp,tcp,tls,udp')}|rtsp_transport;tcp"

Got = TypeVar("Got")


class Decoder:
    """The process that decodes; it ends with its pipes, however the program that started it ends.

    ``limit`` is the number of seconds in which it answers; one that does not is killed. OSError if
    it cannot be started.
    """

    def __init__(self, *, limit: float) -> None:
        self._process = subprocess.Popen(
            python("-m", "neocog.live.player"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the program that started it, from the first on
        )
        self.pid, self.limit = self._process.pid, limit
        self._wait: object = None  # tells one wait for it from another; None while nobody waits
        try:
            self._watchdog = Watchdog(lambda: [self], lambda: self.limit)
        except RuntimeError as error:  # no thread more can be had
            self._end()
            raise OSError(str(error)) from error

    def wait_id(self) -> object | None:
        """What tells the present wait for it from another; None while nobody waits."""
        return self._wait

    def kill(self) -> None:
        """End it, without waiting until it is gone; whoever waits for its answer is told."""
        self._watchdog.close()
        self._process.kill()

    def close(self) -> None:
        """End it. It is gone before its pipes are closed: who waits at them holds their locks."""
        self._watchdog.close()
        self._end()

    def _end(self) -> None:
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_ENDS)
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError, ValueError):
                pipe.close()  # type: ignore[union-attr]

    def ask(self, question: bytes) -> dict[str, Any]:
        """Send a question, if there is one, and return the answer; one with an ``end`` is last."""

        def asked() -> bytes:
            with suppress(OSError):  # who ended has said why
                self._process.stdin.write(question)  # type: ignore[union-attr]
                self._process.stdin.flush()  # type: ignore[union-attr]
            return self._process.stdout.readline()  # type: ignore[union-attr]

        line = self._awaited(asked)
        answer: dict[str, Any] = json.loads(line) if line else {"end": "its decoder ended"}
        return answer

    def fill(self, pixels: Pixels) -> bool:
        """Receive the pixels of a frame."""
        into = self._process.stdout.readinto  # type: ignore[union-attr]
        return self._awaited(lambda: into(pixels.data.cast("B"))) == pixels.size

    def _awaited(self, wait: Callable[[], Got]) -> Got | None:
        """Wait for the pipes; None where they are closed, as they are after too long a wait."""
        self._wait = object()
        try:
            return wait()
        except (OSError, ValueError):
            return None
        finally:
            self._wait = None


class VideoFile:
    """A video file, every frame of it."""

    live = False
    returns = False
    _no = "is not a video that neocog can decode"

    def __init__(self, path: str | Path) -> None:
        self.name = str(path)
        self.files = [Path(path)]
        self.fps: float | None = None
        # in a relative name FFmpeg takes what is before a colon for a protocol
        self._asked = Asked(os.path.abspath(path), [_FILE], _LONGEST)
        self._decoder: Decoder | None = None
        self._due = False  # whether a frame's pixels are still to come

    def open(self) -> str:
        """Open it, and say what it holds."""
        size = self._open()
        self.fps = self.fps or _USUAL_FPS
        return f"{size}, {self.fps:g} frames a second"

    def grab(self) -> bool:
        """Wait for the next frame."""
        assert self._decoder is not None
        if self._due:  # the one before was not wanted
            self.retrieve()
        answer = self._decoder.ask(b"+")
        self._due = "end" not in answer
        if answer.get("end") or (self.live and "end" in answer):
            raise self._lost(answer)
        return self._due

    def retrieve(self) -> Pixels:
        """Take its pixels."""
        assert self._decoder is not None
        answer, self._due = self._decoder.ask(b""), False
        if "end" in answer:
            raise self._lost(answer)
        pixels = np.empty(answer["shape"], np.uint8)
        if not self._decoder.fill(pixels):
            raise self._lost({})
        return pixels

    def interrupt(self) -> None:
        """End the wait for a frame."""
        if self._decoder is not None:
            self._decoder.kill()

    def close(self) -> None:
        """Release it."""
        if self._decoder is not None:
            self._decoder.close()

    def _open(self) -> str:
        """Open it, and return the size of its frames."""
        try:
            self._decoder = Decoder(limit=_STARTS)
        except OSError as error:
            raise InputError(f"{self.name}: cannot be opened ({error.strerror})") from None
        self._due = False
        answer = self._decoder.ask(to_json(asdict(self._asked)).encode() + b"\n")
        if "end" in answer:
            self.close()
            raise InputError(f"{self.name}: {self._no}{_why(answer)}")
        self._decoder.limit = self._asked.silence + _LATE
        self.fps = answer["fps"] if 0 < answer["fps"] < 1000 else None
        return "{}x{}".format(*answer["size"])

    def _lost(self, answer: dict[str, Any]) -> SourceLost:
        return SourceLost(f"{self.name}: broke off{_why(answer)}")


class Stream(VideoFile):
    """Pictures from a server that goes on sending: MJPEG over HTTP, or RTSP over TCP.

    Parameters
    ----------
    address : str
        ``http://``, ``https://``, ``rtsp://`` or ``rtsps://``; a name and password in it are sent
        along. ValueError if it is no address.
    silence : float
        Seconds without a picture after which the stream counts as lost.
    """

    live = True
    returns = True
    _no = "is not a stream that neocog can read"

    def __init__(self, address: str, *, silence: float = SILENCE) -> None:
        super().__init__("")
        self.name, self.files = without_password(address), []
        safe = f"|tls_verify;1|ca_file;{ssl.get_default_verify_paths().cafile or ''}"
        http = address.lower().startswith("http")
        # some servers do not say in each part that it is a JPEG
        formats = [_HTTP + "mpjpeg", _HTTP + "mjpeg"] if http else [_RTSP]
        options = [form + safe for form in formats]
        self._asked = Asked(address, options, silence, newest=True, jpegs=http)

    def open(self) -> str:
        """Connect, and say what comes."""
        size = self._open()
        if self._asked.jpegs:
            self.fps = None  # MJPEG does not say; FFmpeg says 25
        return f"{size}, {'MJPEG over HTTP' if self._asked.jpegs else 'over RTSP'}"


def open_stream(address: str) -> Source:
    """Return the stream of an address; UsageError if there can be none."""
    scheme, _, rest = address.partition("://")
    shown = f"{scheme}://{rest.rpartition('@')[2]}"  # without a password
    if scheme.lower() not in ("http", "https", "rtsp", "rtsps"):
        raise UsageError(f"{shown}: {scheme} is not supported; use http, https or rtsp")
    try:
        return Stream(address)
    except ValueError as error:
        raise UsageError(f"{shown}: is not a valid address ({str(error).lower()})") from None


def without_password(address: str) -> str:
    """Return an address as it may be shown."""
    parts = urlsplit(address)
    if "@" not in parts.netloc:
        return address
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _why(answer: dict[str, Any]) -> str:
    why = printable(answer.get("end", "").strip())
    return f" ({why})" if why else ""
