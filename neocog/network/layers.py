"""The layers, batched, in float32 on BLAS: the work of the CPU engine and of the learners.

Maps are channel-last here, (B, H, W, K), and travel as a :class:`Patch`: the rectangle outside which a layer
is silent. Silence answers silence, so every layer computes only the cells that its input can reach; nothing
is approximated. UG, the C-layers and `_AllCells` run on NumPy and on CuPy arrays alike.

S-layers compute in the way that is fastest for each:

`_AllCells`: on a GPU, and where the layer before has few planes (US1), every window that hears
anything becomes a row of a matrix product. A window of kernel x kernel cells is kernel^2 K' inputs;
copying every window out (im2col) would write each input kernel^2 times. Here each row is expanded
along y only: ``E[b, y, x, ky, :] = u[b, y + ky, x, :]``, kernel times the input. A window is then
the contiguous run ``E[b, y, x : x + kernel]``, and all windows with x = r (mod kernel) form an
ordinary matrix whose rows follow one another in E: ``kernel`` matrix products, no further copy. The
silent cells before a row of E also serve as those behind the row above.

`_PrunedCells`, for US2 and US3 on the CPU: a cell responds where sum a' u > theta' v. By Cauchy and
Schwarz, tap by tap,

    sum a'(nu, k) u(n + nu, k)  <=  sum |a'(nu)| |u(n + nu)|,

the norms taken over the planes k before. The right side is a product with kernel^2 inputs instead of kernel^2
K'. Where it leaves no plane above its threshold no cell responds, and the window is left out: of the windows
that hear anything half are, and of all windows of a layer two thirds. The others are copied out and
multiplied digit by digit: what stands beside a digit in a batch changes nothing.

`_SpectralCells`, for US4 on the CPU: 5 x 5 cells whose windows are 9 x 9 places of 13 x 13, so nearly every
place is seen by nearly every cell: 25 products with each place's planes. A correlation is one product for
each frequency instead, out(f) = u(f) conj(a(f)), 85 complex ones for the 169 places of a real map. Four real
multiplications each, they are a sixth of 25 x 81. Transforms are products with real matrices: cosines and
sines of the frequencies that are not conjugates of others. Digits are transformed one by one, each inside its
own rectangle, and multiplied together: as long as a pass has always as many digits, what stands beside a
digit changes nothing. For one digit alone all of that is waiting for weights: half of the planes before are
silent, and a plain product with the weights of the others reads a quarter as much.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided, sliding_window_view
from numpy.typing import NDArray

from neocog.network.arrays import array_module
from neocog.network.fields import contrast_kernel, pooled
from neocog.network.model import SWeights
from neocog.network.parallel import SEQUENTIAL, ParallelMap
from neocog.network.spec import INPUT_SIZE, ContrastSpec, CSpec, Psi, SSpec

Array = Any  # a NumPy or CuPy array
Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Places = tuple[NDArray[np.intp], ...]  # digit, row, column of each place

#: Planes before from which on this way is the faster one.
_PLANES = 8
#: Multiplications of a part of a digit's product, 0.4 ms: about what it costs to wake a thread.
_LEAST = 20_000_000
#: What rounding may add to a bound of some hundred terms in float32, and more.
_SLACK = np.float32(1 - 1e-4)
#: Most bytes of transformed weights: what is read for every few digits should lie in a cache.
_MOST_BYTES = 32 * 2**20
#: Most planes whose weights lie side by side: a product of few rows is as fast as it reads them.
_PANEL = 80


def length(span: slice) -> int:
    return int(span.stop - span.start)


def moved(span: slice, by: int) -> slice:
    return slice(span.start + by, span.stop + by)


@dataclass(frozen=True, slots=True)
class Patch:
    """A layer's maps inside a rectangle; the layer is silent outside it."""

    values: Array  #: responses inside, none below 0, (B, h, w, K)
    rows: slice  #: where the rectangle lies
    columns: slice
    size: int  #: rows (and columns) of the layer

    @classmethod
    def whole(cls, values: Array) -> "Patch":
        """Return maps (B, H, H, K) as a patch that covers the layer."""
        size = values.shape[1]
        return cls(values, slice(0, size), slice(0, size), size)

    def full(self) -> Array:
        """Return the whole maps, (B, H, H, K)."""
        shape = (len(self.values), self.size, self.size, self.values.shape[3])
        if self.values.shape == shape:
            return self.values
        out = array_module(self.values).zeros(shape, dtype=np.float32)
        out[:, self.rows, self.columns] = self.values
        return out

    def apart(self) -> list["Patch"]:
        """Return the smallest patch of each digit (on a GPU: itself alone)."""
        if array_module(self.values) is not np:
            return [self]
        in_rows = self.values.reshape(*self.values.shape[:2], -1).max(axis=2) > 0
        in_columns = self.values.max(axis=1).any(axis=2)
        return [
            self._cut(values[None], extent(high), extent(wide))
            for values, high, wide in zip(self.values, in_rows, in_columns, strict=True)
        ]

    @classmethod
    def join(cls, parts: list["Patch"]) -> "Patch":
        """Return patches of one layer, one after another, as one."""
        if len(parts) == 1:
            return parts[0]
        first = parts[0]
        rows = slice(min(p.rows.start for p in parts), max(p.rows.stop for p in parts))
        columns = slice(min(p.columns.start for p in parts), max(p.columns.stop for p in parts))
        digits, planes = sum(len(p.values) for p in parts), first.values.shape[3]
        values = np.zeros((digits, length(rows), length(columns), planes), dtype=np.float32)
        digit = 0
        for p in parts:
            high, wide = moved(p.rows, -rows.start), moved(p.columns, -columns.start)
            values[digit : digit + len(p.values), high, wide] = p.values
            digit += len(p.values)
        return cls(values, rows, columns, first.size)

    def tight(self) -> "Patch":
        """Return the smallest patch that holds every response (on a GPU: itself, no waiting)."""
        if array_module(self.values) is not np:
            return self
        heard = self.values.max(axis=0).any(axis=2)
        return self._cut(self.values, extent(heard.any(axis=1)), extent(heard.any(axis=0)))

    def _cut(self, values: Array, rows: slice, columns: slice) -> "Patch":
        """Return some digits' responses in a smaller rectangle, counted from this one's corner."""
        return Patch(
            values[:, rows, columns],
            moved(rows, self.rows.start),
            moved(columns, self.columns.start),
            self.size,
        )


def extent(heard: NDArray[np.bool_]) -> slice:
    """Return the span from the first to the last place that is heard; (0, 1) if none is."""
    places = np.flatnonzero(heard)
    return slice(int(places[0]), int(places[-1]) + 1) if len(places) else slice(0, 1)


class Reach(NamedTuple):
    """Cells of an S-layer that see anything of a patch, along one axis."""

    out: slice
    before: int  #: silent cells that their windows see on either side of the patch
    behind: int


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of one layer: kernel and padding in places, size of the layer before."""

    kernel: int
    padding: int
    size: int

    @property
    def out(self) -> int:
        """Rows and columns of cells."""
        return self.size + 2 * self.padding - self.kernel + 1

    def reach(self, seen: slice) -> Reach:
        """Return the cells that see any of the rows (or columns) ``seen``."""
        first = max(0, seen.start + self.padding - self.kernel + 1)
        last = min(self.out, seen.stop + self.padding)
        before = seen.start + self.padding - first
        behind = last + self.kernel - 1 - self.padding - seen.stop
        return Reach(slice(first, last), before, behind)


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
        few, side = 2 * windows.out <= windows.kernel + 1, windows.out + windows.kernel - 1
        if xp is np and few and side * side * 2 * a.shape[0] * a.shape[1] * 4 <= _MOST_BYTES:
            self._cells = _SpectralCells(windows, a, c, theta, silence)
        elif xp is np and a.shape[1] >= _PLANES and windows.out > windows.kernel:  # bounds pay
            self._cells = _PrunedCells(windows, a, c, theta, silence)
        else:
            self._cells = _AllCells(windows, a, c, theta, silence)

    def __call__(self, u: Patch, parallel: ParallelMap = SEQUENTIAL) -> Patch:
        """Respond to the layer before; ``parallel`` splits large products."""
        return self._cells(u, parallel)


class _AllCells:
    """S-cells at every window that hears anything of the patch, on NumPy or CuPy."""

    def __init__(self, windows: Windows, a: Array, c: Array, theta: np.float32, silence: Array) -> None:
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
        energy = xp.einsum("bhwk,bhwk->bhw", u.values, u.values)[..., None]
        v = self._correlate(energy, rows, columns, self._c)[..., 0]
        xp.sqrt(v, out=v)
        # whole rows of (cell, plane) at a time: broadcasting over a few planes is slow
        n, height, pitch, planes = d.shape
        flat = d.reshape(n, height, -1)
        flat -= xp.repeat(self._theta * v, planes, axis=2)
        xp.maximum(flat, xp.zeros_like(flat[0, 0]), out=flat)
        v = xp.repeat(v, planes, axis=2)
        v += xp.tile(self._silence, pitch)
        flat /= v
        return Patch(d[:, :, : length(columns.out)], rows.out, columns.out, self._windows.out)

    def _correlate(self, u: Array, rows: Reach, columns: Reach, taps: Array) -> Array:
        """Return (B, h, pitch, K); columns beyond the cells reached hold nothing of use."""
        n, k, run = len(u), self._windows.kernel, self._windows.kernel * u.shape[3]
        height, width = length(rows.out), length(columns.out)
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
        k, height = self._windows.kernel, length(rows.out)
        size = n * height * pitch * k * planes
        xp = self._xp
        flat = xp.zeros(size + k * k * planes, dtype=np.float32)
        e = flat[:size].reshape(n, height, pitch, k, planes)
        if planes == 2:  # a cell's pair of planes moves as one number
            e, u = e.view(np.float64), xp.ascontiguousarray(u).view(np.float64)
        place = slice(columns.before, columns.before + w)
        for ky in range(k):
            low, high = max(0, rows.before - ky), min(height, h + rows.before - ky)
            if low < high:
                e[:, low:high, place, ky] = u[:, low + ky - rows.before : high + ky - rows.before]
        return flat


class _PrunedCells:
    """S-cells where any can respond, and nowhere else."""

    def __init__(self, windows: Windows, a: Floats, c: Floats, theta: np.float32, silence: Floats) -> None:
        self._windows, self._theta, self._silence = windows, theta, silence
        self._taps = np.ascontiguousarray(a.transpose(2, 3, 1, 0)).reshape(-1, len(a))
        self._profiles = np.sqrt([(plane * plane).sum(axis=0) for plane in a]).reshape(len(a), -1)
        self._c = c.ravel()

    def __call__(self, u: Patch, parallel: ParallelMap) -> Patch:
        """Respond to the layer before; ``parallel`` splits large products."""
        rows, columns = self._windows.reach(u.rows), self._windows.reach(u.columns)
        n, h, w, before = u.values.shape
        more = self._windows.kernel - 1
        seen = np.zeros((n, length(rows.out) + more, length(columns.out) + more, before), np.float32)
        seen[:, rows.before : rows.before + h, columns.before : columns.before + w] = u.values
        places, v = self._candidates(seen)
        responses = self._excitation(seen, places, parallel)
        responses -= (self._theta * v)[:, None]
        np.maximum(responses, np.zeros_like(self._silence), out=responses)
        responses /= v[:, None] + self._silence
        # the smallest patch that holds the responses (places, K)
        heard = responses.any(axis=1)
        digit, row, column = (index[heard] for index in places)
        high, wide = extent(np.bincount(row) > 0), extent(np.bincount(column) > 0)
        values = np.zeros((n, length(high), length(wide), responses.shape[1]), dtype=np.float32)
        values[digit, row - high.start, column - wide.start] = responses[heard]
        at = moved(high, rows.out.start), moved(wide, columns.out.start)
        return Patch(values, *at, self._windows.out)

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
        n, h, w, before = seen.shape
        k, (b, y, x, _) = self._windows.kernel, seen.strides
        shape, strides = (n, h - k + 1, w - k + 1, k, k * before), (b, y, x, y, seen.itemsize)
        windows = as_strided(seen, shape, strides, writeable=False)  # of each cell, (kernel, kernel K')
        out = np.empty((len(places[0]), len(self._silence)), dtype=np.float32)

        def multiply(part: slice) -> None:
            digit, row, column = (index[part] for index in places)
            lines = windows[digit, row, column].reshape(-1, len(self._taps))
            np.matmul(lines, self._taps, out=out[part])

        ends = np.searchsorted(places[0], np.arange(len(seen) + 1))
        parts = []
        for first, last in pairwise(ends):  # of a digit: a part for each thread, if there are so many
            count = max(1, min((last - first) * self._taps.size // _LEAST, parallel.threads))
            parts += [slice(a, b) for a, b in pairwise(np.linspace(first, last, count + 1).astype(int))]
        parallel(multiply, parts)
        return out


class _SpectralCells:
    """S-cells by the discrete Fourier transform."""

    def __init__(self, windows: Windows, a: Floats, c: Floats, theta: np.float32, silence: Floats) -> None:
        self._windows, self._theta, self._silence = windows, theta, silence
        self._c = c.ravel()
        forward, weight = _transform(windows.out + windows.kernel - 1)
        cells = forward[:, :, : windows.out, : windows.out]
        self._forward = forward.astype(np.float32)
        self._weights = _spectra(a, forward)
        self._plain = np.ascontiguousarray(a.transpose(1, 2, 3, 0))
        backward = cells * weight[:, None, None, None]
        self._backward = backward.reshape(2 * len(weight), -1).T.astype(np.float32)

    def __call__(self, u: Patch, _parallel: ParallelMap) -> Patch:
        """Respond to the layer before, on one thread: waking another would take as long."""
        n, side = len(u.values), self._windows.out
        d = self._excitation(u) if n > 1 else self._of_one(u)
        energy = np.einsum("bhwk,bhwk->bhw", u.values, u.values)
        v = np.sqrt(self._seen(u, energy).reshape(n, -1, len(self._c)) @ self._c)[..., None]
        d -= self._theta * v
        np.maximum(d, np.zeros_like(self._silence), out=d)
        d /= v + self._silence
        d *= v > 0  # a window that hears nothing: what rounding left there is no response
        whole = slice(0, side)
        return Patch(d.reshape(n, side, side, -1), whole, whole, side)

    def _of_one(self, u: Patch) -> Floats:
        """Return sum a' u of one digit, (1, cells, K)."""
        heard = np.flatnonzero(u.values.any(axis=(0, 1, 2)))
        weights = self._plain[heard].reshape(-1, len(self._silence))
        seen = self._seen(u, u.values[0].transpose(2, 0, 1)[heard]).transpose(1, 2, 0, 3, 4)
        cells: Floats = seen.reshape(self._windows.out**2, len(weights)) @ weights
        return cells[None]

    def _seen(self, u: Patch, maps: Floats) -> Floats:
        """Return what each cell sees of maps (N, h, w) that lie where the patch does."""
        side, k = self._windows.out + self._windows.kernel - 1, self._windows.kernel
        rows, columns = (moved(span, self._windows.padding) for span in (u.rows, u.columns))
        whole = np.zeros((len(maps), side, side), dtype=np.float32)
        whole[:, rows, columns] = maps
        return sliding_window_view(whole, (k, k), axis=(1, 2))

    def _excitation(self, u: Patch) -> Floats:
        """Return sum a' u, (B, cells, K)."""
        n = len(u.values)
        frequencies, _, panels, before, width = self._weights.shape
        spectra = np.empty((frequencies, n, 2, before), dtype=np.float32)
        for digit, own in enumerate(u.apart()):
            span = (moved(places, self._windows.padding) for places in (own.rows, own.columns))
            heard = self._forward[:, :, *span].reshape(2 * frequencies, -1)
            spectra[:, digit] = (heard @ own.values.reshape(-1, before)).reshape(frequencies, 2, before)
        rows = spectra.reshape(frequencies, 1, 1, 2 * n, before)
        products = (rows @ self._weights).reshape(frequencies, 2, panels, n, 2, width)
        real, imaginary = products[:, 0], products[:, 1]  # of the weights
        out = np.empty((n, frequencies, 2, panels, width), dtype=np.float32)
        (a, b), (c, d) = (part.transpose(3, 2, 0, 1, 4) for part in (real, imaginary))  # parts of the maps
        np.add(a, d, out=out[:, :, 0])
        np.subtract(b, c, out=out[:, :, 1])
        cells: Floats = self._backward @ out.reshape(n, 2 * frequencies, panels * width)
        return cells[:, :, : len(self._silence)]


def s_constants(weights: SWeights, xp: ModuleType = np) -> tuple[Array, np.float32, Array]:
    """Return what an S-layer computes with, all float32.

    With a' = a / (b (1 - theta)), theta' = theta / (1 - theta) and s = 1/(theta b) its response is
    max(0, sum a' u - theta' v) / (v + s): a' (K, K', kernel, kernel), theta', s (K,). A plane
    whose reference vector is 0 stays silent: a' = 0, s very large.
    """
    theta = weights.threshold
    x, c = xp.asarray(weights.reference), xp.asarray(weights.c)
    step = max(1, min(256, 2**22 // x[0].size))  # 32 MB of float64
    weight, parts = c.astype(np.float64), range(0, len(x), step)
    squares = [(weight * x[i : i + step].astype(np.float64) ** 2).sum(axis=(1, 2, 3)) for i in parts]
    norm = xp.sqrt(xp.concatenate(squares))  # |X|_c
    heard = norm > 0
    safe = xp.where(heard, norm, 1)
    scale = xp.where(heard, 1 / ((1 - theta) * safe), 0).astype(np.float32)
    silence = xp.where(heard, 1 / (theta * weights.q * safe), 1e30).astype(np.float32)
    a = x * c
    a *= scale[:, None, None, None]
    return a, np.float32(theta / (1 - theta)), silence


def _taps(a: Array) -> Array:
    """(K, K', ky, kx) -> (kx ky K', K), the order in which E holds a window."""
    return array_module(a).ascontiguousarray(a.transpose(3, 2, 1, 0).reshape(-1, len(a)))


def _transform(side: int) -> tuple[Doubles, Doubles]:
    """Return the transform of real maps, (F, 2, side, side), and the weight of each frequency.

    F are the frequencies that are not the conjugates of earlier ones, each a real and an imaginary
    part. ``weight * transform`` is the transpose of its inverse.
    """
    place = np.arange(side * side)
    y, x = np.divmod(place, side)
    conjugate = (-y % side) * side + -x % side
    kept = place <= conjugate
    angle = 2 * np.pi / side * ((np.outer(y, y) + np.outer(x, x)) % side)[kept]
    transform = np.stack([np.cos(angle), -np.sin(angle)], axis=1)
    weight = np.where(place == conjugate, 1, 2)[kept] / side**2
    return transform.reshape(-1, 2, side, side), weight


def _spectra(a: Floats, transform: Doubles) -> Floats:
    """Return the real and the imaginary part of a' transformed: (F, 2, panels, K', width).

    A panel holds the weights of ``width`` planes, one input after another: they are read in the
    order in which they lie. Where K is no multiple of the width the last planes are silent.
    """
    planes, before, k, _ = a.shape
    panels = -(-planes // _PANEL)
    width = -(-planes // (8 * panels)) * 8
    basis = transform[:, :, :k, :k].reshape(-1, k * k)
    spectra = basis @ a.transpose(2, 3, 1, 0).reshape(k * k, before * planes)
    wide = np.zeros((len(basis), before, panels * width), dtype=np.float32)
    wide[:, :, :planes] = spectra.reshape(-1, before, planes)
    split = wide.reshape(-1, 2, before, panels, width).transpose(0, 1, 3, 2, 4)
    return np.ascontiguousarray(split)


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
