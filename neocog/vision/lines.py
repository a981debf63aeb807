"""Components into lines, and lines into reading order.

One skew is found for the whole page; with it taken out, components that stand at one height make
a line, read from left to right, and lines are read from top to bottom.
"""

from bisect import insort
from collections.abc import Sequence
from statistics import median

import numpy as np

from neocog.vision.components import Component

_APART = 0.55  # heights between the middles of one line
_STEEPEST = 50.0  # degrees; steeper neighbours belong to different lines


def page_skew(components: Sequence[Component]) -> float:
    """Return the slope of the writing: rows downward per column to the right.

    Each component votes with the slope to its nearest neighbour on the right; the weighted
    median of the votes wins. 0.0 where nothing can be told.
    """
    if len(components) < 2:
        return 0.0
    centre = np.array([c.centre for c in components])
    height = float(np.median([c.height for c in components]))
    slopes: list[float] = []
    weights: list[float] = []
    steepest = np.tan(np.radians(_STEEPEST))
    for x, y in centre:
        step = centre - (x, y)
        ahead = step[:, 0] > 0.25 * height
        if not ahead.any():
            continue
        step = step[ahead]
        cost = np.hypot(step[:, 0], 1.6 * step[:, 1])
        dx, dy = step[int(cost.argmin())]
        if abs(dy) <= steepest * dx and cost.min() < 8 * height:
            slopes.append(float(dy / dx))
            weights.append(float(1.0 / (1.0 + cost.min() / (3 * height))))
    if not slopes:
        return 0.0
    order = np.argsort(slopes)
    upto = np.cumsum(np.array(weights)[order])
    return float(slopes[order[int(np.searchsorted(upto, upto[-1] / 2))]])


def into_lines(components: Sequence[Component]) -> list[list[Component]]:
    """Group components into lines, top to bottom, each from left to right."""
    if not components:
        return []
    slope = _settled_skew(components)
    return _cluster(components, slope)


def _settled_skew(components: Sequence[Component]) -> float:
    """Choose between no skew and the voted one: whichever makes the flatter lines."""
    voted = page_skew(components)
    if abs(voted) < 0.02:
        return voted
    return min((voted, 0.0), key=lambda slope: _unrest(components, slope) + 0.05 * abs(slope))


def _unrest(components: Sequence[Component], slope: float) -> float:
    """Mean distance of components from the middle of their line, in heights, plus lines' cost."""
    lines = _cluster(components, slope)
    distance = 0.0
    for line in lines:
        rows = np.array([c.centre[1] - slope * c.centre[0] for c in line])
        distance += float(np.abs(rows - np.median(rows)).sum())
    height = float(np.median([c.height for c in components]))
    return distance / (height * len(components)) + len(lines) / len(components)


def _cluster(components: Sequence[Component], slope: float) -> list[list[Component]]:
    """Join each component to the line whose latest members it overlaps in height."""
    lines: list[list[Component]] = []
    levels: list[list[float]] = []
    heights: list[list[int]] = []
    for component in sorted(components, key=lambda c: c.centre[0]):
        x, y = component.centre
        level = y - slope * x
        best, best_gap = -1, _APART
        for number, seen in enumerate(levels):
            at = sum(seen[-3:]) / len(seen[-3:])
            tall = max(heights[number][len(seen) // 2], component.height)
            gap = abs(level - at) / tall
            if gap < best_gap:
                best, best_gap = number, gap
        if best < 0:
            lines.append([component])
            levels.append([level])
            heights.append([component.height])
        else:
            lines[best].append(component)
            levels[best].append(level)
            insort(heights[best], component.height)
    order = sorted(range(len(lines)), key=lambda number: median(levels[number]))
    return [lines[number] for number in order]
