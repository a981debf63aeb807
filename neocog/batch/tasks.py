"""A task: some inputs for one worker. Its result: their records as a block."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from neocog.batch.formats import Format
from neocog.batch.inputs import Item
from neocog.batch.records import REJECTED, PageReading
from neocog.errors import InputError, NeocogError

if TYPE_CHECKING:
    from neocog.batch.reader import Reader
    from neocog.batch.report import Card

ISOLATED_AT_ONCE = 256
"""Isolated digits of a task: so many are recognised together."""

_LIVES = 2  # times that a worker may die over an input, the second time with it alone
_HELD = 2**24  # bytes of inputs, taken from an archive in passing, that make a task
_LONG = 4096  # letters of a name; no system takes a longer one


@dataclass(frozen=True, slots=True)
class Task:
    """Inputs that one worker reads, one after another."""

    first: int  # number of the first input among all
    items: tuple[Item, ...]
    deaths: int = 0  # workers that died over it: it then gets a worker of its own

    @property
    def held(self) -> int:
        """Bytes of pictures that it carries."""
        return sum(len(item.data or b"") for item in self.items)

    def after_death(self, how: str) -> "list[Task]":
        """What to do once a worker has died over it, perhaps through no fault of its own.

        Each input is tried alone; one that goes on killing workers becomes a record that says
        ``how``.
        """
        deaths, items = self.deaths + 1, self.items
        if len(items) == 1 and deaths >= _LIVES:
            trouble = f"cannot be read: twice, the process that reads it {how}"
            items = (items[0]._replace(trouble=trouble),)
        return [Task(self.first + n, (item,), deaths) for n, item in enumerate(items)]


@dataclass(slots=True)
class Block:
    """The records of a task."""

    first: int = -1  # the task's
    text: str = ""  # the records in their format; all pages of an input together
    inputs: int = 0
    pages: int = 0  # records
    failed: int = 0  # records of a failure
    empty: int = 0  # records without a digit
    doubtful: int = 0  # records with "?"
    messages: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
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
        from neocog.batch.isolated import read_isolated

        block = Block(task.first, inputs=len(task.items))
        if self.isolated:
            for item, readings in read_isolated(self.reader, task.items, block.seconds, beat):
                self._add(block, item, readings)
        else:
            for item in task.items:
                self._add(block, item, tuple(_read(self.reader, item, beat)))
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
                block.seconds[stage] = block.seconds.get(stage, 0.0) + 1e-3 * ms
        if self.keep:
            block.readings.append((item, readings))
        if self.cards:
            from neocog.batch.report import cards_of

            block.cards += cards_of(item, readings)
        spent = time.perf_counter() - start
        block.seconds["write"] = block.seconds.get("write", 0.0) + spent


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
