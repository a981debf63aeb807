"""Finds the marks of a frame that may be digits."""

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from neocog.batch.records import Box
from neocog.live.frames import Frame
from neocog.live.ink import Grey, Polarity
from neocog.live.look import Found, Roi
from neocog.live.paper import without_desk, without_sheets
from neocog.live.regions import DULL, REGION_SIDE, Part, planned
from neocog.live.sheets import Sheet, find_sheets
from neocog.live.tracks import Track, inside

_ALIKE = 0.5  # share of its area that a sheet keeps from one frame to the next


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
        """
        from neocog.vision.find import Settings, search

        start = time.perf_counter()
        if frame.epoch != self._epoch:
            self._epoch = frame.epoch
            self._forget()
        bounds = roi.within(frame.size) if roi else (0, 0, *frame.size)
        seen = find_sheets(frame.pixels, bounds)
        dull = self._dull(seen)
        parts = planned(self._turn, bounds, seen, tracks, dull=dull)
        self._turn += 1
        sheets = [part.sheet for part in parts if part.sheet]
        pictures: dict[str, NDArray[np.uint8]] = {}
        searches = []
        for number, part in enumerate(parts):
            x, y, width, height = part.region
            grey = self._grey(frame.pixels[y : y + height, x : x + width])
            page = bare(grey, part, sheets)
            ink = self._polarity.of(number) if part.sheet else "auto"
            found = search(
                page,
                settings=Settings(long_side=part.long_side, ink=ink, strips=False),
                cuts=self._cuts,
                trace=pictures.__setitem__ if steps and number == 0 else None,
            )
            if part.sheet:
                self._polarity.note(number, written=bool(found.lines), dark=found.dark)
                self._note(number, part, written=bool(found.lines))
            searches.append(found)
        spent = 1e3 * (time.perf_counter() - start)
        return Found(frame, tuple(searches), parts, bounds, spent, pictures)

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

    def _note(self, number: int, part: Part, *, written: bool) -> None:
        """Count the sharp searches of a sheet that find nothing."""
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


def bare(grey: NDArray[np.uint8], part: Part, sheets: Sequence[Sheet]) -> NDArray[np.uint8]:
    """Return a part of a frame in grey without what is searched elsewhere: desk, or sheets."""
    if part.sheet:
        return without_desk(grey, part.sheet)
    return without_sheets(grey, sheets, part.region[:2])


def trial(*, cuts: bool = True) -> Found:
    """Search a sheet with a few strokes on a grainy desk: all steps are gone through once."""
    frame = np.random.default_rng(0).integers(40, 90, (480, 640, 3)).astype(np.uint8)
    frame[80:400, 80:560] += 120
    for column in range(140, 500, 40):
        frame[180:260, column : column + 6] -= 120
    return Finder(cuts=cuts).find(Frame(0, frame, 0.0, 0.0))
