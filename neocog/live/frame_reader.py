"""One frame read as a still picture is; answers for digits that stand still are kept."""

import math
import time
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from neocog.errors import UsageError
from neocog.live.capture import Frame
from neocog.live.tracks import Row
from neocog.network.cache import AnswerCache
from neocog.reading.records import REJECTED, Box
from neocog.vision.finder import FinderSettings, Finding
from neocog.vision.page import Layout
from neocog.vision.weigh import SearchSettings

if TYPE_CHECKING:
    from neocog.network.engine import AnyEngine
    from neocog.reading.reader import Reader

LONG_SIDE = 640
"""A frame, or the region of it that is read, is searched at this long side, in pixels."""

MOST = 64
"""Boxes of a frame that are looked at, the finder's best: a desk full of marks takes no longer."""

ALIKE = 0.95
"""Cosine between two digits (28 x 28) from which they are one; of such pairs from two frames
running the network takes 99 % for the same digit (``python -m experiments.live.measure alike``)."""

_LEAST = 24  # pixels of a region's side
#: Frames for which an answer holds, in turn: digits do not fall due together, and no single answer
#: is announced, since that takes `neocog.live.announce.Rules.hold` frames.
_LIVES = (3, 4)
_SLOW = 28.0  # milliseconds that finding may take: a camera gives a frame every 33
_LEGIBLE = 28  # pixels of the searched picture; with a lower digit, all of each frame is read
_ENTIRE_EVERY = 4  # frames
_ENTIRE = FinderSettings(long_side=LONG_SIDE, most=MOST, fine=math.inf)
#: On a CPU coarse to fine, less carefully than a picture: other frames vote, too.
_USUAL = FinderSettings(long_side=LONG_SIDE, most=MOST, fine=32.0)
_HURRIED = replace(_USUAL, clear=0.0)
#: Fewer pixels of large digits than of a picture's: it is quicker, and other frames vote, too.
_SEARCH = SearchSettings(reduced=48)


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
        """Return what is read of a frame of a size (width, height).

        All of it if nothing of the region is left; and why another region than this one is read.
        """
        shares = max(self.x, self.y, self.width, self.height) <= 1.0
        across, down = size if shares else (1, 1)
        left, right = round(self.x * across), round((self.x + self.width) * across)
        top, bottom = round(self.y * down), round((self.y + self.height) * down)
        whole = (left, top, right - left, bottom - top)
        left, top = max(left, 0), max(top, 0)
        box = (left, top, min(right, size[0]) - left, min(bottom, size[1]) - top)
        frame = f"the frame is {size[0]}x{size[1]}"
        if min(box[2:]) < _LEAST:
            why = f"less than {_LEAST} pixels of it in the frame ({frame}): the whole frame is read"
            return (0, 0, *size), why
        if box != whole:
            return box, f"reaches beyond the frame ({frame}): {','.join(map(str, box))} is read"
        return box, None


class RecentCache(AnswerCache):
    """A cache for the digits of the last frames, which may have changed a little.

    On a CPU a digit takes the network 2 ms, a tenth of what a frame may take.
    """

    _asked = 0

    def forget(self) -> None:
        """Empty the cache."""
        super().forget()
        self._digits = np.zeros((0, 28 * 28), np.float32)  # of length 1
        self._left = np.zeros(0, np.int64)  # frames for which each answer still holds

    def next_frame(self) -> None:
        """Begin with a new frame: answers that are too old are forgotten."""
        self._left -= 1
        kept = np.flatnonzero(self._left > 0)
        self._digits, self._left = self._digits[kept], self._left[kept]
        self._answers = self._answers[kept]

    def _find(self, digits: NDArray[np.uint8]) -> NDArray[np.int64]:
        if not len(digits) or not len(self._digits):
            return np.full(len(digits), -1)
        alike = _unit(digits) @ self._digits.T
        return np.where(alike.max(axis=1) >= ALIKE, alike.argmax(axis=1), -1)

    def _add(self, digits: NDArray[np.uint8], rows: NDArray[np.int64]) -> None:
        lives = np.take(_LIVES, np.arange(self._asked, self._asked + len(rows)), mode="wrap")
        self._digits = np.concatenate([self._digits, _unit(digits)])
        self._left = np.concatenate([self._left, lives])
        self._asked += len(rows)


def _unit(digits: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Digits as vectors of length 1."""
    flat = digits.reshape(len(digits), -1).astype(np.float32)
    flat /= np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1.0)
    return flat


@dataclass(frozen=True, slots=True)
class FrameReading:
    """What one frame alone reads."""

    frame: Frame
    bounds: Box  # left, top, width and height of the region that is read
    grey: NDArray[np.uint8]  # its pixels (H, W)
    found: Finding  # what the finder's network says of it, boxes in pixels of the region
    entire: bool  # whether all of it was searched for the smallest digits
    find_ms: float
    ms: float = 0.0  # that choosing and recognising took
    page: Layout = field(default_factory=Layout)  # digits as they were cut out, as ``found``
    rows: tuple[Row, ...] = ()  # the lines from top to bottom, boxes in pixels of the frame


class FrameReader:
    """Reads frame after frame; `find` and `recognise` may run in two threads.

    Parameters
    ----------
    reader : Reader
        Not changed; its pattern does not hold here.
    hurry : bool
        Whether frames do not wait (a camera's): where finding takes longer than 28 ms on a CPU,
        frames without a clear digit are halved, but for every fourth and those with small digits.
    """

    def __init__(self, reader: "Reader", *, hurry: bool = False) -> None:
        self._cache = RecentCache(reader.engine)
        self._reader = copy(reader)
        self._reader.engine = cast("AnyEngine", self._cache)
        self._reader.rotate = 0  # no frame is searched four times
        self._reader.pattern = None  # what does not fit is not announced, nor made to fit
        self._hurry, self._count = hurry, 0
        self._ms = 0.0  # that finding takes, running mean
        self._small = False  # whether the last entire frame had digits that are hardly legible

    def forget(self) -> None:
        """Keep no answer: another stream begins."""
        self._cache.forget()

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
        """Choose the digits of a frame among what was found, and recognise them."""
        start = time.perf_counter()
        self._cache.next_frame()
        page = self._reader.find(seen.grey, found=seen.found, settings=_SEARCH)
        left, top, *sides = seen.bounds
        digits = [
            replace(digit, box=(digit.box[0] + left, digit.box[1] + top, *digit.box[2:]))
            for digit in self._reader.recognise(page.lines)
        ]
        if seen.entire:
            heights = [digit.box[3] for digit in digits if digit.char != REJECTED]
            self._small = min(heights, default=math.inf) * LONG_SIDE < _LEGIBLE * max(sides)
        rest = iter(digits)
        rows = tuple(tuple(next(rest) for _ in line.digits) for line in page.lines)
        ms = 1e3 * (time.perf_counter() - start)
        return replace(seen, page=page, rows=rows, ms=ms)
