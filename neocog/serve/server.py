"""The server: its socket, its addresses, its certificate, and how it ends."""

import hashlib
import ipaddress
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from neocog.errors import UsageError
from neocog.files import file_lock
from neocog.messages import tell

if TYPE_CHECKING:
    from neocog.reading.reader import Reader

CONNECTIONS = 256
"""Open connections; a browser has six."""

_YEAR = 86400 * 365  # seconds; telephones take certificates of 398 days at most


def check_installed() -> None:
    """UsageError if the packages of the extra ``web`` are not there."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise UsageError('neocog serve needs Starlette and Uvicorn: pip install "neocog[web]"') from None


def listen(host: str, port: int) -> socket.socket:
    """Open the socket that requests come to; UsageError if it cannot be had."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError, OverflowError):
        raise UsageError(
            f"--host {host} --port {port}: no such address; give 127.0.0.1, 0.0.0.0 (all), or "
            "one of this machine's"
        ) from None
    listener = socket.socket(family)
    try:
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(CONNECTIONS)
    except OSError as error:
        listener.close()
        why = (error.strerror or str(error)).lower()
        raise UsageError(
            f"port {port} of {host} cannot be used ({why}); choose another --port, 0 for a free one"
        ) from None
    return listener


def serve(
    reader: "Reader", listener: socket.socket, *, corrections: str | None = None, tls: bool = False
) -> None:
    """Serve until Ctrl-C (KeyboardInterrupt); NeocogError if nothing can be read any more."""
    import uvicorn

    from neocog.serve.app import Api, make_app
    from neocog.serve.corrections import Corrections
    from neocog.serve.guard import Connection
    from neocog.serve.work import Service

    kept = None if corrections is None else Corrections(corrections)
    bound, port = listener.getsockname()[:2]
    host = reachable(bound)
    open_to_others = not ipaddress.ip_address(bound).is_loopback
    token = secrets.token_urlsafe(9) if open_to_others else None
    certificate, key = make_certificate(host) if tls else (None, None)
    machine = socket.gethostname()
    lock = file_lock(None if kept is None else kept.labels, "--corrections")
    with lock, Service(reader) as service:
        api = Api(service, kept, {"model": reader.model.id, "finder": reader.finder.model.id})
        if reader.pattern is not None:
            api.signs += reader.pattern.form
        app = make_app(api, token=token, names=(machine, f"{machine}.local"))
        config = uvicorn.Config(
            app, http=Connection, ws="none", lifespan="off", log_config=None, log_level="critical",
            access_log=False, server_header=False, limit_concurrency=CONNECTIONS,
            timeout_graceful_shutdown=2, ssl_certfile=certificate, ssl_keyfile=key,
        )  # fmt: skip
        server = uvicorn.Server(config)
        service.on_failure = lambda: setattr(server, "should_exit", True)
        service.warm()
        shown = f"[{host}]" if ":" in host else host
        announce(f"{'https' if tls else 'http'}://{shown}:{port}/" + (f"{token}/" if token else ""))
        server.run(sockets=[listener])
        service.check()


def announce(address: str) -> None:
    """Say where the page is; a telephone can read the address from a terminal."""
    tell(f"open {address} (Ctrl-C ends it)")
    name = address.partition("://")[2]
    if not name.startswith(("127.", "[::1]")) and sys.stderr.isatty():
        print(qr_code(address), file=sys.stderr)


def qr_code(words: str) -> str:
    """A QR code of half blocks, light on dark."""
    import cv2
    import numpy as np

    light = np.asarray(cv2.QRCodeEncoder.create().encode(words)) > 127
    code = np.pad(light, ((1, 1 + len(light) % 2), (1, 1)), constant_values=True).astype(int)
    blocks = " ▄▀█"
    return "\n".join("".join(blocks[i] for i in row) for row in 2 * code[::2] + code[1::2])


def reachable(bound: str) -> str:
    """An address of this machine that leads to a socket bound to ``bound``."""
    if not ipaddress.ip_address(bound).is_unspecified:
        return bound
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(("192.0.2.1", 9))  # nothing is sent: it only chooses the way out
        return str(probe.getsockname()[0])
    return "127.0.0.1"


def make_certificate(address: str) -> tuple[str, str]:
    """Files of a certificate for ``address`` and of its key, made by openssl and kept for a year.

    They lie in ``neocog/tls`` below ``XDG_CACHE_HOME`` or ``~/.cache``, for this user alone, so
    that a browser that was told to trust them does not ask again. UsageError without openssl.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    folder = (Path(base) if base else Path.home() / ".cache") / "neocog" / "tls"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    stem = hashlib.sha256(address.encode()).hexdigest()[:16]
    certificate, key = folder / f"{stem}.pem", folder / f"{stem}.key"
    with suppress(OSError):
        if time.time() - certificate.stat().st_mtime < _YEAR and key.is_file():
            return str(certificate), str(key)
    openssl = shutil.which("openssl")
    if openssl is None:
        raise UsageError("--tls needs the program openssl to make a certificate; install openssl")
    with TemporaryDirectory(dir=folder) as place:
        made = Path(place) / "pem", Path(place) / "key"
        names = f"subjectAltName=DNS:localhost,IP:127.0.0.1,IP:{address}"
        done = subprocess.run(
            [
                openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt",
                "ec_paramgen_curve:prime256v1", "-noenc", "-days", "397", "-subj", "/CN=neocog",
                "-addext", names, "-addext", "extendedKeyUsage=serverAuth",
                "-out", str(made[0]), "-keyout", str(made[1]),
            ],
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["it failed"])[-1]
            raise UsageError(f"openssl made no certificate ({last}); leave --tls out")
        os.replace(made[1], key)
        os.replace(made[0], certificate)
    return str(certificate), str(key)
