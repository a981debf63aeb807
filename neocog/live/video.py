"""Videos and streams: FFmpeg decodes them in a process of its own (`neocog.live.player`)."""

import json
import os
import ssl
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from neocog.errors import InputError
from neocog.jsontext import to_json
from neocog.live.child import Child
from neocog.live.player import FORMATS, Asked
from neocog.live.sources import Pixels, SourceLost
from neocog.messages import printable

SILENCE = 2.0
"""Seconds without a picture after which a stream counts as lost."""

_LONGEST = 10.0  # seconds that a frame of a file may take
_STARTS = 30.0  # seconds in which the process says what it opened
_LATE = 5.0  # seconds beyond its time that the process is given to say so
_USUAL_FPS = 25.0  # of a video file that does not say

_ONLY = "protocol_whitelist;{}|format_whitelist;" + FORMATS
_FILE = _ONLY.format("file")
_NEWEST = "fflags;nobuffer|flags;low_delay"  # a file that is opened so loses frames
_HTTP = f"{_NEWEST}|{_ONLY.format('http,https,httpproxy,tcp,tls')}|input_format;"
_RTSP = f"{_NEWEST}|{_ONLY.format('rtsp,rtp,tcp,tls,udp')}|rtsp_transport;tcp"


class VideoFile:
    """A video file, every frame of it.

    Parameters
    ----------
    path : Path
    """

    live = False
    returns = False
    _no = "is no video that can be decoded"

    def __init__(self, path: str | Path) -> None:
        self.name = str(path)
        self.files = [Path(path)]
        self.fps: float | None = None
        # in a relative name FFmpeg takes what is before a colon for a protocol
        self._asked = Asked(os.path.abspath(path), [_FILE], _LONGEST)
        self._child: Child | None = None
        self._due = False  # whether a frame's pixels are still to come

    def open(self) -> str:
        """Open it, and say what it holds."""
        size = self._open()
        self.fps = self.fps or _USUAL_FPS
        return f"{size}, {self.fps:g} frames a second"

    def grab(self) -> bool:
        """Wait for the next frame."""
        if self._due:  # the one before was not wanted
            self.retrieve()
        told = self._told(b"+")
        self._due = "end" not in told
        if told.get("end") or (self.live and "end" in told):
            raise self._lost(told)
        return self._due

    def retrieve(self) -> Pixels:
        """Take its pixels."""
        assert self._child is not None
        told, self._due = self._told(), False
        if "end" in told:
            raise self._lost(told)
        pixels = np.empty(told["shape"], np.uint8)
        with suppress(OSError, ValueError), self._child.awaited() as (_, answers):
            if answers.readinto(pixels.data.cast("B")) == pixels.size:  # type: ignore[attr-defined]
                return pixels
        raise self._lost({})

    def interrupt(self) -> None:
        """Free whoever waits for a frame."""
        if self._child is not None:
            self._child.kill()

    def close(self) -> None:
        """Let go of it."""
        if self._child is not None:
            self._child.close()

    def _open(self) -> str:
        """Open it, and return the size of its frames."""
        try:
            self._child = Child("neocog.live.player", limit=_STARTS)
        except OSError as error:
            raise InputError(f"{self.name}: cannot be opened ({error.strerror})") from None
        self._due = False
        told = self._told(to_json(asdict(self._asked)).encode() + b"\n")
        if "end" in told:
            self.close()
            raise InputError(f"{self.name}: {self._no}{_why(told)}")
        self._child.limit = self._asked.silence + _LATE
        self.fps = told["fps"] if 0 < told["fps"] < 1000 else None
        return "{}x{}".format(*told["size"])

    def _told(self, ask: bytes = b"") -> dict[str, Any]:
        """Ask, and return the answer; one that has an ``end`` is the last."""
        assert self._child is not None
        line = b""
        with suppress(OSError, ValueError), self._child.awaited() as (asks, answers):
            with suppress(OSError):  # who ended has said why
                asks.write(ask)
                asks.flush()
            line = answers.readline()
        told: dict[str, Any] = json.loads(line) if line else {"end": "its decoder ended"}
        return told

    def _lost(self, told: dict[str, Any]) -> SourceLost:
        return SourceLost(f"{self.name}: broke off{_why(told)}")


class Stream(VideoFile):
    """Pictures from a server that goes on sending: MJPEG over HTTP, or RTSP over TCP.

    Parameters
    ----------
    address : str
        ``http://``, ``https://``, ``rtsp://`` or ``rtsps://``; a name and password in it are sent
        along.
    silence : float
        Seconds without a picture after which the stream counts as lost.

    Raises
    ------
    ValueError
        If it is no address.
    """

    live = True
    returns = True
    _no = "is no stream that can be read"

    def __init__(self, address: str, *, silence: float = SILENCE) -> None:
        super().__init__("")
        self.name, self.files = without_password(address), []
        safe = f"|tls_verify;1|ca_file;{ssl.get_default_verify_paths().cafile or ''}"
        http = address.lower().startswith("http")
        # some servers do not say in each part that it is a JPEG
        forms = [_HTTP + "mpjpeg", _HTTP + "mjpeg"] if http else [_RTSP]
        options = [form + safe for form in forms]
        self._asked = Asked(address, options, silence, newest=True, jpegs=http)

    def open(self) -> str:
        """Connect, and say what comes."""
        size = self._open()
        if self._asked.jpegs:
            self.fps = None  # MJPEG does not say; FFmpeg says 25
        return f"{size}, {'MJPEG over HTTP' if self._asked.jpegs else 'over RTSP'}"


def without_password(address: str) -> str:
    """Return an address as it may be shown."""
    parts = urlsplit(address)
    if "@" not in parts.netloc:
        return address
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _why(told: dict[str, Any]) -> str:
    why = printable(told.get("end", "").strip())
    return f" ({why})" if why else ""
