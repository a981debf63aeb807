"""S-cells where any can respond, and nowhere else: the way of US2 and US3 on the CPU.

A cell responds where sum a' u > theta' v. By Cauchy and Schwarz, tap by tap,

    sum a'(nu, k) u(n + nu, k)  <=  sum |a'(nu)| |u(n + nu)|,

the norms taken over the planes k before. The right side is a product with kernel^2 inputs instead
of kernel^2 K'. Where it leaves no plane above its threshold no cell responds, and the window is
left out: of the windows that hear anything half are, and of all windows of a layer two thirds.
The others are copied out and multiplied digit by digit: what stands beside a digit in a batch
changes nothing.
"""

from itertools import pairwise

import numpy as np
from numpy.lib.stride_tricks import as_strided, sliding_window_view
from numpy.typing import NDArray

from neocog.network.parallel import ParallelMap
from neocog.network.patch import Patch, Reach, Span, Windows, extent

Floats = NDArray[np.float32]
Places = tuple[NDArray[np.intp], ...]  # digit, row, column of each place

#: Planes before from which on this way is the faster one.
_PLANES = 8
#: Multiplications of a part of a digit's product, 0.4 ms: about what it costs to wake a thread.
_LEAST = 20_000_000
#: What rounding may add to a bound of some hundred terms in float32, and more.
_SLACK = np.float32(1 - 1e-4)


class PrunedCells:
    """S-cells of one layer, NumPy only.

    a' is (K, K', kernel, kernel), the inhibitory weights c (kernel, kernel); theta' and s (K,) are
    those of :func:`neocog.network.s_layer.s_constants`.
    """

    def __init__(
        self, windows: Windows, a: Floats, c: Floats, theta: np.float32, silence: Floats
    ) -> None:
        self._windows, self._theta, self._silence = windows, theta, silence
        self._taps = np.ascontiguousarray(a.transpose(2, 3, 1, 0)).reshape(-1, len(a))
        self._profiles = np.sqrt((a * a).sum(axis=1)).reshape(len(a), -1)
        self._c = c.ravel()

    @staticmethod
    def suits(windows: Windows, before: int) -> bool:
        """Whether a bound for each window costs less than what it saves; K' planes before."""
        return before >= _PLANES and windows.out > windows.kernel

    def __call__(self, u: Patch, parallel: ParallelMap) -> Patch:
        """Respond to the layer before; ``parallel`` splits large products."""
        rows, columns = self._windows.reach(u.rows), self._windows.reach(u.columns)
        seen = self._surroundings(u, rows, columns)
        places, v = self._candidates(seen)
        responses = self._excitation(seen, places, parallel)
        responses -= (self._theta * v)[:, None]
        np.maximum(responses, np.zeros_like(self._silence), out=responses)
        responses /= v[:, None] + self._silence
        return self._laid_out(responses, places, (len(u.values), rows.out, columns.out))

    def _surroundings(self, u: Patch, rows: Reach, columns: Reach) -> Floats:
        """Return all that the cells that see a patch see of it."""
        n, h, w, planes = u.values.shape
        more = self._windows.kernel - 1
        shape = (n, rows.out.length + more, columns.out.length + more, planes)
        seen = np.zeros(shape, dtype=np.float32)
        seen[:, rows.before : rows.before + h, columns.before : columns.before + w] = u.values
        return seen

    def _candidates(self, seen: Floats) -> tuple[Places, Floats]:
        """Return the places where a cell may respond, and v there."""
        energy = np.einsum("bhwk,bhwk->bhw", seen, seen)
        side = self._windows.kernel
        windows = sliding_window_view(energy, (side, side), axis=(1, 2))
        flat = windows.reshape(-1, side * side)
        # einsum: BLAS sums a row in an order that depends on its place among the others
        v: Floats = np.sqrt(np.einsum("wi,i->w", flat, self._c))
        heard = np.flatnonzero(v)
        v = v[heard]
        bound = self._profiles @ np.sqrt(flat[heard]).T
        may = bound.max(axis=0) > self._theta * _SLACK * v
        return np.unravel_index(heard[may], windows.shape[:3]), v[may]

    def _excitation(self, seen: Floats, places: Places, parallel: ParallelMap) -> Floats:
        """Return sum a' u at the places, (places, K)."""
        windows = self._views(seen)
        out = np.empty((len(places[0]), len(self._silence)), dtype=np.float32)

        def multiply(part: slice) -> None:
            digit, row, column = (index[part] for index in places)
            lines = windows[digit, row, column].reshape(-1, len(self._taps))
            np.matmul(lines, self._taps, out=out[part])

        ends = np.searchsorted(places[0], np.arange(len(seen) + 1))
        spans = [self._split(span, parallel.threads) for span in pairwise(ends)]
        parallel(multiply, [part for parts in spans for part in parts])
        return out

    def _views(self, seen: Floats) -> Floats:
        """Return a view (B, h', w', kernel, kernel K') of what each cell sees of (B, h, w, K')."""
        n, h, w, planes = seen.shape
        k = self._windows.kernel
        b, y, x, _ = seen.strides
        shape, strides = (n, h - k + 1, w - k + 1, k, k * planes), (b, y, x, y, seen.itemsize)
        return as_strided(seen, shape, strides, writeable=False)

    def _split(self, span: tuple[int, int], threads: int) -> list[slice]:
        """Split the places of one digit into a part for each thread, if there are so many."""
        first, last = span
        count = (last - first) * self._taps.size // _LEAST
        ends = np.linspace(first, last, max(1, min(count, threads)) + 1).astype(int)
        return [slice(a, b) for a, b in pairwise(ends)]

    def _laid_out(
        self, responses: Floats, places: Places, reached: tuple[int, Span, Span]
    ) -> Patch:
        """Return responses (places, K) as the smallest patch that holds them."""
        digits, rows, columns = reached
        heard = responses.any(axis=1)
        digit, row, column = (index[heard] for index in places)
        high, wide = extent(np.bincount(row) > 0), extent(np.bincount(column) > 0)
        shape = (digits, high.length, wide.length, responses.shape[1])
        values = np.zeros(shape, dtype=np.float32)
        values[digit, row - high.start, column - wide.start] = responses[heard]
        return Patch(values, high.moved(rows.start), wide.moved(columns.start), self._windows.out)
