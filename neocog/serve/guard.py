"""Who may ask, and what every answer carries.

A page of another site can have a browser send requests to this machine, and by DNS rebinding even
read the answers: its own name then leads here. So a request must name this server by an address or
by a name that is this machine's, and must not come from another origin.
"""

import asyncio
import ipaddress
from collections.abc import Iterable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import h11
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from neocog.jsontext import to_json
from neocog.messages import tell

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; media-src 'self' blob:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""Nothing from outside is loaded, and no script but our own is run."""

HEADER = 10.0
"""Seconds in which the header of a request must come."""

_HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",  # an address may hold the token
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


def failure(status: int, message: str, *, wait: int | None = None) -> Response:
    """An error as JSON, ``{"error": message}``; ask again after ``wait`` seconds."""
    headers = None if wait is None else {"Retry-After": str(wait)}
    return Response(to_json({"error": message}), status, headers, "application/json")


class Guard:
    """Lets requests for this server through to an application, and answers all others itself.

    ``names`` are those of this machine, besides ``localhost`` and all numeric addresses.
    """

    def __init__(self, app: ASGIApp, names: Iterable[str] = ()) -> None:
        self._app = app
        self._names = {"localhost", *(name.lower() for name in names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(raw=message["headers"]).update(_HEADERS)
            await send(message)

        trouble = self._trouble(Headers(scope=scope))
        if trouble is not None:
            await failure(403, trouble)(scope, receive, guarded)
            return
        try:
            await self._app(scope, receive, guarded)
        except Exception as error:  # it has been answered: the application raises it again
            tell(f"a request failed: {type(error).__name__}: {error}")

    def _trouble(self, headers: Headers) -> str | None:
        host, origin = headers.get("host", ""), headers.get("origin")
        try:
            name = urlsplit(f"//{host}").hostname or ""
            if name not in self._names:
                ipaddress.ip_address(name)
        except ValueError:
            return f"got host {host[:100]!r}, expected the URL that neocog printed; open that"
        with suppress(ValueError):
            if origin is None or urlsplit(origin).netloc == host:
                return None
        return "the request comes from another site; open the URL that neocog printed"


class Connection(H11Protocol):  # type: ignore[misc]
    """Is closed if the header of its next request does not come whole in time."""

    _end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Wait for the first header."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        super().connection_lost(exc)
        if self._end is not None:
            self._end.cancel()

    def _watch(self) -> None:
        waits = self.conn.their_state is h11.IDLE
        if waits and self._end is None:
            self._end = self.loop.call_later(HEADER, self.transport.abort)
        elif not waits and self._end is not None:
            self._end.cancel()
            self._end = None
