"""Another top of the network, for the figures without gradients: interpolating vectors (Fukushima 2013).

At the place where a label's strongest plane responds, the input is compared with the segments between pairs
of its reference vectors (triangles: commit 7628e6b2). With s the cosines to two vectors and g that between
them, the nearest point has the cosine sqrt((s1^2 + s2^2 - 2 g s1 s2) / (1 - g^2)) where s1 > g s2 and
s2 > g s1; else it is the nearer vector. Planes below their threshold take no part.
"""

from typing import Any

import numpy as np

from neocog.learning.selforganise import normalised
from neocog.network.arrays import array_module
from neocog.network.decision import planes_of_labels
from neocog.network.model import Model

PAIR_PLANES = 32  #: strongest planes of a label among which pairs are sought
_SAME = 1e-6  # vectors with 1 - g below this are one: float32 responses cannot tell between them
Array = Any


class Interpolated:
    """Scores (B, 10) from responses (B, 5, 5, K4) by pairs of reference vectors."""

    def __init__(self, model: Model, xp: Any = np) -> None:
        index, present = planes_of_labels(model)
        self._index, self._present = xp.asarray(index), xp.asarray(present)
        self._theta = np.float32(model.s[3].threshold)
        weight = xp.asarray(np.sqrt(model.s[3].c))
        self._apart = xp.ones((*index.shape, index.shape[1]), np.float64)  # 1 - g of two planes of a label
        for label, own in enumerate(index):
            x = (xp.asarray(model.s[3].reference[own]) * weight).reshape(len(own), -1).astype(np.float64)
            self._apart[label] -= normalised(x) @ normalised(x).T

    def __call__(self, us4: Array) -> Array:
        xp, flat = array_module(us4), us4.reshape(len(us4), -1, us4.shape[3])
        batch, labels = xp.arange(len(flat))[:, None, None], xp.arange(len(self._index))[None, :, None, None]
        place = (flat[:, :, self._index] * self._present).max(axis=3).argmax(axis=1)
        responses = flat[batch, place[:, :, None], self._index[None]] * self._present  # (B, 10, M)
        cosine = xp.where(responses > 0, responses * (1 - self._theta) + self._theta, 0)
        apart = self._apart[None]
        if cosine.shape[2] > PAIR_PLANES:
            top = xp.argsort(-cosine, axis=2)[:, :, :PAIR_PLANES]
            cosine = xp.take_along_axis(cosine, top, axis=2)
            apart = self._apart[labels, top[:, :, :, None], top[:, :, None, :]]
        best = best_on_segments(cosine, apart.astype(np.float32))
        return xp.maximum(best - self._theta, 0) / (1 - self._theta)


def best_on_segments(s: Array, apart: Array) -> Array:
    """Largest cosine to any segment between two of M vectors: s (B, 10, M) -> (B, 10). Written with h = 1 - g
    instead of g, since near vectors differ in h alone: s1^2 + s2^2 - 2 g s1 s2 = (s1 - s2)^2 + 2 h s1 s2 and
    1 - g^2 = h (2 - h).
    """
    xp = array_module(s)
    a, b = s[..., :, None], s[..., None, :]
    difference = a - b
    inside = (difference + apart * b > 0) & (apart * a - difference > 0) & (apart > _SAME)
    h = xp.maximum(apart, _SAME)
    square = (difference**2 + 2 * h * a * b) / (h * (2 - h))
    return xp.sqrt(xp.where(inside, square, a * a).max(axis=(2, 3)))
