"""The layers, batched, in float32 on BLAS: the work of the CPU engine and of the learners.

Maps are channel-last here, (B, H, W, K), and travel as a :class:`Patch`: the rectangle outside
which a layer is silent. Silence answers silence, so every layer computes only the cells that its
input can reach; nothing is approximated. Everything runs on NumPy and on CuPy arrays alike.

How an S-layer becomes matrix products. A window of kernel x kernel cells is kernel^2 K' inputs;
copying every window out (im2col) would write each input kernel^2 times. Here each row is expanded
along y only: ``E[b, y, x, ky, :] = u[b, y + ky, x, :]``, kernel times the input. A window is then
the contiguous run ``E[b, y, x : x + kernel]``, and all windows with x = r (mod kernel) form an
ordinary matrix whose rows follow one another in E: ``kernel`` matrix products, no further copy.
The silent cells before a row of E also serve as those behind the row above.
"""

from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from neocog.network.arrays import array_module
from neocog.network.fields import contrast_kernel, pooled
from neocog.network.model import SWeights
from neocog.network.spec import INPUT_SIZE, ContrastSpec, CSpec, Psi, SSpec

Array = Any  # a NumPy or CuPy array


class Span(NamedTuple):
    """Rows (or columns) ``start`` .. ``stop - 1`` of a layer."""

    start: int
    stop: int

    @property
    def slice(self) -> slice:
        """The span as a slice."""
        return slice(self.start, self.stop)


@dataclass(frozen=True, slots=True)
class Patch:
    """A layer's maps inside a rectangle; the layer is silent outside it.

    Attributes
    ----------
    values : array, shape (B, h, w, K)
        Responses inside.
    rows, columns : Span
        Where the rectangle lies.
    size : int
        Rows and columns of the layer.
    """

    values: Array
    rows: Span
    columns: Span
    size: int

    @classmethod
    def whole(cls, values: Array) -> "Patch":
        """Return maps (B, H, H, K) as a patch that covers the layer."""
        size = values.shape[1]
        return cls(values, Span(0, size), Span(0, size), size)

    def full(self) -> Array:
        """Return the whole maps, (B, H, H, K)."""
        shape = (len(self.values), self.size, self.size, self.values.shape[3])
        if self.values.shape == shape:
            return self.values
        out = array_module(self.values).zeros(shape, dtype=np.float32)
        out[:, self.rows.slice, self.columns.slice] = self.values
        return out

    def tight(self) -> "Patch":
        """Return the smallest patch that holds every response (on a GPU: itself, no waiting)."""
        if array_module(self.values) is not np:
            return self
        heard = self.values.any(axis=(0, 3))
        rows, columns = _extent(heard.any(axis=1)), _extent(heard.any(axis=0))
        top, left = self.rows.start, self.columns.start
        return Patch(
            self.values[:, rows.slice, columns.slice],
            Span(top + rows.start, top + rows.stop),
            Span(left + columns.start, left + columns.stop),
            self.size,
        )


def _extent(heard: NDArray[np.bool_]) -> Span:
    places = np.flatnonzero(heard)
    return Span(int(places[0]), int(places[-1]) + 1) if len(places) else Span(0, 1)


def banded(kernel: NDArray[np.floating[Any]], size: int, padding: int, stride: int) -> Array:
    """Return the matrix, shape (out, size), that correlates a row with a 1-D kernel."""
    out = (size + 2 * padding - len(kernel)) // stride + 1
    m = np.zeros((out, size))
    for y in range(out):
        for i, w in enumerate(kernel):
            x = y * stride + i - padding
            if 0 <= x < size:
                m[y, x] += w
    return m


class ContrastLayer:
    """UG: U0 (B, 65, 65) -> (B, 71, 71, 2) float32.

    The kernel a_G is a sum of at most four separable ones (its singular value decomposition), so
    the layer is two products with banded matrices. Computed in float64: responses are cut off at
    1e-4, and rounding must not decide which side a cell falls on.
    """

    def __init__(self, spec: ContrastSpec, xp: ModuleType = np) -> None:
        self.spec = spec
        u, sigma, vt = np.linalg.svd(contrast_kernel(spec))
        rank = int((sigma > sigma[0] * 1e-14).sum())
        down = [banded(u[:, r] * sigma[r], INPUT_SIZE, spec.padding, 1) for r in range(rank)]
        across = [banded(vt[r], INPUT_SIZE, spec.padding, 1).T for r in range(rank)]
        self.out = len(down[0])
        self._down = xp.asarray(np.stack(down, axis=1).reshape(-1, INPUT_SIZE))
        self._across = xp.asarray(np.concatenate(across))
        self._xp = xp

    def __call__(self, u0: Array) -> Patch:
        """Respond to pictures (B, 65, 65)."""
        xp = self._xp
        half = self._down @ u0.astype(np.float64)
        y = half.reshape(len(u0), self.out, -1) @ self._across
        y[xp.abs(y) <= self.spec.silence] = 0
        out = xp.empty((*y.shape, 2), dtype=np.float32)
        xp.maximum(y, 0, out=out[..., 0], casting="same_kind")
        xp.maximum(-y, 0, out=out[..., 1], casting="same_kind")
        return Patch.whole(out)


class _Reach(NamedTuple):
    """Cells of an S-layer that see anything of a patch, along one axis.

    ``out`` are the cells, ``before`` and ``behind`` the silent cells that their windows see on
    either side of the patch.
    """

    out: Span
    before: int
    behind: int


class SLayer:
    """One layer of S-cells: (B, H, W, K') -> (B, H', W', K) float32.

    Equation 1 as max(0, sum a' u - theta' v) / (v + s), see :func:`s_constants`: no 1 is added
    and taken off again, so nothing cancels that need not.
    """

    def __init__(self, spec: SSpec, weights: SWeights, size: int, xp: ModuleType = np) -> None:
        self.kernel, self.padding = spec.kernel, spec.padding
        self.out = size + 2 * spec.padding - spec.kernel + 1
        a, self._theta, self._silence = s_constants(weights, xp)
        self._a = _taps(a)
        self._c = _taps(xp.asarray(weights.c)[None, None])
        self._xp = xp

    def __call__(self, u: Patch) -> Patch:
        """Respond to the layer before."""
        xp = self._xp
        rows, columns = self._reach(u.rows), self._reach(u.columns)
        d = self._correlate(u.values, rows, columns, self._a)
        v = self._inhibition(u.values, rows, columns)
        # whole rows of (cell, plane) at a time: broadcasting over a few planes is slow
        n, height, pitch, planes = d.shape
        flat = d.reshape(n, height, -1)
        flat -= xp.repeat(self._theta * v, planes, axis=2)
        xp.maximum(flat, xp.zeros_like(flat[0, 0]), out=flat)
        v = xp.repeat(v, planes, axis=2)
        v += xp.tile(self._silence, pitch)
        flat /= v
        width = columns.out.stop - columns.out.start
        return Patch(d[:, :, :width], rows.out, columns.out, self.out)

    def _reach(self, seen: Span) -> _Reach:
        first = max(0, seen.start + self.padding - self.kernel + 1)
        last = min(self.out, seen.stop + self.padding)
        before = seen.start + self.padding - first
        behind = last + self.kernel - 1 - self.padding - seen.stop
        return _Reach(Span(first, last), before, behind)

    def _inhibition(self, u: Array, rows: _Reach, columns: _Reach) -> Array:
        """Planes summed first, then one kernel of weights c."""
        energy = self._xp.einsum("bhwk,bhwk->bhw", u, u)[..., None]
        v = self._correlate(energy, rows, columns, self._c)[..., 0]
        return self._xp.sqrt(v, out=v)

    def _correlate(self, u: Array, rows: _Reach, columns: _Reach, taps: Array) -> Array:
        """Return (B, h, pitch, K); columns beyond the cells reached hold nothing of use."""
        n, k, run = len(u), self.kernel, self.kernel * u.shape[3]
        height, width = rows.out.stop - rows.out.start, columns.out.stop - columns.out.start
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

    def _expand(self, u: Array, rows: _Reach, columns: _Reach, pitch: int) -> Array:
        """Return E as one flat array, with a window's length of slack behind it."""
        n, h, w, planes = u.shape
        k, height = self.kernel, rows.out.stop - rows.out.start
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


class CLayer:
    """One layer of C-cells: (B, H, W, K) -> (B, H', W', K) float32.

    Blur and 2x2 average as the one kernel a_C that they make together, at stride 2. A kernel that
    is an outer product (Gaussian blurs are) takes two products with banded matrices. Any other
    takes a product per output row over the input rows that it sees; rows that a mirror-symmetric
    kernel weighs alike are added first. Only cells that a positive weight reaches can respond.
    """

    def __init__(
        self, spec: CSpec, blur: NDArray[np.float32], size: int, psi: Psi, xp: ModuleType = np
    ) -> None:
        self.spec, self.psi = spec, psi
        self.out = (size + 2 * spec.padding - spec.kernel) // spec.stride + 1
        self._xp = xp
        a = pooled(blur.astype(np.float64))
        self._positive = _extent(np.atleast_1d((a > 0).any(axis=1) | (a > 0).any(axis=0)))
        u, sigma, vt = np.linalg.svd(a)
        self._outer = bool(sigma[1] <= 1e-7 * sigma[0] and a.min() >= 0)
        self._mirrored = np.array_equal(a, a[::-1])
        if self._outer:
            profiles = np.stack([np.abs(u[:, 0]) * sigma[0], np.abs(vt[0])])
        else:
            profiles = a[: spec.kernel // 2] if self._mirrored else a
        bands = [banded(row, size, spec.padding, spec.stride) for row in profiles]
        self._bands = xp.asarray(np.stack(bands).astype(np.float32))

    def __call__(self, u: Patch) -> Patch:
        """Respond to the layer before."""
        rows, columns = self._reach(u.rows), self._reach(u.columns)
        y = self._two_products(u, rows, columns) if self._outer else self._rows(u, rows, columns)
        xp = self._xp
        xp.maximum(y, 0, out=y)
        if self.psi == "sqrt":
            xp.sqrt(y, out=y)
        else:
            y /= 1 + y
        return Patch(y, rows, columns, self.out)

    def _reach(self, seen: Span) -> Span:
        """Cells of this layer that a positive weight connects with the cells seen."""
        p, stride = self.spec.padding, self.spec.stride
        first = -(-(seen.start + p - self._positive.stop + 1) // stride)
        last = (seen.stop - 1 + p - self._positive.start) // stride
        first = min(max(0, first), self.out - 1)  # one cell at least, though it stay silent
        return Span(first, max(first + 1, min(self.out, last + 1)))

    def _two_products(self, u: Patch, rows: Span, columns: Span) -> Array:
        down = self._bands[0][rows.slice, u.rows.slice]
        across = self._bands[1][columns.slice, u.columns.slice]
        n, h, w, k = u.values.shape
        half = down @ u.values.reshape(n, h, w * k)
        return across @ half.reshape(n, len(down), w, k)

    def _rows(self, u: Patch, rows: Span, columns: Span) -> Array:
        xp, kernel, stride = self._xp, self.spec.kernel, self.spec.stride
        n, _, w, k = u.values.shape
        count, height = len(self._bands), rows.stop - rows.start
        first = rows.start * stride - self.spec.padding
        wide = xp.zeros((n, (height - 1) * stride + kernel, w, k), dtype=np.float32)
        low, high = max(u.rows.start, first), min(u.rows.stop, first + wide.shape[1])
        wide[:, low - first : high - first] = u.values[:, low - u.rows.start : high - u.rows.start]
        lines = [wide[:, i : i + (height - 1) * stride + 1 : stride] for i in range(kernel)]
        seen = xp.empty((n, height, count, w, k), dtype=np.float32)
        for i in range(count):
            if self._mirrored:
                xp.add(lines[i], lines[kernel - 1 - i], out=seen[:, :, i])
            else:
                seen[:, :, i] = lines[i]
        bands = self._bands[:, columns.slice, u.columns.slice].transpose(1, 0, 2)
        return bands.reshape(len(bands[:, 0]), -1) @ seen.reshape(n, height, count * w, k)
