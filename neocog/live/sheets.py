"""Sheets of paper in a frame: even, four-sided places that stand out from what is around them.

A desk full of texture costs the search ten times what a sheet does, and hides what is written on
the sheet. In a small picture the writing is closed over (each place takes the brightness of the
paper around its strokes), and at every level of brightness, and of colour, the connected places
are looked at: what fills its smallest rectangle to the corners is a sheet.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neocog.batch.records import Box

_SIDE = 80  # long side of the picture that is looked at, in pixels
_CLOSED = 7  # strokes are narrower than so many of its pixels
_LEVELS = 6  # of brightness, and as many of colour
_LEAST = 0.03  # share of the frame that a sheet takes at least
_MOST = 0.85  # and at most
_FILLS = 0.8  # share of its rectangle that it fills
_ROUND = 0.76  # share of its smallest circle that a square fills at most; a disc fills more
_FLATTEST = 6.0  # its sides are not more unlike than this
_SAME = 0.6  # sheets whose common part is more than this share of both are one
_SEEN = 3  # levels at which a sheet is seen at least
_OFF = 16.0  # grey levels, in one colour at least, between a sheet and what is around it
_ROOM = 0.01  # of the frame's width: room around a sheet


@dataclass(frozen=True, slots=True)
class Sheet:
    """A place that looks like a sheet.

    Attributes
    ----------
    box : tuple of int
        Left, top, width and height in pixels of the frame.
    fills : float
        Share of its smallest rectangle that it fills.
    corners : tuple
        Of that rectangle, column and row each.
    entire : bool
        Whether it does not run out of the frame.
    """

    box: Box
    fills: float
    corners: tuple[tuple[float, float], ...]
    entire: bool = True

    def holds(self, x: float, y: float) -> bool:
        """Whether a place lies on the sheet, not beside a slanting edge of it."""
        sides = zip(self.corners, self.corners[1:] + self.corners[:1], strict=True)
        turns = [(bx - ax) * (y - ay) - (by - ay) * (x - ax) >= 0 for (ax, ay), (bx, by) in sides]
        return all(turns) or not any(turns)


def find_sheets(pixels: NDArray[np.uint8], bounds: Box, *, most: int = 2) -> list[Sheet]:
    """Find sheets in a frame, the largest first.

    Parameters
    ----------
    pixels : ndarray of uint8, shape (H, W, 3)
        Blue, green, red.
    bounds : tuple of int
        The region that shall be read.
    most : int
        At most so many.
    """
    import cv2

    x, y, width, height = bounds
    shrink = _SIDE / max(width, height)
    if shrink >= 1:
        return []
    size = max(2, round(width * shrink)), max(2, round(height * shrink))
    part = pixels[y : y + height, x : x + width]
    small = np.asarray(cv2.resize(part, size, interpolation=cv2.INTER_AREA), np.uint8)
    sheets: list[Sheet] = []
    times: list[int] = []
    for sheet in sorted(_candidates(small), key=lambda s: -s.fills):
        for number, other in enumerate(sheets):
            if _shared(sheet.box, other.box) > _SAME:
                times[number] += 1
                break
        else:
            sheets.append(sheet)
            times.append(1)
    often = [sheet for sheet, seen in zip(sheets, times, strict=True) if seen >= _SEEN]
    sheets = [sheet for sheet in often if stands_out(small, sheet.box)]
    sheets.sort(key=lambda s: -s.box[2] * s.box[3])
    outer = [s for n, s in enumerate(sheets) if not any(_in(s.box, t.box) for t in sheets[:n])]
    room = round(_ROOM * width)
    return [_in_frame(sheet, shrink, bounds, room) for sheet in outer[:most]]


def stands_out(small: NDArray[np.uint8], box: Box) -> bool:
    """Whether a place has another colour than what is around it."""
    x, y, width, height = box
    rim = max(2, min(width, height) // 6)
    outer = small[max(y - rim, 0) : y + height + rim, max(x - rim, 0) : x + width + rim]
    inner = small[y : y + height, x : x + width]
    beside = outer.shape[0] * outer.shape[1] - width * height
    if beside <= 0:
        return False
    sum_outer = outer.sum(axis=(0, 1), dtype=np.float64)
    sum_inner = inner.sum(axis=(0, 1), dtype=np.float64)
    off = np.abs(sum_inner / (width * height) - (sum_outer - sum_inner) / beside)
    return float(off.max()) >= _OFF


def _candidates(small: NDArray[np.uint8]) -> Iterator[Sheet]:
    """Places at every level of brightness and of colour that are four-sided."""
    import cv2

    kernel = np.ones((_CLOSED, _CLOSED), np.uint8)
    grey = cv2.morphologyEx(cv2.cvtColor(small, cv2.COLOR_BGR2GRAY), cv2.MORPH_CLOSE, kernel)
    colour = cv2.cvtColor(small, cv2.COLOR_BGR2Lab)[:, :, 1:]
    planes = [grey, cv2.bitwise_not(grey)]
    for channel in cv2.split(np.ascontiguousarray(colour)):
        smooth = cv2.medianBlur(channel, 5)
        planes += [smooth, cv2.bitwise_not(smooth)]
    for plane in planes:
        low, high = np.percentile(plane, (3, 97))
        if high - low < _LEVELS:
            continue
        for level in np.linspace(low, high, _LEVELS + 2)[1:-1]:
            yield from _four_sided((plane > level).astype(np.uint8))


def _four_sided(mask: NDArray[np.uint8]) -> Iterator[Sheet]:
    import cv2

    count, labels, stats, _ = cv2.connectedComponentsWithStats(mask, connectivity=4)
    least, most = _LEAST * mask.size, _MOST * mask.size
    for number in range(1, count):
        x, y, width, height, area = (int(v) for v in stats[number])
        sides = (x == 0) + (y == 0) + (x + width == mask.shape[1]) + (y + height == mask.shape[0])
        if not least <= area <= most or area < 0.5 * width * height or sides > 2:
            continue
        own = (labels[y : y + height, x : x + width] == number).astype(np.uint8)
        contours, _ = cv2.findContours(own, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
        outline = max(contours, key=len)
        middle, sides_of, turn = cv2.minAreaRect(outline)
        long, short = max(sides_of) + 1, min(sides_of) + 1
        fills = area / (long * short)
        if fills >= _FILLS and long < _FLATTEST * short:
            _, radius = cv2.minEnclosingCircle(outline)
            if area > _ROUND * np.pi * (radius + 0.5) ** 2:
                continue  # a cup, seen from above
            grown = (sides_of[0] + 1, sides_of[1] + 1)
            points = cv2.boxPoints((middle, grown, turn)).tolist()
            corners = tuple((x + column + 0.5, y + row + 0.5) for column, row in points)
            yield Sheet((x, y, width, height), float(fills), corners)


def _shared(a: Box, b: Box) -> float:
    """Common part of two boxes as a share of what they cover together."""
    wide = min(a[0] + a[2], b[0] + b[2]) - max(a[0], b[0])
    high = min(a[1] + a[3], b[1] + b[3]) - max(a[1], b[1])
    common = max(wide, 0) * max(high, 0)
    return common / (a[2] * a[3] + b[2] * b[3] - common)


def _in(a: Box, b: Box) -> bool:
    """Whether most of a box lies in another."""
    wide = min(a[0] + a[2], b[0] + b[2]) - max(a[0], b[0])
    high = min(a[1] + a[3], b[1] + b[3]) - max(a[1], b[1])
    return max(wide, 0) * max(high, 0) > 0.5 * a[2] * a[3]


def _in_frame(sheet: Sheet, shrink: float, bounds: Box, room: int) -> Sheet:
    """From pixels of the reduced picture to those of the frame."""
    left, top, width, height = bounds
    box = sheet.box
    x0 = max(round(box[0] / shrink) - room, 0)
    y0 = max(round(box[1] / shrink) - room, 0)
    x1 = min(round((box[0] + box[2]) / shrink) + room, width)
    y1 = min(round((box[1] + box[3]) / shrink) + room, height)
    corners = tuple((left + x / shrink, top + y / shrink) for x, y in sheet.corners)
    entire = x0 > 0 and y0 > 0 and x1 < width and y1 < height
    return Sheet((left + x0, top + y0, x1 - x0, y1 - y0), sheet.fills, corners, entire)
