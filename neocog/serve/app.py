"""The HTTP API and the page: what each address answers, and how much is taken."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

import neocog
from neocog.batch.sources import PICTURE_SUFFIXES
from neocog.errors import InputError
from neocog.jsontext import to_json
from neocog.messages import tell
from neocog.serve.corrections import Corrections
from neocog.serve.guard import Guard, failure
from neocog.serve.work import Service
from neocog.vision.finder import SIGNS
from neocog.vision.overlay import SURE_P

MAX_BYTES = 2**26
"""Bytes of a picture; photographs of telephones have at most a third of it."""

MAX_HELD = 2**27
"""Bytes of all pictures that are held at a time; whoever comes then is asked to come again."""

MAX_WAITING = 32
"""Requests that are answered at a time."""

UPLOAD = 60.0
"""Seconds that sending a picture may take."""

PATIENCE = 300.0
"""Seconds that an answer may take: a worker that hangs is ended long before."""

_STATIC = Path(__file__).parent / "static"
_LONGEST = 255  # letters of a name


@dataclass
class Api:
    """Answers requests for one service; ``corrections`` is where corrected pages are kept.

    Their text may have ``signs`` beside digits, spaces and line ends.
    """

    service: Service
    corrections: Corrections | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    signs: str = SIGNS
    _waiting: int = 0
    _held: int = 0

    def routes(self) -> list[BaseRoute]:
        """What is answered, by address."""
        return [
            Route("/", lambda request: FileResponse(_STATIC / "index.html")),
            Route("/docs", lambda request: FileResponse(_STATIC / "docs.html")),
            Route("/api", self.describe),
            Route("/api/read", self.read, methods=["POST"]),
            Route("/api/page", self.page, methods=["POST"]),
            Route("/api/explain", self.explain, methods=["POST"]),
            Route("/api/corrections", self.correct, methods=["POST"]),
            Mount("/static", StaticFiles(directory=_STATIC)),
        ]

    async def describe(self, request: Request) -> Response:
        """What reads here, and the limits."""
        return _json(
            {
                "neocog": neocog.__version__,
                **self.about,
                "workers": max(1, self.service.workers),
                "max_bytes": MAX_BYTES,
                "sure_p": SURE_P,
                "suffixes": sorted(PICTURE_SUFFIXES),
                "corrections": self.corrections is not None,
            }
        )

    async def read(self, request: Request) -> Response:
        """The records of a picture's pages; one that cannot be read has a record with its error."""
        async with self._taken(request) as picture:
            live = request.query_params.get("live", "0") not in ("0", "")
            return _json(await self._ask(request, picture, what="read", live=live))

    async def page(self, request: Request) -> Response:
        """A page of a file that the browser cannot show."""
        number = _number(request, "page")
        async with self._taken(request) as picture:
            jpeg = await self._ask(request, picture, what="page", page=number)
        return Response(jpeg, media_type="image/jpeg")

    async def explain(self, request: Request) -> Response:
        """Why a digit was read so, as a picture: a line with its record, then the picture."""
        async with self._taken(request) as picture:
            line, _, picture = picture.partition(b"\n")
            _, chars, marks = _checked(line)
            if len(chars) != 1:
                raise HTTPException(400, f"got {len(chars)} digits, expected one")
            png = await self._ask(request, picture, what="explain", marks=marks)
        return Response(png, media_type="image/png")

    async def correct(self, request: Request) -> Response:
        """Keep a corrected page: a line with its record, then the picture."""
        if self.corrections is None:
            raise HTTPException(409, "corrections are not kept; start with --corrections FOLDER")
        async with self._taken(request) as picture:
            line, _, picture = picture.partition(b"\n")
            text, chars, marks = _checked(line)
            if not set(chars) <= set("0123456789") or "?" in text:
                raise HTTPException(400, "expected digits 0 to 9; correct each ? or take it out")
            if not set(text) <= set(f"0123456789 \n{self.signs}"):
                raise HTTPException(400, f"expected a text of digits, spaces and {self.signs}")
            if [char for char in text if char in "0123456789"] != chars:
                raise HTTPException(400, "expected the same digits in the text as in digits")
            png, digits = await self._ask(request, picture, what="cut", marks=marks)
            try:
                count = await asyncio.to_thread(
                    self.corrections.save, picture, marks["page"], png, text, digits, chars
                )
            except (OSError, InputError) as error:
                tell(f"a correction cannot be saved: {error}")
                why = "it cannot be saved; the server's messages say why"
                raise HTTPException(507, why) from None
        return _json({"pages": count})

    @asynccontextmanager
    async def _taken(self, request: Request) -> AsyncIterator[bytes]:
        """Take the body of a request, as far as there is room for it, and hold it in the block.

        Room is kept from the start for what was stated, so that none is turned away on the way.
        What is refused is read to its end all the same: who is cut off hears no answer.
        """
        room, size, body = _stated(request), 0, bytearray()
        if (refused := self._refusal(room)) is not None:
            room = 0
        self._waiting += 1
        self._held += room
        try:
            async with asyncio.timeout(UPLOAD):
                async for chunk in request.stream():
                    size += len(chunk)
                    if size > MAX_BYTES:
                        refused = refused or _too_large(size)
                    if refused is None:
                        body += chunk
                    else:
                        body.clear()
            self._held += len(body) - room  # as much as came, not as much as might have come
            room = len(body)
            if refused is not None:
                raise refused
            if not body:
                raise HTTPException(400, "nothing came; send a picture as the body of the request")
            picture = bytes(body)
            body.clear()
            yield picture
        except TimeoutError:
            raise HTTPException(408, f"the picture took longer than {UPLOAD:.0f} s") from None
        except ClientDisconnect:
            raise HTTPException(400, "the connection was closed") from None
        finally:
            self._waiting -= 1
            self._held -= room

    def _refusal(self, size: int) -> HTTPException | None:
        """Why a body of ``size`` bytes is not taken, if so."""
        if size > MAX_BYTES:
            return _too_large(size)
        if self._waiting >= MAX_WAITING or self._held + size > MAX_HELD:
            return HTTPException(503, "busy; ask again in a second")
        return None

    async def _ask(self, request: Request, picture: bytes, **asked: Any) -> Any:
        if request.headers.get("content-type", "").startswith("multipart/"):
            raise HTTPException(415, "got a form, expected the picture itself: curl --data-binary @FILE")
        name = request.query_params.get("name", "")[:_LONGEST] or "picture"
        future = asyncio.wrap_future(self.service.ask(name, picture, **asked))
        try:
            return await asyncio.wait_for(future, PATIENCE)
        except TimeoutError:
            raise HTTPException(504, f"it takes longer than {PATIENCE:.0f} s to read") from None


def make_app(api: Api, *, token: str | None = None, names: tuple[str, ...] = ()) -> ASGIApp:
    """Return the application; with a ``token`` all addresses begin with it.

    ``names`` are those of this machine: see `neocog.serve.guard.Guard`.
    """
    routes = api.routes()
    if token is not None:
        routes = [
            Route(f"/{token}", lambda request: RedirectResponse(f"/{token}/")),
            Mount(f"/{token}", routes=routes),
        ]
    handlers = {HTTPException: _error, InputError: _error, Exception: _error}
    return Guard(Starlette(routes=routes, exception_handlers=handlers), names)


async def _error(request: Request, error: Exception) -> Response:
    if isinstance(error, InputError):
        return failure(422, str(error))
    if not isinstance(error, HTTPException):
        return failure(500, "the server failed; its messages say why")
    allowed = (error.headers or {}).get("Allow", "GET")
    words = {
        404: "nothing is here; open the URL that neocog printed",
        405: f"use {'POST' if 'POST' in allowed else 'GET'}",
    }
    wait = 1 if error.status_code == 503 else None
    return failure(error.status_code, words.get(error.status_code, error.detail), wait=wait)


def _stated(request: Request) -> int:
    """How many bytes will come; the most that may if that is not said."""
    if "transfer-encoding" in request.headers:
        return MAX_BYTES
    stated = request.headers.get("content-length", "0")
    return int(stated[:20]) if stated.isdecimal() else 0


def _too_large(size: int) -> HTTPException:
    most = f"expected at most {MAX_BYTES:,}; make the picture smaller"
    return HTTPException(413, f"got {size:,} bytes, {most}")


def _json(value: Any) -> Response:
    return Response(to_json(value, separators=(",", ":")), media_type="application/json")


def _number(request: Request, name: str) -> int:
    words = request.query_params.get(name, "0")
    if not (words.isascii() and words.isdigit() and len(words) < 6):
        raise HTTPException(400, f"{name}={words[:20]!r}: expected a number from 0")
    return int(words)


def _checked(line: bytes) -> tuple[str, list[str], dict[str, Any]]:
    """Text, digits and places of a record; HTTPException if it is none."""
    try:
        record = json.loads(line)
        chars = [digit["char"] for digit in record["digits"]]
        boxes = [[float(side) for side in digit["box"]] for digit in record["digits"]]
        text, page, turn = str(record["text"]), int(record["page"]), int(record.get("turn", 0))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        raise HTTPException(
            400, "expected a line of JSON with text, page and digits, then the picture"
        ) from None
    sound = all(isinstance(char, str) and len(char) == 1 for char in chars)
    sound &= all(len(b) == 4 and all(abs(v) < 1e6 for v in b) and min(b[2:]) >= 1 for b in boxes)
    if not (sound and 0 <= page < 10**5 and turn in (0, 90, 180, 270) and len(text) < 10**5):
        raise HTTPException(400, "expected boxes [x, y, width, height], a page from 0 and a turn")
    return text, chars, {"page": page, "turn": turn, "boxes": boxes}
