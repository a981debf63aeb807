"""Boxes into lines, and the digits of a line.

One skew is found for the whole page; with it taken out, boxes that stand at one height make a
line, read from left to right, and lines are read from top to bottom.

The digits of a line are a chain of boxes from left to right. It weighs as much as its boxes and the
links between neighbours together (a linear-chain conditional random field over segmentations;
Sarawagi and Cohen 2004, Semi-Markov conditional random fields for information extraction).
"""

import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocog.vision.finder import of_smaller
from neocog.vision.weigh import SearchSettings, median, same_mark

Boxes = NDArray[np.floating[Any]]
"""Left, top, width and height, (N, 4)."""
Floats = NDArray[np.float64]

LINK = ("inside", "height")
"""What speaks against two boxes being neighbours: what they share, of the smaller one; the
logarithm of how much higher one is."""


def into_lines(boxes: Boxes, settings: SearchSettings | None = None) -> list[list[int]]:
    """Group boxes (N, 4) into lines of their numbers, top to bottom, each from left to right."""
    return skew_and_lines(boxes, settings)[1] if len(boxes) else []


def skew_and_lines(boxes: Boxes, settings: SearchSettings | None = None) -> tuple[float, list[list[int]]]:
    """Return the skew, none or the voted one, that makes the flatter lines; and these lines."""
    slopes = dict.fromkeys((0.0, voted_skew(boxes)))
    lines = {slope: _cluster(boxes, slope, settings or SearchSettings()) for slope in slopes}
    best = min(lines, key=lambda slope: lines[slope][0])
    return best, lines[best][1]


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
    return median(dy[votes] / dx[votes], 1 / far[votes]) if votes.any() else 0.0


def _cluster(boxes: Boxes, slope: float, settings: SearchSettings) -> tuple[float, list[list[int]]]:
    """Join each box to the line whose latest members it overlaps in height.

    Returns how far boxes are from the middle of their line, in heights, plus the number of lines;
    and the lines.
    """
    across = boxes[:, 0] + boxes[:, 2] / 2
    levels = boxes[:, 1] + boxes[:, 3] / 2 - slope * across
    heights = boxes[:, 3].tolist()
    lines: list[list[int]] = []
    latest: list[tuple[float, float]] = []  # level and height of each line, where it ends
    for box in np.argsort(across, kind="stable").tolist():
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
        latest[best] = level, statistics.median(heights[k] for k in line)
    off = sum(float(np.abs(levels[line] - np.median(levels[line])).sum()) for line in lines)
    lines.sort(key=lambda line: float(np.median(levels[line])))
    return off / statistics.median(heights) + len(lines), lines


def link_features(boxes: NDArray[np.float32]) -> Floats:
    """Return what stands between boxes (N, 4) that are sorted from left to right, (N, N, 2)."""
    high = np.log(np.maximum(boxes[:, 3].astype(np.float64), 1))
    return np.stack([of_smaller(boxes, boxes), np.abs(high[:, None] - high[None])], axis=2)


def links(
    boxes: NDArray[np.float32], weights: Sequence[float], settings: SearchSettings | None = None
) -> Floats:
    """Return the log odds of each box (N, 4) being followed by another, (N, N).

    Boxes are sorted from left to right; -inf where two are one mark, or the second is not later.
    """
    out = link_features(boxes) @ np.array(weights, np.float64)
    out[same_mark(boxes, boxes, settings or SearchSettings())] = -np.inf
    out[np.tril_indices(len(boxes))] = -np.inf
    return np.asarray(out)


def best_chain(worth: Floats, link: Floats, count: int | None = None) -> list[int]:
    """Return the chain that is worth most, of ``count`` boxes if given; none if that is nothing."""
    layers, more = (0, 0) if count is None else (count, 1)
    total = np.full((len(worth), layers + 1), -np.inf)
    came = np.full(total.shape, -1)
    for i in range(len(worth)):
        if more <= layers:
            total[i, more] = worth[i]
        if not i:
            continue
        before = total[:i] + link[:i, i, None]
        top = before.argmax(axis=0)
        for n in range(layers + 1 - more):
            value = before[top[n], n] + worth[i]
            if value > total[i, n + more]:
                total[i, n + more], came[i, n + more] = value, top[n]
    if not len(worth) or total[:, layers].max() <= (0 if count is None else -np.inf):
        return []
    at, n = int(total[:, layers].argmax()), layers
    chain: list[int] = []
    while at >= 0:
        chain.insert(0, at)
        at, n = int(came[at, n]), n - more
    return chain


def posterior(odds: Floats, link: Floats) -> Floats:
    """Return the probability of each box to be part of the chain, (N,)."""
    before, after = _upto(odds, link), _upto(odds[::-1], link.T[::-1, ::-1])[::-1]
    whole = np.logaddexp(0.0, np.logaddexp.reduce(before, initial=-np.inf))
    return np.asarray(np.exp(before + after - odds - whole), np.float64)


def _upto(odds: Floats, link: Floats) -> Floats:
    """Log sum over all chains that end with each box."""
    total = odds.copy()
    for i in range(1, len(odds)):
        total[i] += np.logaddexp(0.0, np.logaddexp.reduce(total[:i] + link[:i, i]))
    return total
