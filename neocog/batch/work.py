"""What a worker does with a task: pictures in, records out, in their final form."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from neocog.batch.forms import Form
from neocog.batch.inputs import Item
from neocog.batch.records import PageReading
from neocog.batch.tasks import Block, Task
from neocog.errors import InputError, NeocogError

if TYPE_CHECKING:
    from neocog.batch.reader import Reader

_LONG = 4096  # letters of a name; no system takes a longer one

ISOLATED_AT_ONCE = 256
"""Isolated digits of a task: so many are recognised together."""


@dataclass(frozen=True, slots=True)
class Job:
    """How all tasks of a run are done.

    Attributes
    ----------
    reader : Reader
        What reads.
    form : Form
        The form of the records.
    isolated : bool
        Whether every picture is one digit that need not be searched for.
    keep : bool
        Whether blocks carry the records themselves.
    cards : bool
        Whether blocks carry what a report shows.
    batch : int, optional
        Most digits of a pass, as many as the device likes by default.
    """

    reader: "Reader"
    form: Form
    isolated: bool = False
    keep: bool = False
    cards: bool = False
    batch: int | None = None

    @property
    def size(self) -> int:
        """Inputs of a task."""
        return ISOLATED_AT_ONCE if self.isolated else 1

    def do(self, task: Task, *, beat: Callable[[], None] = lambda: None) -> Block:
        """Read the inputs of a task.

        Parameters
        ----------
        task : Task
        beat : callable
            Called after each page.

        Raises
        ------
        NeocogError
            If the network cannot be asked; whatever one picture does becomes its record.
        """
        from neocog.batch.isolated import read_isolated

        block = Block(task.place, inputs=len(task.items))
        if self.isolated:
            for item, readings in read_isolated(self.reader, task.items, block.seconds, beat):
                self._add(block, item, readings)
        else:
            for item in task.items:
                self._add(block, item, tuple(_beaten(read_item(self.reader, item), beat)))
        return block

    def _add(self, block: Block, item: Item, readings: tuple[PageReading, ...]) -> None:
        start = time.perf_counter()
        block.text += "".join(map(self.form.render, readings))
        block.pages += len(readings)
        for reading in readings:
            block.failed += reading.error is not None
            if (line := about(reading, self.form)) is not None:
                block.said.append(line)
            for stage, ms in (reading.ms or {}).items():
                block.seconds[stage] = block.seconds.get(stage, 0.0) + 1e-3 * ms
        if self.keep:
            block.readings.append((item, readings))
        if self.cards:
            from neocog.batch.report import cards_of

            block.cards += cards_of(item, readings)
        spent = time.perf_counter() - start
        block.seconds["write"] = block.seconds.get("write", 0.0) + spent


def read_item(reader: "Reader", item: Item) -> Iterator[PageReading]:
    """Read all pages of one input; what fails is a record with its ``error``."""
    try:
        picture = item.picture()
    except Exception as error:
        yield PageReading(item.source, model=reader.model.id, error=what_went_wrong(error))
        return
    for reading in reader.read_many([picture]):
        yield reading if reading.source == item.source else replace(reading, source=item.source)


def _beaten(readings: Iterable[PageReading], beat: Callable[[], None]) -> Iterator[PageReading]:
    for reading in readings:
        beat()
        yield reading


def what_went_wrong(error: Exception) -> str:
    """One line about an error that nobody foresaw; those of neocog itself are raised again."""
    if isinstance(error, NeocogError) and not isinstance(error, InputError):
        raise error
    if isinstance(error, InputError):
        return str(error)
    if isinstance(error, MemoryError):
        return "cannot be read: it takes more memory than it may"
    what = str(error).strip().partition("\n")[0]
    return f"cannot be read: {type(error).__name__}: {what}; please report this"


def about(reading: PageReading, form: Form) -> str | None:
    """What people are told of a page, if anything."""
    misfit, said = reading.fits is False, None
    if reading.error is not None:
        said = reading.error
    elif not reading.digits and (misfit or form.kind == "text"):
        said = "no digits found"
    elif misfit:
        said = "does not fit the pattern"
    source = reading.source
    if len(source) > _LONG:
        source = f"{source[:40]}... ({len(source)} letters)"
    return None if said is None else f"{source}: {said}"
