"""Drawings of a few strokes that are no digits: lines with coordinates from 0 to about 1, y down."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from neocog.learning.drawing.glyphs import SHAPES, Rng, strokes_of
from neocog.learning.drawing.strokes import rounded

Line = NDArray[np.float64]
Drawing = Callable[[Rng], list[Line]]


def turned(line: Line, angle: float) -> Line:
    cos, sin = np.cos(angle), np.sin(angle)
    result: Line = (line - 0.5) @ np.array([[cos, sin], [-sin, cos]]) + 0.5
    return result


def curve(points: Line, count: int = 40) -> Line:
    """Round the corners of a line: a mean of its points that moves along it."""
    at = np.linspace(0, len(points) - 1, count)
    near = np.clip(1 - np.abs(at[:, None] - np.arange(len(points))) / 1.2, 0, None) ** 1.5
    result: Line = near @ points / near.sum(axis=1, keepdims=True)
    return result


def form(rng: Rng) -> list[Line]:
    """One of the things that people draw beside numbers, at any angle now and then."""
    round_ = rng.random() < 0.35
    forms = SHAPES["round" if round_ else "sharp"]
    lines = strokes_of(forms[rng.integers(len(forms))])
    if round_:
        lines = [rounded(line, 3) for line in lines]
    angle = rng.normal(0, 0.15) if rng.random() < 0.7 else rng.uniform(0, 6.3)
    return [turned((line + rng.normal(0, 0.15, line.shape)) / 6, angle) for line in lines]


def scribble(rng: Rng) -> list[Line]:
    """One stroke with more turns than a digit has."""
    points = rng.random((int(rng.integers(7, 12)), 2))
    return [curve(points, 60) if rng.random() < 0.6 else points]


def zigzag(rng: Rng) -> list[Line]:
    """Back and forth, as a word is blotted out."""
    count = int(rng.integers(6, 14))
    x = np.linspace(0, 1, count) + rng.normal(0, 0.03, count)
    y = 0.5 + rng.uniform(0.15, 0.5) * np.where(np.arange(count) % 2, 1, -1)
    line = np.stack([x, y + rng.normal(0, 0.05, count)], axis=1)
    line = curve(line, 80) if rng.random() < 0.5 else line
    return [turned(line, rng.uniform(-0.8, 0.8))]


def bar(rng: Rng) -> list[Line]:
    """A level stroke, a wave or two strokes: dashes, rules and underlines."""
    x = np.linspace(0, 1, 30)
    wave = rng.uniform(0, 0.12) * np.sin(rng.uniform(0, 14) * x + rng.uniform(0, 6))
    line = np.stack([x, 0.5 + wave], axis=1)
    below = line + np.array([0, rng.uniform(0.15, 0.4)])
    lines = [line] if rng.random() < 0.6 else [line, below]
    angle = rng.uniform(-0.4, 0.4)
    return [turned(line, angle) for line in lines]


def polygon(rng: Rng) -> list[Line]:
    """Three to six corners, not round: plain, doubled or with a stroke inside."""
    corners = int(rng.choice([3, 3, 4, 4, 5, 6]))
    angle = 2 * np.pi * (np.arange(corners) + rng.uniform(-0.15, 0.15, corners)) / corners
    way = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    line = 0.5 + 0.5 * rng.uniform(0.75, 1, (corners, 1)) * way
    line = turned(np.concatenate([line, line[:1]]), rng.uniform(0, 2 * np.pi))
    inside = rng.random()
    if inside < 0.25:
        return [line, rng.random((2, 2))]
    return [line, 0.5 + rng.uniform(0.4, 0.7) * (line - 0.5)] if inside < 0.5 else [line]


def figure(rng: Rng) -> list[Line]:
    """Three to five lines, arcs, rings and angles in disorder."""
    lines: list[Line] = []
    for _ in range(int(rng.integers(3, 6))):
        kind, middle = rng.random(), rng.uniform(0.1, 0.9, 2)
        if kind < 0.3:
            lines.append(rng.random((2, 2)))
        elif kind < 0.55:
            lines.append(curve(rng.random((3, 2)), 16))
        elif kind < 0.8:
            radius, high, angle = rng.uniform(0.08, 0.3), rng.uniform(0.6, 1.5), np.linspace(0, 2 * np.pi, 24)
            lines.append(middle + radius * np.stack([np.cos(angle), high * np.sin(angle)], axis=1))
        else:
            lines.append(middle + rng.uniform(-0.4, 0.4, (3, 2)))
    return lines


def closed(rng: Rng) -> list[Line]:
    """A smooth closed curve: a leaf, a cloud, a blob."""
    angle = np.linspace(0, 2 * np.pi, 40)
    order = np.arange(2, 7)[:, None]
    wave = rng.normal(size=(5, 1)) / order * np.cos(order * angle + rng.uniform(0, 7, (5, 1)))
    radius = 0.4 * (1 + rng.uniform(0.1, 0.9) * wave.sum(axis=0))
    return [0.5 + np.stack([radius * np.cos(angle), rng.uniform(0.3, 1) * radius * np.sin(angle)], axis=1)]


def branch(rng: Rng) -> list[Line]:
    """A plant: each branch gives off two or three."""
    lines, ends = [], [(np.array([0.5, 1.0]), -np.pi / 2, 0.4)]
    for _ in range(int(rng.integers(4, 14))):
        at, way, long = ends.pop(0)
        bend = way + rng.normal(0, 0.3)
        middle = at + 0.5 * long * np.array([np.cos(way), np.sin(way)])
        end = middle + 0.5 * long * np.array([np.cos(bend), np.sin(bend)])
        lines.append(curve(np.array([at, middle, end]), 6))
        for _ in range(int(rng.integers(1, 4))):
            ends.append((end, way + rng.normal(0, 0.7), long * rng.uniform(0.5, 0.9)))
    return lines


def doodle(rng: Rng) -> list[Line]:
    """Loops that run along, as a pen is tried out: a spring, a wave, a spiral."""
    t = np.linspace(0, 2 * np.pi * rng.uniform(2, 9), 120)
    along, size = rng.uniform(0.02, 0.3), np.linspace(1, rng.uniform(0.2, 1.2), 120)
    x = 0.3 * size * np.cos(t) * rng.uniform(0, 1) + along * t / 2
    y = 0.5 + rng.uniform(0.2, 0.5) * size * np.sin(t * rng.choice([1, 1, 2]) + rng.uniform(0, 3))
    line = np.stack([x, y + rng.normal(0, 0.02, 120)], axis=1)
    return [turned(line, rng.normal(0, 0.3))]


def music(rng: Rng) -> list[Line]:
    """A staff, 1 high, with a clef, notes, rests and bars; up to ten times as long."""
    long, skew = rng.uniform(2, 10), rng.normal(0, 0.02)
    staff = [np.array([[0, y], [long, y + skew]]) for y in np.linspace(0, 1, 5)]
    lines = staff if rng.random() < 0.85 else []
    if rng.random() < 0.5:
        clef = strokes_of("37-28-48-41-50-61-34-46-66-64-44")[0] / [10, 5] - [0, 0.2]
        lines.append(curve(clef + rng.normal(0, 0.03, (11, 2)), 40))
    x, up, head = 0.9, rng.random() < 0.7, rng.uniform(0.1, 0.16)
    ends: list[tuple[float, float]] = []
    while x < long:
        kind, y = rng.random(), rng.uniform(-0.1, 1.1)
        if kind < 0.12:
            lines.append(np.array([[x, 0], [x, 1]]))
        elif kind < 0.2:
            rest = np.array([[0, 0.2], [0.15, 0.4], [0, 0.55], [0.15, 0.7], [0, 0.9]])
            lines.append(curve(rest + np.array([x, 0]), 16))
        else:
            turns = 1 if kind < 0.4 else 4  # open or filled
            t = np.linspace(0, 2 * np.pi * turns, 12 * turns)
            reach = head * np.linspace(1, 0.15 if turns > 1 else 1, len(t))
            right = reach * np.cos(t)
            lines.append(np.stack([x + 1.3 * right, y + reach * np.sin(t) - 0.3 * right], 1))
            foot = (x + (1.3 if up else -1.3) * head, y + (-0.85 if up else 0.85) * rng.uniform(0.8, 1.1))
            if kind > 0.28:
                lines.append(np.array([(foot[0], y), foot]))
                ends.append(foot)
            if kind > 0.9:
                lines.append(np.array([foot, (foot[0] + 0.2, foot[1] + (0.3 if up else -0.3))]))
            elif kind > 0.7 and len(ends) > 1:
                lines.append(np.array(ends[-2:]))
        x += rng.uniform(0.35, 0.9)
    return lines


DRAWINGS: tuple[Drawing, ...] = (
    *(form,) * 8, scribble, scribble, polygon, bar, zigzag, figure, figure, figure, branch, branch,
    doodle, doodle, closed, closed,
)  # fmt: skip
"""Drawings of pages; the last four are not among the marks that the digit network learns from."""
