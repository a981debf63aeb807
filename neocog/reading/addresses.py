"""Pictures at http and https addresses: fetched whole, in bounded size and time."""

import socket
import threading
import time
from contextlib import suppress
from typing import Any

from neocog.errors import InputError
from neocog.text import printable, reason_of

MAX_BYTES = 2**28  # of a picture's file that are held in memory at most
MAX_SECONDS = 60.0  # that a file at an address may take to come
MAX_REDIRECTS = 5
_BLOCK = 2**16


def is_address(word: str) -> bool:
    """Whether a word is an address to fetch from."""
    return word.lower().startswith(("http://", "https://"))


def fetch(address: str) -> bytes:
    """Return the bytes at an address; InputError if they cannot be had, are too many or too slow.

    Redirects lead only to http and https; certificates are checked. Any server that this machine
    reaches may be asked, those of its own network too.
    """
    end = time.monotonic() + MAX_SECONDS
    sockets: list[socket.socket] = []

    def cut() -> None:
        for connection in sockets:
            with suppress(OSError):  # its other end may have gone
                connection.shutdown(socket.SHUT_RDWR)

    # a byte now and then resets every other limit, and the headers come within one call
    timer = threading.Timer(MAX_SECONDS, cut)
    timer.daemon = True
    blocks, size = [], 0
    try:
        timer.start()
        with _opened(address, sockets, end) as response:
            while size <= MAX_BYTES and (block := response.read1(_BLOCK)):
                blocks.append(block)
                size += len(block)
            short = bool(response.length) and size <= MAX_BYTES
    except Exception as error:  # whatever a server makes of it
        if time.monotonic() < end:
            told = getattr(error, "reason", None) or error
            reason = reason_of(told) if isinstance(told, Exception) else printable(str(told))[:120]
            code = getattr(error, "code", None)
            raise InputError(f"cannot be fetched: {f'{code} ' if code else ''}{reason}") from None
    finally:
        timer.cancel()
        for connection in sockets:
            connection.close()
    if time.monotonic() >= end:
        raise InputError(f"the download took more than {MAX_SECONDS:g} seconds; download it yourself")
    if size > MAX_BYTES:
        raise InputError(f"has more than {MAX_BYTES:,} bytes; make it smaller")
    if short:
        raise InputError("cannot be fetched: the connection ended before the file did")
    return b"".join(blocks)


def _opened(address: str, sockets: list[socket.socket], end: float) -> Any:
    """Open an address, or that to which it leads, and note its ``sockets``.

    The opener knows http and https alone: no file:, no ftp:, where a redirect might lead. What
    comes with a redirect is not read.
    """
    from http import client
    from urllib import request
    from urllib.error import HTTPError
    from urllib.parse import urljoin

    class Http(client.HTTPConnection):
        def connect(self) -> None:
            super().connect()
            sockets.append(self.sock.dup())
            if time.monotonic() >= end:
                raise TimeoutError

    class Https(client.HTTPSConnection, Http):  # connects as Http does, then begins TLS
        pass

    class Handler(request.HTTPSHandler, request.HTTPHandler):
        def http_open(self, asked: request.Request) -> Any:
            return self.do_open(Http, asked)

        def https_open(self, asked: request.Request) -> Any:
            return self.do_open(Https, asked)

    opener = request.OpenerDirector()
    for handler in (
        request.ProxyHandler(), Handler(), request.HTTPDefaultErrorHandler(),
        request.HTTPErrorProcessor(), request.UnknownHandler(),
    ):  # fmt: skip
        opener.add_handler(handler)
    for _ in range(MAX_REDIRECTS + 1):
        try:
            return opener.open(address, timeout=15.0)  # seconds without a byte
        except HTTPError as error:
            error.close()
            to = error.headers.get("Location") if 300 <= error.code < 400 else None
            if to is None:
                raise
            address = urljoin(address, to)
    raise InputError(f"redirects more than {MAX_REDIRECTS} times; give the final URL")
