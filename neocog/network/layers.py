"""The layers of an isolated digit, batched, in float32 on BLAS, for the CPU engine and the learners.

Maps are channel-last here, (B, H, W, K), and travel as a :class:`Patch`: the rectangle outside which a layer
is silent. Silence answers silence, so every layer computes only the cells that its input can reach; nothing
is approximated. All but `_PrunedCells` and the transform runs on NumPy and on CuPy arrays alike.

An S-layer is max(0, sum a' u - theta' v) / (v + s), see :func:`neocog.network.model.s_constants`, in the way
that is the fastest for it:

`_AllCells`, on a GPU, and where the layer before has few planes (US1): every window that hears anything
becomes a row of a matrix product, see :func:`neocog.network.line_engine.correlate`.

`SpectralCells` of :mod:`neocog.network.line_engine`, US2 and US3 on the CPU where its rounding is not heard.
A product is of one digit: what stands beside it in a batch changes no bit. One call of NumPy makes those of
all digits: threads that call it often wait for one another (Python lets one at a time go on).

`_PrunedCells`, US2 and US3 on the CPU elsewhere: a cell responds where sum a' u > theta' v. By Cauchy and
Schwarz, with norms over the planes k before, sum a'(nu, k) u(n + nu, k) <= sum |a'(nu)| |u(n + nu)|: a
product with kernel^2 inputs instead of kernel^2 K'. Where that leaves no plane above its threshold the window
is left out: half of those that hear anything are, two thirds of all. The others are copied out and multiplied
digit by digit.

`_FewCells`, US4: 5 x 5 cells, a plain product with their windows, of the planes that respond.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice, pairwise
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from neocog.network.arrays import array_module
from neocog.network.line_engine import Saturation, SpectralCells, correlate, respond, strided, taps_of
from neocog.network.model import SWeights, s_constants
from neocog.network.parallel import SEQUENTIAL, ParallelMap
from neocog.network.spec import INPUT_SIZE, ContrastSpec, CSpec, Psi, SSpec, banded, contrast_kernel, pooled

Array = Any  # a NumPy or CuPy array
Floats = NDArray[np.float32]

# `experiments/network/constants.py` of commit 8d6a4da1 times these two
_PLANES_AT_ONCE = 32  # whose weights a product takes: they lie in a core's cache
_TOGETHER = 4  # digits that are transformed at a time, which bounds the memory as well
_PLANES = 8  # planes before from which on bounds pay
_LEAST = 20_000_000  # multiplications of a part of a product, 0.4 ms: about what it costs to wake a thread
_SLACK = np.float32(1 - 1e-4)  # what rounding may add to a bound of some hundred terms in float32, and more


def _length(span: slice) -> int:
    return int(span.stop - span.start)


def _moved(span: slice, by: int) -> slice:
    return slice(span.start + by, span.stop + by)


def _extent(heard: NDArray[np.bool_]) -> slice:
    """The span from the first to the last place that is heard; (0, 1) if none is."""
    places = np.flatnonzero(heard)
    return slice(int(places[0]), int(places[-1]) + 1) if len(places) else slice(0, 1)


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
        every = slice(0, values.shape[1])
        return cls(values, every, every, every.stop)

    def full(self) -> Array:
        """Return the whole maps, (B, H, H, K)."""
        shape = (len(self.values), self.size, self.size, self.values.shape[3])
        if self.values.shape == shape:
            return self.values
        out = array_module(self.values).zeros(shape, dtype=np.float32)
        out[:, self.rows, self.columns] = self.values
        return out

    def tight(self) -> "Patch":
        """Return the smallest patch that holds every response (on a GPU: itself, no waiting)."""
        if array_module(self.values) is not np:
            return self
        heard = self.values.max(axis=0).any(axis=2)
        return self._cut(self.values, heard.any(axis=1), heard.any(axis=0))

    def apart(self) -> list["Patch"]:
        """Return the smallest patch of each digit (on a GPU: itself alone)."""
        if array_module(self.values) is not np:
            return [self]
        in_rows = self.values.reshape(*self.values.shape[:2], -1).max(axis=2) > 0
        in_columns = self.values.max(axis=1).any(axis=2)
        return [
            self._cut(u[None], *heard) for u, *heard in zip(self.values, in_rows, in_columns, strict=True)
        ]

    def _cut(self, values: Array, in_rows: NDArray[np.bool_], in_columns: NDArray[np.bool_]) -> "Patch":
        rows, columns = _extent(in_rows), _extent(in_columns)
        at = _moved(rows, self.rows.start), _moved(columns, self.columns.start)
        return Patch(values[:, rows, columns], *at, self.size)

    @classmethod
    def join(cls, parts: list["Patch"]) -> "Patch":
        """Return patches of one layer, one after another, as one."""
        if len(parts) == 1:
            return parts[0]
        rows = slice(min(p.rows.start for p in parts), max(p.rows.stop for p in parts))
        columns = slice(min(p.columns.start for p in parts), max(p.columns.stop for p in parts))
        ends = np.cumsum([0, *(len(p.values) for p in parts)]).tolist()
        shape = ends[-1], _length(rows), _length(columns), parts[0].values.shape[3]
        values = np.zeros(shape, dtype=np.float32)
        for p, (first, last) in zip(parts, pairwise(ends), strict=True):
            values[first:last, _moved(p.rows, -rows.start), _moved(p.columns, -columns.start)] = p.values
        return cls(values, rows, columns, parts[0].size)


class _Reach(NamedTuple):
    """Cells that see any of some rows (or columns), and the silent ones that they see before and behind."""

    out: slice
    before: int
    behind: int


@dataclass(frozen=True, slots=True)
class _Windows:
    """Windows of one layer: kernel and padding in places, size of the layer before."""

    kernel: int
    padding: int
    size: int

    @property
    def out(self) -> int:
        """Rows and columns of cells."""
        return self.size + 2 * self.padding - self.kernel + 1

    def reach(self, seen: slice) -> _Reach:
        first = max(0, seen.start + self.padding - self.kernel + 1)
        last = min(self.out, seen.stop + self.padding)
        before, behind = seen.start + self.padding - first, last + self.kernel - 1 - self.padding - seen.stop
        return _Reach(slice(first, last), before, behind)


class ContrastLayer:
    """UG: U0 (B, 65, 65) -> (B, 71, 71, 2) float32.

    The kernel a_G is a sum of at most four separable ones (its singular value decomposition), so the layer is
    two products with banded matrices. Computed in float64: responses are cut off at 1e-4, and rounding must
    not decide which side a cell falls on.
    """

    def __init__(self, spec: ContrastSpec, xp: ModuleType = np) -> None:
        self._xp, self._silence = xp, spec.silence
        self._windows = _Windows(spec.kernel, spec.padding, INPUT_SIZE)
        u, sigma, vt = np.linalg.svd(contrast_kernel(spec))
        ranks = range(int((sigma > sigma[0] * 1e-14).sum()))
        down = [banded(u[:, r] * sigma[r], INPUT_SIZE, spec.padding, 1) for r in ranks]
        across = [banded(vt[r], INPUT_SIZE, spec.padding, 1).T for r in ranks]
        self._down = xp.asarray(np.stack(down, axis=1))  # (row, rank, row of U0)
        self._across = xp.asarray(np.stack(across))  # (rank, column of U0, column)

    def __call__(self, u0: Array, _parallel: ParallelMap = SEQUENTIAL) -> Patch:
        """Respond to pictures (B, 65, 65)."""
        xp = self._xp
        ink = Patch.whole(xp.abs(u0)[..., None]).tight()
        rows, columns = (self._windows.reach(span).out for span in (ink.rows, ink.columns))
        down = self._down[rows, :, ink.rows].reshape(-1, _length(ink.rows))
        across = self._across[:, ink.columns, columns].reshape(-1, _length(columns))
        half = down @ u0[:, ink.rows, ink.columns].astype(np.float64)
        y = half.reshape(len(u0), _length(rows), -1) @ across
        y *= xp.abs(y) > self._silence
        signed = y.astype(np.float32)
        out = xp.empty((*y.shape, 2), dtype=np.float32)
        xp.maximum(signed, 0, out=out[..., 0])
        xp.subtract(out[..., 0], signed, out=out[..., 1])
        return Patch(out, rows, columns, self._windows.out)


class SLayer:
    """One layer of S-cells: (B, H, W, K') -> (B, H', W', K) float32; ``out`` are its rows and columns."""

    def __init__(self, spec: SSpec, weights: SWeights, size: int, xp: ModuleType = np) -> None:
        windows = _Windows(spec.kernel, spec.padding, size)
        self.out = windows.out
        self._respond: Callable[[Patch, ParallelMap], Patch]
        self.whole = False  # whether every cell is computed
        if 2 * windows.out <= windows.kernel + 1:
            self._respond = _FewCells(windows, weights, xp)
        elif xp is np and SpectralCells.fits(spec, weights, size, dense=False):
            cells = SpectralCells(spec, weights, size, 1, dense=False)
            self._respond, self.whole = lambda u, split: _by_few(cells, u.full(), split), True
        elif xp is np and weights.reference.shape[1] >= _PLANES and windows.out > windows.kernel:
            self._respond = _PrunedCells(windows, weights)
        else:
            self._respond = _AllCells(windows, weights, xp)

    def __call__(self, u: Patch, parallel: ParallelMap = SEQUENTIAL) -> Patch:
        """Respond to the layer before; ``parallel`` splits large products."""
        return self._respond(u, parallel)


def _by_few(cells: SpectralCells, u: Floats, parallel: ParallelMap) -> Patch:
    some = (u[first : first + _TOGETHER] for first in range(0, len(u), _TOGETHER))
    return Patch.join([Patch.whole(respond(cells.each, [few], parallel)[0]) for few in some])


def _among(u: Patch, rows: _Reach, columns: _Reach, xp: ModuleType) -> Array:
    """Return maps among the silence that cells see besides, (B, H, W, K)."""
    n, h, w, planes = u.values.shape
    sides = (reach.before + side + reach.behind for reach, side in ((rows, h), (columns, w)))
    seen = xp.zeros((n, *sides, planes), dtype=np.float32)
    seen[:, rows.before : rows.before + h, columns.before : columns.before + w] = u.values
    return seen


def _windows_of(seen: Array, k: int, xp: ModuleType = np) -> Array:
    """Return a view of what each cell sees of maps (B, H, W, K): (B, rows, columns, k, k K)."""
    (n, h, w, planes), (b, y, x, _) = seen.shape, seen.strides
    shape = n, h - k + 1, w - k + 1, k, k * planes
    return strided(seen, shape, (b, y, x, y, seen.itemsize), xp)


class _AllCells:
    def __init__(self, windows: _Windows, weights: SWeights, xp: ModuleType) -> None:
        self._windows, self._xp = windows, xp
        a, theta, silence = s_constants(weights, xp)
        self._answer = Saturation(theta, silence, xp)
        self._taps, self._c = taps_of(a, xp), taps_of(xp.asarray(weights.c)[None, None], xp)

    def __call__(self, u: Patch, _parallel: ParallelMap) -> Patch:
        return Patch.join([self._of(part) for part in u.apart()])

    def _of(self, u: Patch) -> Patch:
        xp = self._xp
        rows, columns = self._windows.reach(u.rows), self._windows.reach(u.columns)
        seen = _among(u, rows, columns, xp)
        d = correlate(seen, self._taps, xp)
        v = correlate(xp.einsum("bhwk,bhwk->bhw", seen, seen)[..., None], self._c, xp)[..., 0]
        d = self._answer(d, xp.sqrt(v))[:, :, : _length(columns.out)]
        return Patch(d, rows.out, columns.out, self._windows.out)


class _PrunedCells:
    def __init__(self, windows: _Windows, weights: SWeights) -> None:
        self._windows, self._c = windows, weights.c.ravel()
        a, self._theta, silence = s_constants(weights)
        self._answer = Saturation(self._theta, silence)
        self._taps = np.ascontiguousarray(a.transpose(2, 3, 1, 0)).reshape(-1, len(a))
        self._profiles = np.sqrt([(plane * plane).sum(axis=0) for plane in a]).reshape(len(a), -1)

    def __call__(self, u: Patch, parallel: ParallelMap) -> Patch:
        rows, columns = self._windows.reach(u.rows), self._windows.reach(u.columns)
        n, k, seen = len(u.values), self._windows.kernel, _among(u, rows, columns, np)
        energy = _windows_of(np.einsum("bhwk,bhwk->bhw", seen, seen)[..., None], k)
        flat = energy.reshape(-1, k * k)
        # einsum: BLAS sums a row in an order that depends on its place among the others
        v: Floats = np.sqrt(np.einsum("wi,i->w", flat, self._c))
        heard = np.flatnonzero(v)
        v = v[heard]
        bound = self._profiles @ np.sqrt(flat[heard]).T
        may = bound.max(axis=0) > self._theta * _SLACK * v
        places, v = np.unravel_index(heard[may], energy.shape[:3]), v[may]  # digit, row, column of each

        responses = self._answer(self._excitation(seen, places, parallel), v)
        # the smallest patch that holds the responses (places, K)
        above = responses.any(axis=1)
        digit, row, column = (index[above] for index in places)
        high, wide = _extent(np.bincount(row) > 0), _extent(np.bincount(column) > 0)
        values = np.zeros((n, _length(high), _length(wide), responses.shape[1]), dtype=np.float32)
        values[digit, row - high.start, column - wide.start] = responses[above]
        at = _moved(high, rows.out.start), _moved(wide, columns.out.start)
        return Patch(values, *at, self._windows.out)

    def _excitation(self, seen: Floats, places: tuple[NDArray[Any], ...], parallel: ParallelMap) -> Floats:
        """Return sum a' u at the places, (places, K)."""
        windows = _windows_of(seen, self._windows.kernel)
        out = np.empty((len(places[0]), self._taps.shape[1]), dtype=np.float32)

        def multiply(part: slice) -> None:
            lines = windows[tuple(index[part] for index in places)].reshape(-1, len(self._taps))
            np.matmul(lines, self._taps, out=out[part])

        parts: list[slice] = []
        for first, last in pairwise(np.searchsorted(places[0], np.arange(len(seen) + 1))):
            # of a digit: a part for each thread, if there are so many
            count = max(1, min((last - first) * self._taps.size // _LEAST, parallel.threads))
            parts += [slice(a, b) for a, b in pairwise(np.linspace(first, last, count + 1).astype(int))]
        parallel(multiply, parts)
        return out


class _FewCells:
    def __init__(self, windows: _Windows, weights: SWeights, xp: ModuleType) -> None:
        self._windows, self._xp, self._c = windows, xp, xp.asarray(weights.c).ravel()
        a, theta, silence = s_constants(weights, xp)
        self._answer = Saturation(theta, silence, xp)
        self._taps = xp.ascontiguousarray(a.transpose(2, 3, 1, 0))

    def __call__(self, u: Patch, parallel: ParallelMap) -> Patch:
        """Respond to the layer before, on the CPU a digit at a time: its last bits are those of any batch."""
        n, side, xp = len(u.values), self._windows.out, self._xp
        energy = xp.einsum("bhwk,bhwk->bhw", u.values, u.values)
        if xp is np:
            parts: list[tuple[Floats, Any]] = []
            counts = []
            for digit, heard in zip(u.values, u.values.max(axis=(1, 2)) > 0, strict=True):
                planes = np.flatnonzero(heard)
                counts.append(-(-len(planes) // _PLANES_AT_ONCE) or 1)
                each, more = divmod(len(planes), counts[-1])
                ends = (i * each + min(i, more) for i in range(counts[-1] + 1))
                parts += [(digit[None], planes[first:last]) for first, last in pairwise(ends)]
            products = iter(parallel(lambda part: self._product(u, *part), parts))
            d = np.concatenate([sum(islice(products, count)) for count in counts])
        else:
            d = self._product(u, u.values, xp.arange(u.values.shape[3]))
        v = xp.sqrt(self._seen(u, energy[..., None]).reshape(n, -1, len(self._c)) @ self._c)
        return Patch.whole(self._answer(d, v).reshape(n, side, side, -1))

    def _seen(self, u: Patch, maps: Array) -> Array:
        """Return the windows of maps (B, h, w, K) that lie where the patch does."""
        side, p = self._windows.out + self._windows.kernel - 1, self._windows.padding
        whole = self._xp.zeros((len(maps), side, side, maps.shape[3]), dtype=np.float32)
        whole[:, _moved(u.rows, p), _moved(u.columns, p)] = maps
        return _windows_of(whole, self._windows.kernel, self._xp)

    def _product(self, u: Patch, maps: Array, planes: Array) -> Array:
        """Return sum a' u over some planes of maps that lie where the patch does, (B, cells, K)."""
        taps = self._taps.take(planes, axis=2).reshape(-1, self._taps.shape[3])
        seen = self._seen(u, maps.take(planes, axis=3))
        return seen.reshape(len(seen), self._windows.out**2, len(taps)) @ taps


class CLayer:
    """One layer of C-cells: (B, H, W, K) -> (B, H', W', K) float32.

    Blur and 2x2 average as the one kernel a_C that they make together, at stride 2. A kernel that is an outer
    product (Gaussian blurs are) takes two products with banded matrices. Any other takes a product per output
    row over the input rows that it sees; rows that a mirror-symmetric kernel weighs alike are added first.
    Only cells that a positive weight reaches can respond. Unless ``whole`` maps come, each digit is cut by
    itself on the CPU: products of another shape may be summed in another order, and digits that shared a
    rectangle would change one another's last bits.
    """

    def __init__(
        self, spec: CSpec, blur: Floats, size: int, psi: Psi, xp: ModuleType = np, *, whole: bool = False
    ) -> None:
        self._spec, self._psi, self._xp, self._whole = spec, psi, xp, whole
        self.out = (size + 2 * spec.padding - spec.kernel) // spec.stride + 1
        a = pooled(blur.astype(np.float64))
        self._positive = _extent(np.atleast_1d((a > 0).any(axis=1) | (a > 0).any(axis=0)))
        u, sigma, vt = np.linalg.svd(a)
        self._outer = bool(sigma[1] <= 1e-7 * sigma[0] and a.min() >= 0)
        self._mirrored = np.array_equal(a, a[::-1])
        profiles = a[: spec.kernel // 2] if self._mirrored else a
        if self._outer:
            profiles = np.stack([np.abs(u[:, 0]) * sigma[0], np.abs(vt[0])])
        bands = [banded(row, size, spec.padding, spec.stride) for row in profiles]
        self._bands = xp.asarray(np.stack(bands).astype(np.float32))

    def __call__(self, u: Patch, _parallel: ParallelMap = SEQUENTIAL) -> Patch:
        """Respond to the layer before."""
        return Patch.join([self._respond(part) for part in ([u] if self._whole else u.apart())])

    def _respond(self, u: Patch) -> Patch:
        (rows, columns), (n, h, w, k) = map(self._reach, (u.rows, u.columns)), u.values.shape
        if self._outer:
            down, across = self._bands[0][rows, u.rows], self._bands[1][columns, u.columns]
            y = across @ (down @ u.values.reshape(n, h, w * k)).reshape(n, len(down), w, k)
        else:
            y = self._by_rows(u, rows, columns)
        if self._psi == "sqrt":
            self._xp.sqrt(y, out=y)
        else:
            y /= 1 + y
        return Patch(y, rows, columns, self.out)

    def _reach(self, seen: slice) -> slice:
        """Cells of this layer that a positive weight connects with the cells seen; one cell at least."""
        p, stride = self._spec.padding, self._spec.stride
        first = -(-(seen.start + p - self._positive.stop + 1) // stride)
        last = (seen.stop - 1 + p - self._positive.start) // stride
        first = min(max(0, first), self.out - 1)
        return slice(first, max(first + 1, min(self.out, last + 1)))

    def _by_rows(self, u: Patch, rows: slice, columns: slice) -> Array:
        xp, kernel, stride = self._xp, self._spec.kernel, self._spec.stride
        n, _, w, k = u.values.shape
        count, height = len(self._bands), _length(rows)
        first = rows.start * stride - self._spec.padding
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
        bands = self._bands[:, columns, u.columns].transpose(1, 0, 2).reshape(_length(columns), -1)
        y = bands @ seen.reshape(n, height, count * w, k)
        return xp.maximum(y, 0, out=y)  # a_C is below 0 in a surround
