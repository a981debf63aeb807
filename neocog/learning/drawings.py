"""Drawings of a few strokes that are no digits: lines with coordinates from 0 to 1, y down."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Line = NDArray[np.float64]
Random = np.random.Generator
Drawing = Callable[[Random], list[Line]]

_LEVEL = np.array([[0, 0.5], [1, 0.5]])


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


def ring(centre: tuple[float, float], radius: float, count: int = 24, high: float = 1.0) -> Line:
    """Return a closed line around a centre."""
    angle = np.linspace(0, 2 * np.pi, count)
    return np.array(centre) + radius * np.stack([np.cos(angle), high * np.sin(angle)], axis=1)


def scribble(rng: Random) -> list[Line]:
    """One stroke with more turns than a digit has."""
    points = rng.random((int(rng.integers(7, 12)), 2))
    return [curve(points, 60) if rng.random() < 0.6 else points]


def zigzag(rng: Random) -> list[Line]:
    """Back and forth, as a word is blotted out."""
    count = int(rng.integers(6, 14))
    x = np.linspace(0, 1, count) + rng.normal(0, 0.03, count)
    y = 0.5 + rng.uniform(0.15, 0.5) * np.where(np.arange(count) % 2, 1, -1)
    line = np.stack([x, y + rng.normal(0, 0.05, count)], axis=1)
    line = curve(line, 80) if rng.random() < 0.5 else line
    return [turned(line, rng.uniform(-0.8, 0.8))]


def cross(rng: Random) -> list[Line]:
    """Two strokes across each other, a T, an L or a star."""
    shapes = [
        [_LEVEL, _LEVEL[:, ::-1]],
        [np.array([[0, 0], [1, 0]]), np.array([[0.5, 0], [0.5, 1]])],
        [np.array([[0.1, 0], [0.1, 1], [0.9, 1]])],
        [turned(_LEVEL, k * np.pi / 3) for k in range(3)],
    ]
    which = int(rng.choice(4, p=[0.45, 0.2, 0.15, 0.2]))
    angle = rng.uniform(-0.25, 0.25) + (np.pi / 4) * (which == 0 and rng.random() < 0.6)
    return [turned(line + rng.normal(0, 0.03, line.shape), angle) for line in shapes[which]]


def bar(rng: Random) -> list[Line]:
    """A level stroke, a wave or two strokes: dashes, rules and underlines."""
    x = np.linspace(0, 1, 30)
    wave = rng.uniform(0, 0.12) * np.sin(rng.uniform(0, 14) * x + rng.uniform(0, 6))
    line = np.stack([x, 0.5 + wave], axis=1)
    below = line + np.array([0, rng.uniform(0.15, 0.4)])
    lines = [line] if rng.random() < 0.6 else [line, below]
    angle = rng.uniform(-0.4, 0.4)
    return [turned(line, angle) for line in lines]


def arrow(rng: Random) -> list[Line]:
    """A shaft, bent or straight, with a head."""
    shaft = curve(np.array([[0.0, 0.5], [0.5, 0.5 + rng.normal(0, 0.12)], [1.0, 0.5]]), 16)
    size, open_ = rng.uniform(0.2, 0.4), rng.uniform(0.5, 0.9)
    back = [(1 - size * np.cos(open_), 0.5 + s * size * np.sin(open_)) for s in (-1, 1)]
    lines = [shaft, np.array([back[0], (1.0, 0.5), back[1]])]
    if rng.random() < 0.25:
        lines.append(1 - lines[1])
    angle = rng.uniform(0, 2 * np.pi)
    return [turned(line, angle) for line in lines]


def tick(rng: Random) -> list[Line]:
    corner = np.array([rng.uniform(0.2, 0.4), 1.0])
    start = corner - np.array([rng.uniform(0.15, 0.35), rng.uniform(0.25, 0.5)])
    return [np.array([start, corner, [rng.uniform(0.9, 1.1), rng.uniform(-0.1, 0.3)]])]


def box(rng: Random) -> list[Line]:
    """A box with sharp corners: empty, ticked or crossed."""
    high = rng.uniform(0.6, 1.0)
    low = 0.5 - high / 2
    corners = np.array([[0, low], [1, low], [1, low + high], [0, low + high], [0, low]])
    lines: list[Line] = [corners + rng.normal(0, 0.03, corners.shape)]
    content = rng.random()
    if content < 0.25:
        lines.append(np.array([[0.2, 0.5], [0.4, 0.75], [0.9, 0.1]]))
    elif content < 0.5:
        lines += [np.array([[0.1, 0.2], [0.9, 0.8]]), np.array([[0.9, 0.2], [0.1, 0.8]])]
    elif content < 0.65:
        lines.append(np.array([[0.5, low], [0.5, low + high]]))
    angle = rng.normal(0, 0.08)
    return [turned(line, angle) for line in lines]


def polygon(rng: Random) -> list[Line]:
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


def crossed_ring(rng: Random) -> list[Line]:
    """A ring with a stroke through its whole height, or a cross in it or on it."""
    high, radius = rng.uniform(0.6, 1.2), rng.uniform(0.2, 0.42)
    lines = [ring((0.5, 0.5), radius, high=high)]
    through = np.array([[0.5, 0.0], [0.5, 1.0]])
    if rng.random() < 0.5:
        lines.append(turned(through, rng.choice([0, np.pi / 2]) + rng.normal(0, 0.1)))
        if rng.random() < 0.5:
            lines.append(turned(lines[1], np.pi / 2))
        return lines
    # a stem with one bar or two, or a head
    stem = np.array([[0.5, 0.5 + radius * high], [0.5, 1.1 + radius * high]])
    at = float(stem[1, 1]) - rng.uniform(0.1, 0.3)
    lines += [stem, np.array([[0.25, at], [0.75, at]])]
    turn = rng.choice([0, np.pi / 2, np.pi, rng.uniform(0, 6.3)])
    return [turned(line, float(turn)) for line in lines]


def figure(rng: Random) -> list[Line]:
    """Three to five lines, arcs, rings and angles in disorder."""
    lines: list[Line] = []
    for _ in range(int(rng.integers(3, 6))):
        kind, middle = rng.random(), rng.uniform(0.1, 0.9, 2)
        if kind < 0.3:
            lines.append(rng.random((2, 2)))
        elif kind < 0.55:
            lines.append(curve(rng.random((3, 2)), 16))
        elif kind < 0.8:
            x, y = middle.tolist()
            lines.append(ring((x, y), rng.uniform(0.08, 0.3), high=rng.uniform(0.6, 1.5)))
        else:
            lines.append(middle + rng.uniform(-0.4, 0.4, (3, 2)))
    return lines


def face(rng: Random) -> list[Line]:
    """An oval with eyes and a mouth."""
    eyes = [ring((0.5 + side, 0.38), rng.uniform(0.02, 0.08)) for side in (-0.18, 0.18)]
    bend = rng.uniform(-0.15, 0.2)
    mouth = curve(np.array([[0.28, 0.68], [0.5, 0.68 + bend], [0.72, 0.68]]), 12)
    lines = [*eyes, mouth]
    if rng.random() < 0.7:
        lines.append(ring((0.5, 0.5), 0.48, high=rng.uniform(0.85, 1.2)))
    if rng.random() < 0.5:
        lines.append(np.array([[0.5, 0.42], [0.45, 0.57], [0.54, 0.57]]))
    return lines


def plant(rng: Random) -> list[Line]:
    """A stem with leaves or twigs, a flower on it at times."""
    sway = np.cumsum(rng.normal(0, 0.05, 8))
    stem = np.stack([0.5 + sway - sway.mean(), np.linspace(1, 0.1, 8)], axis=1)
    lines: list[Line] = [curve(stem, 24)]
    for number in range(1, 7, int(rng.integers(1, 3))):
        side = 1 if number % 2 else -1
        tip = stem[number] + np.array([side * rng.uniform(0.2, 0.4), -rng.uniform(0, 0.25)])
        belly = (stem[number] + tip) / 2 + np.array([0, rng.uniform(0.08, 0.16)])
        leaf = [stem[number], belly, tip]
        if rng.random() < 0.6:
            leaf += [(stem[number] + tip) / 2 - np.array([0, rng.uniform(0.05, 0.14)]), leaf[0]]
        lines.append(curve(np.array(leaf), 16))
    if rng.random() < 0.4:
        lines.append(ring((float(stem[-1][0]), 0.1), rng.uniform(0.06, 0.2)))
    angle = rng.normal(0, 0.4)
    return [turned(line, angle) for line in lines]
