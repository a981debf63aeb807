"""The server: its socket, how many may connect, its certificate, and how it ends."""

import asyncio
import ipaddress
import re
import secrets
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from neocog.batch.run import usual_workers
from neocog.errors import UsageError
from neocog.files import file_lock
from neocog.reading.reader import Reader
from neocog.serve.app import Api, make_app, tell_rarely
from neocog.serve.corrections import Corrections
from neocog.serve.work import Service
from neocog.text import reason_of, tell

CONNECTIONS = 256  # open ones, half of them of one address; at most a quarter of the files that may be open
HEADER = 10.0  # seconds in which the header of a request must come
_BACKLOG = 64  # connections that wait to be accepted; asyncio takes as many in a row


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


def listen(host: str, port: int) -> Listener:
    """Open the socket that requests come to; UsageError if it cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        if not host:
            raise OSError("no address")
        return Listener(socket.create_server((host, port), family=family, backlog=_BACKLOG))
    except (OSError, UnicodeError, OverflowError) as error:
        why = f"port {port} of {host} cannot be used ({reason_of(error).lower().partition(' (')[0]})"
        hosts = "127.0.0.1, 0.0.0.0 (all) or an address of this machine"
        raise UsageError(f"{why}; give --host {hosts}, or another --port (0: a free one)") from None


@dataclass(frozen=True)
class Access:
    """Who may ask: names of this server besides the machine's own, a fixed token, proxies that are believed.

    Proxies are addresses or networks. UsageError for what is none of these.
    """

    names: tuple[str, ...] = ()
    token: str | None = None
    proxies: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.names:
            if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?", name):
                raise UsageError(f"--allow-host {name!r}: expected a name as a.example.org, no port")
        if self.token not in (None, "none") and not re.fullmatch(r"[\w-]{8,128}", self.token or "", re.ASCII):
            raise UsageError("--token: expected 8 to 128 letters, digits, - or _, or none")
        for proxy in self.proxies:
            try:
                ipaddress.ip_network(proxy)
            except ValueError:
                wanted = "expected an address or a network, as 127.0.0.1 or 172.16.0.0/12"
                raise UsageError(f"--trust-proxy {proxy!r}: {wanted}") from None

    @property
    def uvicorn(self) -> dict[str, Any]:
        """What uvicorn is told: it believes one at 127.0.0.1 unless told not to."""
        return {"proxy_headers": bool(self.proxies), "forwarded_allow_ips": list(self.proxies)}

    def token_at(self, address: str) -> str | None:
        """The token; a new one if none is given and others than this machine may come to an address."""
        if self.token is not None:
            return None if self.token == "none" else self.token
        local = ipaddress.ip_address(address).is_loopback and not (self.names or self.proxies)
        return None if local else secrets.token_urlsafe(9)


def serve(
    reader: Reader, listener: Listener, access: Access, *,
    corrections: str | None, certificate: str | None, key: str | None,
) -> None:  # fmt: skip
    """Serve until Ctrl-C (KeyboardInterrupt); NeocogError if nothing can be read any more."""
    kept = None if corrections is None else Corrections(corrections)
    bound, port = listener.getsockname()[:2]
    host, machine = reachable(bound), socket.gethostname()
    token, listener.proxies = access.token_at(bound), [*map(ipaddress.ip_network, access.proxies)]
    workers = usual_workers(reader.engine.device)
    workers += workers > 0  # one is for others, whatever one client asks for
    with file_lock(corrections, "--corrections"), Service(reader, workers=workers) as service:
        if kept is not None:
            kept.mend()
        api = Api(service, kept, {"model": reader.model.id, "finder": reader.finder.model.id})
        if reader.pattern is not None:
            form = reader.pattern.form
            api.signs += form if "#" in form else "".join(set(form) - set("DMY"))
        config = uvicorn.Config(
            make_app(api, token=token, names=(machine, f"{machine}.local", *access.names)), http=Connection,
            ws="none", lifespan="off", log_config=None, log_level="critical", access_log=False,
            server_header=False, backlog=_BACKLOG, timeout_graceful_shutdown=2, ssl_certfile=certificate,
            ssl_keyfile=key, ssl_keyfile_password="-", **access.uvicorn,
        )  # fmt: skip
        try:
            config.load()
        except (OSError, ValueError) as error:
            wanted = "expected a certificate and its key (PEM, no password)"
            raise UsageError(f"--certificate {certificate}: {reason_of(error)}; {wanted}") from None
        server = uvicorn.Server(config)
        service.on_failure = lambda: setattr(server, "should_exit", True)
        service.warm()
        shown = f"[{host}]" if ":" in host else host
        scheme, path = "http" if certificate is None else "https", "" if token is None else f"{token}/"
        tell(f"open {scheme}://{shown}:{port}/{path} (Ctrl-C ends it)")
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            runner.get_loop().set_exception_handler(tell_error)
            runner.run(server.serve(sockets=[listener]))
        service.check()


def reachable(bound: str) -> str:
    """An address of this machine that leads to a socket bound to ``bound``."""
    if not ipaddress.ip_address(bound).is_unspecified:
        return bound
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(("192.0.2.1", 9))  # nothing is sent: it only chooses the way out
        return str(probe.getsockname()[0])
    return "127.0.0.1"
