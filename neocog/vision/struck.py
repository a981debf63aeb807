"""Strokes that cross digits out: straight, longer than a digit is high, with ink on both sides twice."""

import numpy as np
from numpy.typing import NDArray

_STROKE = 1.2  # of a digit's height, the shortest stroke: bars of a 4 are shorter
_THIN = 6.0  # of its thickness, its length
_AMID = 0.27  # of a digit's height, how far the middle of a stroke is off theirs
_RULE = 0.5  # share of a line beyond its ends that has ink: a rule
_LEVEL = np.arange(-3, 4) * (np.pi / 24)  # angles of strokes that are looked for


def struck(ink: NDArray[np.uint8], tall: float, middle: float) -> list[tuple[int, int]]:
    """First and last columns of level strokes in ink (H, W), 0 or 1, that others cross twice: a 4's once.

    Its digits are ``tall`` pixels high, their middles at row ``middle``. Underlines and rules are none.
    """
    import cv2

    long, out = round(_STROKE * tall), list[tuple[int, int]]()
    _, pieces, boxes, _ = cv2.connectedComponentsWithStats(ink)
    for piece in 1 + np.flatnonzero(boxes[1:, 2] >= long * np.cos(_LEVEL[0])):
        left, top, wide, high, _ = boxes[piece].tolist()
        part = (pieces[top : top + high, left : left + wide] == piece).astype(np.uint8)
        part = np.pad(part, long // 2)
        corner = np.array([left, top]) - long // 2
        for angle in _LEVEL:
            along, across = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
            kernel, centre = np.zeros((long | 1,) * 2, np.uint8), np.array([long // 2] * 2)
            end = np.round(along * (long // 2)).astype(int)
            cv2.line(kernel, (centre - end).tolist(), (centre + end).tolist(), 1)
            opened = cv2.morphologyEx(part, cv2.MORPH_OPEN, kernel)
            _, labels, strokes, _ = cv2.connectedComponentsWithStats(opened)
            for k, (x, y, wide, high, _) in enumerate(strokes.tolist()[1:], 1):
                points = np.argwhere(labels[y : y + high, x : x + wide] == k)[:, ::-1] + corner + (x, y)
                u, v = points @ along, float(np.median(points @ across))
                thick, first, last = len(points) / (np.ptp(u) + 1), int(u.min()), int(u.max())
                if last - first < _THIN * thick:
                    continue
                centre_x, centre_y = points.mean(axis=0).tolist()
                half = (last - first) / 2
                if abs(centre_y - middle) > _AMID * tall or _rule(ink, centre_x, centre_y, half):
                    continue
                at, crossed = np.arange(first, last + 1)[:, None] * along, np.ones(last - first + 1, np.bool_)
                for off in (v + thick / 2 + 0.06 * tall + 1, v - thick / 2 - 0.06 * tall - 1):
                    beside = _seen(ink, at + off * across) > 0
                    crossed &= np.convolve(beside, np.ones(2 * round(0.1 * tall) + 1), "same") > 0
                if np.count_nonzero(np.diff(crossed.astype(int), prepend=0) > 0) > 1:
                    out.append((int(points[:, 0].min()), int(points[:, 0].max())))
    return out


def _rule(ink: NDArray[np.uint8], x: float, y: float, half: float) -> bool:
    """Whether a line through a place goes on beyond ``half`` of its length on both sides, at some angle."""
    at = np.arange(ink.shape[1]) - x
    rows = y + np.tan(_LEVEL)[:, None] * at
    line = _seen(ink, np.stack(np.broadcast_arrays(at + x, rows), axis=-1)) > 0
    sides = (line[:, at < -half - 1], line[:, at > half + 1])
    shares = [side.mean(axis=1) if side.size else np.ones(len(line)) for side in sides]
    return bool(np.minimum(*shares).max() > _RULE)


def _seen(ink: NDArray[np.uint8], places: NDArray[np.float64]) -> NDArray[np.uint8]:
    """The ink at places x and y (..., 2); 0 beside the picture."""
    x, y = np.round(places).astype(int).transpose(-1, *range(places.ndim - 1))
    inside = (x >= 0) & (x < ink.shape[1]) & (y >= 0) & (y < ink.shape[0])
    return np.asarray(ink[y * inside, x * inside] * inside, np.uint8)
