"""Pictures at http and https addresses: fetched whole, in bounded size and time."""

import threading
import time
from typing import Any

from neocog.batch.sources import MAX_BYTES
from neocog.errors import InputError
from neocog.messages import printable

MAX_SECONDS = 60.0
"""A file at an address may take so long to come."""

MAX_REDIRECTS = 5

_SILENCE = 15.0  # seconds without a byte
_BLOCK = 2**16


def is_address(word: str) -> bool:
    """Whether a word is an address to fetch from."""
    return word.lower().startswith(("http://", "https://"))


def fetch(address: str) -> bytes:
    """Return the bytes at an address.

    Redirects lead only to http and https; certificates are checked. Any server that this machine
    reaches may be asked, those of its own network too.

    Raises
    ------
    InputError
        If they cannot be had, are too many or come too slowly.
    """
    # a header that comes byte by byte resets every other limit: the whole has one in a thread
    came: list[bytes | InputError] = []
    thread = threading.Thread(target=lambda: came.append(_fetched(address)), daemon=True)
    thread.start()
    thread.join(MAX_SECONDS)
    if not came:
        raise InputError(f"the download took more than {MAX_SECONDS:g} seconds; download it yourself")
    if isinstance(came[0], InputError):
        raise came[0]
    return came[0]


def _fetched(address: str) -> bytes | InputError:
    end = time.monotonic() + MAX_SECONDS
    try:
        with _opened(address) as response:
            blocks, size = [], 0
            while block := response.read1(_BLOCK):
                blocks.append(block)
                size += len(block)
                if size > MAX_BYTES:
                    return InputError(f"has more than {MAX_BYTES:,} bytes; make it smaller")
                if time.monotonic() > end:
                    return InputError(
                        f"the download took more than {MAX_SECONDS:g} seconds; download it yourself"
                    )
        return b"".join(blocks)
    except Exception as error:  # whatever a server makes of it
        reason = printable(str(getattr(error, "reason", None) or error))[:120]
        code = getattr(error, "code", None)
        return InputError(f"cannot be fetched: {f'{code} ' if code else ''}{reason}")


def _opened(address: str) -> Any:
    """Open an address, or that to which it leads; what comes with a redirect is not read."""
    from urllib.error import HTTPError
    from urllib.parse import urljoin

    opener = _opener()
    for _ in range(MAX_REDIRECTS + 1):
        try:
            return opener.open(address, timeout=_SILENCE)
        except HTTPError as error:
            error.close()
            to = error.headers.get("Location") if 300 <= error.code < 400 else None
            if to is None:
                raise
            address = urljoin(address, to)
    raise InputError(f"redirects more than {MAX_REDIRECTS} times; give the final URL")


def _opener() -> Any:
    """Opens http and https alone: no file:, no ftp:, where a redirect might lead."""
    from urllib import request

    opener = request.OpenerDirector()
    for handler in (
        request.ProxyHandler(), request.HTTPHandler(), request.HTTPSHandler(),
        request.HTTPDefaultErrorHandler(), request.HTTPErrorProcessor(), request.UnknownHandler(),
    ):  # fmt: skip
        opener.add_handler(handler)
    return opener
