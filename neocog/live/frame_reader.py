"""One frame read as a still picture is: digits found, then recognised; nothing is kept of others."""

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from neocog.batch.records import Box
from neocog.live.frames import Frame
from neocog.live.roi import Roi
from neocog.live.tracks import Row

if TYPE_CHECKING:
    from neocog.batch.reader import Reader
    from neocog.vision.page import Layout


@dataclass(frozen=True, slots=True)
class FoundFrame:
    """A frame and the digits that were found in it.

    Attributes
    ----------
    frame : Frame
    bounds : tuple of int
        Left, top, width and height of the region that is read.
    page : Layout
        What was found; boxes in pixels of the region.
    ms : float
        Milliseconds that finding took.
    """

    frame: Frame
    bounds: Box
    page: "Layout"
    ms: float


@dataclass(frozen=True, slots=True)
class FrameReading:
    """What one frame alone reads.

    Attributes
    ----------
    found : FoundFrame
    rows : tuple of Row
        Its lines, top to bottom; boxes in pixels of the frame.
    ms : float
        Milliseconds that recognising took.
    """

    found: FoundFrame
    rows: tuple[Row, ...]
    ms: float

    @property
    def middle_digit(self) -> NDArray[np.uint8] | None:
        """The digit (28, 28) in the middle of the first line; None where there is no line."""
        lines = [line for line in self.found.page.lines if line.digits]
        return lines[0].digits[len(lines[0].digits) // 2].digit if lines else None


class FrameReader:
    """Reads frames.

    Parameters
    ----------
    reader : Reader
    """

    def __init__(self, reader: "Reader") -> None:
        self._reader = reader

    def find(self, frame: Frame, roi: Roi | None = None) -> FoundFrame:
        """Find the digits of a frame, or of a region of it."""
        import cv2

        start = time.perf_counter()
        left, top, width, height = bounds = (roi or Roi(0, 0, *frame.size)).within(frame.size)
        region = frame.pixels[top : top + height, left : left + width]
        grey = np.asarray(cv2.cvtColor(region, cv2.COLOR_BGR2GRAY), np.uint8)
        page = self._reader.find(grey)
        return FoundFrame(frame, bounds, page, 1e3 * (time.perf_counter() - start))

    def warm(self) -> None:
        """Load all that is needed, so that no frame waits for it."""
        pixels = np.full((480, 640, 3), 200, np.uint8)
        pixels[200:260, 300:308] = 40
        self.recognise(self.find(Frame(0, pixels, 0.0, 0.0)))

    def recognise(self, found: FoundFrame) -> FrameReading:
        """Recognise the digits of a frame, all in one batch."""
        start = time.perf_counter()
        lines = [line for line in found.page.lines if line.digits]
        left, top = found.bounds[:2]
        read = iter(self._reader.recognise(lines))
        rows = []
        for line in lines:
            digits = [next(read) for _ in line.digits]
            rows.append(
                tuple(
                    replace(digit, box=(digit.box[0] + left, digit.box[1] + top, *digit.box[2:]))
                    for digit in digits
                )
            )
        return FrameReading(found, tuple(rows), 1e3 * (time.perf_counter() - start))
