"""Other tops of the network, for the figure without gradients: interpolating vectors and the delta rule.

Responses are those of US4, (B, 5, 5, K4), maps those of UC3, (N, 13, 13, K3), on NumPy or CuPy.

pairs, triples
    Fukushima 2013: at the place where a label's strongest plane responds, the input is compared with the
    segments (or triangles) between the reference vectors of that label, not with the vectors alone. With s
    the cosines to two vectors and g the cosine between them, the nearest point of the segment has the cosine
    sqrt((s1^2 + s2^2 - 2 g s1 s2) / (1 - g^2)) where s1 > g s2 and s2 > g s1; otherwise the nearer vector
    itself is the nearest point. Planes below their threshold take no part.
linear
    Widrow and Hoff: each plane adds its response at the middle place, weighed by its gain, to its label.
"""

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocog.learning.selforganise import Top, _lengths, _metric, _normalised, _planes_first, views
from neocog.network.arrays import array_module, to_numpy
from neocog.network.decision import planes_of_labels
from neocog.network.model import Model
from neocog.network.spec import LABELS, SSpec

#: Pairs are sought among this many strongest planes of a label, triples among fewer.
PAIR_PLANES, TRIPLE_PLANES = 32, 12
#: Recognition threshold of US4 under the delta rule: near 0, so that it stays linear.
DELTA_THRESHOLD = 0.001
_SAME = 1e-6  # vectors with 1 - g below this are one: float32 responses cannot tell between them
_FLAT = 1e-12  # three vectors whose Gram determinant is below this lie on one line
_EPOCHS, _RATE, _BATCH = 30, 0.1, 64  # of the delta rule
Array = Any


class Interpolated:
    """Scores (B, 10) from responses (B, 5, 5, K4) by "pairs" or "triples" of reference vectors."""

    def __init__(self, model: Model, rule: str, xp: Any = np) -> None:
        index, present = planes_of_labels(model)
        self._index, self._present = xp.asarray(index), xp.asarray(present)
        self._theta, self._triples = np.float32(model.s[3].threshold), rule == "triples"
        weight = xp.asarray(np.sqrt(model.s[3].c))
        self._apart = xp.ones((*index.shape, index.shape[1]), np.float64)  # 1 - g of two planes of a label
        for label, own in enumerate(index):
            x = (xp.asarray(model.s[3].reference[own]) * weight).reshape(len(own), -1).astype(np.float64)
            self._apart[label] -= _normalised(x) @ _normalised(x).T

    def __call__(self, us4: Array) -> Array:
        xp, flat = array_module(us4), us4.reshape(len(us4), -1, us4.shape[3])
        batch, labels = xp.arange(len(flat))[:, None, None], xp.arange(len(self._index))[None, :, None, None]
        place = (flat[:, :, self._index] * self._present).max(axis=3).argmax(axis=1)
        responses = flat[batch, place[:, :, None], self._index[None]] * self._present  # (B, 10, M)
        cosine = xp.where(responses > 0, responses * (1 - self._theta) + self._theta, 0)
        apart, limit = self._apart[None], TRIPLE_PLANES if self._triples else PAIR_PLANES
        if cosine.shape[2] > limit:
            top = xp.argsort(-cosine, axis=2)[:, :, :limit]
            cosine = xp.take_along_axis(cosine, top, axis=2)
            apart = self._apart[labels, top[:, :, :, None], top[:, :, None, :]]
        best = best_on_segments(cosine, apart.astype(np.float32))
        if self._triples:
            inside = best_on_triangles(cosine.astype(np.float64), 1 - apart)
            best = xp.maximum(best, inside.astype(np.float32))
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


def best_on_triangles(s: Array, gram: Array) -> Array:
    """Largest cosine to the inside of any triangle of three of M vectors; 0 if in none."""
    xp, m = array_module(s), s.shape[2]
    if m < 3:
        return xp.zeros(s.shape[:2], dtype=np.float32)
    i, j, k = (xp.asarray(t) for t in np.array(list(combinations(range(m), 3))).T)
    a, b, c = s[..., i], s[..., j], s[..., k]
    ab, bc, ca = gram[..., i, j], gram[..., j, k], gram[..., k, i]
    # p = adj(G) s / det(G): how much of each vector the nearest point holds
    det = 1 + 2 * ab * bc * ca - ab**2 - bc**2 - ca**2
    p = a * (1 - bc**2) + b * (bc * ca - ab) + c * (ab * bc - ca)
    q = a * (bc * ca - ab) + b * (1 - ca**2) + c * (ca * ab - bc)
    r = a * (ab * bc - ca) + b * (ca * ab - bc) + c * (1 - ab**2)
    inside = (p > 0) & (q > 0) & (r > 0) & (det > _FLAT)
    square = xp.where(inside, (p * a + q * b + r * c) / xp.maximum(det, _FLAT), 0)
    return xp.sqrt(square.max(axis=2))


def delta_rule(
    maps: Array, labels: NDArray[np.int64], spec: SSpec, rng: np.random.Generator
) -> tuple[Top, Array]:
    """One linear layer on the views by the delta rule: its planes, and the gain of each, (K4,).

    Views are taken at length 1 and less their share of the mean view, which all digits have in common and
    which would make learning slow. The weights of each label are split into two planes, the positive and the
    negative part, whose gains have opposite signs.
    """
    xp = array_module(maps)
    weight = _metric(spec, maps.shape[3], xp)
    seen = views(maps, spec) * weight
    seen /= _lengths(seen)
    common = _normalised(seen.mean(axis=0, keepdims=True))
    seen -= (seen @ common.T) * common
    w = xp.zeros((LABELS, seen.shape[1]), dtype=np.float32)
    total = xp.zeros_like(w)
    target = xp.asarray(np.where(np.eye(LABELS)[labels] > 0, 1, -0.1).astype(np.float32))
    for epoch in range(_EPOCHS):
        for part in np.array_split(rng.permutation(len(labels)), -(-len(labels) // _BATCH)):
            chosen = xp.asarray(part)
            x = seen[chosen]
            w += _RATE * (target[chosen] - x @ w.T).T @ x
        if epoch >= _EPOCHS // 2:
            total += w
    w = total / (_EPOCHS - _EPOCHS // 2)
    w -= (w @ common.T) * common
    halves = xp.concatenate([xp.maximum(w, 0), xp.maximum(-w, 0)])
    gains = _lengths(halves)[:, 0]
    x = 1e4 * halves / gains[:, None] / xp.maximum(weight, 1e-20) * (weight > 0)
    sign = np.repeat(np.array([1, -1], dtype=np.float32), LABELS)
    planes = Top(_planes_first(x, maps.shape[3], spec), np.tile(np.arange(LABELS), 2))
    return planes, sign * to_numpy(gains) * np.float32(1 - DELTA_THRESHOLD)


def with_delta_rule(
    model: Model, maps: Array, labels: NDArray[np.int64], rng: np.random.Generator
) -> tuple[Model, Array]:
    """A model whose US4 is learned anew by the delta rule, and the gains of its planes."""
    planes, gains = delta_rule(maps, labels, model.spec.s[3], rng)
    s4 = replace(model.s[3], reference=planes.references, threshold=DELTA_THRESHOLD)
    return replace(model, s=(*model.s[:3], s4), labels=planes.labels), gains


def signed_sums(us4: Array, model: Model, gains: NDArray[np.float32]) -> Array:
    """Scores (B, 10) by the rule "linear": gain times response at the middle place, by label."""
    xp = array_module(us4)
    index, present = planes_of_labels(model)
    flat = us4.reshape(len(us4), -1, us4.shape[3])
    middle = flat[:, flat.shape[1] // 2]
    return xp.maximum((middle[:, xp.asarray(index)] * xp.asarray(gains[index] * present)).sum(axis=2), 0)
