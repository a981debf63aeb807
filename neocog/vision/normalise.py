"""From ink to a digit in the form of MNIST's.

MNIST fits a digit into 20 x 20 pixels, keeping its shape, and lays it into 28 x 28 so that its
centre of mass is the centre of the field (LeCun et al. 1998, doi:10.1109/5.726791). A pen much
finer or broader than those of MNIST is brought nearer to them.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

SIDE, BOX = 28, 20
WIDENED = 2.3  # stroke width, in pixels of the 28 x 28 field, to which thinner ones than 1.7 are widened
_THIN, _THICK, _THINNED = 1.7, 3.4, 3.0  # and those thicker than 3.4 are thinned to 3
_FINE = 4  # working pixels per pixel of the result while strokes are widened or thinned
_ENLARGED = 64  # pixels that coarse pictures are enlarged to
_HALF = 0.499  # symmetric digits of even size fall on one side whatever their last bit

Ink = NDArray[np.float32]


def normalise(ink: NDArray[Any], *, stroke: float | None = None) -> NDArray[np.uint8]:
    """Bring one digit, ink (h, w) from 0 for paper to 1, into the form of MNIST's, (28, 28) uint8.

    Ink is 255 on 0, at most 20 pixels high and wide, the centre of mass within half a pixel of row
    14, column 14; all 0 without ink. ``stroke`` is its width in pixels, measured if not given.
    """
    import cv2

    field = np.zeros((SIDE, SIDE), np.uint8)
    patch = _crop(np.asarray(ink, dtype=np.float32))
    if patch is None:
        return field
    width = stroke_width(patch) if stroke is None else stroke
    width *= BOX * _FINE / max(patch.shape)  # in fine pixels
    patch = _resize(patch, BOX * _FINE)
    goal = (WIDENED if width < _THIN * _FINE else _THINNED) * _FINE
    reach = round(abs(goal - width))
    if reach and not _THIN * _FINE <= width <= _THICK * _FINE:  # far from MNIST's
        kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (reach + 1, reach + 1))
        padded = cv2.copyMakeBorder(patch, reach, reach, reach, reach, cv2.BORDER_CONSTANT, value=0)
        changed = cv2.dilate(padded, kernel) if goal > width else cv2.erode(padded, kernel)
        inked = _crop(np.asarray(changed, dtype=np.float32))
        patch = patch if inked is None else inked
    patch = _resize(patch, BOX)
    dark = patch[patch > 0.15]
    full = float(np.sort(dark)[int(0.85 * dark.size)]) if dark.size else 1.0
    patch = np.clip(patch / max(full, 0.3), 0.0, 1.0)
    mass = float(patch.sum())
    if mass <= 0:
        return field
    places = []
    for axis, side in enumerate(patch.shape):
        middle = float(patch.sum(axis=1 - axis) @ np.arange(side)) / mass
        first = min(max(math.floor(SIDE / 2 - middle + _HALF), 0), SIDE - side)
        places.append(slice(first, first + side))
    field[tuple(places)] = (patch * 255).round().astype(np.uint8)
    return field


def stroke_width(ink: NDArray[Any]) -> float:
    """Return the mean stroke width in pixels: twice the area of ink (h, w) over the length of its edge."""
    body = np.zeros((ink.shape[0] + 2, ink.shape[1] + 2), np.bool_)
    body[1:-1, 1:-1] = np.asarray(ink) > 0.5
    area = int(np.count_nonzero(body))
    if not area:
        return 0.0
    sides = np.count_nonzero(body[1:] ^ body[:-1]) + np.count_nonzero(body[:, 1:] ^ body[:, :-1])
    return 2.0 * area / (sides * np.pi / 4)  # an edge at any angle counts 4/pi sides per pixel


def _crop(ink: Ink) -> Ink | None:
    import cv2

    left, top, wide, high = cv2.boundingRect((ink > 0.3).astype(np.uint8))
    return ink[top : top + high, left : left + wide] if wide else None


def _resize(patch: Ink, side: int) -> Ink:
    """Scale so that the longer side is ``side``; areas are averaged when shrinking."""
    import cv2

    height, width = patch.shape
    scale = side / max(height, width)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    method = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(patch, size, interpolation=method), dtype=np.float32)


def isolated_digit(grey: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Bring a picture of one digit to MNIST's form: a bright border is paper; (28, 28) stays as it is."""
    border = np.concatenate([grey[0], grey[-1], grey[:, 0], grey[:, -1]])
    low, high = float(grey.min()), float(grey.max())
    ink: NDArray[np.uint8] = 255 - grey if float(np.median(border)) > (low + high) / 2.0 else grey
    if ink.shape == (SIDE, SIDE):
        return ink
    if high <= low:
        return np.zeros((SIDE, SIDE), np.uint8)
    stretched = (ink.astype(np.float32) - float(ink.min())) / (high - low)
    return normalise(enlarged(stretched))


def enlarged(ink: NDArray[np.float32]) -> NDArray[np.float32]:
    """Enlarge a coarse picture by cubic interpolation, which keeps its strokes apart."""
    import cv2

    factor = _ENLARGED // max(ink.shape)
    if factor < 2:
        return ink
    fine = cv2.resize(np.pad(ink, 1), None, fx=factor, fy=factor, interpolation=cv2.INTER_CUBIC)
    return np.clip(fine, 0.0, 1.0).astype(np.float32)
