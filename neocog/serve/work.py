"""Pictures of many requests, read by one pool of worker processes, which have limits."""

import io
import json
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from copy import copy
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from neocog.batch.formats import Format
from neocog.batch.run import reading, usual_workers
from neocog.batch.sources import Item
from neocog.batch.tasks import Block, Job, Task, what_went_wrong
from neocog.errors import InputError, NothingToRead
from neocog.jsontext import to_json
from neocog.reading.records import PageReading
from neocog.vision.finder import LONG_SIDE

if TYPE_CHECKING:
    from neocog.reading.reader import Reader
    from neocog.vision.decode import Page

MAX_PAGES = 100
"""Pages of one file that are read."""

_SHOWN = 1600  # long side of a page that is shown where the browser cannot decode the file
_QUALITY = 85  # of its JPEG
_ENDS = 2.0  # seconds that are left to what is being read when the server ends


@dataclass(slots=True)
class Answer(Block):
    """What came of one request: a value, or an ``error`` in one line."""

    value: Any = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ServeJob(Job):
    """Answers requests: an item's key is what is asked of its picture, as JSON."""

    def do(self, task: Task, *, beat: Callable[[], None] = lambda: None) -> Answer:
        """Answer one request; whatever the picture does becomes its error."""
        (item,) = task.items
        asked = json.loads(item.key)
        answer = Answer(task.first, inputs=1)
        try:
            if asked["what"] == "read":
                answer.value = list(self._records(item, asked["live"], beat))
            elif asked["what"] == "page":  # for a browser that does not know the file's format
                shown = _page(item, asked["page"], _SHOWN).pixels
                answer.value = _encoded(shown, "JPEG", quality=_QUALITY)
            else:
                answer.value = _cut(item, **asked["marks"])
                if asked["what"] == "explain":
                    answer.value = self._explained(answer.value[1][0])
        except Exception as error:
            answer.error = what_went_wrong(error)
        return answer

    def _explained(self, digit: NDArray[np.uint8]) -> bytes:
        """Why a digit is read so, as a PNG."""
        from neocog.evaluation.explain import explain_digit
        from neocog.network.engine import Engine

        try:
            found = explain_digit(digit, Engine(self.reader.model, threads=1))
        except NothingToRead as error:
            raise InputError(str(error)) from None
        return _encoded(np.asarray(found.plot()), "PNG")

    def _records(self, item: Item, live: bool, beat: Callable[[], None]) -> Iterator[dict[str, Any]]:
        reader = copy(self.reader)
        if live:
            reader.rotate = 0  # no frame is searched four times
        try:
            pages = reader.read_many([item.picture()])
        except InputError as error:  # of a picture that has killed workers
            pages = iter((PageReading(item.source, model=reader.model.id, error=str(error)),))
        for page in islice(pages, MAX_PAGES + 1):
            beat()
            if page.page == MAX_PAGES:
                many = f"has more than {MAX_PAGES} pages; send the others in another file"
                page = PageReading(item.source, page.page, model=page.model, error=many)
            yield replace(page, source=item.source).to_dict(settings=reader.settings)


class Service:
    """Reads what is asked for, in the order in which it is asked; a context manager.

    ``workers`` are the processes that decode and find, one for each core by default, with a GPU
    two; 0: none but for pictures that may cost much. The reader's networks run in this process.
    """

    def __init__(self, reader: "Reader", *, workers: int | None = None) -> None:
        self.workers = usual_workers(reader.engine.device) if workers is None else workers
        self.on_failure: Callable[[], None] = lambda: None
        """Called, on another thread, if nothing can be read any more."""
        self._items: queue.SimpleQueue[Item | None] = queue.SimpleQueue()
        self._waiting: dict[int, Future[Any]] = {}
        self._lock = threading.Lock()
        self._count, self._closed = 0, False
        self._error: BaseException | None = None
        job = ServeJob(reader, Format("jsonl"))
        self._thread = threading.Thread(target=self._run, args=(job,), daemon=True)
        self._thread.start()

    def __enter__(self) -> "Service":
        return self

    def __exit__(self, *_: object) -> None:
        """End it; nobody waits long for what is being read."""
        self._closed = True
        self._items.put(None)
        self._thread.join(timeout=_ENDS)

    def ask(self, source: str, picture: bytes, **asked: Any) -> "Future[Any]":
        """Ask for something; the future raises InputError where the picture does not give it."""
        future: Future[Any] = Future()
        with self._lock:
            self.check()
            self._waiting[self._count] = future
            self._count += 1
            self._items.put(Item(source, to_json(asked), data=picture))
        return future

    def warm(self) -> None:
        """Load all that is needed, in every worker, so that no answer waits for it."""
        pixels = np.full((LONG_SIDE, LONG_SIDE), 200, np.uint8)
        pixels[480:540, 500:508] = 40
        page = _encoded(pixels, "PNG")
        asked = [self.ask("", page, what="read", live=True) for _ in range(max(1, self.workers))]
        for future in asked:
            future.result()

    def check(self) -> None:
        """Raise what stopped it, if anything did."""
        if self._error is not None:
            raise self._error

    def _run(self, job: ServeJob) -> None:
        try:
            with reading(job, self._asked(), workers=self.workers) as answers:
                for answer in answers:
                    assert isinstance(answer, Answer)
                    future = self._waiting.pop(answer.first)
                    if not future.set_running_or_notify_cancel():
                        continue
                    if answer.error is None:
                        future.set_result(answer.value)
                    else:
                        future.set_exception(InputError(answer.error))
        except BaseException as error:
            with self._lock:
                self._error = error
            for future in self._waiting.values():
                if future.set_running_or_notify_cancel():
                    future.set_exception(error)
            self.on_failure()

    def _asked(self) -> Iterator[Item]:
        while not self._closed and (item := self._items.get()) is not None:
            yield item


def _page(item: Item, number: int, long_side: int) -> "Page":
    from neocog.vision.decode import decode

    page = next(decode(item.picture(), long_side=long_side, pages=[number]), None)
    if page is None:
        raise InputError(f"has no page {number}; pages count from 0")
    return page


def _encoded(pixels: NDArray[np.uint8], form: str, **options: Any) -> bytes:
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, form, **options)
    return stream.getvalue()


def _cut(item: Item, page: int, turn: int, boxes: list[list[float]]) -> tuple[bytes, NDArray[np.uint8]]:
    """A page as it is searched, as a PNG, and its digits (N, 28, 28) as the reader cuts them."""
    from neocog.vision.crops import digit_of_box

    found = _page(item, page, LONG_SIDE)
    digits = np.zeros((len(boxes), 28, 28), np.uint8)
    for place, box in enumerate(boxes):
        lying = digit_of_box(found.grey, np.array(box, np.float32) * np.float32(found.scale))
        digits[place] = np.rot90(lying, -turn // 90)
    return _encoded(found.grey, "PNG"), digits
