"""The layers, batched, in float32 on BLAS: the work of the CPU engine and of the learners.

Maps are channel-last here, (B, H, W, K), and travel as a :class:`Patch`: the rectangle outside
which a layer is silent. Silence answers silence, so every layer computes only the cells that its
input can reach; nothing is approximated. Everything runs on NumPy and on CuPy arrays alike.
"""

from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocog.network.fields import contrast_kernel, pooled
from neocog.network.patch import Patch, Windows, extent, length
from neocog.network.s_layer import SLayer, s_constants
from neocog.network.spec import INPUT_SIZE, ContrastSpec, CSpec, Psi

__all__ = ["CLayer", "ContrastLayer", "Patch", "SLayer", "banded", "s_constants"]

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
    the layer is two products with banded matrices. Computed in float64: responses are cut off at
    1e-4, and rounding must not decide which side a cell falls on.
    """

    def __init__(self, spec: ContrastSpec, xp: ModuleType = np) -> None:
        self.spec = spec
        self._windows = Windows(spec.kernel, spec.padding, INPUT_SIZE)
        u, sigma, vt = np.linalg.svd(contrast_kernel(spec))
        rank = int((sigma > sigma[0] * 1e-14).sum())
        down = [banded(u[:, r] * sigma[r], INPUT_SIZE, spec.padding, 1) for r in range(rank)]
        across = [banded(vt[r], INPUT_SIZE, spec.padding, 1).T for r in range(rank)]
        self._down = xp.asarray(np.stack(down, axis=1))  # (row, rank, row of U0)
        self._across = xp.asarray(np.stack(across))  # (rank, column of U0, column)
        self._xp = xp

    def __call__(self, u0: Array) -> Patch:
        """Respond to pictures (B, 65, 65)."""
        xp = self._xp
        ink = Patch.whole(xp.abs(u0)[..., None]).tight()
        rows, columns = (self._windows.reach(span).out for span in (ink.rows, ink.columns))
        down = self._down[rows, :, ink.rows].reshape(-1, length(ink.rows))
        across = self._across[:, ink.columns, columns].reshape(-1, length(columns))
        half = down @ u0[:, ink.rows, ink.columns].astype(np.float64)
        y = half.reshape(len(u0), length(rows), -1) @ across
        y *= xp.abs(y) > self.spec.silence
        signed = y.astype(np.float32)
        out = xp.empty((*y.shape, 2), dtype=np.float32)
        xp.maximum(signed, 0, out=out[..., 0])
        xp.subtract(out[..., 0], signed, out=out[..., 1])
        return Patch(out, rows, columns, self._windows.out)


class CLayer:
    """One layer of C-cells: (B, H, W, K) -> (B, H', W', K) float32.

    Blur and 2x2 average as the one kernel a_C that they make together, at stride 2. A kernel that
    is an outer product (Gaussian blurs are) takes two products with banded matrices. Any other
    takes a product per output row over the input rows that it sees; rows that a mirror-symmetric
    kernel weighs alike are added first. Only cells that a positive weight reaches can respond.

    Products of another shape may be summed in another order: digits that shared a rectangle would
    change one another's last bits.
    """

    def __init__(
        self, spec: CSpec, blur: NDArray[np.float32], size: int, psi: Psi, xp: ModuleType = np
    ) -> None:
        self.spec, self.psi = spec, psi
        self.out = (size + 2 * spec.padding - spec.kernel) // spec.stride + 1
        self._xp = xp
        a = pooled(blur.astype(np.float64))
        self._positive = extent(np.atleast_1d((a > 0).any(axis=1) | (a > 0).any(axis=0)))
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
        """Respond to the layer before, on the CPU to each digit by itself."""
        return Patch.join([self._respond(part) for part in u.apart()])

    def _respond(self, u: Patch) -> Patch:
        rows, columns = self._reach(u.rows), self._reach(u.columns)
        y = self._two_products(u, rows, columns) if self._outer else self._rows(u, rows, columns)
        xp = self._xp
        if self.psi == "sqrt":
            xp.sqrt(y, out=y)
        else:
            y /= 1 + y
        return Patch(y, rows, columns, self.out)

    def _reach(self, seen: slice) -> slice:
        """Cells of this layer that a positive weight connects with the cells seen."""
        p, stride = self.spec.padding, self.spec.stride
        first = -(-(seen.start + p - self._positive.stop + 1) // stride)
        last = (seen.stop - 1 + p - self._positive.start) // stride
        first = min(max(0, first), self.out - 1)  # one cell at least, though it stay silent
        return slice(first, max(first + 1, min(self.out, last + 1)))

    def _two_products(self, u: Patch, rows: slice, columns: slice) -> Array:
        down = self._bands[0][rows, u.rows]
        across = self._bands[1][columns, u.columns]
        n, h, w, k = u.values.shape
        half = down @ u.values.reshape(n, h, w * k)
        return across @ half.reshape(n, len(down), w, k)

    def _rows(self, u: Patch, rows: slice, columns: slice) -> Array:
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
        bands = self._bands[:, columns, u.columns].transpose(1, 0, 2)
        y = bands.reshape(length(columns), -1) @ seen.reshape(n, height, count * w, k)
        return xp.maximum(y, 0, out=y)  # a_C is below 0 in a surround
