"""What else stands on a page: drawings, blots, words, underlines, crossed-out numbers."""

import cv2
import numpy as np

from neocog.learning.teacher.canvas import Canvas, Hand
from neocog.learning.teacher.lettering import LETTERS, any_word
from neocog.learning.teacher.pen import Line, Pen, ink, rounded


def clutter(canvas: Canvas, hand: Hand, pen: Pen, high: float, amount: int) -> None:
    """Draw some things where nothing stands yet."""
    rng, side = canvas.rng, canvas.side
    for _ in range(amount):
        own = float(np.clip(high * np.exp(rng.normal(0.2, 0.7)), 8, side))
        x, y = rng.uniform(0, side, 2)
        kind = rng.random()
        tool = Pen(pen.width * float(np.exp(rng.normal(0, 0.4))), float(rng.uniform(0.15, 0.95)))
        if kind < 0.3:
            _word(canvas, hand, tool, x, y, own)
        elif canvas.free(x - own / 2, y - own / 2, own, own):
            strokes = _DRAWINGS[int(rng.integers(len(_DRAWINGS)))](rng)
            lines = [
                (line - np.float32(0.5)) * np.float32(own) + np.array([x, y], np.float32)
                for line in strokes
            ]
            cover, left, top = ink(lines, max(tool.width * own, 0.5), tool, rng)
            canvas.lay(cover, left, top, tool.contrast)
            canvas.take(x - own / 2, y - own / 2, own, own)


def _word(canvas: Canvas, hand: Hand, pen: Pen, x: float, y: float, high: float) -> None:
    rng = canvas.rng
    word = any_word(rng, LETTERS)
    high = min(high, canvas.side / 4)
    if not canvas.free(x, y - high / 2, 0.7 * high * len(word), high):
        return
    if canvas.bank.faces and rng.random() < 0.5:
        wide = canvas.print_word(
            word, x, y - high / 2, high, int(rng.integers(canvas.bank.faces)), pen.contrast
        )
    else:
        begin = x
        for letter in word:
            x += canvas.shape(letter, x, y, high, hand, pen, letter=True) + 0.08 * high
        wide, x = x - begin, begin
    canvas.take(x, y - high / 2, wide, high)


def strikes(canvas: Canvas, pen: Pen) -> None:
    """Cross out a digit or a few; they are neither right nor wrong then. Underline others."""
    rng = canvas.rng
    digits = [mark for mark in canvas.marks if 0 <= mark[0] < 10]
    if not digits:
        return
    _, x, y, wide, high = digits[int(rng.integers(len(digits)))]
    long = wide + high * rng.uniform(0, 2.5)
    width = max(pen.width * high, 0.6)
    kind = rng.random()
    if kind < 0.45:  # a line below
        level = y + high * rng.uniform(1.12, 1.3)
        lines = [
            np.array(
                [(x - 0.2 * high, level), (x + long, level + rng.normal(0, 0.04) * high)],
                np.float32,
            )
        ]
    elif kind < 0.7:  # a ring around
        angle = np.linspace(0, 6.6, 24)
        ring = np.stack(
            [np.cos(angle) * (wide / 2 + 0.45 * high), np.sin(angle) * 0.85 * high], axis=1
        )
        lines = [(ring + np.array([x + wide / 2, y + high / 2])).astype(np.float32)]
    else:  # crossed out
        count = int(rng.integers(1, 8))
        t = np.linspace(0, 1, 2 * count)
        rows = y + high * (
            0.5 + 0.35 * np.where(np.arange(2 * count) % 2, 1, -1) * min(1, count / 3)
        )
        lines = [
            np.stack(
                [
                    x - 0.15 * high + t * (long + 0.3 * high),
                    rows + rng.normal(0, 0.06 * high, 2 * count),
                ],
                axis=1,
            ).astype(np.float32)
        ]
        canvas.crossed(x - 0.2 * high, y - 0.2 * high, long + 0.4 * high, 1.4 * high)
    cover, left, top = ink(lines, width, pen, rng)
    canvas.lay(cover, left, top, pen.contrast)


def blots(canvas: Canvas, high: float) -> None:
    """Spots of ink, some as large as a digit."""
    rng, side = canvas.rng, canvas.side
    for _ in range(int(rng.integers(1, 6))):
        x, y = rng.uniform(0, side, 2)
        reach = high * rng.uniform(0.03, 0.5)
        if not canvas.free(x - reach, y - reach, 2 * reach, 2 * reach):
            continue
        angle = np.linspace(0, 2 * np.pi, 18, endpoint=False)
        radius = reach * (1 + rng.uniform(0, 0.3) * rng.normal(size=18))
        points = np.stack(
            [x + radius * np.cos(angle), y + rng.uniform(0.4, 1) * radius * np.sin(angle)], axis=1
        )
        level = float(canvas.image.mean()) * rng.uniform(0.1, 0.85)
        cv2.fillPoly(canvas.image, [(points * 16).astype(np.int32)], level, cv2.LINE_AA, 4)


def _scribble(rng: np.random.Generator) -> list[Line]:
    return [rounded(rng.random((int(rng.integers(6, 14)), 2)).astype(np.float32), 2)]


def _polygon(rng: np.random.Generator) -> list[Line]:
    count = int(rng.integers(3, 7))
    angle = 2 * np.pi * (np.arange(count + 1) + rng.uniform()) / count
    points = 0.5 + 0.5 * np.stack([np.cos(angle), np.sin(angle)], axis=1) * rng.uniform(
        0.8, 1, (count + 1, 1)
    )
    points[-1] = points[0]
    return [points.astype(np.float32)]


def _house(rng: np.random.Generator) -> list[Line]:
    wall = [(0, 0.4), (1, 0.4), (1, 1), (0, 1), (0, 0.4), (0.5, 0), (1, 0.4)]
    door = [(0.4, 1), (0.4, 0.65), (0.6, 0.65), (0.6, 1)]
    return [np.array(wall, np.float32), np.array(door, np.float32)]


def _arrow(rng: np.random.Generator) -> list[Line]:
    turn = rng.uniform(0, 2 * np.pi)
    cos, sin = np.cos(turn), np.sin(turn)
    whole = np.array([(0, 0.5), (1, 0.5), (0.7, 0.3), (1, 0.5), (0.7, 0.7)]) - 0.5
    points = (whole @ np.array([[cos, sin], [-sin, cos]]) + 0.5).astype(np.float32)
    return [points[:2], points[2:]]


def _face(rng: np.random.Generator) -> list[Line]:
    angle = np.linspace(0, 2 * np.pi, 25)
    ring = 0.5 + 0.5 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    mouth = np.array([(0.3, 0.65), (0.5, rng.uniform(0.6, 0.85)), (0.7, 0.65)])
    eyes = [0.06 * (ring - 0.5) + (0.5 + side, 0.35) for side in (-0.18, 0.18)]
    lines = [line.astype(np.float32) for line in (ring, mouth, *eyes)]
    lines[1] = rounded(lines[1], 2)
    return lines


def _wave(rng: np.random.Generator) -> list[Line]:
    x = np.linspace(0, 1, 30)
    y = 0.5 + rng.uniform(0.03, 0.3) * np.sin(rng.uniform(6, 40) * x)
    return [np.stack([x, y], axis=1).astype(np.float32)]


def _star(rng: np.random.Generator) -> list[Line]:
    angle = 4 * np.pi * np.arange(6) / 5 - np.pi / 2
    return [(0.5 + 0.5 * np.stack([np.cos(angle), np.sin(angle)], axis=1)).astype(np.float32)]


def _tick(rng: np.random.Generator) -> list[Line]:
    return [np.array([(0.05, 0.55), (0.3, 0.95), (0.95, rng.uniform(0, 0.2))], np.float32)]


def _hatching(rng: np.random.Generator) -> list[Line]:
    step = rng.uniform(0.06, 0.2)
    slant = rng.uniform(-0.3, 0.3)
    return [np.array([(x, 0), (x + slant, 1)], np.float32) for x in np.arange(0, 1, step)]


def _crossed_box(rng: np.random.Generator) -> list[Line]:
    box = [(0, 0), (1, 0), (1, 1), (0, 1), (0, 0)]
    return [
        np.array(line, np.float32)
        for line in (box, [(0.1, 0.1), (0.9, 0.9)], [(0.9, 0.1), (0.1, 0.9)])
    ]


def _closed(rng: np.random.Generator) -> list[Line]:
    """A smooth closed curve: a leaf, a cloud, a blob."""
    angle = np.linspace(0, 2 * np.pi, 40)
    order = np.arange(2, 7)[:, None]
    wave = rng.normal(size=(5, 1)) / order * np.cos(order * angle + rng.uniform(0, 7, (5, 1)))
    radius = 0.4 * (1 + rng.uniform(0.1, 0.9) * wave.sum(axis=0))
    ring = np.stack([radius * np.cos(angle), rng.uniform(0.3, 1) * radius * np.sin(angle)], axis=1)
    return [(ring + 0.5).astype(np.float32)]


def _branch(rng: np.random.Generator) -> list[Line]:
    """A plant: each branch gives off two or three."""
    lines, ends = [], [(np.array([0.5, 1.0]), -np.pi / 2, 0.4)]
    for _ in range(int(rng.integers(4, 14))):
        at, way, long = ends.pop(0)
        bend = rng.normal(0, 0.3)
        middle = at + 0.5 * long * np.array([np.cos(way), np.sin(way)])
        end = middle + 0.5 * long * np.array([np.cos(way + bend), np.sin(way + bend)])
        lines.append(rounded(np.array([at, middle, end], np.float32), 1))
        for _ in range(int(rng.integers(1, 4))):
            ends.append((end, way + rng.normal(0, 0.7), long * rng.uniform(0.5, 0.9)))
    return lines


def _strokes(rng: np.random.Generator) -> list[Line]:
    """A few strokes and arcs by chance: writing that nobody can read."""
    lines = []
    for _ in range(int(rng.integers(2, 6))):
        points = rng.random((int(rng.integers(2, 5)), 2)).astype(np.float32)
        lines.append(rounded(points, int(rng.integers(0, 3))))
    return lines


def _rings(rng: np.random.Generator) -> list[Line]:
    """Ellipses within each other or side by side."""
    angle = np.linspace(0, 2 * np.pi, 25)
    ring = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return [
        (rng.uniform(0.3, 0.7, 2) + ring * rng.uniform(0.05, 0.45, 2)).astype(np.float32)
        for _ in range(int(rng.integers(2, 6)))
    ]


def _spiral(rng: np.random.Generator) -> list[Line]:
    angle = np.linspace(0, rng.uniform(7, 25), 60)
    radius = 0.5 * angle / angle[-1]
    return [
        (0.5 + np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)).astype(np.float32)
    ]


def _zigzag(rng: np.random.Generator) -> list[Line]:
    count = int(rng.integers(4, 12))
    rows = 0.5 + rng.uniform(0.1, 0.5) * np.where(np.arange(count) % 2, 1, -1)
    return [np.stack([np.linspace(0, 1, count), rows], axis=1).astype(np.float32)]


_DRAWINGS = (
    _scribble, _polygon, _house, _arrow, _face, _wave, _star, _tick, _hatching, _crossed_box,
    _scribble, _closed, _closed, _branch, _branch, _strokes, _strokes, _rings, _spiral, _zigzag,
)  # fmt: skip
