"""One frame read as a still picture is; readings of lines that stand still are kept."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from neocog.errors import UsageError
from neocog.live.capture import Frame
from neocog.live.tracks import Row, Vote, moved
from neocog.reading.numbers import read_lines
from neocog.reading.records import Box
from neocog.reading.words import around
from neocog.vision.finder import FinderSettings, Finding

if TYPE_CHECKING:
    from neocog.reading.reader import Reader

LONG_SIDE = 640
"""A frame, or the region of it that is read, is searched at this long side, in pixels."""

_LEAST = 24  # pixels of a region's side
_LIVES = (2, 3)  # frames for which a reading holds, in turn: no single one is then agreed on for `HOLD`
_AGAIN = 10.0  # widths of lines, in their heights, that are read again in a frame; others hold for one more
_ROWS = 24  # to which a line is scaled to see whether it is the same
_ALIKE = 0.95  # correlation from which it is
_SURE = 0.35  # scores of marks that count
_SLOW = 28.0  # milliseconds that finding may take: a camera gives a frame every 33
_LEGIBLE = 28  # pixels of the searched picture; with a lower digit, all of each frame is read
_ENTIRE_EVERY = 4  # frames
_ENTIRE = FinderSettings(long_side=LONG_SIDE, most=64, fine=math.inf)
_USUAL = replace(_ENTIRE, fine=32.0)  # coarse to fine, less carefully than a picture: other frames vote
_HURRIED = replace(_USUAL, clear=0.0)


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
        try:
            x, y, width, height = (float(part) for part in text.split(","))
        except ValueError:
            x = y = width = height = -1.0
        finite = all(map(math.isfinite, (x, y, width, height)))
        if not finite or min(x, y) < 0 or min(width, height) <= 0:
            raise UsageError(
                f"roi '{text}': expected X,Y,WIDTH,HEIGHT, in pixels or as fractions of the frame"
            )
        return Roi(x, y, width, height)

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
    entire: bool  # whether all of it was searched for the smallest digits
    find_ms: float
    ms: float = 0.0  # that reading its lines took
    votes: tuple[Vote, ...] = ()  # of its lines from top to bottom, boxes in pixels of the frame
    left_out: int = 0  # places that may be digits and are in no line

    @property
    def rows(self) -> tuple[Row, ...]:
        """Its lines, character by character."""
        return tuple(vote.chars for vote in self.votes)


@dataclass(slots=True)
class _Held:
    """What was read of a line, for some frames more, while its place looks as it did."""

    vote: Vote
    place: Box  # in pixels of the region
    looks: NDArray[np.uint8]  # small
    beside: int  # marks beside it that may be its digits
    left: int


class RecentLines:
    """Lines of the last frames, which may have moved a little: while one looks the same its reading holds."""

    def __init__(self) -> None:
        self._held = list[_Held]()
        self._bounds: Box | None = None
        self._count = 0

    def take(self, seen: "FrameReading") -> tuple[list[Vote], Finding]:
        """Return the lines that still hold, and what was found elsewhere."""
        found, held = seen.found, self._held if seen.bounds == self._bounds else []
        marks = found[found.scores >= _SURE]
        votes, rest = list[Vote](), np.ones(len(found), np.bool_)
        self._held, self._bounds, again = [], seen.bounds, 0.0
        for one in held:  # the longest held first
            if one.left <= 0 and (again < _AGAIN or one.left < 0):
                again += 1 + one.place[2] / one.place[3]
                continue
            if (moved := _moved(one, seen.grey)) is None:
                continue
            dx, dy = moved
            x, y, w, h = one.place
            one.place = x + dx, y + dy, w, h
            if _beside(one.place, marks) > one.beside:
                continue
            one.vote = one.vote.moved(dx, dy)
            one.left -= 1
            rest &= ~_around(one.place, found, one.place[3] // 2)  # farther ones may be of another line
            votes.append(one.vote)
            self._held.append(one)
        return votes, found[rest]

    def keep(self, seen: "FrameReading", votes: Sequence[Vote]) -> None:
        """Hold what was read just now."""
        marks = seen.found[seen.found.scores >= _SURE]
        for vote in votes:
            x, y, w, h = around([char.box for char in vote.chars])
            place = x - seen.bounds[0], y - seen.bounds[1], w, h
            looks = _small(seen.grey, place, h)
            if looks is not None:
                left = _LIVES[self._count % len(_LIVES)] - 1
                self._held.append(_Held(vote, place, looks, _beside(place, marks), left))
                self._count += 1


def _small(grey: NDArray[np.uint8], place: Box, tall: int, edge: int = 0) -> NDArray[np.uint8] | None:
    """A place and an ``edge`` around it, blurred, ``tall`` rows as 24; None beyond the picture."""
    import cv2

    x, y, w, h = place
    x, y, w, h = x - edge, y - edge, w + 2 * edge, h + 2 * edge
    if min(x, y) < 0 or x + w > grey.shape[1] or y + h > grey.shape[0]:
        return None
    size = [max(2, round(side * _ROWS / tall)) for side in (w, h)]
    small = cv2.resize(grey[y : y + h, x : x + w], size, interpolation=cv2.INTER_AREA)
    return np.asarray(cv2.blur(small, (3, 3)), np.uint8)


def _moved(one: _Held, grey: NDArray[np.uint8]) -> tuple[int, int] | None:
    """By how many columns and rows a line has moved; None if it is not there any more, or changed."""
    import cv2

    tall = one.place[3]
    edge = max(1, tall // 4)
    window = _small(grey, one.place, tall, edge)
    if window is None:
        return None
    _, alike, _, at = cv2.minMaxLoc(cv2.matchTemplate(window, one.looks, cv2.TM_CCOEFF_NORMED))
    if alike < _ALIKE:
        return None
    sides = zip(at, one.place[2:], window.shape[::-1], strict=True)
    dx, dy = (round(start * (side + 2 * edge) / small - edge) for start, side, small in sides)
    return dx, dy


def _around(place: Box, found: Finding, wider: int) -> NDArray[np.bool_]:
    """Which marks have their middle in a line, or beside it, ``wider`` pixels at most."""
    x, y, w, h = place
    middle = found.boxes[:, :2] + found.boxes[:, 2:] / 2
    inside = (middle > [x - wider, y]) & (middle < [x + w + wider, y + h])
    return np.asarray(inside.all(axis=1))


def _beside(place: Box, marks: Finding) -> int:
    """How many marks stand beside a line, less than its height away."""
    return int(_around(place, marks, place[3]).sum() - _around(place, marks, 0).sum())


class FrameReader:
    """Reads frame after frame; `find` and `recognise` may run in two threads.

    No frame is turned or made to fit a pattern. With ``hurry`` (a camera's), if finding takes over 28 ms on a
    CPU, frames without a clear digit are halved, but for every fourth and those with small digits.
    """

    def __init__(self, reader: "Reader", *, hurry: bool = False) -> None:
        self._reader, self._hurry, self._count = reader, hurry, 0
        self._ms = 0.0  # that finding takes, running mean
        self._small = False  # whether the last entire frame had digits that are hardly legible
        self._recent = RecentLines()

    def warm(self) -> None:
        """Load all that is needed, so that no frame waits for it."""
        pixels = np.full((480, 640, 3), 200, np.uint8)
        pixels[200:260, 300:308] = 40
        self.recognise(self.find(Frame(0, pixels, 0.0, 0.0)))

    def find(self, frame: Frame, roi: Roi | None = None) -> FrameReading:
        """Ask the finder's network for the digits of a frame, or of a region of it."""
        import cv2

        start = time.perf_counter()
        bounds = roi.within(frame.size)[0] if roi else (0, 0, *frame.size)
        left, top, width, height = bounds
        region = frame.pixels[top : top + height, left : left + width]
        grey = np.asarray(cv2.cvtColor(region, cv2.COLOR_BGR2GRAY), np.uint8)
        entire = self._small or self._count % _ENTIRE_EVERY == 0
        self._count += 1
        others = _HURRIED if self._hurry and self._ms > _SLOW else _USUAL
        found = self._reader.look(grey, settings=_ENTIRE if entire else others)
        ms = 1e3 * (time.perf_counter() - start)
        if others is _USUAL or entire:
            self._ms += (ms - self._ms) / 8
        return FrameReading(frame, bounds, grey, found, entire, ms)

    def recognise(self, seen: FrameReading) -> FrameReading:
        """Read the lines of a frame around what was found."""
        start = time.perf_counter()
        left, top, *sides = seen.bounds
        votes, rest = self._recent.take(seen)
        lines, left_out = read_lines(self._reader, seen.grey, rest, apart=True)
        new = []
        for line in lines:
            chars = moved(line.chars, left, top)
            new.append(Vote(chars, line.logp, line.number.texts, given=line.margin is not None))
        self._recent.keep(seen, new)
        votes = sorted([*votes, *new], key=lambda vote: vote.chars[0].box[1])
        if seen.entire:
            heights = [c.box[3] for vote in votes for c in vote.chars if c.char.isdigit()]
            self._small = min(heights, default=math.inf) * LONG_SIDE < _LEGIBLE * max(sides)
        ms = 1e3 * (time.perf_counter() - start)
        return replace(seen, votes=tuple(votes), left_out=left_out, ms=ms)
