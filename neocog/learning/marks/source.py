"""What marks are drawn from, and how a drawing is varied as a hand varies it."""

from collections.abc import Callable, Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from neocog.learning.drawings import Line, turned
from neocog.vision.normalise import BOX, STROKE, normalise

Ink = NDArray[np.floating[Any]]
Digits = NDArray[np.uint8]
Random = np.random.Generator

FIELD = 96  # side of the field that marks are drawn in
AS_WRITTEN = 0.4  # share of what is learned whose strokes keep their width


class Source:
    """Digits (N, 28, 28) uint8 to break or to join, and what they are."""

    def __init__(self, digits: Digits, labels: NDArray[np.int64]) -> None:
        self._digits = digits
        self._own = [np.flatnonzero(labels == label) for label in range(10)]

    def digit(self, rng: Random, label: int | None = None) -> Ink:
        """Return a digit, ink 0 .. 1; one of any label where there is none of this."""
        own: NDArray[np.int64] = np.arange(len(self._digits))
        if label is not None and len(self._own[label]):
            own = self._own[label]
        ink: Ink = self._digits[own[rng.integers(len(own))]].astype(np.float32) / 255
        return ink


#: Draws one mark: ink 0 .. 1 on a field of any size.
Draw = Callable[[Random, Source], Ink]


def blank() -> NDArray[np.uint8]:
    """Return a field without ink."""
    return np.zeros((FIELD, FIELD), np.uint8)


def inked(field: NDArray[np.uint8]) -> Ink:
    """Return 0 .. 255 as ink 0 .. 1."""
    return field.astype(np.float32) / 255


def draw_lines(
    rng: Random, lines: Sequence[Line], angle: float = 0.0, pens: tuple[int, int] = (3, 11)
) -> Ink:
    """Draw open lines, coordinates 0 .. 1 in the middle of the field, turned about it.

    ``pens`` are the least width of the pen in pixels, and one more than the largest.
    """
    field, pen = blank(), int(rng.integers(*pens))
    for line in lines:
        place = turned(line, angle) if angle else line
        points = np.round((0.15 + 0.7 * place) * FIELD).astype(np.int32)
        cv2.polylines(field, [points], False, 255, pen, cv2.LINE_AA)
    return inked(field)


def inside(ink: NDArray[np.float32]) -> NDArray[np.float32] | None:
    """Return the part of a field that holds its ink; None if there is none."""
    rows, columns = (np.flatnonzero((ink > 0.3).any(axis=axis)) for axis in (1, 0))
    if not len(rows):
        return None
    return ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def as_written(ink: Ink) -> Digits:
    """Bring ink into MNIST's form as sets of digits do, its strokes as wide as they are."""
    body = inside(ink.astype(np.float32))
    long = max((ink if body is None else body).shape)
    return normalise(ink, stroke=STROKE / BOX * long)


def by_hand(ink: Ink, rng: Random, strength: float = 1.0) -> Ink:
    """Slant, stretch, turn and bend a drawing (FIELD, FIELD), and give it another pen.

    A strength of 1 leaves letters legible.
    """
    angle = strength * rng.normal(0, 0.12)
    shear, wide = strength * rng.normal(0, 0.2), np.exp(strength * rng.normal(0, 0.18))
    cos, sin = np.cos(angle), np.sin(angle)
    turn = np.array([[cos, -sin], [sin, cos]]) @ np.array([[wide, -shear], [0, 1 / wide]])
    bend = strength * rng.normal(0, 2.6, (2, 5, 5)).astype(np.float32)
    right, down = (cv2.resize(part, (FIELD, FIELD), interpolation=cv2.INTER_CUBIC) for part in bend)
    middle = (FIELD - 1) / 2
    rows, columns = np.mgrid[0:FIELD, 0:FIELD].astype(np.float32) - np.float32(middle)
    inverse = np.linalg.inv(turn).astype(np.float32)
    x = inverse[0, 0] * columns + inverse[0, 1] * rows + middle + right
    y = inverse[1, 0] * columns + inverse[1, 1] * rows + middle + down
    moved = cv2.remap(ink.astype(np.float32), x.astype(np.float32), y.astype(np.float32),
                      cv2.INTER_LINEAR)  # fmt: skip
    return _other_pen(np.asarray(moved, np.float32), int(rng.integers(-2, 4)))


def _other_pen(ink: NDArray[np.float32], grown: int) -> Ink:
    """Broaden strokes, or thin them as long as half of the ink stays."""
    if not grown:
        return ink
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * abs(grown) + 1,) * 2)
    if grown > 0:
        return np.asarray(cv2.dilate(ink, kernel), np.float32)
    thin = np.asarray(cv2.erode(ink, kernel), np.float32)
    return thin if thin.sum() > 0.5 * ink.sum() else ink
