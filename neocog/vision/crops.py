"""Digits cut out of a picture at the finder's boxes.

Ink is what stands off the paper around a box; what does not belong to the box's digit is left out:
neighbours, rules and outlines of cells. The rest is brought into the form of MNIST's digits
(`neocog.vision.normalise`).
"""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocog.vision.finder import Grey
from neocog.vision.normalise import SIDE, Ink, normalise

Inner = tuple[int, int, int, int]  # where a box lies in a crop: left, top, width, height

_RIM = 0.12  # share of a box's sides where its contrast is not told: a cell's outline is there
_PAPER = 0.18  # of full contrast: what is no ink yet
_INK = 0.72  # and what is full ink
_PART = 0.35  # amount of ink from which pixels hang together
_SLACK = 0.06  # how far ink may stand out of its box, of the longer side
_LINE = 0.3  # how much longer than a box a line is that is no part of a digit; at most twice its margin
_SPECK = 0.04  # least area of a part of a digit, of the largest one's
_REST = 0.3  # of the ink in a box; if less is left without lines, these are strokes
_NOTHING = 1e-9  # where they do not differ
_MOST = 0.5  # of full ink, from which a grey is ink rather than paper
_GRID = 20  # rows and columns of the pixels of a crop whose paper is looked at


def digit_of_box(grey: Grey, box: NDArray[np.float32]) -> Grey:
    """Cut out the digit in a box (left, top, width, height): (28, 28), ink 255; 0 without contrast."""
    return np.asarray(cut_out(grey, np.asarray(box)[None])[0], np.uint8)


def cut_out(grey: Grey, boxes: NDArray[np.float32]) -> Grey:
    """Cut out the digits in boxes (N, 4), see `digit_of_box`: (N, 28, 28)."""
    # left, top, right and bottom of the boxes with a margin, a fifth of the longer side: at least one pixel
    x, y, wide, high = np.asarray(boxes, np.float64).T
    edge = 0.2 * np.maximum(wide, high) + 2
    left = np.clip(np.trunc(x - edge), 0, grey.shape[1] - 1)
    top = np.clip(np.trunc(y - edge), 0, grey.shape[0] - 1)
    right = np.clip(np.ceil(x + wide + edge), left + 1, grey.shape[1])
    bottom = np.clip(np.ceil(y + high + edge), top + 1, grey.shape[0])
    around = np.stack([left, top, right, bottom], axis=1).astype(np.int64)
    cut = zip(boxes.tolist(), around.tolist(), _papers(grey, around, boxes), strict=True)
    return np.array([_digit(grey, *one) for one in cut], np.uint8).reshape(-1, SIDE, SIDE)


def _digit(grey: Grey, box: list[float], corners: list[int], paper: Ink) -> Grey:
    import cv2

    (x, y, wide, high), (left, top, right, bottom) = box, corners
    seen = grey[top:bottom, left:right]
    scale = min(1.0, 72 / max(wide, high))  # pixels of a box before its ink is told
    if scale < 1:
        size = (max(1, round(seen.shape[1] * scale)), max(1, round(seen.shape[0] * scale)))
        seen = np.asarray(cv2.resize(seen, size, interpolation=cv2.INTER_AREA), np.uint8)
    at = [max(0, round(v * scale)) for v in (x - left, y - top, wide, high)]
    inner = at[0], at[1], max(1, at[2]), max(1, at[3])
    rows, columns = (_places(side) for side in seen.shape)
    away = seen.astype(np.float32) - (paper[0] + paper[1] * rows)[:, None] - paper[2] * columns
    full, middle = _greys(away, inner)
    # if most of the box would be ink, and so would be what lies just around it, the paper further out
    # is the heavy outline of a cell: then that is the paper
    if middle / full > _MOST:
        (x, y, wide, high), edge = inner, _slack(inner) + 1
        ring = np.zeros(away.shape, np.bool_)
        ring[max(0, y - edge) : y + high + edge, max(0, x - edge) : x + wide + edge] = True
        ring[y : y + high, x : x + wide] = False
        beside = float(np.median(away[ring])) if ring.any() else 0.0
        if beside / full > _MOST:
            away -= np.float32(beside)
            full, _ = _greys(away, inner)
    if abs(full) < 2.0:  # grey levels
        return np.zeros((SIDE, SIDE), np.uint8)
    ink = np.clip((away / np.float32(full) - np.float32(_PAPER)) / np.float32(_INK - _PAPER), 0, 1)
    return normalise(_own(ink, inner))


def _greys(away: Ink, inner: Inner) -> tuple[float, float]:
    """How far from the paper full ink in a box is, and the box's middle grey; dark ink below 0."""
    x, y, wide, high = inner
    down, right = int(_RIM * high), int(_RIM * wide)
    within = away[y + down : y + high - down, x + right : x + wide - right]
    if not within.size:
        return _NOTHING, 0.0
    few, half = int(0.03 * within.size), within.size // 2  # so few are darker than full ink
    ordered = np.partition(within, (few, half, within.size - 1 - few), axis=None)
    dark, middle, bright = (float(ordered[k]) for k in (few, half, within.size - 1 - few))
    return (bright if bright > -dark else dark) or _NOTHING, middle


def _slack(box: Inner) -> int:
    return max(1, round(_SLACK * max(box[2:])))


@cache
def _places(count: int) -> Ink:
    places = (np.arange(count, dtype=np.float32) + np.float32(0.5)) * np.float32(2 / count) - 1
    places.flags.writeable = False  # it is the same one each time
    return places


def _papers(grey: Grey, around: NDArray[np.int64], boxes: NDArray[np.float32]) -> Ink:
    """Planes of the paper's grey in crops (N, 4) around boxes: middle, rise to the bottom, to the right."""
    left, top, right, bottom = around.T[..., None]
    x, y, wide, high = boxes.T[..., None]
    at = _places(_GRID)
    rows, columns = top + (bottom - top) * (at + 1) / 2, left + (right - left) * (at + 1) / 2
    above_or_below = (rows < y) | (rows >= y + high)
    beside = (columns < x) | (columns >= x + wide)
    free = (above_or_below[:, :, None] | beside[:, None]).reshape(-1, _GRID * _GRID)
    free |= ~free.any(axis=1, keepdims=True)
    places = rows.astype(np.int64)[:, :, None], columns.astype(np.int64)[:, None]
    seen = grey[places].reshape(-1, _GRID * _GRID).astype(np.float32)
    down, along = np.repeat(at, _GRID), np.tile(at, _GRID)
    design = np.stack([np.ones_like(down), down, along], axis=1)
    squares = (design[:, :, None] * design[:, None]).reshape(-1, 9)
    planes = np.zeros((len(boxes), 3), np.float32)
    planes[:, 0] = _medians(seen, free)
    for _ in range(3):  # Cauchy's weights: neighbours' ink counts less
        off = np.square(seen - planes @ design.T)
        weights = free / (1 + off / np.maximum(1, _medians(off, free))[:, None])
        normal = (weights @ squares).reshape(-1, 3, 3) + 1e-4 * np.eye(3)
        planes = np.linalg.solve(normal, ((weights * seen) @ design)[..., None])[..., 0]
        planes = planes.astype(np.float32)
    return planes


def _medians(values: Ink, among: NDArray[np.bool_]) -> Ink:
    """Medians of rows (N, M), of those values that are among them."""
    ordered = np.sort(np.where(among, values, np.inf), axis=1)
    middle = (among.sum(axis=1) - 1) // 2
    return np.asarray(ordered[np.arange(len(values)), middle], np.float32)


def _own(ink: Ink, inner: Inner) -> Ink:
    """Take away lines that go on beyond the box, and marks mostly outside without most of its ink."""
    import cv2

    (x, y, wide, high), slack = inner, _slack(inner)
    body = (ink > _PART).astype(np.uint8)
    lines = _lines(body, inner)
    ink, body = np.where(lines > 0, np.float32(0), ink), body - lines
    count, labels, stats, _ = cv2.connectedComponentsWithStats(  # a crop has less than 2**16 parts
        body, connectivity=8, ltype=cv2.CV_16U
    )
    inside = slice(max(0, y - slack), y + high + slack), slice(max(0, x - slack), x + wide + slack)
    within = np.bincount(labels[inside].ravel(), minlength=count)
    area = stats[:, cv2.CC_STAT_AREA]
    keep = (within > 0.5 * area) | (within > 0.5 * within[1:].sum())
    keep[0] = False
    keep &= area >= _SPECK * max(1, int(area[1:].max(initial=1)))
    near = np.asarray(cv2.dilate(keep.astype(np.uint8)[labels], np.ones((3, 3), np.uint8))) > 0
    own = np.zeros_like(ink)
    own[inside] = np.where(near[inside], ink[inside], np.float32(0))
    return own


def _lines(body: Grey, inner: Inner) -> Grey:
    """Where straight lines are longer than a box, uncrossed by strokes: 1; 0 if little else is in the box."""
    import cv2

    def opened_or_closed(way: int, of: Any, high: int, wide: int) -> Any:
        shape, edge = np.ones((high, wide), np.uint8), cv2.BORDER_CONSTANT
        return cv2.morphologyEx(of, way, shape, borderType=edge, borderValue=0)

    x, y, wide, high = inner
    beyond, lines = round(_LINE * max(wide, high)), np.zeros_like(body)
    for axis, size in ((1, (1, wide + beyond)), (0, (high + beyond, 1))):
        if cv2.reduce(body, axis, cv2.REDUCE_SUM, dtype=cv2.CV_32S).max() >= max(size):
            lines |= opened_or_closed(cv2.MORPH_OPEN, body, *size)
    if not lines.any():
        return lines
    lines = np.asarray(cv2.bitwise_and(cv2.dilate(lines, np.ones((3, 3), np.uint8)), body), np.uint8)
    rest, box = body - lines, (slice(y, y + high), slice(x, x + wide))
    if rest[box].sum() < _REST * body[box].sum():
        return np.zeros_like(body)
    reach = 2 * _slack(inner) + 3
    across = opened_or_closed(cv2.MORPH_CLOSE, rest, reach, 1)
    across |= opened_or_closed(cv2.MORPH_CLOSE, rest, 1, reach)
    return np.asarray(lines > across, np.uint8)
