"""US1 from ideal edges; US2 and US3 by the rule of 2003 or add-if-silent of 2013; US4 with labels.

US1 are sixteen edge detectors, each learned from one ideal straight edge (Fukushima 2003). US2 and US3 run on
NumPy and on CuPy arrays alike; maps are channel-last, (H, W, K) of one digit.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocog.network.arrays import array_module, to_numpy
from neocog.network.reference import contrast, windows
from neocog.network.spec import INPUT_SIZE, LABELS, Bell, NetworkSpec, SSpec, bell

Array = Any

COMPETITION = Bell.disc(0.7, 3.1)  # where S-cells compete, and how they veto (Fukushima 2003)
_SEED_GAIN = 1e-4  # of the seed-selecting plane: any S-response outweighs it (Fukushima 2003)
_FINE = 32  # sub-samples per pixel side when an edge is drawn


def ideal_edge(angle: float, *, centre: float) -> NDArray[np.float64]:
    """Return a (65, 65) picture, 1 on one side of an edge through (centre, centre), normal at ``angle``."""
    fine, direction = (np.arange(INPUT_SIZE * _FINE) + 0.5) / _FINE - 0.5 - centre, np.deg2rad(angle)
    across = np.cos(direction) * fine
    picture = np.empty((INPUT_SIZE, INPUT_SIZE))
    for row, along in enumerate((np.sin(direction) * fine).reshape(INPUT_SIZE, _FINE)):
        side = np.add.outer(along, across)
        twice = np.count_nonzero(side > -1e-9, axis=0) + np.count_nonzero(side >= 1e-9, axis=0)
        picture[row] = twice.reshape(INPUT_SIZE, _FINE).sum(axis=1) / (2 * _FINE**2)
    return picture


@cache
def edge_references(spec: NetworkSpec) -> NDArray[np.float32]:
    """Return X of US1, (16, 2, 6, 6): what its middle cell sees of ideal edges through UG."""
    s, g, cell = spec.s[0], spec.contrast, spec.size("US1") // 2
    # its window starts at row cell - padding of UG, whose row r is U0's row r + (kernel - 1) / 2 - padding
    centre = cell - s.padding + (s.kernel - 1) / 2 + (g.kernel - 1) / 2 - g.padding
    angles = 360 * np.arange(spec.orientations) / spec.orientations
    edges = contrast(np.stack([ideal_edge(angle, centre=centre) for angle in angles]), g)
    seen = windows(edges, s.kernel, s.padding)[:, :, cell, cell]
    learned = (seen * (bell(s.kernel, s.c) > 0)).astype(np.float32)
    learned.flags.writeable = False
    return learned


def learn(
    maps: Iterable[Array], spec: SSpec, *, threshold: float | None = None, cut: float = 0.55,
    limit: int | None = None, winners_learn: bool = True,
) -> "Planes":  # fmt: skip
    """Let the planes of one S-layer be born and grow by the rule of Fukushima (2003), for maps (H, W, K').

    (1) The layer responds at its learning threshold; at each place the strongest plane wins if nothing
    stronger lies within radius 3.1; each plane's strongest winner is its seed cell, and the plane adds what
    that cell sees to its reference vector. (2) The layer responds again and vetoes its surroundings in the
    seed-selecting plane; (3) while anything is left there, a new plane is born at its maximum, responds and
    vetoes in turn. Without ``winners_learn`` (1) is left out (add-if-silent, 2013). ``cut`` is the share of
    the seed-selecting plane's maximum that counts as nothing (not published for digits; 0.4 for letters).
    """
    planes: Planes | None = None
    for u in maps:
        xp = array_module(u)
        planes = planes or Planes(u.shape[2], spec, threshold=threshold, xp=xp)
        if limit is not None and len(planes) >= limit and not winners_learn:
            break  # nothing can change any more
        windows = Windows(u, spec)
        if not len(windows.cells):
            continue
        if winners_learn and len(planes):
            response = planes.respond(windows.seen, windows.v)
            strongest, plane_of = response.max(axis=1), response.argmax(axis=1)
            places = xp.flatnonzero(local_winners(windows.map(strongest)).ravel()[windows.cells])
            weakest_first = places[xp.argsort(-strongest[places])][::-1]
            strongest_cell = dict(zip(map(int, plane_of[weakest_first]), weakest_first, strict=True))
            for k, cell in strongest_cell.items():
                planes.learn(k, windows.seen[cell])
        seed, first, cell = xp.maximum(windows.seed - cut * windows.seed.max(), 0), 0, -1
        while True:
            if len(planes):
                response = planes.respond(windows.seen, windows.v, first=first).sum(axis=1)
                seed = xp.maximum(seed - veto(windows.map(response)).ravel()[windows.cells], 0)
            if cell >= 0:
                seed[cell] = 0
            cell = int(seed.argmax())
            if (limit is not None and len(planes) >= limit) or not seed[cell] > 0:
                break
            first = planes.add(windows.seen[cell])
    assert planes is not None
    return planes


class Windows:
    """What the N ``cells`` above a layer (H, W, K') whose input is not silent see.

    ``seen`` (N, kernel * kernel * K'), taps first, is 0 where c is 0; ``v`` (N,) is their inhibition,
    ``seed`` (N,) their cells of the seed-selecting plane before its cut: the sum of 1e-4 gamma^(r^2/A^2) u.
    """

    def __init__(self, u: Array, spec: SSpec) -> None:
        xp = array_module(u)
        p, k = spec.padding, spec.kernel
        wide = xp.pad(u, ((p, p), (p, p), (0, 0)))
        c = bell(k, spec.c)
        energy = correlate((wide**2).sum(axis=2), c)
        self.size = energy.shape[0]
        self.cells = xp.flatnonzero(energy.ravel() > 0)
        self.v = xp.sqrt(energy.ravel()[self.cells])
        self.seed = correlate(wide.sum(axis=2), _SEED_GAIN * c).ravel()[self.cells]
        view = windows_of(wide, k)
        heard = xp.asarray((c > 0).astype(np.float32))[:, :, None]
        seen = view[self.cells // self.size, self.cells % self.size] * heard
        self.seen = seen.reshape(len(self.cells), k * k * u.shape[2])

    def map(self, values: Array) -> Array:
        """Lay values of the cells out as a plane (size, size), silence elsewhere."""
        plane = array_module(values).zeros(self.size * self.size, dtype=np.float32)
        plane[self.cells] = values
        return plane.reshape(self.size, self.size)


class Planes:
    """A growing set of cell-planes of one S-layer, above K' planes, at the learning threshold."""

    def __init__(self, inputs: int, spec: SSpec, *, threshold: float | None = None, xp: Any = np) -> None:
        self.spec, self.inputs, self.xp = spec, inputs, xp
        self.threshold = threshold or spec.learning_threshold or spec.threshold
        self._c = xp.asarray(np.repeat(bell(spec.kernel, spec.c).astype(np.float32).ravel(), inputs))
        self._x, self._a = (xp.zeros((32, self._c.size), dtype=np.float32) for _ in range(2))
        self._b = xp.zeros(32, dtype=np.float32)
        self.labels: list[int] = []

    def __len__(self) -> int:
        return len(self.labels)

    def references(self) -> Array:
        """Return the reference vectors X, (K, K', kernel, kernel)."""
        k = self.spec.kernel
        return self._x[: len(self)].reshape(len(self), k, k, self.inputs).transpose(0, 3, 1, 2)

    def add(self, seen: Array, *, label: int = -1) -> int:
        """A plane is born with the reference vector ``seen`` (kernel * kernel * K',)."""
        if len(self) == len(self._b):
            grown = (self.xp.concatenate([a, self.xp.zeros_like(a)]) for a in (self._x, self._a, self._b))
            self._x, self._a, self._b = grown
        self.labels.append(label)
        self.learn(len(self) - 1, seen)
        return len(self) - 1

    def learn(self, k: int, seen: Array) -> None:
        """Plane ``k`` learns what its seed cell sees: X_k += seen; a = q c X, b = q |X|_c."""
        self._x[k] += seen
        self._a[k] = self.spec.q * self._c * self._x[k]
        self._b[k] = self.xp.sqrt((self._a[k] * self._x[k]).sum() * self.spec.q)

    def respond(self, seen: Array, v: Array, *, first: int = 0) -> Array:
        """Return the responses (N, K) of planes ``first`` and on (eq. 1); ``v`` (N,) is inhibition."""
        planes = slice(first, len(self))
        e, theta = seen @ self._a[planes].T, self.threshold
        bv = theta * v[:, None] * self._b[planes]
        e -= bv
        self.xp.maximum(e, 0, out=e)
        e /= 1 + bv
        e *= theta / (1 - theta)
        return e


def windows_of(u: Array, kernel: int) -> Array:
    """View (H, W, K') as what each cell sees of it, (H', W', kernel, kernel, K'); stride 1."""
    view = array_module(u).lib.stride_tricks.sliding_window_view(u, (kernel, kernel), axis=(0, 1))
    return view.transpose(0, 1, 3, 4, 2)


def veto(planes: Array) -> Array:
    """Blur a sum of S-planes (H, W) with the sum-1 disc of radius 3.1: what they forbid."""
    reach = int(COMPETITION.radius)
    disc = bell(2 * reach + 1, COMPETITION)
    return correlate(array_module(planes).pad(planes, reach), disc / disc.sum())


def local_winners(strongest: Array) -> Array:
    """Return where (H, W) a response is positive and nothing within radius 3.1 is stronger."""
    reach, (h, w), winner = int(COMPETITION.radius), strongest.shape, strongest > 0
    wide = array_module(strongest).pad(strongest, reach)
    for dy in range(-reach, reach + 1):
        for dx in range(-reach, reach + 1):
            if 0 < dy * dy + dx * dx <= COMPETITION.radius**2:
                y, x = dy + reach, dx + reach
                winner &= strongest >= wide[y : y + h, x : x + w]
    return winner


def correlate(plane: Array, weights: NDArray[np.float64]) -> Array:
    """Correlate padded planes (..., H, W) with small weights; stride 1."""
    kernel = weights.shape[0]
    h, w = plane.shape[-2] - kernel + 1, plane.shape[-1] - kernel + 1
    out = array_module(plane).zeros((*plane.shape[:-2], h, w), dtype=np.float32)
    for (y, x), weight in np.ndenumerate(weights):
        if weight:
            out += np.float32(weight) * plane[..., y : y + h, x : x + w]
    return out


Labels = NDArray[np.int64]
Top = tuple[NDArray[np.float32], Labels]
# US4: each rule returns reference vectors (K4, K3, 9, 9) and labels (K4,), from maps of UC3 (N, 13, 13, K3)


def learn_supervised(maps: Array, labels: Labels, spec: SSpec, *, passes: int = 4) -> Top:
    """The rule of Fukushima (2003), over the digits in order, ``passes`` times: if the strongest plane is
    right it adds what its cell sees, else a plane of the right label is born at the seed's maximum.
    """
    xp = array_module(maps)
    planes, c = Planes(maps.shape[3], spec, xp=xp), bell(spec.kernel, spec.c)
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
    return np.ascontiguousarray(references), np.array(planes.labels, dtype=np.int64)


def every_view(maps: Array, labels: Labels, spec: SSpec) -> Top:
    """Let every digit be a plane: its view is the reference vector."""
    return _planes_first(views(maps, spec), maps.shape[3], spec), labels.astype(np.int64)


def compete_within_labels(
    maps: Array, labels: Labels, spec: SSpec, per_label: int, rng: np.random.Generator
) -> Top:
    """``per_label`` planes of each label: k-means on normalised views of digits, begun with views of some."""
    xp, c = array_module(maps), bell(spec.kernel, spec.c).astype(np.float32).ravel()
    weight = xp.asarray(np.sqrt(np.repeat(c, maps.shape[3])))  # of which cosines are those of the S-cells
    found, owner = list[Array](), list[int]()
    for label in range(LABELS):
        own = np.flatnonzero(labels == label)
        if not len(own):
            continue
        seen = normalised(views(maps[xp.asarray(own)], spec) * weight)
        planes = seen[xp.asarray(rng.permutation(len(own))[:per_label])]
        for _ in range(20):
            winner = (seen @ planes.T).argmax(axis=1)
            member = (winner == xp.arange(len(planes))[:, None]).astype(np.float32)
            planes = xp.where(member.any(axis=1)[:, None], normalised(member @ seen), planes)
        found.append(planes)
        owner += [label] * len(planes)
    x = xp.concatenate(found) / xp.maximum(weight, 1e-20) * (weight > 0)
    return _planes_first(100 * x, maps.shape[3], spec), np.array(owner, dtype=np.int64)


def views(maps: Array, spec: SSpec) -> Array:
    """Return what the middle cell of US4 sees of UC3: (N, 9 * 9 * K3) float32, taps first."""
    first, last = ((maps.shape[1] + way * spec.kernel) // 2 for way in (-1, 1))
    return maps[:, first:last, first:last].astype(np.float32).reshape(len(maps), -1)


def normalised(x: Array) -> Array:
    xp = array_module(x)
    return x / xp.maximum(xp.sqrt((x * x).sum(axis=1, keepdims=True)), 1e-20)


def _planes_first(x: Array, planes: int, spec: SSpec) -> NDArray[np.float32]:
    """(K, ky kx K') -> (K, K', ky, kx), on the host, silent where c is 0."""
    k = spec.kernel
    laid_out = to_numpy(x).reshape(len(x), k, k, planes).transpose(0, 3, 1, 2)
    heard = (bell(k, spec.c) > 0).astype(np.float32)
    return np.ascontiguousarray(laid_out * heard, dtype=np.float32)
