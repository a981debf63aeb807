"""S-layers: (B, H, W, K') -> (B, H', W', K) float32, each in the way that is fastest for it.

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

the norms taken over the planes k before. The right side is a product with kernel^2 inputs instead
of kernel^2 K'. Where it leaves no plane above its threshold no cell responds, and the window is
left out: of the windows that hear anything half are, and of all windows of a layer two thirds.
The others are copied out and multiplied digit by digit: what stands beside a digit in a batch
changes nothing.

`_SpectralCells`, for US4 on the CPU: 5 x 5 cells whose windows are 9 x 9 places of 13 x 13, so
nearly every place is seen by nearly every cell: 25 products with each place's planes. A correlation
is one product for each frequency instead, out(f) = u(f) conj(a(f)), 85 complex ones for the 169
places of a real map. Four real multiplications each, they are a sixth of 25 x 81. Transforms are
products with real matrices: cosines and sines of the frequencies that are not conjugates of others.
Digits are transformed one by one, each inside its own rectangle, and multiplied together: as long
as a pass has always as many digits, what stands beside a digit changes nothing. For one digit alone
all of that is waiting for weights: half of the planes before are silent, and a plain product with
the weights of the others reads a quarter as much.
"""

from collections.abc import Callable
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided, sliding_window_view
from numpy.typing import NDArray

from neocog.network.arrays import array_module
from neocog.network.model import SWeights
from neocog.network.parallel import SEQUENTIAL, ParallelMap
from neocog.network.patch import Patch, Reach, Windows, extent, length, moved
from neocog.network.spec import SSpec

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
        if xp is np and _SpectralCells.suits(windows, *a.shape[:2]):
            self._cells = _SpectralCells(windows, a, c, theta, silence)
        elif xp is np and _PrunedCells.suits(windows, a.shape[1]):
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
        v = self._inhibition(u.values, rows, columns)
        # whole rows of (cell, plane) at a time: broadcasting over a few planes is slow
        n, height, pitch, planes = d.shape
        flat = d.reshape(n, height, -1)
        flat -= xp.repeat(self._theta * v, planes, axis=2)
        xp.maximum(flat, xp.zeros_like(flat[0, 0]), out=flat)
        v = xp.repeat(v, planes, axis=2)
        v += xp.tile(self._silence, pitch)
        flat /= v
        return Patch(d[:, :, : length(columns.out)], rows.out, columns.out, self._windows.out)

    def _inhibition(self, u: Array, rows: Reach, columns: Reach) -> Array:
        """Planes summed first, then one kernel of weights c."""
        energy = self._xp.einsum("bhwk,bhwk->bhw", u, u)[..., None]
        v = self._correlate(energy, rows, columns, self._c)[..., 0]
        return self._xp.sqrt(v, out=v)

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
        shape = (n, length(rows.out) + more, length(columns.out) + more, planes)
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

    def _laid_out(self, responses: Floats, places: Places, reached: tuple[int, slice, slice]) -> Patch:
        """Return responses (places, K) as the smallest patch that holds them."""
        digits, rows, columns = reached
        heard = responses.any(axis=1)
        digit, row, column = (index[heard] for index in places)
        high, wide = extent(np.bincount(row) > 0), extent(np.bincount(column) > 0)
        shape = (digits, length(high), length(wide), responses.shape[1])
        values = np.zeros(shape, dtype=np.float32)
        values[digit, row - high.start, column - wide.start] = responses[heard]
        return Patch(values, moved(high, rows.start), moved(wide, columns.start), self._windows.out)


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

    @staticmethod
    def suits(windows: Windows, planes: int, before: int) -> bool:
        """Whether a layer of K and K' planes is faster this way, its weights of a fair size."""
        side = windows.out + windows.kernel - 1
        few = 2 * windows.out <= windows.kernel + 1
        return few and side * side * 2 * planes * before * 4 <= _MOST_BYTES

    def __call__(self, u: Patch, _parallel: ParallelMap) -> Patch:
        """Respond to the layer before, on one thread: waking another would take as long."""
        n, side = len(u.values), self._windows.out
        d = self._excitation(u) if n > 1 else self._of_one(u)
        v = self._inhibition(u)
        d -= self._theta * v
        np.maximum(d, np.zeros_like(self._silence), out=d)
        d /= v + self._silence
        d *= v > 0  # a window that hears nothing: what rounding left there is no response
        whole = slice(0, side)
        return Patch(d.reshape(n, side, side, -1), whole, whole, side)

    def _inhibition(self, u: Patch) -> Floats:
        """Return v, (B, cells, 1)."""
        energy = np.einsum("bhwk,bhwk->bhw", u.values, u.values)
        v: Floats = np.sqrt(self._seen(u, energy).reshape(len(energy), -1, len(self._c)) @ self._c)
        return v[..., None]

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
            spectra[:, digit] = self._transformed(own)
        rows = spectra.reshape(frequencies, 1, 1, 2 * n, before)
        products = (rows @ self._weights).reshape(frequencies, 2, panels, n, 2, width)
        real, imaginary = products[:, 0], products[:, 1]  # of the weights
        out = np.empty((n, frequencies, 2, panels, width), dtype=np.float32)
        np.add(_digits(real, 0), _digits(imaginary, 1), out=out[:, :, 0])
        np.subtract(_digits(real, 1), _digits(imaginary, 0), out=out[:, :, 1])
        cells: Floats = self._backward @ out.reshape(n, 2 * frequencies, panels * width)
        return cells[:, :, : len(self._silence)]

    def _transformed(self, u: Patch) -> Floats:
        """Return the transform of one digit, (F, 2, K')."""
        padding = self._windows.padding
        rows, columns = moved(u.rows, padding), moved(u.columns, padding)
        heard = self._forward[:, :, rows, columns]
        places, before = length(rows) * length(columns), u.values.shape[3]
        spectrum: Floats = heard.reshape(-1, places) @ u.values.reshape(places, before)
        return spectrum.reshape(-1, 2, before)


def s_constants(weights: SWeights, xp: ModuleType = np) -> tuple[Array, np.float32, Array]:
    """Return what an S-layer computes with, all float32.

    With a' = a / (b (1 - theta)), theta' = theta / (1 - theta) and s = 1/(theta b) its response is
    max(0, sum a' u - theta' v) / (v + s): a' (K, K', kernel, kernel), theta', s (K,). A plane
    whose reference vector is 0 stays silent: a' = 0, s very large.
    """
    theta = weights.threshold
    x, c = xp.asarray(weights.reference), xp.asarray(weights.c)
    step = max(1, min(256, 2**22 // x[0].size))  # 32 MB of float64
    norm = xp.concatenate([_norms(x[i : i + step], c) for i in range(0, len(x), step)])
    heard = norm > 0
    safe = xp.where(heard, norm, 1)
    scale = xp.where(heard, 1 / ((1 - theta) * safe), 0).astype(np.float32)
    silence = xp.where(heard, 1 / (theta * weights.q * safe), 1e30).astype(np.float32)
    a = x * c
    a *= scale[:, None, None, None]
    return a, np.float32(theta / (1 - theta)), silence


def _norms(x: Array, c: Array) -> Array:
    """|X|_c of reference vectors (K, K', kernel, kernel), summed in float64: (K,)."""
    xp = array_module(x)
    return xp.sqrt((c.astype(np.float64) * x.astype(np.float64) ** 2).sum(axis=(1, 2, 3)))


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


def _digits(products: Floats, part: int) -> Floats:
    """Return the products (F, panels, B, 2, width) with one part of the maps, (B, F, ...)."""
    return products[:, :, :, part].transpose(2, 0, 1, 3)


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
