"""Boxes that were found beside boxes that stand there; needs no PyTorch."""

import numpy as np
from numpy.typing import NDArray

from neocog.vision.finder import Finding

_SAME = 0.4  # share of the union of two boxes from which they are one mark


def compared(found: Finding, marks: NDArray[np.float32]) -> NDArray[np.int64]:
    """Count what was found of one page, in the order of `neocog.learning.finder.measure.Score`.

    Parameters
    ----------
    found : Finding
        What was sure enough.
    marks : ndarray, shape (M, 5)
        Label, middle, width, height; -1 is neither right nor wrong.
    """
    marks = marks[marks[:, 0] >= -1]
    boxes = np.concatenate([marks[:, 1:3] - marks[:, 3:5] / 2, marks[:, 3:5]], axis=1)
    digit, sign = (marks[:, 0] >= 0) & (marks[:, 0] < 10), marks[:, 0] >= 10
    told = found[found.digits]
    overlap, inside = overlaps(told.boxes, boxes)
    free = digit.copy()
    right = false = mistaken = 0
    for i in range(len(told)):
        good = np.where(free, overlap[i], 0)
        if len(good) and good.max() >= _SAME:
            right += 1
            free[good.argmax()] = False
        elif (overlap[i][sign] >= _SAME).any():
            mistaken += 1
            false += 1
        elif not ((inside[i] > 0.5) & (marks[:, 0] == -1)).any():
            false += 1
    empty = not (digit.any() or (marks[:, 0] == -1).any())
    clean = int(empty and len(told) == 0)
    return np.array([digit.sum(), right, false, mistaken, sign.sum(), clean, int(empty)], np.int64)


def overlaps(
    a: NDArray[np.float32], b: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Of boxes (N, 4) and (M, 4): intersection over union, and over the first, (N, M) each."""
    low = np.maximum(a[:, None, :2], b[None, :, :2])
    high = np.minimum(a[:, None, :2] + a[:, None, 2:], b[None, :, :2] + b[None, :, 2:])
    common = np.maximum(high - low, 0).prod(axis=2)
    first, second = a[:, 2] * a[:, 3], b[:, 2] * b[:, 3]
    union = first[:, None] + second[None] - common
    share: NDArray[np.float32] = common / np.maximum(union, 1e-6)
    within: NDArray[np.float32] = common / np.maximum(first[:, None], 1e-6)
    return share, within
