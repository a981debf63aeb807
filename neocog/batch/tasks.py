"""A task: some inputs for one worker. Its result: their records as a block."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from neocog.batch.archives import Item
from neocog.batch.report import Card, cards_of
from neocog.reading.formats import Format
from neocog.reading.forms import Form
from neocog.reading.pictures import pages_of, what_went_wrong
from neocog.reading.reader import Reader
from neocog.reading.records import REJECTED, Box, DigitReading, SheetReading
from neocog.reading.results import PageReading
from neocog.vision.finder import LONG_SIDE
from neocog.vision.normalise import isolated_digit

_ISOLATED_AT_ONCE = 256  # isolated digits of a task: so many are recognised together
_HELD = 2**24  # bytes of inputs, taken from an archive in passing, that make a task
_LONG = 4096  # letters of a name; no system takes a longer one

_ADVICE = {
    "small-digits-likely": "digits of less than 10 pixels, others may be missing; give a larger scan",
    "turns-tie": "another turn of the page is about as likely; give --rotate",
    "struck-through": "a number has a stroke through it; look whether it counts",
}
ON_BLANK = "digits stand in fields of the blank of "  # the begin of a message that is told once a run

Readings = Iterator[tuple[Item, tuple[Any, ...]]]  # PageReading, or SheetReading of a form


class Task(NamedTuple):
    """Inputs that one worker reads, one after another."""

    first: int  # number of the first input among all
    items: tuple[Item, ...]
    deaths: int = 0  # workers that died over it
    limit: float = math.inf  # seconds of a worker that it may take

    @property
    def held(self) -> int:
        """Bytes of its inputs that are at hand."""
        return sum(item.held for item in self.items)


@dataclass(slots=True)
class Block:
    """The records of a task, and what it came to."""

    first: int = -1  # the task's
    text: str = ""  # the records in their format; all pages of an input together
    messages: list[str] = field(default_factory=list)
    readings: list[tuple[Item, tuple[PageReading, ...]]] = field(default_factory=list)
    cards: list[Card] = field(default_factory=list)
    inputs: int = 0
    pages: int = 0  # records
    failed: int = 0  # records of a failure
    empty: int = 0  # records without a digit
    doubtful: int = 0  # records with "?"

    def add(self, other: "Block") -> None:
        """Add what another block came to."""
        for name in ("inputs", "pages", "failed", "empty", "doubtful"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(frozen=True, slots=True)
class Job:
    """How all tasks of a run are done."""

    reader: Reader
    format: Format
    isolated: bool = False  # every picture is one digit
    keep: bool = False  # blocks carry the records themselves
    cards: bool = False  # blocks carry what a report shows
    batch: int | None = None  # most digits of a pass
    quiet: bool = False  # only what fails is told
    form: Form | None = None  # whose sheets pages are

    @property
    def size(self) -> int:
        return _ISOLATED_AT_ONCE if self.isolated else 1

    def with_engine(self, engine: Any) -> "Job":
        """The same job with another engine; None to send it to another process."""
        batch = self.batch or getattr(engine, "batch", self.reader.batch)
        return replace(self, reader=self.reader.changed(engine=engine, batch=batch))

    def do(self, task: Task, *, beat: Callable[[], None] = lambda: None) -> Block:
        """Read each input into its record; ``beat`` is called after a page; NeocogError of the network."""
        block = Block(task.first, inputs=len(task.items))
        for item, readings in (self._isolated if self.isolated else self._pages)(task.items, beat):
            for reading in readings:
                block.text += self.format.render(reading)
                block.pages += 1
                block.failed += reading.error is not None
                sheet = isinstance(reading, SheetReading)
                block.empty += not (reading.error or (reading.text.strip() if sheet else reading.digits))
                block.doubtful += REJECTED in reading.text
                what = reading.error
                if what is None and not self.quiet and not sheet:
                    if not reading.digits and (reading.fits is False or self.format.kind == "text"):
                        what = "no digits found"
                    elif reading.fits is False:
                        what = f"{_unfit(reading)}: not in the list of --valid; add the number if it is right"
                        if self.reader.valid is None and (asked := self.reader.pattern) is not None:
                            what = f"{_unfit(reading)}: not of the form '{asked.form}' of --pattern"
                    if self.format.kind not in ("jsonl", "json"):  # which say it themselves
                        what = "; ".join(filter(None, (what, *map(_ADVICE.get, reading.warnings))))
                elif sheet and not self.quiet and "blank-is-written" in reading.warnings:
                    note = f"{ON_BLANK}{reading.layout}; name an empty sheet in the form"
                    block.messages += [note] * (note not in block.messages)
                if what:
                    source = reading.source
                    if len(source) > _LONG:
                        source = f"{source[:40]}... ({len(source)} letters)"
                    source += f" page {reading.page + 1}" * (len(readings) > 1 and not sheet)
                    block.messages.append(f"{source}: {what}")
            if self.keep:
                block.readings.append((item, readings))
            for card in cards_of(item, readings) if self.cards else ():
                block.cards.append(card)
                beat()
        return block

    def is_wanted(self, task: Task) -> bool:
        """Whether anybody still waits for the result."""
        return True

    def late(self, task: Task) -> Block:
        """What comes of a task that took longer than its limit."""
        raise NotImplementedError

    def _pages(self, items: Sequence[Item], beat: Callable[[], None]) -> Readings:
        for item in items:
            readings = list[Any]()
            try:
                if self.form is None:
                    found: Iterator[Any] = self.reader.read_pages(item.picture(), safely=True)
                else:
                    from neocog.reading.sheets import read_sheets  # which needs OpenCV

                    found = read_sheets(self.reader, self.form, item.picture(), beat=beat)
                for reading in found:
                    readings.append(replace(reading, source=item.source))
                    beat()
            except Exception as error:  # of the item: it is no picture at all
                readings.append(self._failure(item, 0, error))
            yield item, tuple(readings)

    def _isolated(self, items: Sequence[Item], beat: Callable[[], None]) -> Readings:
        """Read pictures of one digit each, all in one go; a page is a digit, its box the whole page."""
        reader, digits, boxes = self.reader, [], list[Box]()
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
                failure.append(self._failure(item, len(pages), error))
            beat()
        judged: Iterator[DigitReading] = iter(())
        if digits:
            judged = iter(reader.judge(reader.engine.recognise(np.stack(digits), batch=reader.batch), boxes))
        for item, pages, failure in found:
            told = ((page, next(judged)) for page in pages)
            readings = [PageReading(item.source, n, one.char, (one,), reader.model.id) for n, one in told]
            yield item, (*readings, *failure)

    def _failure(self, item: Item, page: int, error: Exception) -> Any:
        kind = PageReading if self.form is None else SheetReading
        return kind(item.source, page, model=self.reader.model.id, error=what_went_wrong(error))


def _unfit(reading: PageReading) -> str:
    """Which lines of a page have not the text that was asked for."""
    unfit = [f"line {n} ({line.text})" for n, line in enumerate(reading.lines, 1) if line.margin is None]
    return ", ".join(unfit[:3]) + f" and {len(unfit) - 3} more" * (len(unfit) > 3)


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
