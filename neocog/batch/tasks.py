"""What is handed to a worker, and what comes back: some inputs, and their records as a block."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from neocog.batch.inputs import Item
from neocog.batch.records import PageReading

if TYPE_CHECKING:
    from neocog.batch.report import Card

_LIVES = 2  # times that a worker may die over an input, the second time with it alone

_HELD = 2**24  # bytes of inputs, taken from an archive in passing, that make a task


class Place(NamedTuple):
    """Where a task stands among all: its number, and which part of a divided task it is."""

    number: int
    part: int = 0
    parts: int = 1

    def next(self) -> tuple[int, int]:
        """Number and part of the task that follows."""
        if self.part + 1 < self.parts:
            return self.number, self.part + 1
        return self.number + 1, 0


@dataclass(frozen=True, slots=True)
class Task:
    """Inputs that one worker reads, one after another.

    Attributes
    ----------
    place : Place
        Where it stands.
    items : tuple of Item
    deaths : int
        Workers that died over it: it then gets a worker of its own.
    held : int
        Bytes of pictures that it carries.
    """

    place: Place
    items: tuple[Item, ...]
    deaths: int = 0
    held: int = 0

    def after_death(self, how: str) -> "list[Task]":
        """What to do once a worker has died over it, perhaps through no fault of its own.

        Each input is tried alone; one that goes on killing workers becomes a record that says
        ``how``.
        """
        deaths = self.deaths + 1
        if len(self.items) > 1:
            number, count = self.place.number, len(self.items)
            return [
                Task(Place(number, part, count), (item,), deaths, len(item.data or b""))
                for part, item in enumerate(self.items)
            ]
        items = self.items
        if deaths >= _LIVES:
            trouble = f"cannot be read: the process that reads it {how}, twice"
            items = (items[0]._replace(trouble=trouble),)
        return [replace(self, items=items, deaths=deaths)]


@dataclass(slots=True)
class Block:
    """The records of a task.

    Attributes
    ----------
    place : Place
        The task's.
    text : str
        The records, in the form that was asked for; all pages of an input together.
    inputs, pages, failed : int
        Inputs, records, and records that tell of a failure.
    said : list of str
        What people are to be told.
    seconds : dict
        What each stage took, by name, waiting included.
    readings : list of (Item, tuple of PageReading)
        The records themselves, where they were asked for.
    cards : list of Card
        What a report shows, where one was asked for.
    """

    place: Place
    text: str = ""
    inputs: int = 0
    pages: int = 0
    failed: int = 0
    said: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    readings: list[tuple[Item, tuple[PageReading, ...]]] = field(default_factory=list)
    cards: "list[Card]" = field(default_factory=list)


def into_tasks(items: Iterable[Item], size: int) -> Iterator[Task]:
    """Cut inputs into tasks of ``size``, or of fewer where their bytes are at hand and many."""
    chunk: list[Item] = []
    number = held = 0
    for item in items:
        chunk.append(item)
        held += len(item.data or b"")
        if len(chunk) == size or held > _HELD:
            yield Task(Place(number), tuple(chunk), held=held)
            chunk, number, held = [], number + 1, 0
    if chunk:
        yield Task(Place(number), tuple(chunk), held=held)


def in_order(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yield blocks in the order of their tasks; those that come early are held back."""
    early: dict[tuple[int, int], Block] = {}
    wanted = (0, 0)
    for block in blocks:
        early[block.place.number, block.place.part] = block
        while (ready := early.pop(wanted, None)) is not None:
            wanted = ready.place.next()
            yield ready
