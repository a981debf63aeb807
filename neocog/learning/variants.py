"""Digits as coarse scanners and the reader of pages hand them over: further pictures to learn.

A digit is written with a finer or broader pen, seen by few pixels (8 to 20 a side, as with old
scanners) or by a camera (14 to 70, out of focus, with noise), and brought to 28 x 28 by the very
function that brings every found digit there. Only the digits that are learned from are looked at.
A few are drawn: ones with an up-stroke and sevens with a bar, which most of Europe writes, and
zeros that close or do not.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocog.learning.formats import enlarged
from neocog.vision.normalise import normalise

Digits = NDArray[np.uint8]
Labels = NDArray[np.integer]
Ink = NDArray[np.float32]

#: Pixels a side of coarse scanners.
GRIDS = (8, 8, 9, 10, 11, 12, 14, 16, 16, 20)
_WITHIN = 4  # a coarse pixel is the mean of so many fine ones, squared
_COARSE = 0.5  # share of coarse scanners
_DRAWN = 0.06  # share of digits that are drawn, in place of one that was written
_CANVAS = 96


def variants(
    count: int, images: Digits, labels: Labels, *, seed: int = 0
) -> tuple[Digits, NDArray[np.int64]]:
    """Return ``count`` variants of digits, chosen and changed at random, and what they are.

    Parameters
    ----------
    count : int
        How many; each digit comes about equally often.
    images, labels : ndarray
        Digits (N, 28, 28) uint8, ink 255 on 0, and what they are.
    seed : int
        The same seed gives the same variants.
    """
    rng = np.random.default_rng([seed, 11])
    turns = -(-count // max(len(images), 1))
    orders = [np.zeros(0, np.int64), *(rng.permutation(len(images)) for _ in range(turns))]
    chosen = np.concatenate(orders)[:count]
    made, answers = np.zeros((count, 28, 28), np.uint8), labels[chosen].astype(np.int64)
    for place, which in enumerate(chosen):
        ink = _cropped(images[which])
        if rng.random() < _DRAWN:
            answers[place] = rng.choice((0, 1, 7))
            ink = _drawn(int(answers[place]), rng)
        if ink is None:
            made[place] = images[which]
            continue
        seen = _scanned(ink, rng) if rng.random() < _COARSE else _photographed(ink, rng)
        made[place] = normalise(seen)
    return made, answers


def _cropped(digit: Digits) -> Ink | None:
    rows, columns = (np.flatnonzero((digit > 77).any(axis=axis)) for axis in (1, 0))
    if not len(rows):
        return None
    inside = digit[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return inside.astype(np.float32) / np.float32(255)


def _drawn(digit: int, rng: np.random.Generator) -> Ink | None:
    """A 0 that may not close, a 1 with an up-stroke, a 7 with a bar or none: drawn by a pen."""
    import cv2

    if digit == 0:
        lines, shaking = _zero(rng), 0.004
    else:
        lines, shaking = _strokes(digit, rng), 0.02
    canvas = np.zeros((_CANVAS, _CANVAS), np.uint8)
    size = 0.7 * _CANVAS
    offset = np.array([0.5 * _CANVAS + 0.2 * size * (digit > 0), 0.15 * _CANVAS])
    for line in lines:
        shaky = np.array(line) * size + offset + rng.normal(0, shaking * size, (len(line), 2))
        points = np.round(8 * shaky).astype(np.int32)
        pen = int(rng.integers(5, 12))
        cv2.polylines(canvas, [points], False, 255, pen, cv2.LINE_AA, shift=3)
    return _cropped(canvas)


def _zero(rng: np.random.Generator) -> list[Any]:
    """An ellipse begun near its top, whose ends overlap, meet or leave a gap; 1 high."""
    wide, tilt = rng.uniform(0.25, 0.48), rng.uniform(-0.1, 0.35)
    begin, gap = np.deg2rad(rng.uniform(-100, -20)), np.deg2rad(rng.uniform(-30, 30))
    angle = begin + np.linspace(0, 2 * np.pi - gap, 40)
    x, y = wide * np.cos(angle), 0.5 + 0.5 * np.sin(angle)
    drift = np.cumsum(rng.normal(0, 0.006, (40, 2)), axis=0)
    return [np.stack([x - tilt * (y - 0.5), y], axis=1) + drift]


def _strokes(digit: int, rng: np.random.Generator) -> list[Any]:
    """The lines of a 1 or a 7, points (x, y), 1 high."""
    slant = rng.uniform(-0.05, 0.45)  # columns to the left for each row down
    top = np.array([0.0, 0.0])
    foot = np.array([-slant, 1.0])
    if digit == 1:
        rise, length = np.deg2rad(rng.uniform(35, 65)), rng.uniform(0.25, 0.75)
        lines = [[top - length * np.array([np.cos(rise), -np.sin(rise)]), top, foot]]
        if rng.random() < 0.2:  # a foot
            left, right = rng.uniform(0.1, 0.3, 2)
            lines.append([foot - np.array([left, 0.0]), foot + np.array([right, 0.0])])
    else:
        fall, length = np.deg2rad(rng.uniform(-10, 15)), rng.uniform(0.45, 0.75)
        corner = top - length * np.array([np.cos(fall), np.sin(fall)])
        lines = [[corner, top, foot]]
        if rng.random() < 0.6:
            middle = top + rng.uniform(0.4, 0.6) * (foot - top)
            half = rng.uniform(0.12, 0.28) * np.array([1, -rng.uniform(-0.1, 0.35)])
            lines.append([middle - half, middle + half])
    return lines


def _scanned(ink: Ink, rng: np.random.Generator) -> Ink:
    """Seen by a grid of few pixels that the digit fills, then enlarged."""
    pixels = int(rng.choice(GRIDS))
    fine = pixels * _WITHIN
    written = _resized(ink, fine - int(rng.integers(0, _WITHIN)))
    written = _pen(written, rng.uniform(-0.03, 0.05) * fine)
    if rng.random() < 0.7:
        written = (written > rng.uniform(0.4, 0.6)).astype(np.float32)
    field = np.zeros((fine, fine), np.float32)
    slack = fine - np.array(written.shape)
    top, left = (slack * rng.uniform(0.3, 0.7, 2)).astype(int)
    field[top : top + written.shape[0], left : left + written.shape[1]] = written
    seen = field.reshape(pixels, _WITHIN, pixels, _WITHIN).mean(axis=(1, 3))
    if rng.random() < 0.5:
        seen = np.round(seen * 16) / 16
    return enlarged(seen.astype(np.float32))


def _photographed(ink: Ink, rng: np.random.Generator) -> Ink:
    """Seen by a camera, and what of it is darker than the paper."""
    import cv2

    size = int(rng.integers(14, 71))
    written = np.pad(_resized(ink, size), 4)
    written = _pen(written, rng.uniform(-0.03, 0.06) * size)
    sigma = size * rng.uniform(0.005, 0.04)
    seen = cv2.GaussianBlur(written, (0, 0), max(sigma, 0.2))
    seen = seen + rng.normal(0, rng.uniform(0, 0.08), seen.shape)
    low, high = rng.uniform(0.1, 0.3), rng.uniform(0.5, 0.9)
    return np.asarray(np.clip((seen - low) / (high - low), 0, 1), np.float32)


def _resized(ink: Ink, side: int) -> Ink:
    """Enlarge or shrink so that the longer side is ``side``."""
    import cv2

    scale = side / max(ink.shape)
    height, width = (max(1, round(length * scale)) for length in ink.shape)
    method = cv2.INTER_CUBIC if scale > 1 else cv2.INTER_AREA
    return np.asarray(
        np.clip(cv2.resize(ink, (width, height), interpolation=method), 0, 1), np.float32
    )


def _pen(ink: Ink, more: float) -> Ink:
    """Widen (or thin, where negative) every stroke by so many pixels; within the same field."""
    import cv2

    reach = round(abs(more))
    if not reach:
        return ink
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (reach + 1, reach + 1))
    changed = cv2.dilate(ink, kernel) if more > 0 else cv2.erode(ink, kernel)
    return np.asarray(changed if changed.max() > 0.5 else ink, np.float32)
