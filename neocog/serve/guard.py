"""Who may connect and ask, for how long, and what every answer carries.

A page of another site can have a browser send requests to this machine, and by DNS rebinding even
read the answers: its own name then leads here. So a request must name this server by an address or
by a name that is this machine's, and must not come from another origin.
"""

import asyncio
import ipaddress
import socket
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from neocog.text import tell, to_json

CONNECTIONS = 256  # open ones, half of them of one address; at most a quarter of the files that may be open
HEADER = 10.0  # seconds in which the header of a request must come
UPLOAD = 60.0  # seconds in which a picture must come
PATIENCE = 300.0  # seconds that an answer may take, waiting for others included

_HEADERS = {
    # nothing from outside is loaded, and no script but our own is run
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' blob: data:; connect-src 'self'; media-src 'self' blob:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",  # an address may hold the token
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
_told: dict[str, float] = {}  # when a kind of message was printed


def failure(status: int, message: str) -> Response:
    """An error as JSON, ``{"error": message}``; a busy server may be asked again after a second."""
    headers = {"Retry-After": "1"} if status == 503 else None
    return Response(to_json({"error": message}), status, headers, "application/json")


def tell_rarely(kind: str, message: str) -> None:
    """Print a message that strangers can cause, unless one of its kind was printed in the last minute."""
    if time.monotonic() - _told.get(kind, -60.0) >= 60.0:
        _told[kind] = time.monotonic()
        tell(message)


class Guard:
    """Refuses requests for hosts but ``names``, localhost and numeric addresses, or from other origins."""

    def __init__(self, app: ASGIApp, names: Iterable[str] = ()) -> None:
        self._app = app
        self._names = {"localhost", *(name.lower() for name in names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(raw=message["headers"]).update(_HEADERS)
            await send(message)

        headers, trouble = Headers(scope=scope), None
        host, origin = headers.get("host", ""), headers.get("origin")
        try:
            name = urlsplit(f"//{host}").hostname or ""
            if name not in self._names:
                ipaddress.ip_address(name)
            if origin is not None and origin.lower().rpartition("://")[2] != host.lower():
                trouble = "the request comes from another site; open the URL that neocog printed"
        except ValueError:
            trouble = f"got host {host[:100]!r}, expected the URL that neocog printed or --allow-host"
        if trouble is not None:
            await failure(403, trouble)(scope, receive, guarded)
            return
        try:
            await self._app(scope, receive, guarded)
        except Exception as error:  # it has been answered: the application raises it again
            kind = type(error).__name__
            tell_rarely(kind, f"a request failed: {kind}: {error}")


class Connection(H11Protocol):  # type: ignore[misc]
    """Is closed if the header of a request does not come in time."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.loop.call_later(HEADER, self._close_after, None)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and self.cycle.response_complete:  # another header has begun
            self.loop.call_later(HEADER, self._close_after, self.cycle)

    def _close_after(self, cycle: Any) -> None:
        if self.cycle is cycle:
            self.transport.close()


class Listener(socket.socket):
    """Takes over a listening socket, and closes connections beyond `CONNECTIONS` as they come."""

    def __init__(self, bound: socket.socket) -> None:
        super().__init__(fileno=bound.detach())
        self.most = CONNECTIONS
        self.proxies: Sequence[Any] = ()  # networks whose addresses may have all
        self._open: list[tuple[socket.socket, str]] = []  # with the client's address
        with suppress(ImportError):  # Windows has no such limit
            import resource

            files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            if files != resource.RLIM_INFINITY:
                self.most = max(8, min(CONNECTIONS, files // 4))

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection; BlockingIOError, "none came" to asyncio, where it is refused."""
        connection, address = super().accept()
        self._open = [(one, client) for one, client in self._open if one.fileno() >= 0]
        own = sum(client == address[0] for _, client in self._open)
        at = ipaddress.ip_address(address[0])
        if len(self._open) < self.most and (own < self.most // 2 or any(at in one for one in self.proxies)):
            self._open.append((connection, address[0]))
            return connection, address
        connection.close()
        many = f"{len(self._open)} connections are open, {own} of them of {address[0]}"
        tell_rarely("refused", f"{many}; more are closed at once")
        raise BlockingIOError


def tell_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Tell of an error of a connection in one line; a handler of asyncio's loop."""
    tell_rarely(context["message"], f"{context['message']}: {context.get('exception')!r}")
