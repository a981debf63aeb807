"""Boxes that were found beside boxes that stand there; needs no PyTorch."""

import numpy as np
from numpy.typing import NDArray

from neocog.vision.finder import FinderSettings, Finding, overlaps


def compared(found: Finding, marks: NDArray[np.float32]) -> NDArray[np.int64]:
    """Count what was found of a page with ``marks`` (M, 5): label (-1: any), middle, size.

    Returns (7,): digits that stand there; of them found; marks told as digits that are none; signs among
    these; signs that stand there; 1 if nothing was told of an empty page; 1 if it is empty.
    """
    boxes = np.concatenate([marks[:, 1:3] - marks[:, 3:5] / 2, marks[:, 3:5]], axis=1)
    digit, sign = (marks[:, 0] >= 0) & (marks[:, 0] < 10), marks[:, 0] >= 10
    told = found[found.kinds < 10]
    overlap, _, inside = overlaps(told.boxes, boxes)
    same = FinderSettings().overlap
    free = digit.copy()
    right = false = mistaken = 0
    for i in range(len(told)):
        good = np.where(free, overlap[i], 0)
        if len(good) and good.max() >= same:
            right += 1
            free[good.argmax()] = False
        elif (overlap[i][sign] >= same).any():
            mistaken += 1
            false += 1
        elif not ((inside[i] > 0.5) & (marks[:, 0] == -1)).any():
            false += 1
    empty = not (digit.any() or (marks[:, 0] == -1).any())
    clean = int(empty and len(told) == 0)
    return np.array([digit.sum(), right, false, mistaken, sign.sum(), clean, int(empty)], np.int64)


def shares(counts: NDArray[np.int64]) -> dict[str, float]:
    """Return what counts of `compared`, added up over pages, come to."""
    digits, found, false, mistaken, signs, clean, empty = counts.tolist()
    recall, precision = found / max(digits, 1), found / max(found + false, 1)
    return {
        "recall": recall,
        "precision": precision,
        "f1": 2 * recall * precision / max(recall + precision, 1e-9),
        "signs_as_digits": mistaken / max(signs, 1),
        "clean": clean / max(empty, 1),
    }
