"""Boxes into lines, and lines into reading order.

One skew is found for the whole page; with it taken out, boxes that stand at one height make a
line, read from left to right, and lines are read from top to bottom.
"""

from statistics import fmean, median
from typing import Any

import numpy as np
from numpy.typing import NDArray

_APART = 0.55  # heights between the middles of one line
_STEEPEST = 50.0  # degrees; steeper neighbours belong to different lines
_LATEST = 3  # boxes of a line whose mean level the next one is compared with

Boxes = NDArray[np.floating[Any]]
"""Left, top, width and height, (N, 4)."""


def into_lines(boxes: Boxes) -> list[list[int]]:
    """Group boxes into lines, top to bottom, each from left to right.

    Parameters
    ----------
    boxes : ndarray of float, shape (N, 4)
        Left, top, width and height in pixels.

    Returns
    -------
    list of list of int
        Numbers of the boxes.
    """
    if not len(boxes):
        return []
    return _cluster(boxes, settled_skew(boxes))


def settled_skew(boxes: Boxes) -> float:
    """Choose between no skew and the voted one: whichever makes the flatter lines."""
    voted = voted_skew(boxes)
    if abs(voted) < 0.02:
        return voted
    return min((voted, 0.0), key=lambda slope: _unrest(boxes, slope) + 0.05 * abs(slope))


def voted_skew(boxes: Boxes) -> float:
    """Return the slope of the writing: rows downward per column to the right.

    Each box votes with the slope to its nearest neighbour on the right; the weighted median of the
    votes wins. 0.0 where nothing can be told.
    """
    centre = boxes[:, :2] + boxes[:, 2:] / 2
    height = float(np.median(boxes[:, 3]))
    step = centre[None] - centre[:, None]
    cost = np.hypot(step[..., 0], 1.6 * step[..., 1])
    cost[step[..., 0] <= 0.25 * height] = np.inf
    nearest = cost.argmin(axis=1)
    rows = np.arange(len(boxes))
    dx, dy = step[rows, nearest].T
    least = cost[rows, nearest]
    votes = (least < 8 * height) & (np.abs(dy) <= np.tan(np.radians(_STEEPEST)) * dx)
    if not votes.any():
        return 0.0
    slopes = dy[votes] / dx[votes]
    order = np.argsort(slopes)
    upto = np.cumsum(1.0 / (1.0 + least[votes][order] / (3 * height)))
    return float(slopes[order[int(np.searchsorted(upto, upto[-1] / 2))]])


def _unrest(boxes: Boxes, slope: float) -> float:
    """Mean distance of boxes from the middle of their line, in heights, plus lines' cost."""
    lines = _cluster(boxes, slope)
    levels = _levels(boxes, slope)
    distance = sum(float(np.abs(levels[line] - np.median(levels[line])).sum()) for line in lines)
    return (distance / float(np.median(boxes[:, 3])) + len(lines)) / len(boxes)


def _levels(boxes: Boxes, slope: float) -> Boxes:
    """Rows of the boxes' middles, with the skew taken out."""
    return boxes[:, 1] + boxes[:, 3] / 2 - slope * (boxes[:, 0] + boxes[:, 2] / 2)


def _cluster(boxes: Boxes, slope: float) -> list[list[int]]:
    """Join each box to the line whose latest members it overlaps in height."""
    levels, heights = _levels(boxes, slope).tolist(), boxes[:, 3].tolist()
    lines: list[list[int]] = []
    for box in np.argsort(boxes[:, 0] + boxes[:, 2] / 2, kind="stable").tolist():
        best, best_gap = -1, _APART
        for number, line in enumerate(lines):
            tall = max(median(heights[k] for k in line), heights[box])
            gap = abs(levels[box] - fmean(levels[k] for k in line[-_LATEST:])) / tall
            if gap < best_gap:
                best, best_gap = number, gap
        if best < 0:
            lines.append([box])
        else:
            lines[best].append(box)
    return sorted(lines, key=lambda line: median(levels[k] for k in line))
