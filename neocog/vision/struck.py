"""Strokes that cross digits out: straight, longer than a digit is high, with ink on both sides twice."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ink = NDArray[np.uint8]  # 0 or 1, (H, W)

_LEVEL = np.arange(-3, 4) * (np.pi / 24)  # angles of strokes through what is read
_STROKE = 1.2  # of a digit's height, the shortest of these
_AMID = 0.27  # of a digit's height, how far the middle of a stroke is off theirs
_RULE = 0.5  # share of a line beyond its ends that has ink: a rule


def crossing(ink: Ink, tall: float, shortest: float, angles: Any) -> Iterator[tuple[NDArray[Any], bool]]:
    """Yield strokes that others cross twice: their points x and y (N, 2), whether their ends are free.

    They are ``shortest`` times as long as digits are ``tall`` (pixels), or longer, and six times as long as
    thick. That of a 4 is crossed once.
    """
    import cv2

    long, smear = round(shortest * tall), np.ones(2 * round(0.1 * tall) + 1)
    for angle in angles:
        along, across = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
        kernel, middle = np.zeros((long | 1,) * 2, np.uint8), np.array([long // 2] * 2)
        end = np.round(along * (long // 2)).astype(int)
        cv2.line(kernel, (middle - end).tolist(), (middle + end).tolist(), 1)
        opened = cv2.morphologyEx(ink, cv2.MORPH_OPEN, kernel)
        _, labels, boxes, _ = cv2.connectedComponentsWithStats(opened)
        for k, (left, top, wide, high, _) in enumerate(boxes.tolist()[1:], 1):
            part = labels[top : top + high, left : left + wide]
            points = np.argwhere(part == k)[:, ::-1] + (left, top)
            u, v = points @ along, float(np.median(points @ across))
            thick = len(points) / (np.ptp(u) + 1)
            if np.ptp(u) < 6 * thick:
                continue
            side = thick / 2 + 0.06 * tall + 1
            at = np.arange(u.min(), u.max() + 1)[:, None] * along
            beside = list[NDArray[np.bool_]]()
            for off in (v + side, v - side):
                y, x = np.round(at + off * across).astype(int)[:, ::-1].T.clip(0, np.array([ink.shape]).T - 1)
                beside.append(ink[y, x] > 0)
            free = max(1, round(0.12 * tall))
            ends = np.array([(one[:free].any(), one[-free:].any()) for one in beside])
            both = np.logical_and(*(np.convolve(one, smear, "same") > 0 for one in beside))
            if np.count_nonzero(np.diff(both.astype(int), prepend=0) > 0) > 1:
                yield points, not ends.any()


def struck(ink: Ink, tall: float, middle: float) -> list[tuple[int, int]]:
    """First and last columns of level strokes through digits whose middles are at a row; rules are none."""
    import cv2

    out, room = list[tuple[int, int]](), round(_STROKE * tall) // 2
    boxes = cv2.connectedComponentsWithStats(ink)[2][1:]
    if not (boxes[:, 2] >= _STROKE * tall * np.cos(_LEVEL[0])).any():
        return out
    for points, _ in crossing(np.pad(ink, room), tall, _STROKE, _LEVEL):
        columns, (x, y) = points[:, 0] - room, points.mean(axis=0) - room
        if abs(y - middle) < _AMID * tall and not _rule(ink, x, y, np.ptp(columns) / 2):
            out.append((int(columns.min()), int(columns.max())))
    return out


def _rule(ink: Ink, x: float, y: float, half: float) -> bool:
    """Whether a line through a place goes on beyond ``half`` of its length on both sides, at some angle."""
    at = np.arange(ink.shape[1]) - x
    rows = np.round(y + np.tan(_LEVEL)[:, None] * at).astype(int)
    inside = (rows >= 0) & (rows < len(ink))
    line = (ink[rows * inside, np.arange(ink.shape[1])] > 0) & inside
    sides = (line[:, at < -half - 1], line[:, at > half + 1])
    shares = [side.mean(axis=1) if side.size else np.ones(len(line)) for side in sides]
    return bool(np.minimum(*shares).max() > _RULE)
