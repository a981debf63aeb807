"""Streams from the network: MJPEG over HTTP, read here, and RTSP, through FFmpeg."""

import http.client
import os
import select
import socket
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import unquote, urljoin, urlsplit

import numpy as np

from neocog.errors import InputError
from neocog.live.multipart import Multipart
from neocog.live.sources import Pixels, SourceLost, VideoSource, hush, in_colours

SILENCE = 2.0
"""Seconds without a byte after which a stream counts as lost."""

_PIECE = 2**16  # bytes read at a time
_CATCH_UP = 0.03  # seconds that newer pictures are taken for; a quick server never runs out of them
_MOST_BROKEN = 10  # pictures in a row that cannot be decoded
_REDIRECTS = 5
_OPTIONS = "OPENCV_FFMPEG_CAPTURE_OPTIONS"


class MjpegSource:
    """Pictures from an HTTP server that goes on sending.

    Parameters
    ----------
    address : str
        ``http://`` or ``https://``; a name and password in it are sent along.
    silence : float
        Seconds without a byte after which the stream counts as lost.
    """

    live = True
    returns = True
    fps: float | None = None

    def __init__(self, address: str, *, silence: float = SILENCE) -> None:
        self.name = without_password(address)
        self._address, self._silence = address, silence
        self._answer: http.client.HTTPResponse | None = None
        self._socket: socket.socket | None = None
        self._parts = Multipart("")
        self._jpeg = b""

    def open(self) -> str:
        """Connect, and say what comes."""
        try:
            self._answer, self._socket = _connect(self._address, self._silence)
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise InputError(f"{self.name}: cannot be opened ({_why(error)})") from None
        kind = self._answer.headers.get_content_type()
        if not kind.startswith("multipart/"):
            self.close()
            raise InputError(f"{self.name}: sends {kind}, where an MJPEG stream is wanted")
        self._parts = Multipart(str(self._answer.headers.get_param("boundary") or ""))
        return "MJPEG over HTTP"

    def grab(self) -> bool:
        """Wait for a picture; if more are there already, take the newest."""
        assert self._answer is not None
        self._jpeg = b""
        until = 0.0
        try:
            while not self._jpeg or (time.monotonic() < until and self._more()):
                data = self._answer.read1(_PIECE)
                if not data:
                    raise EOFError
                if pictures := self._parts.feed(data):
                    until = until or time.monotonic() + _CATCH_UP
                    self._jpeg = pictures[-1]
        except (EOFError, OSError, ValueError, http.client.HTTPException) as error:
            raise SourceLost(f"{self.name}: broke off ({_why(error)})") from None
        return True

    def retrieve(self) -> Pixels:
        """Decode it; in place of one that is broken take the next."""
        for _ in range(_MOST_BROKEN):
            pixels = _decoded(self._jpeg)
            if pixels is not None:
                return pixels
            self.grab()
        raise SourceLost(f"{self.name}: sends pictures that cannot be decoded")

    def close(self) -> None:
        """Hang up; what was not read yet is forgotten."""
        for part in (self._answer, self._socket):
            if part is not None:
                part.close()
        self._answer = self._socket = None

    def _more(self) -> bool:
        """Whether bytes wait already."""
        if self._socket is None or self._socket.fileno() < 0:
            return False
        return bool(select.select([self._socket], [], [], 0)[0])


class RtspSource(VideoSource):
    """Pictures from an RTSP server, over TCP.

    Parameters
    ----------
    address : str
        ``rtsp://`` or ``rtsps://``.
    silence : float
        Seconds without a picture after which the stream counts as lost.
    """

    live = True
    returns = True

    def __init__(self, address: str, *, silence: float = SILENCE) -> None:
        super().__init__(without_password(address))
        self._address, self._silence = address, silence

    def open(self) -> str:
        """Connect, and say what comes."""
        import cv2

        hush()
        silence = round(1e3 * self._silence)
        with _low_delay():
            self._video = cv2.VideoCapture(
                self._address,
                cv2.CAP_FFMPEG,
                [
                    *(cv2.CAP_PROP_OPEN_TIMEOUT_MSEC, 2 * silence),
                    *(cv2.CAP_PROP_READ_TIMEOUT_MSEC, silence),
                ],
            )
        if not self._video.isOpened():
            raise InputError(f"{self.name}: cannot be opened; check the address and the server")
        self.fps = self._fps_told()
        return f"{self._size_told()} over RTSP"


@contextmanager
def _low_delay() -> Iterator[None]:
    """Let what is opened meanwhile keep no frames back, unless the user has options of their own.

    OpenCV takes such options from the environment alone; a file opened with them loses frames.
    """
    if _OPTIONS in os.environ:
        yield
        return
    os.environ[_OPTIONS] = "rtsp_transport;tcp|fflags;nobuffer|flags;low_delay"
    try:
        yield
    finally:
        os.environ.pop(_OPTIONS, None)


def _decoded(jpeg: bytes) -> "Pixels | None":
    import cv2

    try:
        pixels = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)
    except cv2.error:  # a header that tells a senseless size
        return None
    return None if pixels is None else in_colours(pixels)


def without_password(address: str) -> str:
    """Return an address as it may be shown."""
    parts = urlsplit(address)
    if "@" not in parts.netloc:
        return address
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _connect(address: str, silence: float) -> tuple[http.client.HTTPResponse, socket.socket | None]:
    """Ask for an address, follow where it leads, and return the response with its socket."""
    for _ in range(_REDIRECTS):
        parts = urlsplit(address)
        make = http.client.HTTPSConnection if parts.scheme == "https" else _plain
        link = make(parts.hostname or "", parts.port, timeout=silence)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        link.request("GET", target, headers=_headers(parts.username, parts.password))
        plug = link.sock
        answer = link.getresponse()
        if answer.status in (301, 302, 303, 307, 308) and answer.headers["Location"]:
            address = urljoin(address, answer.headers["Location"])
            link.close()
            continue
        if answer.status != 200:
            link.close()
            raise http.client.HTTPException(f"the server answers {answer.status} {answer.reason}")
        return answer, plug
    raise http.client.HTTPException("it leads on and on")


_plain = http.client.HTTPConnection


def _headers(user: str | None, password: str | None) -> dict[str, str]:
    if user is None:
        return {}
    pair = f"{unquote(user)}:{unquote(password or '')}".encode()
    return {"Authorization": "Basic " + b64encode(pair).decode()}


def _why(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "nothing came in time"
    if isinstance(error, EOFError):
        return "the server hung up"
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text).lower().partition("\n")[0]
