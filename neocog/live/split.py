"""One frame's search divided: what each of several processes does of it, and what a scout tells.

All find the sheets and say which parts are searched (`neocog.live.finder`); none waits for another.
What takes long and is needed now and then - all of the frame, a sheet twice as sharply, whether ink
is dark, which colour shows it - a scout does beside, in the frames that it has time for. Nothing
that it finds is read: it tells the others where to search, how sharply, and for which ink.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from neocog.batch.records import Box
from neocog.live.frames import Frame
from neocog.live.ink import clearest_channel, in_grey
from neocog.live.look import Roi
from neocog.live.paper import without_desk, without_sheets
from neocog.live.regions import THOUGHT, WHOLE_SIDE, Part, legible
from neocog.live.sheets import Sheet, find_sheets
from neocog.live.tracks import Digit, Track, inside

if TYPE_CHECKING:
    from neocog.vision.find import Search

_LONGEST, _MOST = 20, 6  # digits of a line, and lines; more beside the sheets is texture

BESIDE = -1
"""Stands for all that is on no sheet, where ink is spoken of by the sheet's number."""


@dataclass(frozen=True, slots=True)
class Hints:
    """What a scout knows.

    Attributes
    ----------
    dark : dict
        Whether ink is dark, by a sheet's number or `BESIDE`.
    channel : int or None
        The colour that shows ink best; None for luma.
    lines : tuple
        Where something may stand: boxes in the frame, line by line; of a full sheet the line that
        must be searched most sharply stands for all.
    epoch : int
        Of the frame in which that was seen: it says nothing about those of another.
    """

    dark: dict[int, bool] = field(default_factory=dict)
    channel: int | None = None
    lines: tuple[tuple[Box, ...], ...] = ()
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Task:
    """What one process does of a frame.

    Attributes
    ----------
    first, every : int
        It searches every so many parts from the first on.
    hints : Hints or None
        What the scout knows; None: nothing, and all is searched that it would search.
    scouts : bool
        Whether it is the scout.
    chooses : bool
        Whether the scout judges which colour shows ink best.
    pace : int
        As `neocog.live.regions.planned`.
    turn : int
        Number of the frame among those that are searched.
    """

    first: int = 0
    every: int = 1
    hints: Hints | None = None
    scouts: bool = False
    chooses: bool = False
    pace: int = 1
    turn: int = 0


def scout(
    frame: Frame, task: Task, *, roi: Roi | None = None, tracks: Sequence[Track] = ()
) -> Hints:
    """Search a frame for all that those whom it tells are spared.

    Parameters
    ----------
    frame, roi, tracks
        As `neocog.live.finder.Finder`.
    task : Task
    """
    from neocog.vision.find import Settings, search

    bounds = roi.within(frame.size) if roi else (0, 0, *frame.size)
    sheets = find_sheets(frame.pixels, bounds)
    parts = [Part(bounds, WHOLE_SIDE, entire=True)]
    shown = [track for track in tracks if track.shown]
    for sheet in sheets:
        own = [track for track in shown if inside(track.digits[0].box, sheet.box)]
        side = legible(sheet.box, own, sharp=True)
        parts.append(Part(sheet.box, side, entire=True, sheet=sheet))
    known = task.hints or Hints()
    channel = known.channel
    if task.chooses:
        x, y, width, height = parts[-1].region
        channel = clearest_channel(frame.pixels[y : y + height, x : x + width])
    dark, lines = dict(known.dark), []
    for number, part in enumerate(parts, BESIDE):
        page = bare(frame, part, partial(in_grey, channel=channel), sheets)
        found = search(page, settings=Settings(long_side=part.long_side, strips=False))
        if found.lines:
            dark[number] = found.dark
            lines += _told(_boxes(found, part), on_sheet=part.sheet is not None)
    return Hints(dark, channel, tuple(lines), frame.epoch)


def _told(lines: list[tuple[Box, ...]], *, on_sheet: bool) -> list[tuple[Box, ...]]:
    """Lines of a part that are told of. A sheet is searched as its lowest line needs it, always."""
    if on_sheet:
        return lines if len(lines) <= _MOST else [min(lines, key=_height)]
    likely = [line for line in lines if 1 < len(line) <= _LONGEST]
    return likely if len(likely) <= _MOST else []


def _height(line: tuple[Box, ...]) -> float:
    return median(box[3] for box in line)


def thought(lines: Sequence[Sequence[Box]], tracks: Sequence[Track]) -> list[Track]:
    """Return lines for what a scout found where none is followed."""
    followed = [digit.box for track in tracks for digit in track.digits]
    return [
        Track(THOUGHT, tuple(Digit(box, (None,), "0", 1.0, present=True) for box in line))
        for line in lines
        if not any(inside(box, other) for box in line for other in followed)
    ]


def bare(
    frame: Frame,
    part: Part,
    grey: Callable[[NDArray[np.uint8]], NDArray[np.uint8]],
    sheets: Sequence[Sheet],
) -> NDArray[np.uint8]:
    """Return a part of a frame in grey without what is searched elsewhere: desk, or sheets."""
    x, y, width, height = part.region
    page = grey(frame.pixels[y : y + height, x : x + width])
    return without_desk(page, part.sheet) if part.sheet else without_sheets(page, sheets, (x, y))


def _boxes(found: "Search", part: Part) -> list[tuple[Box, ...]]:
    """Boxes in the frame of what was found in a part, line by line."""
    x, y = part.region[:2]
    lines = []
    for line in found.lines:
        boxes = [tuple(round(value / found.scale) for value in mark.box) for mark in line]
        lines.append(tuple((x + left, y + top, wide, high) for left, top, wide, high in boxes))
    return lines
