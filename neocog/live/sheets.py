"""Sheets of paper in a frame: even, four-sided places that stand out from what is around them.

A desk full of texture costs the search ten times what a sheet does, and hides what is written on
the sheet. In a small picture the writing is closed over (each place takes the brightness of the
paper around its strokes), and at every level of brightness, and of colour, the connected places
are looked at: what fills its smallest rectangle to the corners is a sheet. Bright writing is opened
instead, for sheets darker than what is around them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from neocog.batch.records import Box

_SIDE = 80  # long side of the picture that is looked at, in pixels
_CLOSED = 7  # strokes are narrower than so many of its pixels
_OPENED = 5  # what is narrower than so many of its pixels is no part of a sheet
_LEVELS = 6  # of brightness, and as many of colour
_LEAST = 0.03  # share of the frame that a sheet takes at least
_MOST = 0.85  # and at most
_NUMBER = 2  # sheets of a frame, the largest
_FILLS = 0.8  # share of its rectangle that it fills
_ROUND = 0.76  # share of its smallest circle that a square fills at most; a disc fills more
_FLATTEST = 6.0  # its sides are not more unlike than this
_SAME = 0.6  # sheets whose common part is more than this share of both are one
_STEPS = np.arange(1, _LEVELS + 1)[:, None, None]
_SEEN = 3  # levels at which a sheet is seen at least
_OFF = 16.0  # grey levels, in one colour at least, between a sheet and what is around it
_EDGE = 2  # pixels of the small picture on either side of its edge
_RIM = 0.5  # pixels of the small picture from the outermost pixels' middles that are half desk
_REACHES = 0.4  # share of a side at the frame's border that has the sheet's colour if it goes on
_EVEN = 8.0  # grey levels between the middle of dark paper and of what opening leaves of it
_PAPER = 0.25  # or so many times what lies between opening and closing
_ROOM = 0.01  # of the frame's width: room around a sheet


@dataclass(frozen=True, slots=True)
class Sheet:
    """A place that looks like a sheet.

    Attributes
    ----------
    box : tuple of int
        Left, top, width and height in pixels of the frame.
    outline : tuple
        Corners of the convex place that it covers, column and row each.
    entire : bool
        Whether it does not run out of the frame.
    """

    box: Box
    outline: tuple[tuple[float, float], ...]
    entire: bool = True

    def holds(self, x: float, y: float) -> bool:
        """Whether a place lies on the sheet, not beside a slanting edge of it."""
        sides = zip(self.outline, self.outline[1:] + self.outline[:1], strict=True)
        turns = [(bx - ax) * (y - ay) - (by - ay) * (x - ax) >= 0 for (ax, ay), (bx, by) in sides]
        return all(turns) or not any(turns)


def find_sheets(pixels: NDArray[np.uint8], bounds: Box) -> list[Sheet]:
    """Find sheets in a frame, the largest first, two at most.

    Parameters
    ----------
    pixels : ndarray of uint8, shape (H, W, 3)
        Blue, green, red.
    bounds : tuple of int
        The region that shall be read.
    """
    import cv2

    x, y, width, height = bounds
    shrink = _SIDE / max(width, height)
    if shrink >= 1:
        return []
    size = max(2, round(width * shrink)), max(2, round(height * shrink))
    part = pixels[y : y + height, x : x + width]
    small = np.asarray(cv2.resize(part, size, interpolation=cv2.INTER_AREA), np.uint8)
    places: list[_Place] = []
    times: list[int] = []
    for place in sorted(_candidates(small), key=lambda p: -p.fills):
        for number, other in enumerate(places):
            if _shared(place.box, other.box) > _SAME:
                times[number] += 1
                break
        else:
            places.append(place)
            times.append(1)
    often = [place for place, seen in zip(places, times, strict=True) if seen >= _SEEN]
    places = [place for place in often if _stands_out(small, place)]
    places.sort(key=lambda p: -p.box[2] * p.box[3])
    outer = [p for n, p in enumerate(places) if not any(_in(p.box, q.box) for q in places[:n])]
    return [_sheet(place, small, part, bounds) for place in outer[:_NUMBER]]


def _stands_out(small: NDArray[np.uint8], place: "_Place") -> bool:
    """Whether the colour changes at the edge of a place: light that fades ends nowhere."""
    import cv2

    mask = np.zeros(small.shape[:2], np.uint8)
    cv2.fillConvexPoly(mask, place.hull, 1)
    kernel = np.ones((2 * _EDGE + 1, 2 * _EDGE + 1), np.uint8)
    beyond = np.asarray(cv2.dilate(mask, kernel) - mask, np.uint8)
    if not beyond.any():
        return False
    within = np.asarray(mask - cv2.erode(mask, kernel), np.uint8)
    off = np.subtract(cv2.mean(small, within), cv2.mean(small, beyond))
    return float(np.abs(off).max()) >= _OFF


def _goes_on(box: Box, small: NDArray[np.uint8], part: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Whether a place of the small picture runs out of the frame: left, above, right, below.

    Where it seems to reach the border, the frame's own last pixels are asked for its colour.
    """
    x, y, width, height = box
    high, wide = small.shape[:2]
    paper = _medians(small[y : y + height, x : x + width])
    across = slice(x * part.shape[1] // wide, (x + width) * part.shape[1] // wide)
    down = slice(y * part.shape[0] // high, (y + height) * part.shape[0] // high)
    touched = (x == 0, y == 0, x + width == wide, y + height == high)
    lines = part[down, 0], part[0, across], part[down, -1], part[-1, across]
    return np.array(
        [
            touches and (np.abs(line - paper).max(axis=1) < _OFF).mean() > _REACHES
            for touches, line in zip(touched, lines, strict=True)
        ]
    )


class _Place(NamedTuple):
    """A place in the small picture: its box, the share of it that is filled, its convex hull."""

    box: Box
    fills: float
    hull: NDArray[np.int32]


def _candidates(small: NDArray[np.uint8]) -> Iterator[_Place]:
    """Places at every level of brightness and of colour that are four-sided."""
    import cv2

    grey = np.asarray(cv2.cvtColor(small, cv2.COLOR_BGR2GRAY), np.uint8)
    kernel = np.ones((_CLOSED, _CLOSED), np.uint8)
    closed = np.asarray(cv2.morphologyEx(grey, cv2.MORPH_CLOSE, kernel), np.uint8)
    opened = np.asarray(cv2.morphologyEx(grey, cv2.MORPH_OPEN, kernel), np.uint8)
    colour = cv2.cvtColor(small, cv2.COLOR_BGR2Lab)
    tints = (cv2.medianBlur(cv2.extractChannel(colour, n), 5) for n in (1, 2))
    masks = [part for plane in (closed, *tints) for part in _levels(np.asarray(plane, np.uint8))]
    if masks:
        yield from _four_sided(np.concatenate(masks))
    for darker in _levels(opened)[1:]:
        yield from (p for p in _four_sided(darker) if _is_dark(p.box, closed, grey, opened))


def _is_dark(box: Box, *planes: NDArray[np.uint8]) -> bool:
    """Whether a place is dark paper, and not what opening made of dark writing, or of the desk.

    The planes are the small picture closed, as it is, and opened.
    """
    x, y, width, height = box
    high, wide = planes[0].shape
    if min(x, y, wide - x - width, high - y - height) == 0:
        return False
    part = np.s_[y : y + height, x : x + width]
    bright, own, dark = (float(np.median(plane[part])) for plane in planes)
    return own - dark <= max(_EVEN, _PAPER * (bright - dark))


def _levels(plane: NDArray[np.uint8]) -> tuple[NDArray[np.bool_], ...]:
    """What is brighter, and what is darker, than each level of a plane: (N, H, W) twice."""
    upto = np.cumsum(np.bincount(plane.ravel(), minlength=256))
    low, high = (float(np.searchsorted(upto, int(q * plane.size), "right")) for q in (0.03, 0.97))
    if high - low < _LEVELS:
        return ()
    level = low + (high - low) / (_LEVELS + 1) * _STEPS
    return plane > level, plane < level


def _medians(part: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Median of each colour, by counting: places are sorted more slowly."""
    middle = part.shape[0] * part.shape[1]
    counts = [np.bincount(part[..., colour].ravel(), minlength=256) for colour in range(3)]
    upto = [np.cumsum(count) for count in counts]
    ends = [np.searchsorted(u, ((middle - 1) // 2, middle // 2), "right") for u in upto]
    return np.asarray(np.mean(ends, axis=1), np.float64)


def _four_sided(masks: NDArray[np.bool_]) -> Iterator[_Place]:
    """Connected places of masks (N, H, W) that are four-sided."""
    import cv2

    _, height, width = masks.shape
    column = np.pad(masks, ((0, 0), (0, 1), (0, 0))).reshape(-1, width)  # a bare row between two
    broad = cv2.morphologyEx(column.view(np.uint8), cv2.MORPH_OPEN, np.ones((_OPENED, _OPENED)))
    found = cv2.findContours(broad, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)
    contours, tree = cast("tuple[list[NDArray[np.int32]], NDArray[np.int32]]", found)
    least, most = _LEAST * width * height, _MOST * width * height
    for number in reversed(range(len(contours))):
        contour = contours[number]
        left, row, across, down = cv2.boundingRect(contour)
        if across * down < least or tree[0, number, 3] >= 0:
            continue
        top = row % (height + 1)
        sides = sum((left == 0, top == 0, left + across == width, top + down == height))
        if sides > 2:
            continue
        ink = pixels_within(contour) - sum(
            pixels_within(contours[hole], inner=True) for hole in holes_of(tree[0], number)
        )
        if not least <= ink <= most or ink < 0.5 * across * down:
            continue
        hull = cv2.convexHull(contour)
        _, sides_of, _ = cv2.minAreaRect(hull)
        long, short = max(sides_of) + 1, min(sides_of) + 1
        fills = ink / (long * short)
        if fills < _FILLS or long >= _FLATTEST * short:
            continue
        _, radius = cv2.minEnclosingCircle(hull)
        if ink > _ROUND * np.pi * (radius + 0.5) ** 2:
            continue  # a cup, seen from above
        yield _Place(
            (left, top, across, down), float(fills), hull.reshape(-1, 2) - np.array((0, row - top))
        )


def holes_of(tree: NDArray[np.int32], number: int) -> Iterator[int]:
    """Numbers of the holes of a connected place, of the tree that OpenCV makes of contours."""
    hole = int(tree[number, 2])
    while hole >= 0:
        yield hole
        hole = int(tree[hole, 0])


def pixels_within(contour: NDArray[np.int32], *, inner: bool = False) -> int:
    """Pixels within a closed contour, those on it counted or not (Pick's theorem)."""
    import cv2

    points = contour[:, 0]
    steps = points - np.concatenate([points[1:], points[:1]])
    half = int(np.abs(steps).max(axis=1).sum()) / 2
    area = cv2.contourArea(contour)
    return round(area - half + 1) if inner else round(area + half + 1)


def _outline(
    hull: NDArray[np.int32], size: tuple[int, int], goes_on: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Corners (N, 2) of a place from its outermost pixels, without its rim where it ends."""
    middle = (hull.max(axis=0) + hull.min(axis=0)) / 2
    outline: NDArray[np.float64] = hull + 0.5 + _RIM * np.sign(middle - hull)
    last = np.array(size) - 1
    outline = np.where((hull == 0) & goes_on[:2], 0.0, outline)
    return np.where((hull == last) & goes_on[2:], last + 1.0, outline)


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


def _sheet(place: _Place, small: NDArray[np.uint8], part: NDArray[np.uint8], bounds: Box) -> Sheet:
    """From a place in the small picture to a sheet in the frame."""
    left, top, width, height = bounds
    shrink, room = _SIDE / max(width, height), round(_ROOM * width)
    x, y, wide, high = place.box
    x0, y0 = max(round(x / shrink) - room, 0), max(round(y / shrink) - room, 0)
    x1 = min(round((x + wide) / shrink) + room, width)
    y1 = min(round((y + high) / shrink) + room, height)
    goes_on = _goes_on(place.box, small, part)
    outline = _outline(place.hull, (small.shape[1], small.shape[0]), goes_on) / shrink
    outline += (left, top)
    corners = tuple((float(column), float(row)) for column, row in outline)
    return Sheet((left + x0, top + y0, x1 - x0, y1 - y0), corners, not goes_on.any())
