"""Pictures of many requests, read by one pool of worker processes, which have limits."""

import base64
import io
import json
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from itertools import count, islice
from typing import Any, cast

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from neocog.batch.archives import Item
from neocog.batch.pool import in_passes, run_tasks
from neocog.batch.run import open_workers, usual_workers
from neocog.batch.tasks import Block, Job, Task
from neocog.errors import EndedEarly, InputError, NothingToRead, UsageError
from neocog.evaluation.explain import explain_box, explain_digit
from neocog.network.engine import Engine
from neocog.network.line_engine import LineEngine
from neocog.reading.formats import Format, cells
from neocog.reading.forms import Form, parse_form
from neocog.reading.pictures import pages_of, what_went_wrong
from neocog.reading.reader import Reader
from neocog.reading.records import CellReading, SheetReading
from neocog.reading.results import PageReading
from neocog.reading.sheets import read_sheets, weigh
from neocog.text import to_json
from neocog.vision.crops import digit_of_box
from neocog.vision.decode import Page, at_most
from neocog.vision.finder import LONG_SIDE
from neocog.vision.page import turned, turned_back

MAX_PAGES = 100  # of one file that are read
MAX_BLANKS = 16  # pages of a form: a worker keeps the blanks of the last one, 12 MB a page
MAX_PICTURES = 2**25  # letters of the pictures of fields of one file; what comes after is not read
LIMIT = 150.0  # seconds of a worker for one request, unless it says otherwise; 100 pages of print take 85

_SHOWN, _QUALITY = 1600, 85  # long side, and JPEG quality, of a page that the browser cannot decode
_SMALL = 128  # long side of the picture of a page in a list
_ROOM = 0.25  # heights of a line that are kept around its picture
_HIGH, _LONG = 96, 20  # rows of the picture of a field, at most, and heights that it is at most wide
_MOST = 4  # times a page's pixels that pictures of its lines have together


@dataclass(slots=True)
class Answer(Block):
    """What came of one request: a value, or an ``error`` in one line."""

    value: Any = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ServeJob(Job):
    """Answers requests: an item's key is what is asked of its picture, as JSON."""

    futures: dict[int, Future[Any]] = field(default_factory=dict)  # of the tasks, where they are asked

    def do(self, task: Task, *, beat: Callable[[], None] = lambda: None) -> Answer:
        """Answer one request; whatever the picture does becomes its error."""
        (item,) = task.items
        answer = Answer(task.first, inputs=1)
        try:
            answer.value = self._value(item, beat, **json.loads(item.key))
        except NothingToRead as error:
            answer.error = str(error)
        except Exception as error:
            answer.error = what_went_wrong(error)
        return answer

    def is_wanted(self, task: Task) -> bool:
        return not self.futures[task.first].cancelled()

    def late(self, task: Task) -> Answer:
        why = f"reading takes longer than {task.limit:g} s; send fewer pages, or a smaller picture"
        return Answer(task.first, inputs=1, error=why)

    def _value(self, item: Item, beat: Callable[[], None], what: str, **asked: Any) -> Any:
        if what == "read":
            return list(self._records(item, beat, **asked))
        if what == "sheets":
            return list(self._sheets(item, beat, **asked))
        if what == "weigh":
            return _weighed(bytes(item.picture()), self.reader.for_sheets().policy.min_p)
        if what == "form":
            return _form(bytes(item.picture())) and None
        if what == "thumbnails":
            return list(_thumbnails(item))
        if what == "page":  # for a browser that does not know the file's format
            return _encoded(_page(item, asked["page"], _SHOWN).pixels, "JPEG")
        if what == "explain":
            return _encoded(self._explain(item, **asked["marks"]), "PNG")
        marks = asked["marks"]
        page, digits, lines = _cut(item, self.reader.longest, **marks)
        png = None if "cells" in marks else _encoded(page, "PNG")
        return png, digits, [_encoded(line, "PNG") for line in lines]

    def _sheets(self, item: Item, beat: Callable[[], None], pictures: bool) -> Iterator[dict[str, Any]]:
        """The records of sheets, with ``pictures`` of fields and what was read ``before`` rules."""
        reader = self.reader.for_sheets()
        form, _, picture = bytes(item.picture()).partition(b"\n")
        size, settings = 0, reader.settings
        try:
            for sheet in read_sheets(reader, _form(form), picture, beat=beat):
                many = f"has more than {MAX_PAGES} pages" * (sheet.page >= MAX_PAGES)
                record = replace(sheet, source=item.source).to_dict(settings=settings)
                for number in {n for n in record["pages"] if n is not None} if pictures and not many else ():
                    own = [cell for cell in record["fields"].values() if cell["page"] == number]
                    page = next(pages_of(picture, reader.longest, [number]))
                    cuts = _cells(page.pixels, [cell["corners"] for cell in own], page.scales)
                    for cell, cut in zip(own, cuts, strict=True):
                        cell["picture"] = _url(cut)
                        size += len(cell["picture"])
                        if size > MAX_PICTURES:
                            many = f"has fields whose pictures are larger than {MAX_PICTURES >> 20} MiB"
                            break
                for name, cell in sheet.before.items() if pictures else ():
                    record["fields"][name]["before"] = cell.to_dict() | {"texts": dict(cell.texts)}
                if many:
                    many += f"; send page {sheet.page + 1} and those after it in another file"
                    lost = SheetReading(item.source, sheet.page, model=sheet.model, error=many)
                    record = lost.to_dict(settings=settings)
                yield record
                if many:
                    return
        except UsageError as error:  # of a blank
            raise InputError(f"form: {error}") from None

    def _explain(
        self, item: Item, page: int, turn: int, boxes: list[list[float]], cells: bool = False
    ) -> NDArray[np.uint8]:
        """Draw why the digit in a box was read so; of a line, the pieces of it that are in the box."""
        if self.reader.line_model is None:
            _, (digit,), _ = _cut(item, self.reader.longest, page, turn, boxes)
            return np.asarray(explain_digit(digit, Engine(self.reader.model, threads=1)).plot())
        engine, reader = LineEngine(self.reader.line_model, threads=1), self.reader.changed(rotate=turn)
        return np.asarray(explain_box(reader, _page(item, page, reader.longest), engine, boxes[0]).plot())

    def _records(
        self, item: Item, beat: Callable[[], None], live: bool, table: bool = False
    ) -> Iterator[dict[str, Any]]:
        reader = self.reader.changed(rotate=0) if live else self.reader  # no frame is searched four times
        try:
            pages = reader.read_pages(item.picture(), safely=True)
        except InputError as error:  # of a picture that has killed workers
            pages = iter((PageReading(item.source, model=reader.model.id, error=str(error)),))
        for page in islice(pages, MAX_PAGES + 1):
            beat()
            if page.page == MAX_PAGES:
                many = f"has more than {MAX_PAGES} pages; send the others in another file"
                page = PageReading(item.source, page.page, model=page.model, error=many)
            record = replace(page, source=item.source).to_dict(settings=reader.settings)
            yield record | ({"table": cells(page)} if table else {})


class Service:
    """Answers requests in the order in which they come; a context manager.

    ``workers`` are the processes that decode and find: by default one for each core, with a GPU
    two. The reader's networks run in this process.
    """

    def __init__(self, reader: Reader, *, workers: int | None = None) -> None:
        self.workers = max(1, usual_workers(reader.engine.device) if workers is None else workers)
        self.on_failure: Callable[[], None] = lambda: None
        """Called, on another thread, if nothing can be read any more."""
        self._error: BaseException | None = None
        self._lock, self._numbers, self._futures = threading.Lock(), count(), dict[int, Future[Any]]()
        self._requests: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        job = ServeJob(reader, Format("jsonl"), futures=self._futures)
        self._job = job.with_engine(in_passes(reader.engine))
        self._stack = ExitStack()
        self._pool = self._stack.enter_context(open_workers(self._job, self.workers))
        threading.Thread(target=self._run, daemon=True).start()

    def __enter__(self) -> "Service":
        return self

    def __exit__(self, *_: object) -> None:
        """End it; nobody waits for what is being read."""
        self.on_failure = lambda: None
        self._fail(EndedEarly("the server has ended"))
        self._requests.put(None)
        self._stack.close()

    def ask(self, source: str, picture: bytes, *, limit: float = LIMIT, **asked: Any) -> "Future[Any]":
        """Ask for something; the future raises InputError where the picture does not give it.

        What takes longer than ``limit`` seconds of a worker ends with InputError. A future that is
        cancelled is not begun, or its worker is killed and replaced.
        """
        future, number = Future[Any](), next(self._numbers)
        with self._lock:
            self.check()
            self._futures[number] = future
        self._requests.put(Task(number, (Item(source, to_json(asked), data=picture),), limit=limit))

        def ended(future: "Future[Any]") -> None:
            for worker in self._pool if future.cancelled() else ():
                worker.give_up(number)

        future.add_done_callback(ended)
        return future

    def warm(self) -> None:
        """Load all that is needed, in every worker, so that no answer waits for it."""
        pixels = np.full((LONG_SIDE, LONG_SIDE), 200, np.uint8)
        pixels[480:540, 500:508] = 40
        page = _encoded(pixels, "PNG")
        for future in [self.ask("", page, what="read", live=True) for _ in range(self.workers)]:
            future.result()

    def check(self) -> None:
        """Raise what stopped it, if anything did."""
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        tasks = cast(Iterator[Task], iter(self._requests.get, None))
        try:
            for answer in run_tasks(tasks, self._pool, self._job):
                assert isinstance(answer, Answer)
                future = self._futures.pop(answer.first)
                with suppress(InvalidStateError):  # nobody wants it any more
                    if answer.error is None:
                        future.set_result(answer.value)
                    else:
                        future.set_exception(InputError(answer.error))
        except BaseException as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Answer all that wait, and none from now on."""
        with self._lock:
            first, self._error = self._error is None, self._error or error
            waiting = list(self._futures.values())
        for future in waiting:
            with suppress(InvalidStateError):
                future.set_exception(error)
        if first:
            self.on_failure()


def _form(data: bytes) -> Form:
    """The form that JSON describes; InputError if it is none."""
    try:
        form = parse_form(data, None, "form")
        if sum(len(layout.pages) for layout in form.layouts) > MAX_BLANKS:
            raise UsageError(f"form: has more than {MAX_BLANKS} pages; part it")
    except UsageError as error:
        raise InputError(str(error)) from None
    return form


def _weighed(data: bytes, least: float) -> dict[str, dict[str, Any]]:
    """Cells of a sheet after its rules: texts are what a person said, and are certain; others were read."""
    try:
        asked = json.loads(data)
        (layout,) = _form(to_json({"form": 1, "layouts": [asked["layout"]]}).encode()).layouts
        cells = dict[str, CellReading]()
        for name, own in asked["fields"].items():
            if isinstance(own, str):
                cells[name] = CellReading(own, 1.0, read=own, texts={own: 1.0})
                continue
            texts = {text: _probability(p) for text, p in own["texts"].items()}
            p = own["p"] if own["p"] is None else _probability(own["p"])
            cells[name] = CellReading(own["text"], p, own["why"], own["read"], texts=texts)
        found = weigh(cells, layout.rules, least)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        wanted = "expected JSON with a layout and its fields, each a text, or as it was before the rules"
        raise InputError(wanted) from None
    return {name: found[name].to_dict() for name, own in asked["fields"].items() if not isinstance(own, str)}


def _probability(p: Any) -> float:
    """A probability that JSON gave; ValueError or TypeError if it is none."""
    if not 0 <= p <= 1 + 1e-6:
        raise ValueError(p)
    return float(p)


def _page(item: Item, number: int, long_side: int) -> Page:
    page = next(pages_of(item.picture(), long_side, [number]), None)
    if page is None:
        raise InputError(f"has no page {number + 1}")
    return page


def _thumbnails(item: Item) -> Iterator[str]:
    with suppress(InputError):  # of a damaged page: those before it are shown
        for page in pages_of(item.picture(), _SMALL, range(MAX_PAGES)):
            yield _url(page.pixels)


def _cells(
    pixels: NDArray[np.uint8], corners: Any, scales: Sequence[float], space: float = _ROOM
) -> Iterator[NDArray[np.uint8]]:
    """Cut fields out of a page by their corners (N, 4, 2), upright, with ``space`` heights around them."""
    for places in corners:
        at = np.multiply(places, scales)
        wide, high = (float(np.linalg.norm(at[k] - at[0])) for k in (1, 3))
        rows = round(min(max(high, _HIGH / 2), _HIGH))
        room = round(space * rows)
        columns = max(1, round(min(wide / max(high, 1.0), _LONG) * rows))
        to = np.array([[0, 0], [columns, 0], [columns, rows], [0, rows]], np.float32) + room
        way = cv2.getPerspectiveTransform(at.astype(np.float32), to)
        size = columns + 2 * room, rows + 2 * room
        cut = cv2.warpPerspective(pixels, way, size, borderMode=cv2.BORDER_REPLICATE)
        yield np.asarray(cut, np.uint8)


def _url(pixels: NDArray[np.uint8]) -> str:
    return f"data:image/jpeg;base64,{base64.b64encode(_encoded(pixels, 'JPEG')).decode()}"


def _encoded(pixels: NDArray[np.uint8], form: str) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, form, quality=_QUALITY)  # PNG has none
    return stream.getvalue()


def _cut(
    item: Item, longest: int, page: int, turn: int, boxes: list[list[float]],
    lines: Sequence[list[float]] = (), cells: Sequence[list[float]] = (),
) -> tuple[NDArray[np.uint8], NDArray[np.uint8], list[NDArray[np.uint8]]]:  # fmt: skip
    """A small page, its digits (N, 28, 28) as the reader cuts them at a long side, and its lines, upright.

    ``cells`` are lines by their four corners, the first at their start.
    """
    found = _page(item, page, longest)
    upright, digits = turned(found.grey, turn), np.zeros((len(boxes), 28, 28), np.uint8)
    for place, box in enumerate(boxes):
        scaled = np.multiply(box, 2 * found.scales).tolist()
        lying = turned_back(scaled, -turn % 360, *upright.shape[::-1])
        digits[place] = digit_of_box(upright, np.array(lying, np.float32))
    strips = list[NDArray[np.uint8]]()
    for x, y, w, h in np.array(lines).reshape(-1, 4) * (2 * found.scales):
        room = _ROOM * (w if turn % 180 else h)
        left, right, top, foot = (max(0, round(v)) for v in (x - room, x + w + room, y - room, y + h + room))
        strips.append(np.rot90(found.grey[top:foot, left:right], -turn // 90))
    sizes, corners = [strip.size for strip in strips], np.array(cells).reshape(-1, 4, 2)
    away = np.abs(corners / found.size - 0.5) > 0.6
    if not all(sizes) or sum(sizes) > _MOST * found.grey.size or away.any():
        raise InputError("does not have the lines that were sent: they overlap, or leave the page")
    strips += _cells(found.grey, corners, found.scales, 0)
    return at_most(found.grey, LONG_SIDE), digits, strips
