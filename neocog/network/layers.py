"""The layers of an isolated digit in float32 on BLAS, for the CPU engine and the learners.

Maps are channel-last here, (B, H, W, K), and travel as patches of one or more digits (:class:`Patch`): the
rectangle outside which a layer is silent. Silence answers silence, so every layer computes only the cells
that its input can reach; nothing is approximated. Products are of one digit: what stands beside it in a batch
changes no bit. All but `_PrunedCells` and the transform runs on NumPy and on CuPy arrays alike.

An S-layer is max(0, sum a' u - theta' v) / (v + s), see :func:`neocog.network.model.s_constants`, in the way
that is the fastest for it:

`_AllCells`, on a GPU, and where the layer before has few planes (US1): every window that hears anything
becomes a row of a matrix product, see :func:`neocog.network.line_engine.correlate`.

`_TransformedCells` (:class:`neocog.network.line_engine.SpectralCells`), US2 and US3 on the CPU where its
rounding is not heard. One call of NumPy makes the products of several digits: threads that call it often wait
for one another (Python lets one at a time go on).

`_PrunedCells`, US2 and US3 on the CPU elsewhere: a cell responds where sum a' u > theta' v. By Cauchy and
Schwarz, with norms over the planes k before, sum a'(nu, k) u(n + nu, k) <= sum |a'(nu)| |u(n + nu)|: a
product with kernel^2 inputs instead of kernel^2 K'. Where that leaves no plane above its threshold the window
is left out: half of those that hear anything are, two thirds of all. The others are copied out and
multiplied.

`_FewCells`, US4: 5 x 5 cells, a plain product with their windows, of the planes that respond.
"""

from collections.abc import Sequence
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
    """A layer's maps of some digits inside a rectangle; the layer is silent outside it."""

    values: Array  #: responses inside, none below 0, (B, h, w, K)
    rows: slice  #: where the rectangle lies
    columns: slice
    size: int  #: rows (and columns) of the layer

    def tight(self) -> "Patch":
        """Return the smallest patch that holds every response."""
        rows = _extent(self.values.reshape(*self.values.shape[:2], -1).max(axis=(0, 2)) > 0)
        columns = _extent(self.values.max(axis=1).any(axis=(0, 2)))
        at = _moved(rows, self.rows.start), _moved(columns, self.columns.start)
        return Patch(self.values[:, rows, columns], *at, self.size)


Patches = Sequence[Patch]


def whole(maps: Array) -> list[Patch]:
    """Return maps (B, H, H, K) as a patch that covers the layer."""
    every = slice(0, maps.shape[1])
    return [Patch(maps, every, every, every.stop)]


def apart(us: Patches) -> Patches:
    """Return the smallest patch of each digit (on a GPU: the patches as they are, no waiting)."""
    if array_module(us[0].values) is not np:
        return us
    return [Patch(own, u.rows, u.columns, u.size).tight() for u in us for own in u.values[:, None]]


def full(us: Patches) -> Array:
    """Return the whole maps of patches, (B, H, H, K)."""
    size = us[0].size
    covers = len(us) == 1 and us[0].values.shape[1:3] == (size, size)
    return us[0].values if covers else _laid(us, 0, 0, size, size)


def _laid(us: Patches, top: int, left: int, high: int, wide: int) -> Array:
    """Lay patches into silence, (B, high, wide, K), from row ``top`` and column ``left`` of the layer on."""
    ends = np.cumsum([0, *(len(u.values) for u in us)]).tolist()
    shape = ends[-1], high, wide, us[0].values.shape[3]
    out = array_module(us[0].values).zeros(shape, dtype=np.float32)
    for u, (first, last) in zip(us, pairwise(ends), strict=True):
        out[first:last, _moved(u.rows, -top), _moved(u.columns, -left)] = u.values
    return out


class _Windows(NamedTuple):
    """Windows of one layer: kernel and padding in places, size of the layer before."""

    kernel: int
    padding: int
    size: int

    @property
    def out(self) -> int:
        """Rows and columns of cells."""
        return self.size + 2 * self.padding - self.kernel + 1

    def reach(self, seen: slice) -> slice:
        """Cells that see any of some rows (or columns)."""
        first = max(0, seen.start + self.padding - self.kernel + 1)
        return slice(first, min(self.out, seen.stop + self.padding))

    def among(self, us: Patches) -> tuple[Array, slice, slice]:
        """Return maps among the silence that cells see besides, (B, H, W, K), and where these cells are."""
        spans = [u.rows for u in us], [u.columns for u in us]
        ends = (slice(min(s.start for s in some), max(s.stop for s in some)) for some in spans)
        rows, columns = map(self.reach, ends)
        high, wide = (_length(span) + self.kernel - 1 for span in (rows, columns))
        return _laid(us, rows.start - self.padding, columns.start - self.padding, high, wide), rows, columns


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

    def __call__(self, u0: Array, _parallel: ParallelMap = SEQUENTIAL) -> list[Patch]:
        """Respond to pictures (B, 65, 65)."""
        xp = self._xp
        (ink,) = whole(xp.abs(u0)[..., None])
        ink = ink.tight() if xp is np else ink
        rows, columns = map(self._windows.reach, (ink.rows, ink.columns))
        down = self._down[rows, :, ink.rows].reshape(-1, _length(ink.rows))
        across = self._across[:, ink.columns, columns].reshape(-1, _length(columns))
        half = down @ u0[:, ink.rows, ink.columns].astype(np.float64)
        y = half.reshape(len(u0), _length(rows), -1) @ across
        y *= xp.abs(y) > self._silence
        signed = y.astype(np.float32)
        out = xp.empty((*y.shape, 2), dtype=np.float32)
        xp.maximum(signed, 0, out=out[..., 0])
        xp.subtract(out[..., 0], signed, out=out[..., 1])
        return [Patch(out, rows, columns, self._windows.out)]


def s_layer(spec: SSpec, weights: SWeights, size: int, xp: ModuleType = np) -> "_Cells":
    """Return a layer of S-cells, (B, H, W, K') -> (B, H', W', K); ``size`` is that of the layer before."""
    out = size + 2 * spec.padding - spec.kernel + 1
    way: type[_Cells] = _AllCells
    if 2 * out <= spec.kernel + 1:
        way = _FewCells
    elif xp is np and SpectralCells.fits(spec, weights, size, dense=False):
        way = _TransformedCells
    elif xp is np and weights.reference.shape[1] >= _PLANES and out > spec.kernel:
        way = _PrunedCells
    return way(spec, weights, size, xp)


class _Cells:
    whole = False  #: whether every cell is computed

    def __init__(self, spec: SSpec, weights: SWeights, size: int, xp: ModuleType) -> None:
        self._windows, self._xp, self._c = _Windows(spec.kernel, spec.padding, size), xp, weights.c
        self.out = self._windows.out  #: rows and columns
        a, self._theta, silence = s_constants(weights, xp)
        self._answer = Saturation(self._theta, silence, xp)
        self._keep(a)

    def _keep(self, a: Array) -> None:
        self._taps = self._xp.ascontiguousarray(a.transpose(2, 3, 1, 0))

    def __call__(self, us: Patches, parallel: ParallelMap = SEQUENTIAL) -> list[Patch]:
        """Respond to the layer before; ``parallel`` splits large products."""
        raise NotImplementedError

    def _seen(self, maps: Array) -> Array:
        """Return a view of what each cell sees of maps (B, H, W, K): (B, rows, columns, k, k K)."""
        k, (n, h, w, planes), (b, y, x, _) = self._windows.kernel, maps.shape, maps.strides
        shape = n, h - k + 1, w - k + 1, k, k * planes
        return strided(maps, shape, (b, y, x, y, maps.itemsize), self._xp)


class _AllCells(_Cells):
    def _keep(self, a: Array) -> None:
        self._taps = taps_of(a, self._xp)
        self._c = taps_of(self._xp.asarray(self._c)[None, None], self._xp)

    def __call__(self, us: Patches, parallel: ParallelMap = SEQUENTIAL) -> list[Patch]:
        return [self._respond(u) for u in apart(us)]

    def _respond(self, u: Patch) -> Patch:
        xp = self._xp
        seen, rows, columns = self._windows.among([u])
        d = correlate(seen, self._taps, xp)
        v = correlate(xp.einsum("bhwk,bhwk->bhw", seen, seen)[..., None], self._c, xp)[..., 0]
        d = self._answer(d, xp.sqrt(v))[:, :, : _length(columns)]
        return Patch(d, rows, columns, self.out)


class _TransformedCells(_Cells):
    whole = True

    def __init__(self, spec: SSpec, weights: SWeights, size: int, xp: ModuleType) -> None:
        self._cells = SpectralCells(spec, weights, size, 1, dense=False)
        self.out = self._cells.rows

    def __call__(self, us: Patches, parallel: ParallelMap = SEQUENTIAL) -> list[Patch]:
        maps = full(us)
        some = (maps[first : first + _TOGETHER] for first in range(0, len(maps), _TOGETHER))
        return [u for few in some for u in whole(respond(self._cells.each, [few], parallel)[0])]


class _PrunedCells(_Cells):
    def _keep(self, a: Array) -> None:
        super()._keep(a)
        self._profiles = np.sqrt([(plane * plane).sum(axis=0) for plane in a]).reshape(len(a), -1)

    def __call__(self, us: Patches, parallel: ParallelMap = SEQUENTIAL) -> list[Patch]:
        seen, rows, columns = self._windows.among(us)
        energy = self._seen(np.einsum("bhwk,bhwk->bhw", seen, seen)[..., None])
        flat = energy.reshape(-1, self._c.size)
        # einsum: BLAS sums a row in an order that depends on its place among the others
        v: Floats = np.sqrt(np.einsum("wi,i->w", flat, self._c.ravel()))
        heard = np.flatnonzero(v)
        v = v[heard]
        bound = self._profiles @ np.sqrt(flat[heard]).T
        may = bound.max(axis=0) > self._theta * _SLACK * v
        places, v = np.unravel_index(heard[may], energy.shape[:3]), v[may]  # digit, row, column of each
        windows, taps = self._seen(seen), self._taps.reshape(-1, self._taps.shape[3])
        e = np.empty((len(v), taps.shape[1]), dtype=np.float32)

        def multiply(part: slice) -> None:
            lines = windows[tuple(index[part] for index in places)].reshape(-1, len(taps))
            np.matmul(lines, taps, out=e[part])

        parts: list[slice] = []
        for first, last in pairwise(np.searchsorted(places[0], np.arange(len(seen) + 1))):
            # of a digit: a part for each thread, if there are so many
            count = max(1, min((last - first) * taps.size // _LEAST, parallel.threads))
            parts += [slice(a, b) for a, b in pairwise(np.linspace(first, last, count + 1).astype(int))]
        parallel(multiply, parts)
        responses = self._answer(e, v)
        # the smallest patch that holds the responses (places, K)
        above = responses.any(axis=1)
        digit, row, column = (index[above] for index in places)
        high, wide = _extent(np.bincount(row) > 0), _extent(np.bincount(column) > 0)
        values = np.zeros((len(seen), _length(high), _length(wide), responses.shape[1]), dtype=np.float32)
        values[digit, row - high.start, column - wide.start] = responses[above]
        return [Patch(values, _moved(high, rows.start), _moved(wide, columns.start), self.out)]


class _FewCells(_Cells):
    def __call__(self, us: Patches, parallel: ParallelMap = SEQUENTIAL) -> list[Patch]:
        xp, c, p = self._xp, self._xp.asarray(self._c).ravel(), self._windows.padding
        maps = xp.pad(full(us), ((0, 0), (p, p), (p, p), (0, 0))) if p else full(us)
        parts, counts = [(maps, xp.arange(maps.shape[3]))], [1]
        if xp is np:  # of a digit those that respond
            parts, counts = [], []
            for digit, heard in zip(maps, maps.max(axis=(1, 2)) > 0, strict=True):
                planes = np.flatnonzero(heard)
                counts.append(-(-len(planes) // _PLANES_AT_ONCE) or 1)
                each, more = divmod(len(planes), counts[-1])
                ends = (i * each + min(i, more) for i in range(counts[-1] + 1))
                parts += [(digit[None], planes[first:last]) for first, last in pairwise(ends)]
        products = iter(parallel(lambda part: self._product(*part), parts))
        e = xp.concatenate([sum(islice(products, count)) for count in counts])
        energy = xp.einsum("bhwk,bhwk->bhw", maps, maps)[..., None]
        v = xp.sqrt(self._seen(energy).reshape(len(maps), -1, len(c)) @ c)
        return whole(self._answer(e, v).reshape(len(maps), self.out, self.out, -1))

    def _product(self, maps: Array, planes: Array) -> Array:
        """Return sum a' u over some planes, (B, cells, K)."""
        taps = self._taps.take(planes, axis=2).reshape(-1, self._taps.shape[3])
        seen = self._seen(maps.take(planes, axis=3))
        return seen.reshape(len(maps), self.out**2, len(taps)) @ taps


class CLayer:
    """One layer of C-cells: (B, H, W, K) -> (B, H', W', K) float32.

    Blur and 2x2 average as the one kernel a_C that they make together, at stride 2. A kernel that is an outer
    product (Gaussian blurs are) takes two products with banded matrices. Any other takes a product per output
    row over the input rows that it sees; rows that a mirror-symmetric kernel weighs alike are added first.
    Only cells that a positive weight reaches can respond. Unless ``whole`` maps come, they are cut to what
    responds.
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

    def __call__(self, us: Patches, _parallel: ParallelMap = SEQUENTIAL) -> list[Patch]:
        """Respond to the layer before."""
        return [self._respond(u) for u in (us if self._whole else apart(us))]

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
