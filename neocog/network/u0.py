"""From an isolated 28x28 digit to the input layer U0: the one function every engine agrees with."""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocog.errors import InputError
from neocog.network.spec import INPUT_SIZE

DIGIT_SIZE = 28  #: rows and columns of an isolated digit (MNIST's form: ink 255 on paper 0)
ENLARGED = 2 * DIGIT_SIZE  #: it is enlarged to twice its size ...
MARGIN = 4  #: ... and gets this much paper above and to the left; the rest goes below and to the right


@cache
def enlarging_matrix() -> NDArray[np.float64]:
    """Return R, shape (65, 28), with U0 = R D R^T for a digit D of shape (28, 28).

    Bilinear enlargement with pixel centres at half-integers and the border repeated, then 4 rows of paper
    above and 5 below. Its entries are 0, 1/4, 3/4 and 1: exact in float32.
    """
    source = (np.arange(ENLARGED) + 0.5) / 2 - 0.5
    low = np.floor(source).astype(int)
    part = source - low
    r = np.zeros((INPUT_SIZE, DIGIT_SIZE))
    rows = MARGIN + np.arange(ENLARGED)
    np.add.at(r, (rows, np.clip(low, 0, DIGIT_SIZE - 1)), 1 - part)
    np.add.at(r, (rows, np.clip(low + 1, 0, DIGIT_SIZE - 1)), part)
    return r


def u0_from_digits(digits: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Enlarge digits (B, 28, 28) uint8, ink 255 on paper 0, to U0, (B, 65, 65) float32, ink 1."""
    check_digits(digits)
    r = enlarging_matrix().astype(np.float32)
    return np.asarray((r @ (digits.astype(np.float32) / np.float32(255))) @ r.T)


def check_digits(digits: NDArray[np.uint8]) -> None:
    """Raise InputError unless ``digits`` are uint8 of shape (B, 28, 28)."""
    if digits.ndim != 3 or digits.shape[1:] != (DIGIT_SIZE, DIGIT_SIZE) or digits.dtype != "u1":
        raise InputError(
            f"got digits of {digits.dtype} {digits.shape}, expected uint8 (B, 28, 28), ink 255 on paper 0"
        )


def check_u0(u0: NDArray[np.floating[Any]]) -> None:
    """Raise InputError unless ``u0`` holds finite numbers of shape (B, 65, 65)."""
    if u0.ndim != 3 or u0.shape[1:] != (INPUT_SIZE, INPUT_SIZE):
        raise InputError(f"got U0 of {u0.shape}, expected (B, {INPUT_SIZE}, {INPUT_SIZE})")
    if not np.isfinite(u0).all():
        raise InputError("U0 holds values that are not finite, expected ink 1 on paper 0")


def made_digits(count: int, *, seed: int = 0) -> NDArray[np.uint8]:
    """Digits of three random strokes, as large as MNIST's, (count, 28, 28) uint8: to test and to time."""
    longer, pen = 20.0, 2.3  # longer side of the ink, width of a stroke, in pixels
    random = np.random.default_rng(seed)
    ends = random.uniform(size=(count, 4, 1, 1, 2))  # strokes join end to end
    low, high = ends.min(axis=1, keepdims=True), ends.max(axis=1, keepdims=True)
    ends = (ends - (low + high) / 2) / (high - low).max(axis=-1, keepdims=True)
    ends = DIGIT_SIZE / 2 - 0.5 + (longer - pen) * ends
    place = np.moveaxis(np.mgrid[:DIGIT_SIZE, :DIGIT_SIZE].astype(np.float64), 0, -1)
    distance = np.full((count, DIGIT_SIZE, DIGIT_SIZE), np.inf)
    for stroke in range(3):
        start, step = ends[:, stroke], ends[:, stroke + 1] - ends[:, stroke]
        along = ((place - start) * step).sum(-1) / np.maximum((step**2).sum(-1), 1e-9)
        nearest = start + np.clip(along, 0.0, 1.0)[..., None] * step
        distance = np.minimum(distance, np.linalg.norm(place - nearest, axis=-1))
    return (255.0 * np.clip(pen / 2 + 0.5 - distance, 0.0, 1.0)).astype(np.uint8)
