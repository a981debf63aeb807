"""One frame read as a still is: digits found in it, then recognised, nothing taken from before."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from neocog.batch.records import Box, DigitReading
from neocog.errors import UsageError
from neocog.live.frames import Frame

if TYPE_CHECKING:
    from neocog.batch.reader import Reader
    from neocog.vision.find import Line, Settings

LONG_SIDE = 1024
"""Frames are searched at this long side, in pixels; larger ones are reduced to it."""

_LEAST_ROI = 24  # pixels of a side of the region that is read

Row = tuple[DigitReading, ...]
"""A line of a frame, from left to right."""


@dataclass(frozen=True, slots=True)
class Roi:
    """The region of a frame that is read.

    Attributes
    ----------
    x, y, width, height : float
        In pixels; or, if none is above 1, in shares of the frame.
    """

    x: float
    y: float
    width: float
    height: float

    @staticmethod
    def parse(text: str) -> "Roi":
        """Read ``X,Y,WIDTH,HEIGHT``.

        Raises
        ------
        UsageError
            If it is something else.
        """
        try:
            x, y, width, height = (float(part) for part in text.split(","))
        except ValueError:
            x = y = width = height = -1.0
        if min(x, y) < 0 or min(width, height) <= 0 or not np.isfinite((x, y, width, height)).all():
            raise UsageError(
                f"roi '{text}': X,Y,WIDTH,HEIGHT is wanted, in pixels or in shares of the frame"
            )
        return Roi(x, y, width, height)

    def within(self, size: tuple[int, int]) -> Box:
        """Return the region in a frame of a size (width, height); all of it if nothing is left."""
        width, height = size
        shares = max(self.x, self.y, self.width, self.height) <= 1.0
        across, down = (width, height) if shares else (1, 1)
        left = min(max(round(self.x * across), 0), width)
        top = min(max(round(self.y * down), 0), height)
        right = min(round((self.x + self.width) * across), width)
        bottom = min(round((self.y + self.height) * down), height)
        if min(right - left, bottom - top) < _LEAST_ROI:
            return 0, 0, width, height
        return left, top, right - left, bottom - top


@dataclass(frozen=True, slots=True)
class Found:
    """What was found in a frame, not yet recognised.

    Attributes
    ----------
    frame : Frame
    lines : sequence of Line
        Places in pixels of the region.
    region : tuple of int
        Left, top, width and height of what was searched, in pixels of the frame.
    ms : float
        What finding took.
    steps : dict
        Pictures of the steps of the search, if they were asked for.
    """

    frame: Frame
    lines: "Sequence[Line]"
    region: Box
    ms: float
    steps: dict[str, NDArray[np.uint8]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Seen:
    """What was read in one frame.

    Attributes
    ----------
    found : Found
    rows : tuple of Row
        Its lines, boxes in pixels of the frame.
    ms : float
        What the network took.
    """

    found: Found
    rows: tuple[Row, ...]
    ms: float


def find(
    reader: "Reader",
    frame: Frame,
    *,
    settings: "Settings",
    roi: Roi | None = None,
    steps: bool = False,
) -> Found:
    """Find the digits of a frame.

    Parameters
    ----------
    reader : Reader
    frame : Frame
    settings : Settings
        Of the search.
    roi : Roi, optional
        Read this region alone.
    steps : bool
        Whether pictures of the steps are kept.
    """
    start = time.perf_counter()
    region = roi.within(frame.size) if roi else (0, 0, *frame.size)
    pictures: dict[str, NDArray[np.uint8]] = {}
    lines = reader.find(
        grey_of(frame.pixels, region),
        settings=settings,
        trace=pictures.__setitem__ if steps else None,
    )
    return Found(frame, lines, region, 1e3 * (time.perf_counter() - start), pictures)


def recognise(reader: "Reader", found: Found) -> Seen:
    """Recognise all digits of a frame, in one batch."""
    start = time.perf_counter()
    x, y, width, height = found.region
    digits = iter(reader.recognise(found.lines, (height, width)))
    rows = tuple(tuple(_moved(next(digits), x, y) for _ in line.digits) for line in found.lines)
    return Seen(found, rows, 1e3 * (time.perf_counter() - start))


def grey_of(pixels: NDArray[np.uint8], region: Box) -> NDArray[np.uint8]:
    """Return a region of a frame (H, W, 3; blue, green, red) in the grey that shows ink best."""
    import cv2

    from neocog.vision.decode import to_grey

    x, y, width, height = region
    part = pixels[y : y + height, x : x + width]
    return to_grey(np.asarray(cv2.cvtColor(part, cv2.COLOR_BGR2RGB)))


def _moved(digit: DigitReading, x: int, y: int) -> DigitReading:
    left, top, width, height = digit.box
    return replace(digit, box=(left + x, top + y, width, height))
