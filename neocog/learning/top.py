"""US4: supervised planes, each with a digit's label, above UC3.

``maps`` are those of UC3, (N, 13, 13, K3), on NumPy or CuPy. What the cell in the middle of US4
sees of them is a digit's *view*, 9 x 9 x K3.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocog.learning.selforganise import Array, Planes, correlate, windows_of
from neocog.network.arrays import array_module, to_numpy
from neocog.network.fields import bell
from neocog.network.spec import LABELS, SSpec


@dataclass(frozen=True, slots=True)
class Top:
    """Planes of US4: reference vectors (K4, K3, 9, 9) and labels (K4,)."""

    references: NDArray[np.float32]
    labels: NDArray[np.int64]


def learn_supervised(maps: Array, labels: NDArray[np.int64], spec: SSpec, *, passes: int = 4) -> Top:
    """The rule of Fukushima (2003), over the digits in order, ``passes`` times. If the strongest plane has
    the right label, it adds what its cell sees to its reference vector. If it is wrong, or all are silent, a
    new plane with the right label is born at the maximum of the seed-selecting plane.
    """
    xp = array_module(maps)
    planes = Planes(maps.shape[3], spec, xp=xp)
    c = bell(spec.kernel, spec.c)
    v = xp.sqrt(correlate((maps**2).sum(axis=3), c)).reshape(len(maps), -1)
    seed = to_numpy(correlate(maps.sum(axis=3), c).reshape(len(maps), -1).argmax(axis=1))
    for _ in range(passes):
        for i, label in enumerate(labels.tolist()):
            seen = windows_of(maps[i], spec.kernel).reshape(v.shape[1], -1)
            if len(planes):
                response = planes.respond(seen, v[i])
                cell, plane = divmod(int(response.argmax()), len(planes))
                if planes.labels[plane] == label and response[cell, plane] > 0:
                    planes.learn(plane, seen[cell])
                    continue
            planes.add(seen[int(seed[i])], label=label)
    references = to_numpy(planes.references()) * (c > 0).astype(np.float32)
    return Top(np.ascontiguousarray(references), np.array(planes.labels, dtype=np.int64))


def every_view(maps: Array, labels: NDArray[np.int64], spec: SSpec) -> Top:
    """Let every digit be a plane: its view is the reference vector."""
    seen = views(maps, spec)
    return Top(_planes_first(seen, maps.shape[3], spec), labels.astype(np.int64))


def compete_within_labels(
    maps: Array,
    labels: NDArray[np.int64],
    spec: SSpec,
    *,
    per_label: int,
    rng: np.random.Generator,
    rounds: int = 20,
) -> Top:
    """Let ``per_label`` planes of each label, each begun with one digit's view, compete for that label's
    digits.

    In a round each digit is won by its label's strongest plane, and a plane becomes the sum of the normalised
    views that it won; one that wins nothing stays.
    """
    xp = array_module(maps)
    weight = _metric(spec, maps.shape[3], xp)
    found: list[Array] = []
    owner: list[int] = []
    for label in range(LABELS):
        own = np.flatnonzero(labels == label)
        if not len(own):
            continue
        seen = _normalised(views(maps[xp.asarray(own)], spec) * weight)
        start = rng.permutation(len(own))[:per_label]
        planes = seen[xp.asarray(start)]
        for _ in range(rounds):
            winner = (seen @ planes.T).argmax(axis=1)
            member = (winner == xp.arange(len(planes))[:, None]).astype(np.float32)
            won = member.any(axis=1)[:, None]
            planes = xp.where(won, _normalised(member @ seen), planes)
        found.append(planes)
        owner += [label] * len(planes)
    x = xp.concatenate(found) / xp.maximum(weight, 1e-20) * (weight > 0)
    return Top(_planes_first(100 * x, maps.shape[3], spec), np.array(owner, dtype=np.int64))


def views(maps: Array, spec: SSpec) -> Array:
    """Return what the middle cell of US4 sees of UC3: (N, 9 * 9 * K3) float32, taps first."""
    k = spec.kernel
    first = (maps.shape[1] - k) // 2
    middle = maps[:, first : first + k, first : first + k]
    return middle.astype(np.float32).reshape(len(maps), -1)


def _metric(spec: SSpec, planes: int, xp: Any) -> Array:
    """sqrt(c) for every element of a view: cosines of weighted views are those of the S-cells."""
    c = bell(spec.kernel, spec.c).astype(np.float32).ravel()
    return xp.asarray(np.sqrt(np.repeat(c, planes)))


def _lengths(x: Array) -> Array:
    xp = array_module(x)
    return xp.maximum(xp.sqrt((x * x).sum(axis=1, keepdims=True)), 1e-20)


def _normalised(x: Array) -> Array:
    return x / _lengths(x)


def _planes_first(x: Array, planes: int, spec: SSpec) -> NDArray[np.float32]:
    """(K, ky kx K') -> (K, K', ky, kx), on the host, silent where c is 0."""
    k = spec.kernel
    laid_out = to_numpy(x).reshape(len(x), k, k, planes).transpose(0, 3, 1, 2)
    heard = (bell(k, spec.c) > 0).astype(np.float32)
    return np.ascontiguousarray(laid_out * heard, dtype=np.float32)
