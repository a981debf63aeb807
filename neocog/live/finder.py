"""Finds the marks of a frame that may be digits."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from neocog.batch.records import Box
from neocog.live.frames import Frame
from neocog.live.ink import Grey, Polarity, in_grey
from neocog.live.look import Found, Marks, Roi
from neocog.live.regions import DULL, REGION_SIDE, Part, planned
from neocog.live.sheets import Sheet, find_sheets
from neocog.live.split import BESIDE, Hints, Task, bare, thought
from neocog.live.tracks import Track, inside

if TYPE_CHECKING:
    from neocog.vision.find import Search

_ALIKE = 0.5  # share of its area that a sheet keeps from one frame to the next


@dataclass(slots=True)
class Searched:
    """What came of a task.

    Attributes
    ----------
    parts : tuple of Part
        All that is searched of the frame, by whomever.
    bounds : tuple of int
        The region that shall be read.
    marks : dict of int to Marks
        By a part's number.
    steps : dict
        Pictures of the steps of the search.
    """

    parts: tuple[Part, ...]
    bounds: Box
    marks: dict[int, Marks] = field(default_factory=dict)
    steps: dict[str, NDArray[np.uint8]] = field(default_factory=dict)

    def found(self, frame: Frame, start: float) -> Found:
        """Return it as what was found in the frame, since a moment, where nothing is left to do."""
        marks = tuple(self.marks[number] for number in range(len(self.parts)))
        spent = 1e3 * (time.perf_counter() - start)
        return Found(frame, marks, self.parts, self.bounds, spent, self.steps)


def joined(answers: Sequence[object]) -> Searched:
    """Join what came of the tasks of a frame."""
    done: Searched | None = None
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, Searched)
        if done is None:
            done = answer
        else:
            done.marks.update(answer.marks)
            done.steps.update(answer.steps)
    assert done is not None
    return done


class Finder:
    """Searches frames, one after another.

    Parameters
    ----------
    cuts : bool
        Whether marks that may be several digits are kept.
    """

    def __init__(self, *, cuts: bool = True) -> None:
        self._cuts, self._epoch = cuts, 0
        self._turn = 0  # frames that were searched
        self._forget()

    def warm(self) -> None:
        """Load all that is needed, so that no frame waits for it."""
        for search in trial(cuts=self._cuts).searches:
            search.digits()

    def close(self) -> None:
        """Find no more."""

    def find(
        self,
        frame: Frame,
        *,
        roi: Roi | None = None,
        tracks: Sequence[Track] = (),
        steps: bool = False,
        pace: int = 1,
        turn: int | None = None,
    ) -> Found:
        """Find the marks of a frame that may be digits.

        Parameters
        ----------
        frame : Frame
        roi : Roi, optional
            Read this region alone.
        tracks : sequence of Track
            Lines that are followed: where they are thought to be is searched.
        steps : bool
            Whether pictures of the steps are kept.
        pace : int
            As `neocog.live.regions.planned`.
        turn : int, optional
            Number of the frame among those that are searched; the next one without it.
        """
        start = time.perf_counter()
        task = Task(pace=pace, turn=self._turn if turn is None else turn)
        self._turn = task.turn + 1
        return self.search(frame, task, roi=roi, tracks=tracks, steps=steps).found(frame, start)

    def search(
        self,
        frame: Frame,
        task: Task,
        *,
        roi: Roi | None = None,
        tracks: Sequence[Track] = (),
        steps: bool = False,
    ) -> Searched:
        """Search what a task says of a frame.

        Parameters
        ----------
        frame, roi, tracks, steps
            As `find`.
        task : Task
        """
        from neocog.vision.find import Settings, search

        if frame.epoch != self._epoch:
            self._epoch = frame.epoch
            self._forget()
        bounds = roi.within(frame.size) if roi else (0, 0, *frame.size)
        seen = find_sheets(frame.pixels, bounds)
        hints, dull = task.hints, self._dull(seen)
        grey: Callable[[NDArray[np.uint8]], NDArray[np.uint8]] = self._grey
        if hints is not None:
            grey = partial(in_grey, channel=hints.channel)
            tracks = [*tracks, *thought(hints.lines, tracks)]
        scouted = hints is not None
        parts = planned(task.turn, bounds, seen, tracks, dull=dull, pace=task.pace, scouted=scouted)
        sheets = [part.sheet for part in parts if part.sheet]
        done = Searched(parts, bounds)
        for number in range(task.first, len(parts), task.every):
            part, ink = parts[number], self._ink(number, parts[number], hints)
            found = search(
                bare(frame, part, grey, sheets),
                settings=Settings(long_side=part.long_side, ink=ink, strips=False),
                cuts=self._cuts,
                trace=done.steps.__setitem__ if steps and number == 0 else None,
            )
            done.marks[number] = found
            if hints is None:
                self._note(number, part, found)
        return done

    def _ink(self, number: int, part: Part, hints: Hints | None) -> str:
        """Say for which ink a part is searched."""
        if hints is None:
            return self._polarity.of(number) if part.sheet else "auto"
        return "dark" if hints.dark.get(number if part.sheet else BESIDE, True) else "bright"

    def _forget(self) -> None:
        """Know nothing of what is before the camera."""
        self._grey, self._polarity = Grey(), Polarity()
        self._nothing: dict[int, tuple[int, Box]] = {}  # sharp searches of sheets without writing

    def _dull(self, sheets: Sequence[Sheet]) -> list[int]:
        """Numbers of the sheets on which sharp searches found nothing; others are forgotten."""
        still = {}
        for number, (times, box) in self._nothing.items():
            if number < len(sheets) and _same(box, sheets[number].box):
                still[number] = times, sheets[number].box
        self._nothing = still
        return [number for number, (times, _) in still.items() if times >= DULL]

    def _note(self, number: int, part: Part, found: "Search") -> None:
        """Keep what a search of a sheet tells of its ink, and count the sharp ones in vain."""
        if not part.sheet:
            return
        written = bool(found.lines)
        self._polarity.note(number, written=written, dark=found.dark)
        if written:
            self._nothing.pop(number, None)
        elif part.long_side == REGION_SIDE:
            times, _ = self._nothing.get(number, (0, part.region))
            self._nothing[number] = times + 1, part.region


def _same(one: Box, other: Box) -> bool:
    """Whether two boxes may be those of one sheet in two frames."""
    larger = max(one[2] * one[3], other[2] * other[3])
    alike = min(one[2] * one[3], other[2] * other[3]) > _ALIKE * larger
    return alike and inside(one, other) and inside(other, one)


def trial(*, cuts: bool = True) -> Found:
    """Search a sheet with a few strokes on a grainy desk: all steps are gone through once."""
    frame = np.random.default_rng(0).integers(40, 90, (480, 640, 3)).astype(np.uint8)
    frame[80:400, 80:560] += 120
    for column in range(140, 500, 40):
        frame[180:260, column : column + 6] -= 120
    return Finder(cuts=cuts).find(Frame(0, frame, 0.0, 0.0))
