"""What else stands on a page: drawings, blots, words, underlines, crossed-out numbers."""

import cv2
import numpy as np
from numpy.typing import NDArray

from neocog.learning import drawings
from neocog.learning.teacher.canvas import Canvas, Hand
from neocog.learning.teacher.pen import LETTERS, Pen, Rng, any_word

Lines = list[NDArray[np.float64]]


def clutter(canvas: Canvas, hand: Hand, pen: Pen, high: float, amount: int) -> None:
    """Draw some things where nothing stands yet."""
    rng, side = canvas.rng, canvas.side
    for _ in range(amount):
        own = float(np.clip(high * np.exp(rng.normal(0.2, 0.7)), 8, side))
        x, y = rng.uniform(0, side, 2)
        word = rng.random() < 0.3
        tool = Pen(pen.width * float(np.exp(rng.normal(0, 0.4))), float(rng.uniform(0.15, 0.95)))
        if word:
            _word(canvas, hand, tool, x, y, own)
        elif canvas.free(x - own / 2, y - own / 2, own, own):
            lines = _DRAWINGS[int(rng.integers(len(_DRAWINGS)))](rng)
            placed = [((line - 0.5) * own + (x, y)).astype(np.float32) for line in lines]
            canvas.draw(placed, tool, own, least=0.5)
            canvas.take(x - own / 2, y - own / 2, own, own)


def _word(canvas: Canvas, hand: Hand, pen: Pen, x: float, y: float, high: float) -> None:
    rng, faces = canvas.rng, canvas.bank.faces
    word = any_word(rng, LETTERS)
    high = min(high, canvas.side / 4)
    top = y - high / 2
    if not canvas.free(x, top, 0.7 * high * len(word), high):
        return
    if faces and rng.random() < 0.5:
        face = int(rng.integers(faces))
        wide = canvas.print_word(word, x, top, high, face, pen.contrast)
    else:
        wide = 0.0
        for letter in word:
            wide += canvas.shape(letter, x + wide, y, high, hand, pen, letter=True) + 0.08 * high
    canvas.take(x, top, wide, high)


def strikes(canvas: Canvas, pen: Pen) -> None:
    """Cross out a digit or a few; they are neither right nor wrong then. Underline others."""
    rng = canvas.rng
    digits = [mark for mark in canvas.marks if 0 <= mark[0] < 10]
    if not digits:
        return
    _, x, y, wide, high = digits[int(rng.integers(len(digits)))]
    long = wide + high * rng.uniform(0, 2.5)
    kind = rng.random()
    if kind < 0.45:  # a line below
        level = y + high * rng.uniform(1.12, 1.3)
        line = np.array([(x - 0.2 * high, level), (x + long, level + rng.normal(0, 0.04) * high)])
    elif kind < 0.7:  # a ring around
        angle = np.linspace(0, 6.6, 24)
        across = x + wide / 2 + np.cos(angle) * (wide / 2 + 0.45 * high)
        line = np.stack([across, y + high / 2 + np.sin(angle) * 0.85 * high], axis=1)
    else:  # crossed out
        count = int(rng.integers(1, 8))
        t = np.linspace(0, 1, 2 * count)
        reach = 0.35 * np.where(np.arange(2 * count) % 2, 1, -1) * min(1, count / 3)
        rows = y + high * (0.5 + reach) + rng.normal(0, 0.06 * high, 2 * count)
        line = np.stack([x - 0.15 * high + t * (long + 0.3 * high), rows], axis=1)
        canvas.crossed(x - 0.2 * high, y - 0.2 * high, long + 0.4 * high, 1.4 * high)
    canvas.draw([line.astype(np.float32)], pen, high, least=0.6)


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
        flat = rng.uniform(0.4, 1)
        points = np.stack([x + radius * np.cos(angle), y + flat * radius * np.sin(angle)], axis=1)
        level = float(canvas.image.mean()) * rng.uniform(0.1, 0.85)
        cv2.fillPoly(canvas.image, [(points * 16).astype(np.int32)], level, cv2.LINE_AA, 4)


def _house(rng: Rng) -> Lines:
    wall = [(0, 0.4), (1, 0.4), (1, 1), (0, 1), (0, 0.4), (0.5, 0), (1, 0.4)]
    return [np.array(wall), np.array([(0.4, 1), (0.4, 0.65), (0.6, 0.65), (0.6, 1)])]


def _closed(rng: Rng) -> Lines:
    """A smooth closed curve: a leaf, a cloud, a blob."""
    angle = np.linspace(0, 2 * np.pi, 40)
    order = np.arange(2, 7)[:, None]
    wave = rng.normal(size=(5, 1)) / order * np.cos(order * angle + rng.uniform(0, 7, (5, 1)))
    radius = 0.4 * (1 + rng.uniform(0.1, 0.9) * wave.sum(axis=0))
    flat = rng.uniform(0.3, 1)
    return [0.5 + np.stack([radius * np.cos(angle), flat * radius * np.sin(angle)], axis=1)]


def _branch(rng: Rng) -> Lines:
    """A plant: each branch gives off two or three."""
    lines, ends = [], [(np.array([0.5, 1.0]), -np.pi / 2, 0.4)]
    for _ in range(int(rng.integers(4, 14))):
        at, way, long = ends.pop(0)
        bend = way + rng.normal(0, 0.3)
        middle = at + 0.5 * long * np.array([np.cos(way), np.sin(way)])
        end = middle + 0.5 * long * np.array([np.cos(bend), np.sin(bend)])
        lines.append(drawings.curve(np.array([at, middle, end]), 6))
        for _ in range(int(rng.integers(1, 4))):
            ends.append((end, way + rng.normal(0, 0.7), long * rng.uniform(0.5, 0.9)))
    return lines


_DRAWINGS: tuple[drawings.Drawing, ...] = (
    drawings.scribble, drawings.scribble, drawings.polygon, drawings.arrow, drawings.face,
    drawings.bar, drawings.tick, drawings.box, drawings.cross, drawings.crossed_ring,
    drawings.figure, drawings.figure, drawings.figure, drawings.zigzag, drawings.plant, _house,
    _closed, _closed, _branch, _branch,
)  # fmt: skip
"""None of the kinds of `neocog.learning.negatives.HELD`: crops of pages teach the digit network too."""
