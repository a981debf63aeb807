"""``neocog serve``: a page in the browser."""

from typing import Annotated

from neocog.cli import options
from neocog.cli.options import option
from neocog.errors import UsageError


def serve(
    host: Annotated[str, option("ADDRESS",
        "Address to listen on; 0.0.0.0 lets phones of the same network in.")] = "127.0.0.1",
    port: Annotated[int, option("N", "Port; 0 is any free one.", min=0, max=65535)] = 8000,
    certificate: Annotated[str | None, option("FILE",
        "Use https with this certificate (PEM); phones need it for live video.")] = None,
    key: Annotated[str | None, option("FILE", "Its private key, if it is in another file.")] = None,
    corrections: Annotated[str | None, option("FOLDER",
        "Keep corrected pages there, for neocog eval and neocog train.")] = None,
    allow_host: Annotated[list[str] | None, option("NAME",
        "Another name of this server, as that of a proxy before it. Repeatable.")] = None,
    token: Annotated[str | None, option("TOKEN", "What all addresses begin with, instead of a new token at "
        "each start; none: nothing.", envvar="NEOCOG_TOKEN", show_envvar=True)] = None,
    trust_proxy: Annotated[list[str] | None, option("ADDRESS",
        "Believe what a proxy at this address or network says of its clients. Repeatable.")] = None,
    model: options.PageModel = None,
    device: options.Device = "auto",
    min_p: options.MinP = None,
    max_error: options.MaxError = None,
    pattern: options.Pattern = None,
    valid: options.Valid = None,
    finder: options.Finder = None,
) -> None:  # fmt: skip
    """Read pictures in the browser: drop them, photograph them, correct what was read.

    Nothing leaves this machine. The server accepts only local connections unless --host is given.
    The API is described at /docs.
    """
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise UsageError('neocog serve needs Starlette and Uvicorn: pip install "neocog[web]"') from None
    from neocog.reading.policy import parse_share
    from neocog.reading.reader import Reader
    from neocog.serve import server

    if key is not None and certificate is None:
        raise UsageError("--key needs --certificate")
    share = None if max_error is None else parse_share(max_error)
    access = server.Access(tuple(allow_host or ()), token, tuple(trust_proxy or ()))
    with server.listen(host, port) as listener:
        opened = Reader(model, device=device, min_p=min_p, pattern=pattern, valid=valid, finder=finder,
                        max_error=share)  # fmt: skip
        server.serve(opened, listener, access, corrections=corrections, certificate=certificate, key=key)
