"""Boxes into lines, and lines into reading order.

One skew is found for the whole page; with it taken out, boxes that stand at one height make a
line, read from left to right, and lines are read from top to bottom.
"""

from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocog.vision.settings import SearchSettings

Boxes = NDArray[np.floating[Any]]
"""Left, top, width and height, (N, 4)."""


def into_lines(boxes: Boxes, settings: SearchSettings | None = None) -> list[list[int]]:
    """Group boxes into lines, top to bottom, each from left to right.

    Parameters
    ----------
    boxes : ndarray of float, shape (N, 4)
        Left, top, width and height in pixels.
    settings : SearchSettings, optional

    Returns
    -------
    list of list of int
        Numbers of the boxes.
    """
    if not len(boxes):
        return []
    settings = settings or SearchSettings()
    return _cluster(boxes, settled_skew(boxes, settings), settings)[1]


def settled_skew(boxes: Boxes, settings: SearchSettings | None = None) -> float:
    """Choose between no skew and the voted one: whichever makes the flatter lines."""
    settings = settings or SearchSettings()
    voted = voted_skew(boxes)
    return min((0.0, voted), key=lambda slope: _cluster(boxes, slope, settings)[0])


def voted_skew(boxes: Boxes) -> float:
    """Return the slope of the writing: rows downward per column to the right.

    Each box votes with the slope to its nearest neighbour on the right, nearer to its row than to
    its column; the median wins, near neighbours counting more. 0.0 where nothing can be told.
    """
    centre = boxes[:, :2] + boxes[:, 2:] / 2
    dx, dy = (centre[None] - centre[:, None]).transpose(2, 0, 1)
    far = np.where(dx > np.abs(dy), np.hypot(dx, dy), np.inf)
    rows, nearest = np.arange(len(boxes)), far.argmin(axis=1)
    far, dx, dy = (some[rows, nearest] for some in (far, dx, dy))
    votes = np.isfinite(far)
    if not votes.any():
        return 0.0
    slopes, weight = dy[votes] / dx[votes], 1 / far[votes]
    order = np.argsort(slopes)
    upto = np.cumsum(weight[order])
    return float(slopes[order[int(np.searchsorted(upto, upto[-1] / 2))]])


def _levels(boxes: Boxes, slope: float) -> Boxes:
    """Rows of the boxes' middles, with the skew taken out."""
    return boxes[:, 1] + boxes[:, 3] / 2 - slope * (boxes[:, 0] + boxes[:, 2] / 2)


def _cluster(boxes: Boxes, slope: float, settings: SearchSettings) -> tuple[float, list[list[int]]]:
    """Join each box to the line whose latest members it overlaps in height.

    Returns how far boxes are from the middle of their line, in heights, each line counting as one;
    and the lines.
    """
    levels, heights = _levels(boxes, slope), boxes[:, 3].tolist()
    lines: list[list[int]] = []
    latest: list[tuple[float, float]] = []  # level and height of each line, where it ends
    for box in np.argsort(boxes[:, 0] + boxes[:, 2] / 2, kind="stable").tolist():
        level, high = float(levels[box]), heights[box]
        gaps = [abs(level - at) / max(tall, high) for at, tall in latest]
        best = min(range(len(gaps)), key=gaps.__getitem__, default=-1)
        if best < 0 or gaps[best] >= settings.apart:
            best = len(lines)
            lines.append([])
            latest.append((level, high))
        line = lines[best]
        line.append(box)
        level = float(levels[line[-settings.latest :]].mean())
        latest[best] = level, median(heights[k] for k in line)
    off = sum(float(np.abs(levels[line] - np.median(levels[line])).sum()) for line in lines)
    lines.sort(key=lambda line: float(np.median(levels[line])))
    return off / median(heights) + len(lines), lines
