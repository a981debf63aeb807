"""Pictures at http and https addresses: fetched whole, in bounded size and time."""

import threading
from http.client import HTTPException
from typing import Any

from neocog.errors import InputError
from neocog.messages import printable

MAX_BYTES = 2**28
"""A file at an address may have so many bytes."""

MAX_SECONDS = 60.0
"""And may take so long to come."""

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
        raise InputError(f"did not come within {MAX_SECONDS:g} seconds; download it yourself")
    if isinstance(came[0], InputError):
        raise came[0]
    return came[0]


def _fetched(address: str) -> bytes | InputError:
    try:
        with _opener().open(address, timeout=_SILENCE) as response:
            blocks, size = [], 0
            while block := response.read(_BLOCK):
                blocks.append(block)
                size += len(block)
                if size > MAX_BYTES:
                    return InputError(f"has more than {MAX_BYTES:,} bytes; make it smaller")
        return b"".join(blocks)
    except (OSError, HTTPException, ValueError) as error:  # URLError is an OSError
        reason = printable(str(getattr(error, "reason", None) or error))[:120]
        code = getattr(error, "code", None)
        return InputError(f"cannot be fetched: {f'{code} ' if code else ''}{reason}")


def _opener() -> Any:
    """Opens http and https alone: no file:, no ftp:, where a redirect might lead."""
    from urllib import request

    opener = request.OpenerDirector()
    redirects: Any = request.HTTPRedirectHandler()
    redirects.max_redirections = MAX_REDIRECTS
    for handler in (
        request.ProxyHandler(), request.HTTPHandler(), request.HTTPSHandler(), redirects,
        request.HTTPDefaultErrorHandler(), request.HTTPErrorProcessor(), request.UnknownHandler(),
    ):  # fmt: skip
        opener.add_handler(handler)
    return opener
