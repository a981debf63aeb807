"""The HTTP API and the page: what each address answers, how much is taken, and of whom.

A page of another site can have a browser send requests to this machine, and by DNS rebinding even
read the answers: its own name then leads here. So a request must name this server by an address or
by a name that is this machine's, and must not come from another origin.
"""

import asyncio
import ipaddress
import json
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.routing import Mount, Route, Router
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

import neocog
from neocog.errors import InputError
from neocog.reading.pictures import PICTURE_SUFFIXES
from neocog.serve.corrections import Corrections
from neocog.serve.work import Service
from neocog.text import reason_of, tell, to_json
from neocog.vision.finder import SIGNS
from neocog.vision.overlay import SURE_P

UPLOAD = 60.0  # seconds in which a picture must come
PATIENCE = 300.0  # seconds that an answer may take, waiting for others included

MAX_BYTES = 2**26  # of a picture; photographs of telephones have at most a third of it
MAX_HELD = 2**27  # bytes of all pictures at a time, half of them of one address; then the answer is 503
MAX_WAITING = 64  # requests at a time, half of them of one address; then the answer is 503
MAX_LINE = 10**6  # bytes of the JSON before a picture
MAX_FORM = 2**24  # bytes of a form of fields, with its blank sheets
MAX_PARTS = 8  # of an upload as a form (multipart), and
_MAX_HEAD = 4096  # bytes of the header of each
MAX_LINES = 400  # of writing on a corrected page

_DIGITS = "0123456789"
_STATIC = Path(__file__).parent / "static"
_LONGEST = 255  # letters of a name
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

Boxed = list[tuple[str, list[float] | None]]  # what stands where; it has no box if it was typed


@dataclass
class Api:
    """Answers requests; the text of corrections may have ``signs`` beside digits, spaces and line ends."""

    service: Service
    corrections: Corrections | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    signs: str = SIGNS
    _waiting: Counter[str] = field(default_factory=Counter)  # requests by address
    _held: Counter[str] = field(default_factory=Counter)  # bytes of their pictures
    _turns: dict[str, asyncio.Semaphore] = field(default_factory=dict)  # their share of the workers

    async def health(self, request: Request) -> Response:
        """Whether pictures can be read, for a load balancer or a container."""
        try:
            self.service.check()
        except Exception:
            return failure(503, "nothing can be read any more; the server's messages say why")
        return _json({"ok": True})

    async def describe(self, request: Request) -> Response:
        limits = {"workers": self._share, "max_bytes": MAX_BYTES, "sure_p": SURE_P, "signs": self.signs}
        more = {"suffixes": sorted(PICTURE_SUFFIXES), "corrections": self.corrections is not None}
        return _json({"neocog": neocog.__version__, **self.about, **limits, **more})

    async def answer(self, request: Request) -> Response:
        """Have a worker do with the body of a request what the end of its address says."""
        what, query = request.url.path.rpartition("/")[2], request.query_params
        flags = {"read": ("live", "table"), "sheets": ("pictures",)}.get(what, ())
        asked: dict[str, Any] = {flag: query.get(flag, "0") not in ("0", "") for flag in flags}
        if what == "page":
            number = query.get("page", "0")
            if not (number.isascii() and number.isdigit() and len(number) < 6):
                raise HTTPException(400, f"page={number[:20]!r}: expected a number from 0")
            asked["page"] = int(number)
        async with self._taken(request) as body:
            if what == "weigh" and len(body) > MAX_FORM:
                raise HTTPException(413, f"got {len(body):,} bytes of JSON, expected at most {MAX_FORM:,}")
            if what == "sheets" and not 0 <= body.find(b"\n") <= MAX_FORM:  # a form, then the picture
                wanted = f"expected a form as a line of at most {MAX_FORM:,} bytes, then a picture"
                raise HTTPException(400, wanted)
            if what == "explain":  # a record, then the picture
                _, digits, _, marks, body = await asyncio.to_thread(_record, body)
                if len(boxes := [box for _, box in digits if box]) != 1:
                    raise HTTPException(400, f"got {len(boxes)} digits with a box, expected one")
                asked["marks"] = marks | {"boxes": boxes}
            body = body[: MAX_FORM + 1] if what == "form" else body
            found = await self._ask(request, body, what=what, **asked)
        if (kind := {"page": "image/jpeg", "explain": "image/png"}.get(what)) is not None:
            return Response(found, media_type=kind)
        return _json({"ok": True} if what == "form" else found)

    async def correct(self, request: Request) -> Response:
        """Keep a corrected page, or cells of one: a line with its record, then the picture."""
        if self.corrections is None:
            raise HTTPException(409, "corrections are not kept; start with --corrections FOLDER")
        async with self._taken(request) as body:
            text, digits, lines, marks, picture = await asyncio.to_thread(_record, body)
            kind = "cells" if marks.pop("cells") else "lines"
            chars = [char for char, _ in digits]
            if not set(chars) <= set(_DIGITS) or "?" in text:
                raise HTTPException(400, "expected digits 0 to 9; correct each ? or take it out")
            if not set(text) <= set(f"{_DIGITS} \n{self.signs}"):
                raise HTTPException(400, f"expected a text of digits, spaces and {self.signs}")
            if [char for char in text if char in _DIGITS] != chars:
                raise HTTPException(400, "expected the same digits in the text as in digits")
            # lines of another text are not kept: the answer counts those that are
            said = "".join(line for line, _ in lines)
            same = len(lines) <= MAX_LINES and "".join(said.split()) == "".join(text.split())
            lines, digits = [own for own in lines if own[1] and same], [own for own in digits if own[1]]
            marks |= {"boxes": [box for _, box in digits], kind: [box for _, box in lines]}
            png, images, strips = await self._ask(request, picture, what="cut", marks=marks)
            pieces = [(said, strip) for (said, _), strip in zip(lines, strips, strict=True)]
            chars = [char for char, _ in digits]
            try:
                kept = picture, marks["page"], png, text, images, chars, pieces
                count = await asyncio.to_thread(self.corrections.save, *kept)
            except InputError as error:
                why = str(error).replace(f"{self.corrections.folder}{os.sep}", "")
                raise HTTPException(409, f"nothing is saved: {why}") from None
            except OSError as error:
                raise HTTPException(507, f"nothing is saved: {reason_of(error).lower()}") from None
        return _json({"pages": count, "lines": len(lines)})

    @asynccontextmanager
    async def _taken(self, request: Request) -> AsyncIterator[bytes]:
        """Take the body of a request, as far as there is room for it, and hold it in the block.

        Room is kept from the start for what was stated, so that none is turned away on the way.
        What is refused is read to its end all the same: who is cut off hears no answer.
        """
        headers, client = request.headers, _client(request)
        unsized, body = "transfer-encoding" in headers, bytearray()
        room = MAX_BYTES if unsized else int(headers.get("content-length", 0))
        size, held = 0 if unsized else room, max(self._held.total(), 2 * self._held[client] + room) + room
        busy = held > MAX_HELD or max(self._waiting.total(), 2 * self._waiting[client]) >= MAX_WAITING
        room, came = 0 if busy else room, 0
        self._waiting[client] += 1
        self._held[client] += room
        try:
            async with asyncio.timeout(UPLOAD):
                async for chunk in request.stream():
                    came += len(chunk)
                    body += b"" if busy else chunk
                    busy |= came > MAX_BYTES
            self._held[client] += len(body) - room  # as much as came, not as much as might have come
            room = len(body)
            if (size := max(size, came)) > MAX_BYTES:
                most = f"expected at most {MAX_BYTES:,}; make the picture smaller"
                raise HTTPException(413, f"got {size:,} bytes, {most}")
            if busy:
                raise HTTPException(503, "busy; ask again in a second")
            if not body:
                raise HTTPException(400, "nothing came; send a picture as the body of the request")
            picture = bytes(body)
            body.clear()
            if (kind := headers.get("content-type", "")).lower().startswith("multipart/"):
                request.state.name, picture = await asyncio.to_thread(_of_form, picture, kind)
            yield picture
        except TimeoutError:
            raise HTTPException(408, f"the picture took longer than {UPLOAD:.0f} s") from None
        except ClientDisconnect:
            raise HTTPException(400, "the connection was closed") from None
        finally:
            self._held[client] -= room
            self._waiting[client] -= 1
            if not self._waiting[client]:
                for known in (self._waiting, self._held, self._turns):
                    known.pop(client, None)

    @property
    def _share(self) -> int:
        """Workers that one address may have at a time: all but one."""
        return max(1, self.service.workers - 1)

    async def _ask(self, request: Request, picture: bytes, **asked: Any) -> Any:
        """Have something done with a picture, until it takes too long or the client leaves."""
        name = request.query_params.get("name") or getattr(request.state, "name", "") or "picture"
        turn = self._turns.setdefault(_client(request), asyncio.Semaphore(self._share))
        left = asyncio.create_task(_left(request))
        try:
            async with asyncio.timeout(PATIENCE), turn:
                future = asyncio.wrap_future(self.service.ask(name[:_LONGEST], picture, **asked))
                try:
                    await asyncio.wait((future, left), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    future.cancel()
        except TimeoutError:
            raise HTTPException(504, f"it takes longer than {PATIENCE:.0f} s to read") from None
        finally:
            left.cancel()
        if future.cancelled():
            raise ClientDisconnect
        return future.result()


def make_app(api: Api, *, token: str | None = None, names: tuple[str, ...] = ()) -> ASGIApp:
    """Return the application; addresses begin with the ``token``; ``names`` are this machine's."""
    health = Route("/health", api.health)  # needs no token, and says nothing else
    files = {"/": "index.html", "/forms": "forms.html", "/docs": "docs.html", "/openapi.json": "openapi.json"}
    asked = "read sheets weigh form page thumbnails explain".split()
    routes: list[Route | Mount] = [
        health,
        *(Route(path, lambda request, at=_STATIC / name: FileResponse(at)) for path, name in files.items()),
        Route("/api", api.describe),
        *(Route(f"/api/{name}", api.answer, methods=["POST"]) for name in asked),
        Route("/api/corrections", api.correct, methods=["POST"]),
        Mount("/static", StaticFiles(directory=_STATIC)),
    ]
    if token is not None:
        there = Route(f"/{token}", lambda request: RedirectResponse(f"{token}/"))
        # a redirection to another path would not know what path a proxy has taken away
        routes = [health, there, Mount(f"/{token}", Router(routes[1:], redirect_slashes=False))]
    handlers = {HTTPException: _error, InputError: _error, Exception: _error}
    application = Starlette(routes=routes, exception_handlers=handlers)
    application.router.redirect_slashes = False
    return Guard(application, names)


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
        async def guarded(message: Any) -> None:
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


async def _error(request: Request, error: Exception) -> Response:
    if isinstance(error, InputError):
        return failure(422, str(error))
    if not isinstance(error, HTTPException):
        return failure(500, "the server failed; its messages say why")
    method = "POST" if "POST" in (error.headers or {}).get("Allow", "") else "GET"
    words = {404: "nothing is here; open the URL that neocog printed", 405: f"use {method}"}
    return failure(error.status_code, words.get(error.status_code, error.detail))


def _client(request: Request) -> str:
    return request.client.host if request.client else ""


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _json(value: Any) -> Response:
    return Response(to_json(value, separators=(",", ":")), media_type="application/json")


def _of_form(body: bytes, kind: str) -> tuple[str, bytes]:
    """Name and bytes of the one file of a form (RFC 7578); its other fields stand before it, as a line."""
    head = Message()
    head["content-type"] = kind
    boundary = (head.get_boundary() or "").encode(errors="replace")
    parts = (b"\r\n" + body).split(b"\r\n--" + boundary, MAX_PARTS + 2) if boundary else []
    if not 3 <= len(parts) <= MAX_PARTS + 2 or parts[-1][:2] != b"--":
        raise HTTPException(400, f"broken form, expected at most {MAX_PARTS} parts; use curl -F file=@FILE")
    fields, files = list[bytes](), list[tuple[str, bytes]]()
    for part in parts[1:-1]:
        words, end, content = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        if not end or len(words) > _MAX_HEAD:
            raise HTTPException(400, "got a broken form: a part has no header, or a long one")
        told = HeaderParser().parsestr(words.decode(errors="replace"))
        name = told.get_filename()
        if name is None or told.get_param("name", header="content-disposition") in ("form", "record"):
            fields.append(b" ".join(content.splitlines()))  # no line ends stand within JSON's strings
        else:
            files.append((name, content))
    if len(files) != 1:
        raise HTTPException(400, f"got {len(files)} files, expected one; send a request for each")
    (name, content), line = files[0], b" ".join(fields)
    return name, line + b"\n" + content if fields else content


def _record(body: bytes) -> tuple[str, Boxed, Boxed, dict[str, Any], bytes]:
    """Text, digits, lines, page and turn of the record in the first line, and the picture after it."""
    line, _, picture = body.partition(b"\n")
    if len(line) > MAX_LINE:
        raise HTTPException(413, f"got {len(line):,} bytes of JSON, expected at most {MAX_LINE:,}")
    try:
        record = json.loads(line)
        cells = bool(record.get("cells"))  # of a form: there is more on the page than the text says
        digits = [(str(own["char"]), _numbers(own["box"])) for own in record["digits"]]
        key = "corners" if cells else "box"
        lines = [(str(own["text"]), _numbers(own[key])) for own in record.get("lines") or []]
        text, page, turn = str(record["text"]), int(record["page"]), int(record.get("turn", 0))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError, AttributeError):
        words = "expected a line of JSON with text, page and digits, then the picture"
        raise HTTPException(400, words) from None
    sound = all(len(char) == 1 for char, _ in digits)
    for (_, box), many in [*((own, 4) for own in digits), *((own, 8 if cells else 4) for own in lines)]:
        if box is not None:
            sound &= len(box) == many and all(abs(v) < 1e6 for v in box) and (many == 8 or min(box[2:]) >= 1)
    if not (sound and 0 <= page < 10**5 and turn in (0, 90, 180, 270) and len(text) < 10**5):
        wanted = "expected boxes [x, y, width, height], of cells four corners, a page from 0 and a turn"
        raise HTTPException(400, wanted)
    return text, digits, lines, {"page": page, "turn": turn, "cells": cells}, picture


def _numbers(value: Any) -> list[float] | None:
    """A box, or corners one after the other."""
    return None if value is None else np.ravel(value).astype(float).tolist()
