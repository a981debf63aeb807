"""S-layers: (B, H, W, K') -> (B, H', W', K) float32, each in the way that is fastest for it.

On a GPU, and where the layer before has few planes (US1), every window that hears anything becomes
a row of a matrix product. A window of kernel x kernel cells is kernel^2 K' inputs; copying every
window out (im2col) would write each input kernel^2 times. Here each row is expanded along y only:
``E[b, y, x, ky, :] = u[b, y + ky, x, :]``, kernel times the input. A window is then the contiguous
run ``E[b, y, x : x + kernel]``, and all windows with x = r (mod kernel) form an ordinary matrix
whose rows follow one another in E: ``kernel`` matrix products, no further copy. The silent cells
before a row of E also serve as those behind the row above.

On the CPU, US2 and US3 leave windows out (:mod:`neocog.network.s_places`) and US4 multiplies
spectra (:mod:`neocog.network.s_spectrum`).
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from neocog.network.arrays import array_module
from neocog.network.model import SWeights
from neocog.network.parallel import SEQUENTIAL, ParallelMap
from neocog.network.patch import Patch, Reach, Windows
from neocog.network.s_places import PrunedCells
from neocog.network.s_spectrum import SpectralCells
from neocog.network.spec import SSpec

Array = Any  # a NumPy or CuPy array


class SLayer:
    """One layer of S-cells: (B, H, W, K') -> (B, H', W', K) float32.

    Equation 1 as max(0, sum a' u - theta' v) / (v + s), see :func:`s_constants`: no 1 is added
    and taken off again, so nothing cancels that need not.
    """

    def __init__(self, spec: SSpec, weights: SWeights, size: int, xp: ModuleType = np) -> None:
        windows = Windows(spec.kernel, spec.padding, size)
        self.out = windows.out
        a, theta, silence = s_constants(weights, xp)
        c = xp.asarray(weights.c)
        self._cells: Callable[[Patch, ParallelMap], Patch]
        if xp is np and SpectralCells.suits(windows, *a.shape[:2]):
            self._cells = SpectralCells(windows, a, c, theta, silence)
        elif xp is np and PrunedCells.suits(windows, a.shape[1]):
            self._cells = PrunedCells(windows, a, c, theta, silence)
        else:
            self._cells = _AllCells(windows, a, c, theta, silence)

    def __call__(self, u: Patch, parallel: ParallelMap = SEQUENTIAL) -> Patch:
        """Respond to the layer before; ``parallel`` splits large products."""
        return self._cells(u, parallel)


class _AllCells:
    """S-cells at every window that hears anything of the patch, on NumPy or CuPy."""

    def __init__(
        self, windows: Windows, a: Array, c: Array, theta: np.float32, silence: Array
    ) -> None:
        self._windows, self._theta, self._silence = windows, theta, silence
        self._taps, self._c = _taps(a), _taps(c[None, None])
        self._few = windows.out <= windows.kernel  # cells: their weights are read once for all
        self._xp = array_module(a)

    def __call__(self, u: Patch, _parallel: ParallelMap) -> Patch:
        if self._few:
            return self._respond(u)
        return Patch.join([self._respond(part) for part in u.apart()])

    def _respond(self, u: Patch) -> Patch:
        xp = self._xp
        rows, columns = self._windows.reach(u.rows), self._windows.reach(u.columns)
        d = self._correlate(u.values, rows, columns, self._taps)
        v = self._inhibition(u.values, rows, columns)
        # whole rows of (cell, plane) at a time: broadcasting over a few planes is slow
        n, height, pitch, planes = d.shape
        flat = d.reshape(n, height, -1)
        flat -= xp.repeat(self._theta * v, planes, axis=2)
        xp.maximum(flat, xp.zeros_like(flat[0, 0]), out=flat)
        v = xp.repeat(v, planes, axis=2)
        v += xp.tile(self._silence, pitch)
        flat /= v
        return Patch(d[:, :, : columns.out.length], rows.out, columns.out, self._windows.out)

    def _inhibition(self, u: Array, rows: Reach, columns: Reach) -> Array:
        """Planes summed first, then one kernel of weights c."""
        energy = self._xp.einsum("bhwk,bhwk->bhw", u, u)[..., None]
        v = self._correlate(energy, rows, columns, self._c)[..., 0]
        return self._xp.sqrt(v, out=v)

    def _correlate(self, u: Array, rows: Reach, columns: Reach, taps: Array) -> Array:
        """Return (B, h, pitch, K); columns beyond the cells reached hold nothing of use."""
        n, k, run = len(u), self._windows.kernel, self._windows.kernel * u.shape[3]
        height, width = rows.out.length, columns.out.length
        needed = columns.before + u.shape[2]
        xp = self._xp
        if width <= k:  # few cells a row: copied out, so that the taps are read only once
            pitch = needed + columns.behind
            e = self._expand(u, rows, columns, pitch).reshape(-1)
            lines = e[: n * height * pitch * run].reshape(n * height, -1)
            seen = xp.stack([lines[:, x * run : (x + k) * run] for x in range(width)], axis=1)
            return (seen.reshape(-1, k * run) @ taps).reshape(n, height, width, -1)
        needed += max(0, columns.behind - columns.before)
        pitch = -(-needed // k) * k
        e = self._expand(u, rows, columns, pitch)
        out = xp.empty((n * height * (pitch // k), k, taps.shape[1]), dtype=np.float32)
        for r in range(k):
            lines = e[r * run : r * run + n * height * pitch * run].reshape(-1, k * run)
            xp.matmul(lines, taps, out=out[:, r])
        return out.reshape(n, height, pitch, -1)

    def _expand(self, u: Array, rows: Reach, columns: Reach, pitch: int) -> Array:
        """Return E as one flat array, with a window's length of slack behind it."""
        n, h, w, planes = u.shape
        k, height = self._windows.kernel, rows.out.length
        length = n * height * pitch * k * planes
        xp = self._xp
        flat = xp.zeros(length + k * k * planes, dtype=np.float32)
        e = flat[:length].reshape(n, height, pitch, k, planes)
        if planes == 2:  # a cell's pair of planes moves as one number
            e, u = e.view(np.float64), xp.ascontiguousarray(u).view(np.float64)
        place = slice(columns.before, columns.before + w)
        for ky in range(k):
            low, high = max(0, rows.before - ky), min(height, h + rows.before - ky)
            if low < high:
                e[:, low:high, place, ky] = u[:, low + ky - rows.before : high + ky - rows.before]
        return flat


def s_constants(weights: SWeights, xp: ModuleType = np) -> tuple[Array, np.float32, Array]:
    """Return what an S-layer computes with, all float32.

    With a' = a / (b (1 - theta)), theta' = theta / (1 - theta) and s = 1/(theta b) its response is
    max(0, sum a' u - theta' v) / (v + s): a' (K, K', kernel, kernel), theta', s (K,). A plane
    whose reference vector is 0 stays silent: a' = 0, s very large.
    """
    theta = weights.threshold
    x, c = xp.asarray(weights.reference), xp.asarray(weights.c)
    norm = xp.concatenate([_norms(x[i : i + 256], c) for i in range(0, len(x), 256)])
    heard = norm > 0
    safe = xp.where(heard, norm, 1)
    scale = xp.where(heard, 1 / ((1 - theta) * safe), 0).astype(np.float32)
    silence = xp.where(heard, 1 / (theta * weights.q * safe), 1e30).astype(np.float32)
    return x * c * scale[:, None, None, None], np.float32(theta / (1 - theta)), silence


def _norms(x: Array, c: Array) -> Array:
    """|X|_c of reference vectors (K, K', kernel, kernel), summed in float64: (K,)."""
    xp = array_module(x)
    return xp.sqrt((c.astype(np.float64) * x.astype(np.float64) ** 2).sum(axis=(1, 2, 3)))


def _taps(a: Array) -> Array:
    """(K, K', ky, kx) -> (kx ky K', K), the order in which E holds a window."""
    return array_module(a).ascontiguousarray(a.transpose(3, 2, 1, 0).reshape(-1, len(a)))
