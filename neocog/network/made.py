"""Synthetic digits, to test and time a network where no real ones are at hand."""

import numpy as np
from numpy.typing import NDArray

from neocog.network.u0 import DIGIT_SIZE

_LONGER = 20.0  # longer side of its ink, as MNIST's is
_PEN = 2.3  # width of a stroke


def made_digits(count: int, *, seed: int = 0) -> NDArray[np.uint8]:
    """Digits made of three random strokes of a pen 2.3 pixels wide.

    They are as large as MNIST's, so that a network that skips silence is not flattered.

    Returns
    -------
    (count, 28, 28) ndarray of uint8
    """
    random = np.random.default_rng(seed)
    ends = random.uniform(size=(count, 4, 1, 1, 2))  # strokes join end to end
    low, high = ends.min(axis=1, keepdims=True), ends.max(axis=1, keepdims=True)
    ends = (ends - (low + high) / 2) / (high - low).max(axis=-1, keepdims=True)
    ends = DIGIT_SIZE / 2 - 0.5 + (_LONGER - _PEN) * ends
    place = np.moveaxis(np.mgrid[:DIGIT_SIZE, :DIGIT_SIZE].astype(np.float64), 0, -1)
    distance = np.full((count, DIGIT_SIZE, DIGIT_SIZE), np.inf)
    for stroke in range(3):
        start, step = ends[:, stroke], ends[:, stroke + 1] - ends[:, stroke]
        along = ((place - start) * step).sum(-1) / np.maximum((step**2).sum(-1), 1e-9)
        nearest = start + np.clip(along, 0.0, 1.0)[..., None] * step
        distance = np.minimum(distance, np.linalg.norm(place - nearest, axis=-1))
    return (255.0 * np.clip(_PEN / 2 + 0.5 - distance, 0.0, 1.0)).astype(np.uint8)
