"""One frame read as a still picture is, but for what looks as it did: that keeps its reading."""

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import cv2
import numpy as np
from numpy.typing import NDArray

from neocog.errors import UsageError
from neocog.live.capture import Frame
from neocog.live.tracks import Row, Vote, moved
from neocog.reading.numbers import TextLine, each_line
from neocog.reading.records import Box
from neocog.vision.finder import FinderSettings, Finding, overlaps
from neocog.vision.page import around, on_front
from neocog.vision.strips import LEAST

if TYPE_CHECKING:
    from neocog.reading.reader import Reader

LONG_SIDE = 640
"""A frame, or the region of it that is read, is searched at this long side, in pixels."""

_LEAST = 24  # pixels of a region's side
_MOST = 64  # marks of a frame, and places that are held
_READS = 3  # readings of a line after which, if they are the same, it is read again only
_LASTS = 15  # frames later; one in which it looks a little otherwise counts
_UNLIKE = 3  # times
_ROWS = 24  # to which a line is scaled to see whether it is the same
_ALIKE = 0.95  # correlation from which it is,
_CHANGED = 0.85  # and below which nobody knows it
_SAME = 0.75  # share that marks, before and now, have of their union in which they are the same
_SURE = 0.35  # scores of marks that count
_LEGIBLE = 28  # pixels of the searched picture; a lower digit is read where all of it is searched
_ENTIRE_EVERY = 4  # frames
_ENTIRE = FinderSettings(long_side=LONG_SIDE, most=_MOST, fine=math.inf)
_USUAL = replace(_ENTIRE, fine=32.0)  # coarse to fine, less carefully than a picture: other frames vote
_HALF = replace(_ENTIRE, fine=0.0, clear=0.0)  # at half the size alone


@dataclass(frozen=True, slots=True)
class Roi:
    """A region of interest in pixels; or, if no number is above 1, in shares of the frame."""

    x: float
    y: float
    width: float
    height: float

    @staticmethod
    def parse(text: str) -> "Roi":
        """Read ``X,Y,WIDTH,HEIGHT``, or raise UsageError."""
        with suppress(ValueError):
            x, y, width, height = (float(part) for part in text.split(","))
            if all(map(math.isfinite, (x, y, width, height))) and min(x, y) >= 0 and min(width, height) > 0:
                return Roi(x, y, width, height)
        raise UsageError(f"roi '{text}': expected X,Y,WIDTH,HEIGHT, in pixels or as fractions of the frame")

    def within(self, size: tuple[int, int]) -> tuple[Box, str | None]:
        """Return what is read of a frame (width, height); and why, where that is another region."""
        across, down = size if max(self.x, self.y, self.width, self.height) <= 1.0 else (1, 1)
        left, right = round(self.x * across), round((self.x + self.width) * across)
        top, bottom = round(self.y * down), round((self.y + self.height) * down)
        x, y = max(left, 0), max(top, 0)
        box = x, y, min(right, size[0]) - x, min(bottom, size[1]) - y
        frame = f"the frame is {size[0]}x{size[1]}"
        if min(box[2:]) < _LEAST:
            why = f"less than {_LEAST} pixels of it in the frame ({frame}): the whole frame is read"
            return (0, 0, *size), why
        if box != (left, top, right - left, bottom - top):
            return box, f"reaches beyond the frame ({frame}): {','.join(map(str, box))} is read"
        return box, None


@dataclass(frozen=True, slots=True)
class FrameReading:
    """What one frame alone reads."""

    frame: Frame
    bounds: Box  # left, top, width and height of the region that is read
    grey: NDArray[np.uint8]  # its pixels (H, W)
    found: Finding  # what the finder's network says of it, boxes in pixels of the region
    entire: bool  # whether it was searched for the smallest digits
    find_ms: float
    ms: float = 0.0  # that reading its lines took
    votes: tuple[Vote, ...] = ()  # of its lines from top to bottom, boxes in pixels of the frame
    left_out: int = 0  # places that may be digits and are in no line

    @property
    def rows(self) -> tuple[Row, ...]:
        """Its lines, character by character."""
        return tuple(vote.chars for vote in self.votes)


@dataclass(slots=True, eq=False)
class _Held:
    """What was read at a place, while it looks as it did."""

    vote: Vote | None  # None: no number
    place: Box  # around its marks that count, in pixels of the region
    looks: NDArray[np.uint8]  # small
    beside: int  # marks beside it that may be its digits
    reads: int  # that said the same, one after another
    age: int = 0  # frames since the last

    def follow(self, grey: NDArray[np.uint8], sure: Finding | None) -> bool:
        """Move on with the place; False if it is not there any more, or marks are not where they were.

        That is about as large in all, and no more beside it; of None it is not asked.
        """
        (x, y, w, h), edge = self.place, max(1, self.place[3] // 4)
        window, there = _looks(grey, (x - edge, y - edge, w + 2 * edge, h + 2 * edge), h)
        if there.shape[0] < self.looks.shape[0] or there.shape[1] < self.looks.shape[1]:
            return False
        _, alike, _, at = cv2.minMaxLoc(cv2.matchTemplate(there, self.looks, cv2.TM_CCOEFF_NORMED))
        if not alike >= _CHANGED:  # it is no number if all is flat
            return False
        scales = window[2] / there.shape[1], window[3] / there.shape[0]
        dx, dy = (round(window[k] + at[k] * scales[k] - self.place[k]) for k in (0, 1))
        self.place, self.age = (x + dx, y + dy, w, h), self.age + (1 if alike > _ALIKE else _UNLIKE)
        self.vote = self.vote and self.vote.moved(dx, dy)
        if sure is None:
            return True
        near = sure.boxes[_inside(sure, [self.place], 0.5)]
        same = self.reads >= _READS
        if len(near):
            hull = np.array([around(near.tolist())], np.float32)
            same = bool(overlaps(hull, np.array([self.place]))[0][0, 0] > _SAME)
        return same and _beside(self.place, sure) <= self.beside


def _looks(grey: NDArray[np.uint8], box: Box, tall: int | None = None) -> tuple[Box, NDArray[np.uint8]]:
    """The part of a box in a picture, a pixel at least; and that blurred, ``tall`` rows (its own) as 24."""
    (x, y, w, h), (high, wide) = box, grey.shape
    left, top = min(max(x, 0), wide - 1), min(max(y, 0), high - 1)
    w, h = max(1, min(x + w, wide) - left), max(1, min(y + h, high) - top)
    size = [max(2, round(side * _ROWS / (tall or h))) for side in (w, h)]
    small = cv2.resize(grey[top : top + h, left : left + w], size, interpolation=cv2.INTER_AREA)
    return (left, top, w, h), np.asarray(cv2.blur(small, (3, 3)), np.uint8)


def _inside(found: Finding, places: Sequence[Box], wider: float = 0.0) -> NDArray[np.bool_]:
    """Which marks have their middle in a place, or beside it, ``wider`` heights of it at most, (N,)."""
    x, y = found.middles.T[:, :, None]
    left, top, w, h = np.array(places, np.float64).reshape(-1, 4).T
    across = (x > left - wider * h) & (x < left + w + wider * h)
    return np.asarray((across & (y > top) & (y < top + h)).any(axis=1))


def _beside(place: Box, marks: Finding) -> int:
    """How many marks stand beside a line, less than its height away."""
    return int(_inside(marks, [place], 1.0).sum() - _inside(marks, [place]).sum())


class FrameReader:
    """Reads frame after frame; `find` and `recognise` may run in two threads.

    No frame is turned or made to fit a pattern. What looks as it did keeps its reading; in each frame a few
    lines are read, all in turn. With ``hurry`` (a camera's), on a CPU, the work of a frame is bounded: three
    of four are searched at half the size; none is read after one that was, nor large digits where all is
    searched.
    """

    def __init__(self, reader: "Reader", *, hurry: bool = False) -> None:
        slow = reader.finder.device == "cpu"  # a GPU searches all in the same time
        self._reader, self._hurry, self._count = reader, hurry and slow, 0
        self._usual = _HALF if self._hurry else _USUAL if slow else _ENTIRE
        self._small = False  # whether there are digits to be read that only an entire search sees well
        self._entire = False  # whether the last frame was searched entirely
        self._rest = False  # whether the last frame read lines
        self._held = list[_Held]()
        self._done = list[Box]()  # places that were read while others wait
        self._searched: Box | None = None  # bounds of the last frame, of `find` and of `recognise`
        self._bounds: Box | None = None

    def find(self, frame: Frame, roi: Roi | None = None) -> FrameReading:
        """Ask the finder's network for the digits of a frame, or of a region of it."""
        start = time.perf_counter()
        bounds = roi.within(frame.size)[0] if roi else (0, 0, *frame.size)
        left, top, width, height = bounds
        region = frame.pixels[top : top + height, left : left + width]
        grey = np.asarray(cv2.cvtColor(region, cv2.COLOR_BGR2GRAY), np.uint8)
        small = self._small and not (self._hurry and self._entire)
        self._entire = small or self._count % _ENTIRE_EVERY == 0 or bounds != self._searched
        self._count, self._searched = self._count + 1, bounds
        found = self._reader.look(grey, settings=_ENTIRE if self._entire else self._usual)
        return FrameReading(frame, bounds, grey, found, self._entire, 1e3 * (time.perf_counter() - start))

    def recognise(self, seen: FrameReading) -> FrameReading:
        """Read the lines of a frame around what was found."""
        start, grey, (left, top) = time.perf_counter(), seen.grey, seen.bounds[:2]
        found = seen.found[seen.found.scores >= LEAST]
        likely, known = found.scores >= _SURE, self._held if seen.bounds == self._bounds else []
        sure, whole = found[likely], seen.entire or not self._hurry

        # what looks as it did keeps its reading
        self._held = [one for one in known if one.follow(grey, sure if whole else None)]
        self._bounds = seen.bounds

        # wanted: marks that are new, and those that were not read often enough or lately
        new = likely & ~_inside(found, [one.place for one in self._held], 0.5)
        due = [one.place for one in self._held if one.reads < _READS or one.age >= _LASTS]
        wanted = new | (likely & _inside(found, due))
        least = _LEGIBLE * max(seen.bounds[2:]) / LONG_SIDE
        if self._hurry:  # small digits are read where all was searched, with all others, and else none
            small = bool((wanted & (found.boxes[:, 3] < least) & (found.kinds < 10)).any())
            wanted &= small or self._small if seen.entire else not (small or self._rest)
            self._small = small
        self._rest = bool(wanted.any())

        # read their lines, first those that waited while others were read, and hold them
        lines = list[tuple[list[int], TextLine | None]]()
        if self._rest:
            front = on_front(grey, found)
            found, wanted = found[front], wanted[front]
            waiting = wanted & ~_inside(found, self._done)
            if not waiting.any():
                self._done, waiting = [], wanted
            lines = list(each_line(self._reader, grey, found, waiting))
            lines = lines or [([k], None) for k in np.flatnonzero(waiting).tolist()]
        for own, line in lines:
            marks, vote = found[own], None
            if line is not None:
                chars = moved(line.chars, left, top)
                vote = Vote(chars, line.logp, line.number.texts, given=line.margin is not None)
            before = [one for one in self._held if _inside(marks, [one.place]).any()]
            said = vote and vote.leading[0]
            same = [one.reads for one in before if (one.vote and one.vote.leading[0]) == said]
            likely_ones = marks.boxes[marks.scores >= min(_SURE, marks.scores.max())].tolist()
            hull = np.rint(around(likely_ones)).astype(int).tolist()
            (place, looks), reads = _looks(grey, hull), 1 + max(same, default=0)
            self._held = [one for one in self._held if one not in before]
            self._held = [*self._held[1 - _MOST :], _Held(vote, place, looks, _beside(place, sure), reads)]
            self._done = [*self._done[1 - _MOST :], place]

        # what all held lines say of this frame
        votes = [one.vote for one in self._held if one.vote]
        if seen.entire and not self._hurry:
            self._small = any(c.char.isdigit() and c.box[3] < least for vote in votes for c in vote.chars)
        left_out = len(sure) - int(_inside(sure, [one.place for one in self._held if one.vote]).sum())
        votes.sort(key=lambda vote: vote.chars[0].box[1])
        ms = 1e3 * (time.perf_counter() - start)
        return replace(seen, votes=tuple(votes), left_out=left_out, ms=ms)
