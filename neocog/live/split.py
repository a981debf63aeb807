"""One frame's search divided: what each of several processes does of it.

All of them find the sheets and say which parts are searched; none waits for another. Some search
parts, one after another; one judges meanwhile what a search would have to judge first: whether a
part's ink is dark, and which colour shows ink best. Until that is known a part is searched as the
last one was, by another process the other way round, or again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from neocog.batch.records import Box
from neocog.live.finder import bare
from neocog.live.frames import Frame
from neocog.live.ink import clearest_channel, in_grey
from neocog.live.look import Roi
from neocog.live.regions import Part, planned
from neocog.live.sheets import find_sheets
from neocog.live.tracks import Track

if TYPE_CHECKING:
    from neocog.vision.find import Line

BESIDE = -1
"""Stands for all that is on no sheet, where ink is spoken of by the sheet's number."""


@dataclass(frozen=True, slots=True)
class Task:
    """What one process does of a frame.

    Attributes
    ----------
    first, every : int
        It searches every so many parts from the first on; none if ``every`` is 0.
    inks : dict
        "dark" or "bright" by a sheet's number; what is missing must be judged.
    guess : dict
        Whether ink was dark when it was judged last, by a sheet's number or `BESIDE`.
    channel : int or None
        The colour that is searched; None for luma.
    judges : bool
        Whether it judges, for each part of unknown ink, whether that is dark.
    chooses : bool
        Whether it judges which colour shows ink best.
    again : dict
        Only these parts are searched, with this ink.
    inverts : bool
        Whether it searches, of all parts, those of unknown ink alone, and not as is guessed.
    pace : int
        As `neocog.live.regions.planned`.
    """

    first: int = 0
    every: int = 1
    inks: dict[int, str] = field(default_factory=dict)
    guess: dict[int, bool] = field(default_factory=dict)
    channel: int | None = None
    judges: bool = False
    chooses: bool = False
    again: dict[int, str] = field(default_factory=dict)
    inverts: bool = False
    pace: int = 1


@dataclass(slots=True)
class Done:
    """What came of a task.

    Attributes
    ----------
    parts : tuple of Part
    bounds : tuple of int
        The region that shall be read.
    lines : dict
        By a part's number, and whether dark ink was searched, the lines of normalised digits.
    dark : dict
        By a part's number, how its ink was judged, where that was not known.
    channel : tuple
        The colour that shows ink best, if that was judged.
    steps : dict
        Pictures of the steps of the search.
    """

    parts: tuple[Part, ...]
    bounds: Box
    lines: "dict[tuple[int, bool], list[Line]]" = field(default_factory=dict)
    dark: dict[int, bool] = field(default_factory=dict)
    channel: tuple[int | None, ...] = ()
    steps: dict[str, NDArray[np.uint8]] = field(default_factory=dict)

    def ink(self, number: int) -> bool:
        """Whether a part's ink is dark: as it was judged, or as was known."""
        known = self.dark.get(number)
        return (number, True) in self.lines if known is None else known

    def wrong(self) -> dict[int, str]:
        """Return the ink of those parts that were searched for the other one alone."""
        inks = {number: self.ink(number) for number in range(len(self.parts))}
        lacking = {
            number: dark for number, dark in inks.items() if (number, dark) not in self.lines
        }
        return {number: "dark" if dark else "bright" for number, dark in lacking.items()}

    def add(self, other: "Done") -> None:
        """Add what came of another task of the frame."""
        self.lines.update(other.lines)
        self.dark.update(other.dark)
        self.steps.update(other.steps)
        self.channel = self.channel or other.channel


def work(
    frame: Frame,
    task: Task,
    *,
    roi: Roi | None = None,
    tracks: Sequence[Track] = (),
    steps: bool = False,
    cuts: bool = True,
) -> Done:
    """Do a task of a frame.

    Parameters
    ----------
    frame, roi, tracks, steps, cuts
        As `neocog.live.finder.Finder`.
    task : Task
    """
    from neocog.vision.find import Settings, ink_is_dark, search

    bounds = roi.within(frame.size) if roi else (0, 0, *frame.size)
    parts = planned(frame.index, bounds, find_sheets(frame.pixels, bounds), tracks, pace=task.pace)
    sheets = [part.sheet for part in parts if part.sheet]
    done = Done(parts, bounds)
    for number, part in enumerate(parts):
        ink = task.again.get(number) or (task.inks.get(number) if part.sheet else None)
        searched = _searched(number, task, known=ink is not None)
        if not searched and not (task.judges and ink is None):
            continue
        x, y, width, height = part.region
        grey = in_grey(frame.pixels[y : y + height, x : x + width], task.channel)
        page = bare(grey, part, sheets)
        if task.judges and ink is None:
            done.dark[number] = ink_is_dark(page, settings=Settings(long_side=part.long_side))
        if not searched:
            continue
        if ink is None:
            ink = "dark" if task.guess.get(of(number, part), True) != task.inverts else "bright"
        found = search(
            page,
            settings=Settings(long_side=part.long_side, ink=ink),
            cuts=cuts,
            trace=done.steps.__setitem__ if steps and number == 0 else None,
        )
        done.lines[number, ink == "dark"] = found.digits()
    if task.chooses:
        x, y, width, height = parts[0].region
        done.channel = (clearest_channel(frame.pixels[y : y + height, x : x + width]),)
    return done


def of(number: int, part: Part) -> int:
    """Return the number under which a part's ink is remembered."""
    return number if part.sheet else BESIDE


def _searched(number: int, task: Task, *, known: bool) -> bool:
    if task.again:
        return number in task.again
    if task.inverts:
        return not known
    return task.every > 0 and number % task.every == task.first
