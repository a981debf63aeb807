"""Marks made of digits: some that touch, pieces, digits struck out."""

import cv2
import numpy as np

from neocog.learning.marks.source import Ink, Random, Source, inked
from neocog.vision.normalise import SIDE

#: Halves of digits that are no other digit: label, and True for the upper half.
_HALVES = ((0, True), (0, False), (2, False), (3, True), (3, False), (4, True), (5, False))


def pair(rng: Random, source: Source) -> Ink:
    """Two digits that touch."""
    return side_by_side(rng, source, 2)


def side_by_side(rng: Random, source: Source, count: int) -> Ink:
    """Digits that touch or overlap a little."""
    out = np.zeros((SIDE + 8, 4), np.float32)
    for _ in range(count):
        digit = _columns(source.digit(rng))
        if not digit.shape[1]:
            continue
        digit = np.roll(np.pad(digit, ((4, 4), (0, 0))), rng.integers(-3, 4), axis=0)
        overlap = min(int(rng.integers(0, 4)), digit.shape[1] // 3)
        wide = np.zeros((len(out), out.shape[1] + digit.shape[1] - overlap), np.float32)
        wide[:, : out.shape[1]] = out
        wide[:, -digit.shape[1] :] = np.maximum(wide[:, -digit.shape[1] :], digit)
        out = wide
    return out


def part_of_next(rng: Random, source: Source) -> Ink:
    """A digit with a part of its neighbour, as a cut at the wrong place leaves it."""
    part = _columns(source.digit(rng))
    for _ in range(20):  # to a digit that is broad enough to be known by a part of it
        if part.shape[1] >= 10:
            break
        part = _columns(source.digit(rng))
    part = part[:, : round(part.shape[1] * rng.uniform(0.4, 0.65))]
    whole = _columns(source.digit(rng))
    gap = np.zeros((SIDE, int(rng.integers(0, 2))), np.float32)
    joined = np.concatenate([whole, gap, part], axis=1)
    return joined if rng.random() < 0.5 else np.concatenate([part, gap, whole], axis=1)


def _columns(digit: Ink) -> Ink:
    """Columns with ink."""
    columns = np.flatnonzero(digit.max(axis=0) > 0.3)
    return digit[:, columns[0] : columns[-1] + 1] if columns.size else digit[:, :0]


def piece(rng: Random, source: Source) -> Ink:
    """The upper or lower half of a digit."""
    label, upper = _HALVES[rng.integers(len(_HALVES))]
    digit = source.digit(rng, label)
    rows = np.flatnonzero(digit.max(axis=1) > 0.3)
    if not rows.size:
        return digit
    cut = rows[0] + round((rows[-1] - rows[0]) * rng.uniform(0.4, 0.6))
    return digit[:cut] if upper else digit[cut:]


def struck(rng: Random, source: Source) -> Ink:
    """A digit struck out by a cross or by several strokes."""
    large = cv2.resize(source.digit(rng), (84, 84), interpolation=cv2.INTER_LINEAR)
    field = np.round(255 * large).astype(np.uint8)
    pen = int(rng.integers(4, 9))
    if rng.random() < 0.4:
        ends = [((8, 10), (76, 74)), ((76, 10), (8, 74))]
    else:
        rows = np.linspace(18, 66, int(rng.integers(2, 5))).astype(int)
        tilt = rng.integers(-22, 23)
        ends = [((4, int(row + tilt)), (80, int(row - tilt))) for row in rows]
    for start, end in ends:
        a, b = (np.array(point) + rng.integers(-5, 6, 2) for point in (start, end))
        cv2.line(field, a.tolist(), b.tolist(), 255, pen, cv2.LINE_AA)
    return inked(field)
