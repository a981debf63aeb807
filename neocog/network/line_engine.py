"""The line engine on the CPU: strips in, log likelihoods of characters out; every layer's maps; times.

A layer makes of each strip's maps (H, W, K) parts of work, which are the same whatever else there is to do:
nothing beside a strip in a batch, and no number of threads, changes a bit of its answer. Threads take the
same part of several strips one after another, whose weights (32 MB in all) are then near. Blurs and
transforms along a strip work on tiles of so many columns: one small matrix serves any width. Tiles in which
nothing is heard are left out.

`SpectralCells`, for US2 .. US4, of digits for US2 and US3. A direct product takes kernel^2 K' K
multiplications a window, 0.3 and 0.5 thousand million in US3 and US4 for five digits. The discrete Fourier
transform, over tiles of rows and columns, turns a correlation into products, out(f) = conj(a(f)) u(f),
for all tiles together: an eighth of the multiplications, four real ones each. A part of the work are the
frequencies of a few rows, from the transform along the strip to its inverse: they stay in a core's cache.
One or two digits make 25 to 40 of 100 planes of UC3 respond: weights of the others are not read. A dilated
layer sees its even and its odd columns as two tiles.

`_PlainCells`, where the layer before has few planes (US1) or a transform does not fit.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise, zip_longest
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocog.network.lines import BESIDE, Head, LineModel, columns, log_likelihoods, strip_u0
from neocog.network.model import SWeights, s_constants
from neocog.network.parallel import ParallelMap, one_blas_thread
from neocog.network.spec import INPUT_SIZE, ContrastSpec, CSpec, Psi, SSpec, banded, contrast_kernel, pooled

Floats = NDArray[np.float32]
Part = Callable[[], None]
#: Takes maps; returns what it responds, once all parts of work are done: those of a list in any order.
Layer = Callable[[Any], tuple[Any, list[list[Part]]]]

# `network.constants` of commit 8d6a4da1 times _TILE, _PLANES, _MANY, _FEW, _MOST_ROWS and _BLOCK
_TILE = 16  # columns that a transform takes
_PLANES = 8  # planes before from which on a transform is the faster way
MAX_VALUES = 2**25  # of a layer's transformed weights; `neocog` has 4.3 million at most
#: A transform rounds to 1e-7 of what a tile hears; a cell that hears nearly nothing divides that by its s.
_LEAST_SILENCE = 1e-4  # those of `neocog` are 6e-4 at least, of `fukushima` 2e-6
_MANY, _FEW = 64, 0.75  # planes before, and the share of them heard, below which the others are left out
_MOST_ROWS = 24  # of a tile: fewer and larger tiles take fewer products, but more weights
_GROUP = 4  # strips that pass through the layers together, or as many as there are threads
_BLOCK = 2**18  # values of a part of the work: they stay in the cache
_NEVER = np.float32(1e30)  # an inhibition that nothing overcomes


def strided(a: Any, shape: Sequence[int], strides: Sequence[int], xp: ModuleType = np) -> NDArray[Any]:
    """Return a view; NumPy's as_strided takes 7 us, for which other threads of Python wait."""
    if xp is np and a.flags.c_contiguous:
        return np.ndarray(shape, a.dtype, a, 0, strides)
    view: NDArray[Any] = xp.lib.stride_tricks.as_strided(a, shape, strides)
    return view


def _float32(m: NDArray[Any]) -> Floats:
    return np.ascontiguousarray(m, dtype=np.float32)


class _Separable:
    """Correlation of maps (H, W, K) of any width with a kernel: a sum of products of two profiles."""

    def __init__(
        self, kernel: NDArray[Any], rows: int, padding: int, stride: tuple[int, int], kind: Any = np.float32
    ) -> None:
        u, sigma, across = np.linalg.svd(kernel)
        down, rank = u.T * sigma[:, None], int((sigma > sigma[0] * np.finfo(kind).eps).sum())
        if rank > 1 and kind is np.float32:  # row by row: else rounding would hear where the kernel is 0
            down, across, rank = np.eye(len(kernel)), kernel, len(kernel)
        self._padding, self._stride, self._kernel = padding, stride[1], len(kernel)
        self._down = np.stack([banded(row, rows, padding, stride[0]) for row in down[:rank]]).astype(kind)
        seen = (_TILE - 1) * stride[1] + len(kernel)  # columns that a tile sees
        bands = np.stack([banded(row, seen, 0, stride[1]) for row in across[:rank]])
        self._across = bands[:, None, None].astype(kind)

    def __call__(self, u: NDArray[Any]) -> NDArray[Any]:
        (h, w, k), (rank, rows, _), s = u.shape, self._down.shape, self._stride
        out = (w + 2 * self._padding - self._kernel) // s + 1
        tiles, seen = -(-out // _TILE), self._across.shape[-1]
        half = self._down.reshape(-1, h) @ u.astype(self._down.dtype, copy=False).reshape(h, -1)
        half = half.reshape(rank, rows, w, k)
        half = half.swapaxes(1, 3) if k == 1 else half  # products with all rows at once
        wide = np.zeros((rank, half.shape[1], (tiles - 1) * _TILE * s + seen, half.shape[3]), half.dtype)
        wide[:, :, self._padding : self._padding + w] = half
        shape = rank, half.shape[1], tiles, seen, half.shape[3]
        r, y, x, one = wide.strides
        found = (self._across @ strided(wide, shape, (r, y, x * _TILE * s, x, one))).sum(axis=0)
        cells: NDArray[Any] = found.reshape(half.shape[1], -1, half.shape[3])[:, :out]
        return cells.swapaxes(0, 2) if k == 1 else cells


class _Contrast:
    """UG: U0 (65, W, 1) -> (71, W + 6, 2), in float64 as :class:`neocog.network.layers.ContrastLayer`."""

    def __init__(self, spec: ContrastSpec) -> None:
        self._silence = spec.silence
        self._blur = _Separable(contrast_kernel(spec), INPUT_SIZE, spec.padding, (1, 1), np.float64)

    def __call__(self, u: Floats) -> tuple[Floats, list[list[Part]]]:
        y = self._blur(u)
        signed = np.where(np.abs(y) > self._silence, y, 0).astype(np.float32)
        return np.concatenate([np.maximum(signed, 0), np.maximum(-signed, 0)], axis=2), []


class _C:
    """C-cells: (H, W, K) -> (H', W', K); ``across`` is the stride over columns."""

    def __init__(self, spec: CSpec, blur: Floats, rows: int, psi: Psi, across: int) -> None:
        kernel = pooled(blur.astype(np.float64))
        self._psi, self._blur = psi, _Separable(kernel, rows, spec.padding, (spec.stride, across))

    def __call__(self, u: Floats) -> tuple[Floats, list[list[Part]]]:
        y = self._blur(u)
        np.maximum(y, 0, out=y)
        return np.sqrt(y) if self._psi == "sqrt" else y / (1 + y), []


def taps_of(a: Any, xp: ModuleType = np) -> Any:
    """Return weights (K, K', kernel, kernel) as :func:`correlate` takes them, (kernel, kernel, K', K)."""
    return xp.ascontiguousarray(a.transpose(3, 2, 1, 0))


def correlate(u: Any, taps: Any, xp: ModuleType = np) -> Any:
    """Correlate maps (B, H, W, K') with taps: (B, H - kernel + 1, from W - kernel + 1 on, K).

    Copying each window out would write each input kernel^2 times. Here rows are expanded along y only, E[b,
    y, x, ky, :] = u[b, y + ky, x, :]. A window is then the contiguous run E[b, y, x : x + kernel], and all
    windows with x = r (mod kernel) form a matrix whose rows follow one another in E: kernel products, no
    further copy. Columns beyond the cells hold nothing of use.
    """
    (n, high, wide, before), k = u.shape, len(taps)
    rows, pitch, run = high - k + 1, -(-wide // k), k * before
    size = n * rows * pitch * k * run
    flat = xp.zeros(size + k * run, dtype=np.float32)  # E, and a window's length of slack behind it
    e = flat[:size].reshape(n, rows, pitch * k, k, before)
    if before == 2:  # a cell's pair of planes moves as one number
        e, u = e.view(np.float64), u.view(np.float64)
    b, y, x, one = u.strides
    e[:, :, :wide] = strided(u, (n, rows, wide, k, u.shape[3]), (b, y, x, y, one), xp)
    out = xp.empty((n * rows * pitch, k, taps.shape[3]), dtype=np.float32)
    taps, by_r = taps.reshape(k * run, -1), out.swapaxes(0, 1)
    if xp is np:
        windows = strided(flat, (k, len(out), k * run), (run * 4, k * run * 4, 4))
        np.matmul(windows, taps, out=by_r)
    else:  # CuPy would copy the windows
        for r in range(k):
            xp.matmul(flat[r * run : r * run + size].reshape(-1, k * run), taps, out=by_r[r])
    return out.reshape(n, rows, pitch * k, -1)


class Saturation:
    """Turns sums e = sum a' u, (.., K), into max(0, e - theta' v) / (v + s), in place; v is (..)."""

    def __init__(self, theta: np.float32, silence: Any, xp: ModuleType = np) -> None:
        none = xp.zeros_like(silence)
        self._xp, self._taken, self._sums = xp, xp.stack([none + theta, none]), xp.stack([none + 1, silence])

    def __call__(self, e: Any, v: Any) -> Any:
        # Where nothing is heard, what rounding left of e is no response. A product gives theta' v, and one v
        # + s, of every plane, and max(e, theta' v) - theta' v is the same: broadcasting over planes is slow.
        xp = self._xp
        heard = xp.ones((v.size, 2), dtype=np.float32)
        heard[:, 0] = (v + (v <= 0) * _NEVER).ravel()
        taken = (heard @ self._taken).reshape(e.shape)
        xp.maximum(e, taken, out=e)
        e -= taken
        e /= (heard @ self._sums).reshape(e.shape)
        return e


class _PlainCells:
    """S-cells, (H, W, K') -> (rows, W', K), by products with all windows heard, see :func:`correlate`."""

    def __init__(self, spec: SSpec, weights: SWeights, rows: int, dilation: int, dense: bool) -> None:
        self._kernel, self._step, self._more = spec.kernel, dilation, (spec.kernel - 1) * dilation
        self._above, self._beside = spec.padding, BESIDE if dilation > 1 else spec.padding
        self.rows, self._dense = rows + 2 * spec.padding - spec.kernel + 1, dense
        c = np.zeros((spec.kernel, self._more + 1))
        c[:, ::dilation] = weights.c
        bands = [banded(row, _TILE + self._more, 0, 1).T for row in c]
        self._bands = _float32(np.concatenate(bands))  # from what a tile sees to its cells
        a, theta, silence = s_constants(weights)
        self._planes, self._answer = len(a), Saturation(theta, silence)
        self._keep(a)

    def _keep(self, a: Floats) -> None:
        self._taps = taps_of(a)

    def _heard(self, u: Floats, high: int, wide: int) -> tuple[Floats, Floats]:
        """Return maps (.., H, W, K) among silence, of so many rows and columns, and v of all windows."""
        (*n, h, w, _), k, more = u.shape, self._kernel, self._more
        seen = np.zeros((*n, high, wide, u.shape[-1]), np.float32)
        seen[..., self._above : self._above + h, self._beside : self._beside + w, :] = u
        rows, tiles = high - k + 1, -(-(wide - more) // _TILE)
        energy = np.zeros((*n, high, tiles * _TILE + more), np.float32)
        energy[..., :wide] = np.einsum("...k,...k->...", seen, seen)
        *apart, y, x = energy.strides
        windows = strided(energy, (*n, rows, tiles, k, _TILE + more), (*apart, y, x * _TILE, y, x))
        v = windows.reshape(*n, rows * tiles, -1) @ self._bands
        return seen, np.sqrt(v, out=v).reshape(*n, rows, -1)[..., : wide - more]

    def __call__(self, u: Floats) -> tuple[Floats, list[list[Part]]]:
        k, step = self._kernel, self._step
        seen, v = self._heard(u, len(u) + 2 * self._above, u.shape[1] + 2 * self._beside)
        out = np.zeros((*v.shape, self._planes), np.float32)
        heard, among = (np.flatnonzero(v.any(axis=axis)) for axis in (1, 0))
        if not len(heard):
            return out, [[]]
        (first, last), (left, right) = ((int(places[0]), int(places[-1]) + 1) for places in (heard, among))
        block = max(1, _BLOCK // (k * (right - left + self._more) * u.shape[2]))

        def respond(start: int, parity: int) -> None:
            rows, columns = slice(start, min(start + block, last)), slice(left + parity, right, step)
            own = v[rows, columns]
            maps = seen[start : rows.stop + k - 1, left + parity : right + self._more : step]
            out[rows, columns] = self._answer(correlate(maps[None], self._taps)[0, :, : own.shape[1]], own)

        starts = range(first, last, block)
        return out, [[partial(respond, start, parity) for start in starts for parity in range(step)]]


class SpectralCells(_PlainCells):
    """The same by the discrete Fourier transform, over tiles of rows and columns."""

    @staticmethod
    def tile(spec: SSpec, rows: int) -> tuple[int, int]:
        """Rows of a tile, and how many there are: as few as can be, of _MOST_ROWS at most."""
        out = rows + 2 * spec.padding - spec.kernel + 1
        count = -(-out // (_MOST_ROWS - spec.kernel + 1))
        return -(-out // count) + spec.kernel - 1, count

    @classmethod
    def fits(cls, spec: SSpec, weights: SWeights, rows: int, *, dense: bool = True) -> bool:
        """Whether it is the faster way, its weights are not too many, and its rounding is not heard."""
        (planes, before), (high, _) = weights.reference.shape[:2], cls.tile(spec, rows)
        values = (high // 2 + 1) * max(_TILE, high) * before * 2 * planes
        # what is read for a digit alone should lie in a cache
        fast = before >= _PLANES and values <= (MAX_VALUES if dense else MAX_VALUES // 4)
        return bool(fast and s_constants(weights)[2].min() >= _LEAST_SILENCE)

    def __init__(self, spec: SSpec, weights: SWeights, rows: int, dilation: int, dense: bool) -> None:
        self._high, self._count = self.tile(spec, rows)
        self._wide = _TILE if dense else self._high
        super().__init__(spec, weights, rows, dilation, dense)

    def _keep(self, a: Floats) -> None:
        (planes, before, k, _), high, wide = a.shape, self._high, self._wide
        self._size = high - k + 1, wide - k + 1  # cells of a tile
        down, across = _dft(high)[: high // 2 + 1], _dft(wide)  # the others are conjugates
        twice = np.where(2 * np.arange(len(down)) % high, 2, 1)[:, None] / high
        self._down = _float32(_parts(down).reshape(-1, high))
        self._up = _float32(_parts(down[:, : self._size[0]] * twice).reshape(-1, self._size[0]).T)
        # of real and imaginary parts of maps; back, of those of weights times those of maps: conj(a) u
        self._across = _float32(_parts(across[:, None] * [[1], [1j]]).reshape(2 * wide, -1))
        back = across.conj().T[: self._size[1], :, None] / wide * [1, 1j, -1j, 1]
        self._back = _float32(_parts(back).swapaxes(0, 1).reshape(2 * self._size[1], -1))
        taps = np.einsum("fy,gx->fgyx", down[:, :k], across[:, :k])
        a = a.transpose(2, 3, 1, 0).reshape(-1, before * planes)
        spectra = _float32(_parts(taps.reshape(-1, len(a))).reshape(-1, len(a))) @ a
        self._weights = spectra.reshape(len(down), wide, 2, before, planes)

    def __call__(self, u: Floats) -> tuple[Floats, list[list[Part]]]:
        out, steps = self.each(u[None])
        return out[0], steps

    def each(self, u: Floats) -> tuple[Floats, list[list[Part]]]:
        """Respond to digits (B, H, W, K) or a strip; each product is of one digit: others change no bit."""
        n, planes, step, k = len(u), self._planes, self._step, self._kernel
        (cy, cx), (frequencies, wide), loud = self._size, self._weights.shape[:2], None
        if self._dense and u.shape[3] > _MANY and (heard_planes := u.max(axis=(0, 1, 2)) > 0).mean() < _FEW:
            loud = np.flatnonzero(heard_planes)  # weights of the others are not read
            u = u[..., loud]
        before, columns = u.shape[3], u.shape[2] + 2 * self._beside - self._more
        tiles = self._count, -(-columns // (step * cx)), step
        seen, v = self._heard(u, tiles[0] * cy + k - 1, tiles[1] * cx * step + self._more)
        out = (np.zeros if self._dense else np.empty)((*v.shape, planes), np.float32)  # all tiles of a digit

        def tiled(maps: Floats, wide: int, high: int) -> Floats:
            """A view: (B, a tile's column, its row, tiles down, across, of odd and even columns, ..)."""
            apart, y, x, *one = maps.strides
            strides = apart, x * step, y, y * cy, x * cx * step, x, *one
            return strided(maps, (n, wide, high, *tiles, *maps.shape[3:]), strides)

        of_v, cells = tiled(v, cx, cy), tiled(out, cx, cy)
        heard: tuple[Any, ...] = (slice(None),) * 3
        if self._dense:  # silent tiles of a strip are left out; of a digit hardly any is
            heard = np.nonzero(of_v.any(axis=(0, 1, 2)))
        own_v = of_v[:, :, :, *heard].reshape(n, cx, cy, -1)
        if not (count := own_v.shape[3]):
            return out[:, : self.rows, :columns], [[], []]
        in_tiles = tiled(seen, wide, self._high)[:, :, :, *heard].swapaxes(1, 2).reshape(n, self._high, -1)
        rows = (self._down @ in_tiles).reshape(n, frequencies, 2 * wide, -1)
        found = np.empty((n, frequencies, 2 * cx, count * planes), np.float32)

        def multiply(own: slice) -> None:
            weights = self._weights[own] if loud is None else self._weights[own].take(loud, axis=3)
            products = np.empty((n, len(weights), wide, 2, 2 * count, planes), np.float32)
            seen = (self._across @ rows[:, own]).reshape(*products.shape[:3], 1, 2 * count, before)
            near = 1, 2, 3, 0, 4, 5  # all digits, one after another, by the weights of one frequency
            np.matmul(seen.transpose(near), weights[:, :, :, None], out=products.transpose(near), order="C")
            np.matmul(self._back, products.reshape(n, len(weights), 4 * wide, -1), out=found[:, own])

        def respond(own: slice) -> None:
            e = self._up @ found.reshape(n, 2 * frequencies, cx, -1)[:, :, own].swapaxes(1, 2)
            e = self._answer(e.reshape(n, -1, cy, count, planes), own_v[:, own])
            cells[:, own][:, :, :, *heard] = e if self._dense else e.reshape(n, -1, cy, *tiles, planes)

        steps = list[list[Part]]()  # of so many rows of so many values, in parts for so many threads at least
        first, second = (frequencies, wide * 4 * n * count * planes, 4), (cx, n * cy * count * planes, 2)
        for work, (length, values, least) in (multiply, first), (respond, second):
            number = min(max(least, -(-length * values // _BLOCK)), length)
            ends = (length * i // number for i in range(number + 1))
            steps.append([partial(work, slice(*own)) for own in pairwise(ends)])
        return out[:, : self.rows, :columns], steps


def _dft(n: int) -> NDArray[np.complex128]:
    """The matrix of the discrete Fourier transform of n numbers."""
    return np.asarray(np.exp(-2j * np.pi / n * (np.outer(np.arange(n), np.arange(n)) % n)))


def _parts(m: NDArray[np.complex128]) -> NDArray[np.float64]:
    """Real and imaginary part, (M, ..) -> (M, 2, ..)."""
    return np.stack([m.real, m.imag], axis=1)


def respond(layer: Layer, us: Sequence[Any], parallel: ParallelMap) -> list[Any]:
    """Return what a layer responds to some maps (H, W, K); the same parts of all follow one another."""
    begun = parallel(layer, us)
    for steps in zip(*(parts for _, parts in begun), strict=True):
        same = (part for parts in zip_longest(*steps) for part in parts if part)
        parallel(lambda part: part(), list(same))
    return [u for u, _ in begun]


class _Head:
    """The head over columns: UC4 (2, K4, T) -> scores (n, T)."""

    def __init__(self, head: Head) -> None:
        self._taps = [_float32(w.transpose(2, 1, 0)).reshape(-1, len(w)) for w in head.weights]
        self._biases, self._own, self._bias = head.biases, head.own, head.bias[:, None]

    def __call__(self, u: Floats) -> tuple[Floats, list[list[Part]]]:
        x = np.ascontiguousarray(u.reshape(-1, u.shape[2]).T)  # (T, 2 K4), not negative
        for taps, bias in zip(self._taps, self._biases, strict=True):
            around = len(taps) // x.shape[1] // 2
            wide = np.pad(np.maximum(x, 0), ((around, around), (0, 0)))
            x = strided(wide, (len(x), len(taps)), wide.strides).copy() @ taps + bias
        return self._own @ u[0] + self._bias + x.T, []


class LineEngine:
    """A line model, ready to read strips on the CPU, on all cores or ``threads``; UsageError if below 1."""

    device, precision = "cpu", "fp32"

    def __init__(self, model: LineModel, *, threads: int | None = None) -> None:
        self.model = model
        self._parallel = ParallelMap(threads)
        self.threads = self._parallel.threads
        digits, spec = model.digits, model.spec
        stages: list[tuple[str, Layer]] = [
            ("U0", lambda strip: (strip_u0(strip)[..., None], [])),
            ("UG", _Contrast(spec.contrast)),
        ]
        rows = spec.size("UG")
        for i, (s, weights) in enumerate(zip(spec.s, digits.s, strict=True)):
            way = SpectralCells if SpectralCells.fits(s, weights, rows) else _PlainCells
            cells = way(s, weights, rows, 2 if i == 3 else 1, dense=True)
            stages.append((f"US{i + 1}", cells))
            if i < 3:
                stride = 1 if i == 2 else spec.c[i].stride
                stages.append((f"UC{i + 1}", _C(spec.c[i], digits.blurs[i], cells.rows, digits.psi, stride)))
                rows = spec.size(f"UC{i + 1}")
        # the strongest and the mean of the rows of US4 (5, T, K4): (2, K4, T)
        stages.append(("UC4", lambda u: (np.stack([u.max(axis=0).T, u.mean(axis=0).T]), [])))
        self._stages: list[tuple[str, Layer]] = [*stages, ("head", _Head(model.head))]

    @property
    def where(self) -> str:
        return f"cpu, {self.threads} threads"

    def likelihoods(self, strips: Sequence[NDArray[Any]]) -> list[Floats]:
        """Return log likelihoods of each strip's columns, (columns(w), n) float32, n - 1 being the blank.

        Strips are (48, w), ink as floats 0 .. 1 or uint8, ink 255; InputError if one is not.
        """
        scores = (z for name, us in self._pass(strips) for z in us if name == "head")
        logs = (log_likelihoods(z, self.model.temperature) for z in scores)
        return [one[: columns(strip.shape[1])] for strip, one in zip(strips, logs, strict=True)]

    def maps(self, strip: NDArray[Any]) -> dict[str, Floats]:
        """Every layer's response to a strip, by name and shape as `neocog.network.reference.respond_line`."""
        maps = {name: u for name, (u,) in self._pass([strip])}
        maps["Z"] = maps.pop("head")
        return {name: u if name in ("UC4", "Z") else u.transpose(2, 0, 1) for name, u in maps.items()}

    def stage_times(
        self, strips: Sequence[NDArray[Any]], *, repeats: int = 20
    ) -> dict[str, NDArray[np.float64]]:
        """Return milliseconds of each stage, and their ``total``, for all strips, ``repeats`` of them."""
        passes = []
        for _ in range(repeats + 2):
            spent, last = {name: 0.0 for name, _ in self._stages}, time.perf_counter()
            for name, _ in self._pass(strips):
                now = time.perf_counter()
                spent[name] += now - last
                last = now
            passes.append([*spent.values(), sum(spent.values())])
        return dict(zip([*spent, "total"], 1e3 * np.array(passes[2:]).T, strict=True))

    def _pass(self, strips: Sequence[NDArray[Any]]) -> Iterator[tuple[str, list[Any]]]:
        """Yield what each layer responds to a few strips, and then to the next few."""
        size = max(_GROUP, self.threads)
        for first in range(0, len(strips), size):
            us: list[Any] = list(strips[first : first + size])
            with one_blas_thread():
                for name, layer in self._stages:
                    us = respond(layer, us, self._parallel)
                    yield name, us
