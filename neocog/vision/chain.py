"""The digits of one line: a chain of boxes from left to right, and how likely each is one of it.

A chain weighs as much as its boxes and the links between neighbours together (a linear-chain
conditional random field over segmentations; Sarawagi and Cohen 2004, Semi-Markov conditional random
fields for information extraction).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from neocog.vision.finder import overlaps, same_mark

Floats = NDArray[np.float64]

LINK = ("inside", "height")
"""What speaks against two boxes being neighbours: what they share, of the smaller one; the
logarithm of how much higher one is."""


def link_features(boxes: NDArray[np.float32]) -> Floats:
    """Return what stands between boxes (N, 4) that are sorted from left to right, (N, N, 2)."""
    high = np.log(np.maximum(boxes[:, 3].astype(np.float64), 1))
    return np.stack([overlaps(boxes, boxes)[1], np.abs(high[:, None] - high[None])], axis=2)


def links(boxes: NDArray[np.float32], weights: Sequence[float]) -> Floats:
    """Return the log odds of each box (N, 4) being followed by another, (N, N).

    Boxes are sorted from left to right; -inf where two are one mark, or the second is not later.
    """
    out = link_features(boxes) @ np.array(weights, np.float64)
    out[same_mark(boxes, boxes)] = -np.inf
    out[np.tril_indices(len(boxes))] = -np.inf
    return np.asarray(out)


def best_chain(worth: Floats, link: Floats, count: int | None = None) -> list[int]:
    """Return the chain that is worth most, of ``count`` boxes if given; none if that is nothing."""
    layers, more = (0, 0) if count is None else (count, 1)
    total = np.full((len(worth), layers + 1), -np.inf)
    came = np.full(total.shape, -1)
    for i in range(len(worth)):
        if more <= layers:
            total[i, more] = worth[i]
        if not i:
            continue
        before = total[:i] + link[:i, i, None]
        top = before.argmax(axis=0)
        for n in range(layers + 1 - more):
            value = before[top[n], n] + worth[i]
            if value > total[i, n + more]:
                total[i, n + more], came[i, n + more] = value, top[n]
    if not len(worth) or total[:, layers].max() <= (0 if count is None else -np.inf):
        return []
    at, n = int(total[:, layers].argmax()), layers
    chain: list[int] = []
    while at >= 0:
        chain.insert(0, at)
        at, n = int(came[at, n]), n - more
    return chain


def posterior(odds: Floats, link: Floats) -> Floats:
    """Return the probability of each box to be part of the chain, (N,)."""
    before, after = _upto(odds, link), _upto(odds[::-1], link.T[::-1, ::-1])[::-1]
    whole = np.logaddexp(0.0, np.logaddexp.reduce(before, initial=-np.inf))
    return np.asarray(np.exp(before + after - odds - whole), np.float64)


def _upto(odds: Floats, link: Floats) -> Floats:
    """Log sum over all chains that end with each box."""
    total = odds.copy()
    for i in range(1, len(odds)):
        total[i] += np.logaddexp(0.0, np.logaddexp.reduce(total[:i] + link[:i, i]))
    return total
