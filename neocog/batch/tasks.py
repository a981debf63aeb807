"""A task: some inputs for one worker. Its result: their records as a block."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from neocog.batch.formats import Format
from neocog.batch.records import REJECTED, Box, DigitReading, PageReading
from neocog.batch.sources import Item
from neocog.errors import InputError, NeocogError

if TYPE_CHECKING:
    from neocog.batch.reader import Reader
    from neocog.batch.report import Card

ISOLATED_AT_ONCE = 256
"""Isolated digits of a task: so many are recognised together."""

_HELD = 2**24  # bytes of inputs, taken from an archive in passing, that make a task
_LONG = 4096  # letters of a name; no system takes a longer one

_Digit = tuple[int, Box, NDArray[np.uint8]]  # page, box and the digit itself


@dataclass(frozen=True, slots=True)
class Task:
    """Inputs that one worker reads, one after another."""

    first: int  # number of the first input among all
    items: tuple[Item, ...]
    deaths: int = 0  # workers that died over it

    @property
    def held(self) -> int:
        """Bytes of pictures that it carries."""
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
        """Count what others came to."""
        for name in ("inputs", "pages", "failed", "empty", "doubtful"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for stage, seconds in other.seconds.items():
            self.spend(stage, seconds)

    def spend(self, stage: str, seconds: float) -> None:
        """Count time."""
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
        """Inputs of a task."""
        return ISOLATED_AT_ONCE if self.isolated else 1

    def do(self, task: Task, *, beat: Callable[[], None] = lambda: None) -> Block:
        """Read the inputs of a task; ``beat`` is called after each page.

        Whatever one picture does becomes its record; NeocogError if the network cannot be asked.
        """
        block = Block(first=task.first, inputs=len(task.items))
        if self.isolated:
            read = _read_isolated(self.reader, task.items, block, beat)
        else:
            read = ((item, tuple(_read(self.reader, item, beat))) for item in task.items)
        for item, readings in read:
            self._add(block, item, readings)
        return block

    def _add(self, block: Block, item: Item, readings: tuple[PageReading, ...]) -> None:
        start = time.perf_counter()
        block.text += "".join(map(self.form.render, readings))
        block.pages += len(readings)
        for reading in readings:
            block.failed += reading.error is not None
            block.empty += reading.error is None and not reading.digits
            block.doubtful += REJECTED in reading.text
            line = _about(reading, self.form)
            if line is not None and not (self.quiet and reading.error is None):
                block.messages.append(line)
            for stage, ms in (reading.ms or {}).items():
                block.spend(stage, 1e-3 * ms)
        if self.keep:
            block.readings.append((item, readings))
        if self.cards:
            from neocog.batch.report import cards_of

            block.cards += cards_of(item, readings)
        block.spend("write", time.perf_counter() - start)


def into_tasks(items: Iterable[Item], size: int) -> Iterator[Task]:
    """Cut inputs into tasks of ``size``, or of fewer where their bytes are at hand and many."""
    chunk: list[Item] = []
    first = held = 0
    for item in items:
        chunk.append(item)
        held += len(item.data or b"")
        if len(chunk) == size or held > _HELD:
            yield Task(first, tuple(chunk))
            first += len(chunk)
            chunk, held = [], 0
    if chunk:
        yield Task(first, tuple(chunk))


def in_order(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yield blocks in the order of their inputs; those that come early are held back."""
    early: dict[int, Block] = {}
    wanted = 0
    for block in blocks:
        early[block.first] = block
        while (ready := early.pop(wanted, None)) is not None:
            wanted += ready.inputs
            yield ready


def what_went_wrong(error: Exception) -> str:
    """One line about an error that nobody foresaw; those of neocog itself are raised again."""
    if isinstance(error, NeocogError) and not isinstance(error, InputError):
        raise error
    if isinstance(error, InputError):
        return str(error)
    if isinstance(error, MemoryError):
        return "cannot be read: it needs more memory than neocog allows"
    what = str(error).strip().partition("\n")[0]
    return f"cannot be read: {type(error).__name__}: {what}; please report this"


def _read(reader: "Reader", item: Item, beat: Callable[[], None]) -> Iterator[PageReading]:
    """Read all pages of one input; what fails is a record with its ``error``."""
    try:
        picture = item.picture()
    except Exception as error:
        yield PageReading(item.source, model=reader.model.id, error=what_went_wrong(error))
        return
    for reading in reader.read_many([picture]):
        beat()
        yield reading if reading.source == item.source else replace(reading, source=item.source)


def _read_isolated(
    reader: "Reader", items: Sequence[Item], block: Block, beat: Callable[[], None]
) -> Iterator[tuple[Item, tuple[PageReading, ...]]]:
    """Read pictures of one digit each, all in one go; every page of a TIFF is one digit.

    The box of a digit is the whole picture.
    """
    start = time.perf_counter()
    found = []
    for item in items:
        found.append(_digits_of(item))
        beat()
    digits = [digit for pages, _ in found for digit in pages]
    decoded = time.perf_counter()
    block.spend("decode", decoded - start)
    judged: Iterator[DigitReading] = iter(())
    if digits:
        answers = reader.engine.recognise(np.stack([d for _, _, d in digits]), batch=reader.batch)
        judged = iter(reader.judge(answers, [box for _, box, _ in digits]))
    block.spend("recognise", time.perf_counter() - decoded)
    model = reader.model.id
    for item, (pages, error) in zip(items, found, strict=True):
        readings = []
        for page, _, _ in pages:
            digit = next(judged)
            readings.append(PageReading(item.source, page, digit.char, (digit,), model))
        if error is not None:
            readings.append(PageReading(item.source, len(pages), model=model, error=error))
        yield item, tuple(readings)


def _digits_of(item: Item) -> tuple[list[_Digit], str | None]:
    """The digit of each page, and why there are no more where one could not be had."""
    from neocog.batch.pictures import pages_of
    from neocog.vision.finder import LONG_SIDE
    from neocog.vision.normalise import isolated_digit

    pages: list[_Digit] = []
    try:
        for page in pages_of(item.picture(), LONG_SIDE):
            height, width = (round(side / page.scale) for side in page.grey.shape)
            pages.append((page.index, (0, 0, width, height), isolated_digit(page.grey)))
    except Exception as error:
        return pages, what_went_wrong(error)
    return pages, None


def _about(reading: PageReading, form: Format) -> str | None:
    """What people are told of a page, if anything."""
    misfit, message = reading.fits is False, None
    if reading.error is not None:
        message = reading.error
    elif not reading.digits and (misfit or form.kind == "text"):
        message = "no digits found"
    elif misfit:
        message = "does not fit the pattern"
    source = reading.source
    if len(source) > _LONG:
        source = f"{source[:40]}... ({len(source)} letters)"
    return None if message is None else f"{source}: {message}"
