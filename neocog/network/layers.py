"""The layers, batched, in float32 on BLAS: the work of the CPU engine and of the learners.

Maps are channel-last here, (B, H, W, K). Everything runs on NumPy and on CuPy arrays alike.

How an S-layer becomes matrix products. A window of kernel x kernel cells is kernel^2 K' inputs;
copying every window out (im2col) would write each input kernel^2 times. Here each row is expanded
along y only: ``E[b, y, x, ky, :] = u[b, y + ky, x, :]``, kernel times the input. A window is then
the contiguous run ``E[b, y, x : x + kernel]``, and all windows with x = r (mod kernel) form an
ordinary matrix whose rows follow one another in E: ``kernel`` matrix products, no further copy.
Rows of E end in padding that also serves as the padding before the next row.
"""

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocog.network.arrays import array_module
from neocog.network.fields import contrast_kernel, pooled
from neocog.network.model import SWeights
from neocog.network.spec import INPUT_SIZE, ContrastSpec, CSpec, Psi, SSpec

Array = Any  # a NumPy or CuPy array


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
    the layer is a few products with banded matrices. Computed in float64: responses are cut off
    at 1e-4, and rounding must not decide which side a cell falls on.
    """

    def __init__(self, spec: ContrastSpec, xp: ModuleType = np) -> None:
        self.spec = spec
        u, sigma, vt = np.linalg.svd(contrast_kernel(spec))
        rank = int((sigma > sigma[0] * 1e-14).sum())
        left = [banded(u[:, r] * sigma[r], INPUT_SIZE, spec.padding, 1) for r in range(rank)]
        right = [banded(vt[r], INPUT_SIZE, spec.padding, 1).T for r in range(rank)]
        self._left = xp.asarray(np.stack(left))[:, None]
        self._right = xp.asarray(np.stack(right))[:, None]
        self._xp = xp

    def __call__(self, u0: Array) -> Array:
        xp = self._xp
        y = ((self._left @ u0.astype(np.float64)) @ self._right).sum(axis=0)
        y[xp.abs(y) <= self.spec.silence] = 0
        out = xp.empty((*y.shape, 2), dtype=np.float32)
        xp.maximum(y, 0, out=out[..., 0], casting="same_kind")
        xp.maximum(-y, 0, out=out[..., 1], casting="same_kind")
        return out


class SLayer:
    """One layer of S-cells: (B, H, W, K') -> (B, H', W', K) float32.

    With a' = a/b the response of equation 1 is
    max(0, sum a' u - theta v) / ((1 - theta) (v + 1/(theta b))): no 1 is added and taken off
    again, so nothing cancels that need not.
    """

    def __init__(self, spec: SSpec, weights: SWeights, size: int, xp: ModuleType = np) -> None:
        self.kernel, self.padding = spec.kernel, spec.padding
        self.size = size
        self.out = size + 2 * spec.padding - spec.kernel + 1
        self.pitch = self._row_pitch()
        self._xp = xp
        self._c = _taps(xp.asarray(weights.c)[None, None])
        self.set_weights(weights)

    def set_weights(self, weights: SWeights) -> None:
        """Take other reference vectors (and threshold) of the same window."""
        xp, theta = self._xp, weights.threshold
        x = xp.asarray(weights.reference)
        c = xp.asarray(weights.c)
        norm = xp.concatenate([_norms(x[i : i + 256], c) for i in range(0, len(x), 256)])
        heard = norm > 0
        safe = xp.where(heard, norm, 1)
        scale = xp.where(heard, 1 / ((1 - theta) * safe), 0).astype(np.float32)
        self._a = _taps(x * c * scale[:, None, None, None])
        silence = xp.where(heard, 1 / (theta * weights.q * safe), np.inf)
        self._silence = silence.astype(np.float32)
        self._theta = np.float32(theta / (1 - theta))

    def _row_pitch(self) -> int:
        """Cells from one padded row to the next; a multiple of the kernel where rows touch."""
        needed = self.size + self.padding
        return -(-needed // self.kernel) * self.kernel if self.padding else needed

    def __call__(self, u: Array) -> Array:
        v = self.inhibition(u)
        d = self._correlate(u, self._a)
        d -= (self._theta * v)[..., None]
        xp = self._xp
        xp.maximum(d, 0, out=d)
        d /= v[..., None] + self._silence
        return d

    def inhibition(self, u: Array) -> Array:
        """V-cells (B, H', W'): planes summed first, then one kernel of weights c."""
        energy = self._xp.einsum("bhwk,bhwk->bhw", u, u)[..., None]
        v = self._correlate(energy, self._c)[..., 0]
        return self._xp.sqrt(v, out=v)

    def _correlate(self, u: Array, taps: Array) -> Array:
        e, n = self._expand(u), u.shape[0]
        k, run = self.kernel, self.kernel * u.shape[3]
        planes = taps.shape[1]
        xp = self._xp
        if not self.padding:
            rows = e[: n * self.out * self.pitch * run].reshape(n * self.out, -1)
            out = xp.empty((n * self.out, self.out, planes), dtype=np.float32)
            for x in range(self.out):
                out[:, x] = rows[:, x * run : (x + k) * run] @ taps
            return out.reshape(n, self.out, self.out, planes)
        steps = self.pitch // k
        out = xp.empty((n * self.out * steps, k, planes), dtype=np.float32)
        for r in range(k):
            rows = e[r * run : r * run + n * self.out * self.pitch * run].reshape(-1, k * run)
            xp.matmul(rows, taps, out=out[:, r])
        return out.reshape(n, self.out, self.pitch, planes)[:, :, : self.out]

    def _expand(self, u: Array) -> Array:
        """Return E as one flat array, with a kernel's length of slack behind it."""
        n, planes = u.shape[0], u.shape[3]
        k, p = self.kernel, self.padding
        length = n * self.out * self.pitch * k * planes
        xp = self._xp
        flat = xp.zeros(length + k * k * planes, dtype=np.float32)
        e = flat[:length].reshape(n, self.out, self.pitch, k, planes)
        for ky in range(k):
            low, high = max(0, p - ky), min(self.out, self.size + p - ky)
            rows = slice(low + ky - p, high + ky - p)
            e[:, low:high, p : p + self.size, ky] = u[:, rows]
        return flat


def _norms(x: Array, c: Array) -> Array:
    """|X|_c of reference vectors (K, K', kernel, kernel), summed in float64: (K,)."""
    xp = array_module(x)
    return xp.sqrt((c.astype(np.float64) * x.astype(np.float64) ** 2).sum(axis=(1, 2, 3)))


def _taps(a: Array) -> Array:
    """(K, K', ky, kx) -> (kx ky K', K), the order in which E holds a window."""
    return array_module(a).ascontiguousarray(a.transpose(3, 2, 1, 0).reshape(-1, len(a)))


@dataclass(frozen=True, slots=True)
class _Separable:
    rows: Array
    columns: Array


class CLayer:
    """One layer of C-cells: (B, H, W, K) -> (B, H', W', K) float32.

    Blur and 2x2 average as the one kernel that they make together, at stride 2. A kernel that is
    an outer product (Gaussian blurs are) takes two banded products; any other takes one product
    per output row, over the rows that it sees.
    """

    def __init__(
        self, spec: CSpec, blur: NDArray[np.float32], size: int, psi: Psi, xp: ModuleType = np
    ) -> None:
        self.spec, self.size, self.psi = spec, size, psi
        self.out = (size + 2 * spec.padding - spec.kernel) // spec.stride + 1
        self._xp = xp
        a = pooled(blur.astype(np.float64))
        u, sigma, vt = np.linalg.svd(a)
        self._separable: _Separable | None = None
        # fp16 blurs are outer products only to their own rounding: keep those exact too
        if sigma[1] <= 1e-7 * sigma[0] and a.min() >= 0:
            rows, columns = np.abs(u[:, 0]) * sigma[0], np.abs(vt[0])
            self._separable = _Separable(self._matrix(rows), self._matrix(columns))
        else:
            bands = [banded(row, size, spec.padding, spec.stride) for row in a]
            self._bands = xp.asarray(np.concatenate(bands, axis=1).astype(np.float32))

    def _matrix(self, kernel: NDArray[np.floating[Any]]) -> Array:
        m = banded(kernel, self.size, self.spec.padding, self.spec.stride)
        return self._xp.asarray(m.astype(np.float32))

    def __call__(self, u: Array) -> Array:
        y = self._two_products(u) if self._separable else self._row_products(u)
        xp = self._xp
        xp.maximum(y, 0, out=y)
        if self.psi == "sqrt":
            return xp.sqrt(y, out=y)
        y /= 1 + y
        return y

    def _two_products(self, u: Array) -> Array:
        assert self._separable is not None
        n, h, w, k = u.shape
        half = self._separable.rows @ u.reshape(n, h, w * k)
        return self._separable.columns @ half.reshape(n, self.out, w, k)

    def _row_products(self, u: Array) -> Array:
        n, h, w, k = u.shape
        p, kernel, stride = self.spec.padding, self.spec.kernel, self.spec.stride
        padded = self._xp.zeros((n, h + 2 * p, w, k), dtype=np.float32)
        padded[:, p : p + h] = u
        b, y, x, c = padded.strides
        view = self._xp.lib.stride_tricks.as_strided(
            padded, (n, self.out, kernel * w, k), (b, y * stride, x, c)
        )
        return self._bands @ view
