"""One frame read as a still picture is; digits that stand still are recognised now and then."""

import time
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from neocog.batch.records import REJECTED, Box
from neocog.live.frames import Frame
from neocog.live.recent import RecentAnswers
from neocog.live.roi import Roi
from neocog.live.tracks import Row
from neocog.vision.finder import FinderSettings, Finding

if TYPE_CHECKING:
    from neocog.batch.reader import Reader
    from neocog.network.engine import AnyEngine
    from neocog.vision.page import Layout

LONG_SIDE = 640
"""A frame, or the region of it that is read, is searched at this long side, in pixels."""

MOST = 64
"""Boxes of a frame that are looked at, the finder's best: a desk full of marks takes no longer."""


_SLOW = 28.0  # milliseconds that finding may take: a camera gives a frame every 33
_ENTIRE_EVERY = 4  # frames; the others are reduced where finding is slow
_LEGIBLE = 28  # pixels that the lowest digit keeps then; the digit network sees 20
_LEAST_SIDE = 192  # pixels of a long side; below it no time is saved


@dataclass(frozen=True, slots=True)
class FoundFrame:
    """A frame, and what the finder's network says of it.

    Attributes
    ----------
    frame : Frame
    bounds : tuple of int
        Left, top, width and height of the region that is read.
    grey : ndarray of uint8, shape (H, W)
        The region.
    found : Finding
        Boxes in pixels of the region.
    entire : bool
        Whether it was searched at `LONG_SIDE`, for digits of all sizes.
    ms : float
        Milliseconds that finding took.
    """

    frame: Frame
    bounds: Box
    grey: NDArray[np.uint8]
    found: Finding
    entire: bool
    ms: float


@dataclass(frozen=True, slots=True)
class FrameReading:
    """What one frame alone reads.

    Attributes
    ----------
    found : FoundFrame
    page : Layout
        Its lines; boxes in pixels of the region.
    rows : tuple of Row
        Their digits, top to bottom; boxes in pixels of the frame.
    ms : float
        Milliseconds that recognising took.
    """

    found: FoundFrame
    page: "Layout"
    rows: tuple[Row, ...]
    ms: float


class FrameReader:
    """Reads frames: `find` and `recognise` may be at work at two frames at once.

    Parameters
    ----------
    reader : Reader
    hurry : bool
        Whether frames that do not wait are searched at fewer sizes where finding is slow: while
        digits are in view, three of four are reduced until the lowest is 28 pixels high.
    """

    def __init__(self, reader: "Reader", *, hurry: bool = False) -> None:
        self._reader = copy(reader)
        self._recent = RecentAnswers(reader.engine)
        self._reader.engine = cast("AnyEngine", self._recent)
        self._reader.rotate = 0  # no frame is searched four times
        self._reader.pattern = None  # what does not fit is not announced, nor made to fit
        self._hurry, self._count = hurry, 0
        self._entire_ms = 0.0  # running mean
        self._side = LONG_SIDE  # of frames that are not searched entirely

    def forget(self) -> None:
        """Keep no answer: another stream begins."""
        self._recent.forget()

    def warm(self) -> None:
        """Load all that is needed, so that no frame waits for it."""
        pixels = np.full((480, 640, 3), 200, np.uint8)
        pixels[200:260, 300:308] = 40
        self.recognise(self.find(Frame(0, pixels, 0.0, 0.0)))

    def find(self, frame: Frame, roi: Roi | None = None) -> FoundFrame:
        """Ask the finder's network for the digits of a frame, or of a region of it."""
        import cv2

        start = time.perf_counter()
        left, top, width, height = bounds = (roi or Roi(0, 0, *frame.size)).within(frame.size)
        region = frame.pixels[top : top + height, left : left + width]
        grey = np.asarray(cv2.cvtColor(region, cv2.COLOR_BGR2GRAY), np.uint8)
        slow = self._hurry and self._entire_ms > _SLOW
        entire = not slow or self._count % _ENTIRE_EVERY == 0
        self._count += 1
        side = LONG_SIDE if entire else self._side
        found = self._reader.look(grey, settings=FinderSettings(long_side=side, most=MOST))
        ms = 1e3 * (time.perf_counter() - start)
        if entire:
            self._entire_ms += (ms - self._entire_ms) / 8
        return FoundFrame(frame, bounds, grey, found, entire, ms)

    def recognise(self, found: FoundFrame) -> FrameReading:
        """Choose the digits of a frame among what was found, and recognise them."""
        start = time.perf_counter()
        self._recent.next_frame()
        page = self._reader.find(found.grey, found=found.found)
        read = iter(self._reader.recognise(page.lines))
        left, top = found.bounds[:2]
        rows = []
        for line in page.lines:
            digits = [next(read) for _ in line.digits]
            boxes = [(one.box[0] + left, one.box[1] + top, *one.box[2:]) for one in digits]
            rows.append(
                tuple(replace(one, box=box) for one, box in zip(digits, boxes, strict=True))
            )
        if found.entire:
            self._side = legible(rows, max(found.bounds[2:]))
        return FrameReading(found, page, tuple(rows), 1e3 * (time.perf_counter() - start))


def legible(rows: Sequence[Row], long_side: int) -> int:
    """Return the long side at which the lowest digit that was read is still found."""
    heights = [digit.box[3] for row in rows for digit in row if digit.char != REJECTED]
    wanted = long_side * _LEGIBLE / min(heights) if heights else LONG_SIDE
    return round(min(max(wanted, _LEAST_SIDE), LONG_SIDE))
