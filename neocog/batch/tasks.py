"""A task: some inputs for one worker. Its result: their records as a block."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from neocog.batch.sources import Item
from neocog.reading.formats import Format
from neocog.reading.pictures import pages_of, what_went_wrong
from neocog.reading.records import REJECTED, Box, DigitReading, PageReading

if TYPE_CHECKING:
    from neocog.batch.report import Card
    from neocog.reading.reader import Reader

ISOLATED_AT_ONCE = 256
"""Isolated digits of a task: so many are recognised together."""

_HELD = 2**24  # bytes of inputs, taken from an archive in passing, that make a task
_LONG = 4096  # letters of a name; no system takes a longer one


@dataclass(frozen=True, slots=True)
class Task:
    """Inputs that one worker reads, one after another."""

    first: int  # number of the first input among all
    items: tuple[Item, ...]
    deaths: int = 0  # workers that died over it

    @property
    def held(self) -> int:
        """Bytes of its inputs that are at hand."""
        return sum(len(item.data or b"") for item in self.items)


@dataclass(slots=True, kw_only=True)
class Counts:
    """What some inputs came to; ``seconds`` are those of each stage, over all workers."""

    inputs: int = 0
    pages: int = 0  # records
    failed: int = 0  # records of a failure
    empty: int = 0  # records without a digit
    doubtful: int = 0  # records with "?"
    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, other: "Counts") -> None:
        for name in ("inputs", "pages", "failed", "empty", "doubtful"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for stage, seconds in other.seconds.items():
            self.spend(stage, seconds)

    def spend(self, stage: str, seconds: float) -> None:
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds


@dataclass(slots=True)
class Block(Counts):
    """The records of a task."""

    first: int = -1  # the task's
    text: str = ""  # the records in their format; all pages of an input together
    messages: list[str] = field(default_factory=list)
    readings: list[tuple[Item, tuple[PageReading, ...]]] = field(default_factory=list)
    cards: "list[Card]" = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Job:
    """How all tasks of a run are done."""

    reader: "Reader"
    form: Format
    isolated: bool = False  # every picture is one digit
    keep: bool = False  # blocks carry the records themselves
    cards: bool = False  # blocks carry what a report shows
    batch: int | None = None  # most digits of a pass
    quiet: bool = False  # only what fails is told

    @property
    def size(self) -> int:
        return ISOLATED_AT_ONCE if self.isolated else 1

    def with_engine(self, engine: Any) -> "Job":
        """The same job with another engine; None to send it to another process."""
        batch = getattr(engine, "batch", self.reader.batch)
        return replace(self, reader=self.reader.changed(engine=engine, batch=batch))

    def do(self, task: Task, *, beat: Callable[[], None] = lambda: None) -> Block:
        """Read the inputs of a task; ``beat`` is called after each page.

        Whatever one picture does becomes its record; NeocogError if the network cannot be asked.
        """
        block = Block(first=task.first, inputs=len(task.items))
        read = _read_isolated if self.isolated else _read_pages
        for item, readings in read(self.reader, task.items, block, beat):
            start = time.perf_counter()
            for reading in readings:
                block.text += self.form.render(reading)
                block.pages += 1
                block.failed += reading.error is not None
                block.empty += reading.error is None and not reading.digits
                block.doubtful += REJECTED in reading.text
                if (reading.error is not None or not self.quiet) and (what := self._message(reading)):
                    source = reading.source
                    if len(source) > _LONG:
                        source = f"{source[:40]}... ({len(source)} letters)"
                    block.messages.append(f"{source}: {what}")
                for stage, ms in (reading.ms or {}).items():
                    block.spend(stage, 1e-3 * ms)
            if self.keep:
                block.readings.append((item, readings))
            if self.cards:
                from neocog.batch.report import cards_of

                for card in cards_of(item, readings):
                    block.cards.append(card)
                    beat()
            block.spend("write", time.perf_counter() - start)
        return block

    def _message(self, reading: PageReading) -> str | None:
        """What people are told of a page, if anything."""
        if reading.error is not None:
            return reading.error
        if not reading.digits and (reading.fits is False or self.form.kind == "text"):
            return "no digits found"
        wanted = "pattern" if self.reader.valid is None else "valid numbers"
        return f"does not fit the {wanted}" if reading.fits is False else None


def into_tasks(items: Iterable[Item], size: int) -> Iterator[Task]:
    """Cut inputs into tasks of ``size``, or of fewer where their bytes are at hand and many."""
    task = Task(0, ())
    for item in items:
        task = Task(task.first, (*task.items, item))
        if len(task.items) == size or task.held > _HELD:
            yield task
            task = Task(task.first + len(task.items), ())
    if task.items:
        yield task


def in_order(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yield blocks in the order of their inputs; those that come early are held back."""
    early: dict[int, Block] = {}
    wanted = 0
    for block in blocks:
        early[block.first] = block
        while (ready := early.pop(wanted, None)) is not None:
            wanted += ready.inputs
            yield ready


def _read_pages(
    reader: "Reader", items: Sequence[Item], block: Block, beat: Callable[[], None]
) -> Iterator[tuple[Item, tuple[PageReading, ...]]]:
    """Read pictures one after another, page by page."""
    for item in items:
        readings = list[PageReading]()
        try:
            for reading in reader.read_many([item.picture()]):
                readings.append(replace(reading, source=item.source))
                beat()
        except Exception as error:  # of the item: it is no picture at all
            readings.append(_failure(reader, item, 0, error))
        yield item, tuple(readings)


def _read_isolated(
    reader: "Reader", items: Sequence[Item], block: Block, beat: Callable[[], None]
) -> Iterator[tuple[Item, tuple[PageReading, ...]]]:
    """Read pictures of one digit each, all in one go; a page is a digit, and its box is the whole page."""
    from neocog.vision.finder import LONG_SIDE
    from neocog.vision.normalise import isolated_digit

    start = time.perf_counter()
    digits: list[NDArray[np.uint8]] = []
    boxes: list[Box] = []
    found: list[tuple[Item, list[int], list[PageReading]]] = []  # pages that were decoded; the failure
    for item in items:
        pages, failure = list[int](), list[PageReading]()
        found.append((item, pages, failure))
        try:
            for page in pages_of(item.picture(), LONG_SIDE):
                digits.append(isolated_digit(page.grey))
                boxes.append((0, 0, *page.size))
                pages.append(page.index)
                beat()
        except Exception as error:
            failure.append(_failure(reader, item, len(pages), error))
        beat()
    decoded = time.perf_counter()
    block.spend("decode", decoded - start)
    judged: Iterator[DigitReading] = iter(())
    if digits:
        answers = reader.engine.recognise(np.stack(digits), batch=reader.batch)
        judged = iter(reader.judge(answers, boxes))
    block.spend("recognise", time.perf_counter() - decoded)
    for item, pages, failure in found:
        told = ((page, next(judged)) for page in pages)
        readings = [PageReading(item.source, n, digit.char, (digit,), reader.model.id) for n, digit in told]
        yield item, (*readings, *failure)


def _failure(reader: "Reader", item: Item, page: int, error: Exception) -> PageReading:
    return PageReading(item.source, page, model=reader.model.id, error=what_went_wrong(error))
