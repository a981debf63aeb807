"""Fields of ink and of noise: how they are scaled and laid on each other; angles."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Rng = np.random.Generator
Cover = NDArray[np.float32]  #: the share of each pixel that ink covers

_NOISE_SIDE = 1024


def inked(field: NDArray[Any]) -> Cover:
    """Ink 0 .. 255 as the share of each pixel that it covers."""
    return np.asarray(field, np.float32) / np.float32(255)


def arc(angle: Any) -> NDArray[np.float64]:
    """Points (..., 2) of the unit circle at angles (...)."""
    return np.stack([np.cos(angle), np.sin(angle)], axis=-1)


def rotation(angle: float) -> NDArray[np.float64]:
    """The matrix (2, 2) that turns a column (x, y) by an angle, and a row by its opposite."""
    cos, sin = arc(angle)
    return np.array([[cos, -sin], [sin, cos]])


def resized(picture: NDArray[Any], size: Sequence[int], larger: int = cv2.INTER_LINEAR) -> NDArray[Any]:
    """Enlarge or shrink a picture to a width and height."""
    smaller = size[0] < picture.shape[1] or size[1] < picture.shape[0]
    return np.asarray(cv2.resize(picture, size, interpolation=cv2.INTER_AREA if smaller else larger))


def blurred(image: NDArray[np.float32], sigma: float) -> NDArray[np.float32]:
    return np.asarray(cv2.GaussianBlur(image, (0, 0), sigma), np.float32)


def of_height(picture: NDArray[Any], rows: int) -> NDArray[Any]:
    """Enlarge or shrink a strip to so many rows, and 16 columns or more."""
    return resized(picture, (max(16, round(picture.shape[1] * rows / len(picture))), rows))


def shared(field: Cover, cover: Cover, x: int, y: int) -> tuple[Cover, Cover]:
    """Return the parts of a field and of ink with its left top at (x, y) that lie on each other."""
    place = field[max(y, 0) : max(y + len(cover), 0), max(x, 0) : max(x + cover.shape[1], 0)]
    return place, cover[max(-y, 0) :, max(-x, 0) :][: place.shape[0], : place.shape[1]]


def add_ink(field: Cover, cover: Cover, x: int, y: int) -> None:
    """Lay ink on what is there of it, its left top at (x, y); what lies outside the field is left out."""
    place, part = shared(field, cover, x, y)
    np.maximum(place, part, out=place)


def line_kernel(side: int, angle: float) -> NDArray[np.uint8]:
    """Return a field (side, side) with a line of ones through its middle."""
    kernel = np.zeros((side, side), np.uint8)
    middle = (side - 1) / 2
    way = arc(angle) * middle
    a, b = ((middle + sign * way).round().astype(int).tolist() for sign in (-1, 1))
    cv2.line(kernel, a, b, 1, 1)
    return kernel


@cache
def _noise_field() -> NDArray[np.float32]:
    return np.random.default_rng(1).standard_normal((_NOISE_SIDE, _NOISE_SIDE), np.float32)


def noise(shape: tuple[int, ...], rng: Rng) -> NDArray[np.float32]:
    """Return a window, turned by chance, of one fixed field of normal noise: much the quickest."""
    if max(shape) >= _NOISE_SIDE:
        times = [-(-side // _NOISE_SIDE) for side in shape]
        return np.tile(_noise_field(), times)[: shape[0], : shape[1]]
    y = int(rng.integers(_NOISE_SIDE - shape[0] + 1))
    x = int(rng.integers(_NOISE_SIDE - shape[1] + 1))
    way = int(rng.integers(4))
    window = _noise_field()[y : y + shape[0], x : x + shape[1]]
    return window[:: -1 if way & 1 else 1, :: -1 if way & 2 else 1]


def octaves(shape: tuple[int, ...], cells: Sequence[int], fall: float, rng: Rng) -> NDArray[np.float32]:
    """Return a sum (H, W) of smooth noises by size of cells, each ``fall`` times the last."""
    total, weight = np.zeros(shape, np.float32), 1.0
    for cell in cells:
        count = tuple(side // cell + 3 for side in shape)
        size = (count[1] * cell, count[0] * cell)
        large = cv2.resize(noise(count, rng), size, interpolation=cv2.INTER_LINEAR)
        total += np.float32(weight) * np.asarray(large)[cell : cell + shape[0], cell : cell + shape[1]]
        weight *= fall
    return total
