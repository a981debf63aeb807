"""US1 from ideal edges; self-organisation of US2 and US3: the rule of 2003, add-if-silent of 2013.

US1 are sixteen edge detectors, each learned from one ideal straight edge (Fukushima 2003). Check values with
q = 100 (2003, learned kernels): b = 134.1 at 0 degrees, 112.6 at 22.5, 114.6 at 45, each within 1 %. US2 and
US3 run on NumPy and on CuPy arrays alike; maps are channel-last, (H, W, K) of one digit.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocog.network.arrays import array_module
from neocog.network.fields import bell
from neocog.network.reference import contrast, windows
from neocog.network.spec import INPUT_SIZE, Bell, NetworkSpec, SSpec

Array = Any

#: Radius within which S-cells compete, and the bell with which they veto (Fukushima 2003).
COMPETITION = Bell.disc(0.7, 3.1)
#: Gain of the seed-selecting plane: any S-response outweighs it (Fukushima 2003).
SEED_GAIN = 1e-4
#: Sub-samples per pixel side when an edge is drawn.
_FINE = 32


def ideal_edge(angle: float, *, centre: float) -> NDArray[np.float64]:
    """Return a (65, 65) picture, 1 on one side of a straight edge, anti-aliased. The edge's normal stands at
    ``angle`` degrees from the column axis towards the row axis; row and column of a point that it runs
    through are ``centre``, in cells of U0.
    """
    fine = (np.arange(INPUT_SIZE * _FINE) + 0.5) / _FINE - 0.5 - centre
    direction = np.deg2rad(angle)
    across = np.cos(direction) * fine
    picture = np.empty((INPUT_SIZE, INPUT_SIZE))
    for row, along in enumerate((np.sin(direction) * fine).reshape(INPUT_SIZE, _FINE)):
        side = np.add.outer(along, across)
        twice = np.count_nonzero(side > -1e-9, axis=0) + np.count_nonzero(side >= 1e-9, axis=0)
        picture[row] = twice.reshape(INPUT_SIZE, _FINE).sum(axis=1) / (2 * _FINE**2)
    return picture


@cache
def edge_references(spec: NetworkSpec) -> NDArray[np.float32]:
    """Return the reference vectors of US1, shape (16, 2, 6, 6); they cannot be written to. For each
    orientation X is what the cell in the middle of US1 sees, through UG, of an ideal edge of height 1 through
    the centre of its receptive field.
    """
    s = spec.s[0]
    cell = spec.size("US1") // 2
    # The window of that cell starts at row cell - padding of UG; UG's row r lies on U0's row
    # r + (kernel - 1) / 2 - padding.
    g = spec.contrast
    centre = cell - s.padding + (s.kernel - 1) / 2 + (g.kernel - 1) / 2 - g.padding
    references = []
    for k in range(spec.orientations):
        edge = ideal_edge(360 * k / spec.orientations, centre=centre)
        seen = windows(contrast(edge[None], g), s.kernel, s.padding)[0, :, cell, cell]
        references.append(seen * (bell(s.kernel, s.c) > 0))
    learned = np.stack(references).astype(np.float32)
    learned.flags.writeable = False
    return learned


def learn(
    maps: Iterable[Array],
    spec: SSpec,
    *,
    threshold: float | None = None,
    cut: float = 0.55,
    limit: int | None = None,
    winners_learn: bool = True,
) -> "Planes":
    """Let the planes of one S-layer be born and grow by the rule of Fukushima (2003), for each digit of
    ``maps``.

    (1) The layer responds at its learning threshold; at each place the strongest plane wins if nothing
    stronger lies within radius 3.1; each plane's strongest winner is its seed cell, and the plane adds what
    that cell sees to its reference vector. (2) The layer responds again and vetoes its surroundings in the
    seed-selecting plane; (3) while anything is left there, a new plane is born at its maximum, responds and
    vetoes in turn. Without ``winners_learn`` (1) is left out: planes are born where every other is silent
    (add-if-silent, 2013).

    ``maps`` are (H, W, K'). ``cut`` is the share of the seed-selecting plane's maximum that counts as nothing
    (not published for digits; 0.4 for letters). Learning stops at ``limit`` planes, if there is one.
    """
    planes: Planes | None = None
    for u in maps:
        planes = planes or Planes(u.shape[2], spec, threshold=threshold, xp=array_module(u))
        if limit is not None and len(planes) >= limit and not winners_learn:
            break  # nothing can change any more
        windows = Windows(u, spec)
        if not len(windows.cells):
            continue
        if winners_learn and len(planes):
            xp, response = array_module(u), planes.respond(windows.seen, windows.v)
            strongest, plane_of = response.max(axis=1), response.argmax(axis=1)
            places = xp.flatnonzero(local_winners(windows.map(strongest)).ravel()[windows.cells])
            weakest_first = places[xp.argsort(-strongest[places])][::-1]
            strongest_cell = dict(zip(map(int, plane_of[weakest_first]), weakest_first, strict=True))
            for k, cell in strongest_cell.items():
                planes.learn(k, windows.seen[cell])
        _births(planes, windows, cut, limit)
    assert planes is not None
    return planes


def _births(planes: "Planes", windows: "Windows", cut: float, limit: int | None) -> None:
    xp = array_module(windows.seen)
    seed = xp.maximum(windows.seed - cut * windows.seed.max(), 0)
    if len(planes):
        response = planes.respond(windows.seen, windows.v).sum(axis=1)
        seed = _vetoed(seed, windows, response)
    while limit is None or len(planes) < limit:
        cell = int(seed.argmax())
        if not seed[cell] > 0:
            break
        k = planes.add(windows.seen[cell])
        response = planes.respond(windows.seen, windows.v, first=k)[:, 0]
        seed = _vetoed(seed, windows, response)
        seed[cell] = 0


def _vetoed(seed: Any, windows: "Windows", response: Any) -> Any:
    forbidden = veto(windows.map(response)).ravel()[windows.cells]
    return array_module(seed).maximum(seed - forbidden, 0)


class Windows:
    """What the S-cells above one layer (H, W, K') see, one row for each of the N ``cells`` whose input is not
    silent.

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
        self.seed = correlate(wide.sum(axis=2), SEED_GAIN * c).ravel()[self.cells]
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
    """A growing set of cell-planes of one S-layer, above one of ``inputs`` planes (K'). They respond with the
    learning threshold, on numpy or cupy (``xp``).
    """

    def __init__(self, inputs: int, spec: SSpec, *, threshold: float | None = None, xp: Any = np) -> None:
        self.spec, self.inputs, self._xp = spec, inputs, xp
        self.threshold = threshold or spec.learning_threshold or spec.threshold
        c = np.repeat(bell(spec.kernel, spec.c).astype(np.float32).ravel(), inputs)
        self._c = xp.asarray(c)
        self._x = xp.zeros((32, c.size), dtype=np.float32)
        self._a = xp.zeros((32, c.size), dtype=np.float32)
        self._b = xp.zeros(32, dtype=np.float32)
        self.labels: list[int] = []

    def __len__(self) -> int:
        return len(self.labels)

    def references(self) -> Array:
        """Return the reference vectors X, (K, K', kernel, kernel)."""
        k = self.spec.kernel
        x = self._x[: len(self)].reshape(len(self), k, k, self.inputs)
        return x.transpose(0, 3, 1, 2)

    def add(self, seen: Array, *, label: int = -1) -> int:
        """A plane is born with the reference vector ``seen`` (kernel * kernel * K',)."""
        if len(self) == len(self._b):
            self._x, self._a, self._b = (
                self._xp.concatenate([a, self._xp.zeros_like(a)]) for a in (self._x, self._a, self._b)
            )
        self.labels.append(label)
        self.learn(len(self) - 1, seen)
        return len(self) - 1

    def learn(self, k: int, seen: Array) -> None:
        """Plane ``k`` learns what its seed cell sees: X_k += seen; a = q c X, b = q |X|_c."""
        self._x[k] += seen
        self._a[k] = self.spec.q * self._c * self._x[k]
        self._b[k] = self._xp.sqrt((self._a[k] * self._x[k]).sum() * self.spec.q)

    def respond(self, seen: Array, v: Array, *, first: int = 0) -> Array:
        """Return the responses (N, K) of planes ``first`` and on (eq. 1). ``seen`` (N, kernel * kernel * K')
        is what the cells see, ``v`` (N,) their inhibition.
        """
        planes = slice(first, len(self))
        e = seen @ self._a[planes].T
        theta = self.threshold
        bv = theta * v[:, None] * self._b[planes]
        e -= bv
        self._xp.maximum(e, 0, out=e)
        e /= 1 + bv
        e *= theta / (1 - theta)
        return e


def windows_of(u: Array, kernel: int) -> Array:
    """View (H, W, K') as what each cell sees of it, (H', W', kernel, kernel, K'); stride 1."""
    (high, wide, planes), (y, x, plane) = u.shape, u.strides
    shape = (high - kernel + 1, wide - kernel + 1, kernel, kernel, planes)
    strides = (y, x, y, x, plane)
    return array_module(u).lib.stride_tricks.as_strided(u, shape, strides)


def veto(planes: Array) -> Array:
    """Blur a sum of S-planes (H, W) with the sum-1 disc of radius 3.1: what they forbid."""
    kernel = 2 * int(COMPETITION.radius) + 1
    disc = bell(kernel, COMPETITION)
    reach = kernel // 2
    return correlate(array_module(planes).pad(planes, reach), disc / disc.sum())


def local_winners(strongest: Array) -> Array:
    """Return where (H, W) a response is positive and nothing within radius 3.1 is stronger."""
    xp = array_module(strongest)
    reach = int(COMPETITION.radius)
    wide = xp.pad(strongest, reach)
    h, w = strongest.shape
    winner = strongest > 0
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
