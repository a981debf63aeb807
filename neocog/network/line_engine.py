"""The line engine on the CPU: strips in, log likelihoods of characters out; every layer's maps; times.

A layer makes of each strip's maps (H, W, K) parts of work, which are the same whatever else there is to do:
nothing beside a strip in a batch, and no number of threads, changes a bit of its answer. Threads take the
same part of several strips one after another, whose weights (30 MB in all) are then near. Blurs and
transforms along a strip work on tiles of so many columns: one small matrix serves any width. Tiles in which
nothing is heard are left out.

`_SpectralCells`, for US2 .. US4. Along a written line nearly all windows hear something: of those of US3 the
bounds of :mod:`neocog.network.layers` leave out 3 to 15 in 100. A direct product takes kernel^2 K' K
multiplications a window, 0.3 and 0.5 thousand million in US3 and US4 for five digits. The discrete Fourier
transform, over whole columns and tiles of 16, turns a correlation into one product for each frequency, out(f)
= conj(a(f)) u(f), for all tiles together: an eighth of the multiplications, four real ones each. A part of
the work are the frequencies of a few rows, from the transform along the strip to its inverse: they stay in a
core's cache. A dilated layer sees its even and its odd columns as two tiles.

`_PlainCells`, where the layer before has few planes (US1) or a transform does not fit: windows that hear
anything are copied out, a few rows at a time.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from neocog.errors import DeviceError
from neocog.network.lines import BESIDE, Head, LineModel, columns, log_likelihoods, strip_u0
from neocog.network.model import SWeights, s_constants
from neocog.network.parallel import ParallelMap, one_blas_thread
from neocog.network.spec import INPUT_SIZE, ContrastSpec, CSpec, Psi, SSpec, banded, contrast_kernel, pooled

Floats = NDArray[np.float32]
Part = Callable[[], None]
#: Takes maps; returns what it responds, once all parts of work are done: those of a list in any order.
Layer = Callable[[Any], tuple[Any, list[list[Part]]]]

_TILE = 16  # columns that a transform takes: 16 and 14 are the fastest of 10 .. 32 for US2 .. US4
_PLANES = 8  # planes before from which on a transform is the faster way
MAX_VALUES = 2**25  # of a layer's transformed weights; `neocog` has 4.3 million at most
#: A transform rounds to 1e-7 of what a tile hears; a cell that hears nearly nothing divides that by its s.
_LEAST_SILENCE = 1e-4  # those of `neocog` are 6e-4 at least, of `fukushima` 2e-6
_GROUP = 4  # strips that pass through the layers together, or as many as there are threads
_BLOCK = 2**18  # values of the windows of a plain product: they stay in the cache


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
        found = (self._across @ as_strided(wide, shape, (r, y, x * _TILE * s, x, one))).sum(axis=0)
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


class _PlainCells:
    """S-cells, (H, W, K') -> (rows, W', K), by products of the windows that hear anything."""

    def __init__(self, spec: SSpec, weights: SWeights, rows: int, dilation: int) -> None:
        self._kernel, self._step, self._more = spec.kernel, dilation, (spec.kernel - 1) * dilation
        self._above, self._beside = spec.padding, BESIDE if dilation > 1 else spec.padding
        self.rows = rows + 2 * spec.padding - spec.kernel + 1
        c = np.zeros((spec.kernel, self._more + 1))
        c[:, ::dilation] = weights.c
        bands = [banded(row, _TILE + self._more, 0, 1).T for row in c]
        self._bands = _float32(np.concatenate(bands))  # from what a tile sees to its cells
        a, self._theta, self._silence = s_constants(weights)
        self._keep(a, rows)

    def _keep(self, a: Floats, _rows: int) -> None:
        self._taps = _float32(a.transpose(2, 3, 1, 0)).reshape(-1, len(a))

    def _inhibition(self, u: Floats) -> Floats:
        """Return v (rows, W', 1) of maps with all that windows see, silence as well, (H, W, K')."""
        energy, cells = np.einsum("hwk,hwk->hw", u, u), u.shape[1] - self._more
        tiles = -(-cells // _TILE)
        energy = np.pad(energy, ((0, 0), (0, tiles * _TILE - cells)))
        y, x = energy.strides
        shape = self.rows, tiles, self._kernel, _TILE + self._more
        seen = as_strided(energy, shape, (y, x * _TILE, y, x)).reshape(self.rows * tiles, -1)
        return np.sqrt(seen @ self._bands).reshape(self.rows, -1, 1)[:, :cells]

    def _respond(self, e: Floats, v: Floats) -> Floats:
        """Turn e = sum a' u, (.., K), into the response, in place; v is (.., 1)."""
        v[v == 0] = np.inf  # what rounding left of e where nothing is heard is no response
        e -= self._theta * v
        np.maximum(e, 0, out=e)
        e /= v + self._silence
        return e

    def __call__(self, u: Floats) -> tuple[Floats, list[list[Part]]]:
        wide = np.pad(u, ((self._above, self._above), (self._beside, self._beside), (0, 0)))
        v, (y, x, one), k = self._inhibition(wide), wide.strides, self._kernel
        shape = *v.shape[:2], k, k, wide.shape[2]
        windows = as_strided(wide, shape, (y, x, y, x * self._step, one))
        out = np.zeros((*v.shape[:2], len(self._silence)), np.float32)
        block = max(1, _BLOCK // (v.shape[1] * len(self._taps)))

        def respond(start: int) -> None:
            row, column = np.nonzero(v[start : start + block, :, 0])
            heard = row + start, column
            e = windows[heard].reshape(-1, len(self._taps)) @ self._taps
            out[heard] = self._respond(e, v[heard])

        return out, [[partial(respond, start) for start in range(0, self.rows, block)]]


class _SpectralCells(_PlainCells):
    """The same by the discrete Fourier transform."""

    @staticmethod
    def fits(spec: SSpec, weights: SWeights, rows: int) -> bool:
        """Whether it is the faster way, its weights are not too many, and its rounding is not heard."""
        planes, before = weights.reference.shape[:2]
        values = ((rows + 2 * spec.padding) // 2 + 1) * _TILE * before * 2 * planes
        fast = before >= _PLANES and values <= MAX_VALUES
        return bool(fast and s_constants(weights)[2].min() >= _LEAST_SILENCE)

    def _keep(self, a: Floats, rows: int) -> None:
        self._cells, high, (planes, before) = _TILE - self._kernel + 1, rows + 2 * self._above, a.shape[:2]
        down, across = _dft(high)[: high // 2 + 1], _dft(_TILE)  # the others are conjugates
        twice = np.where(2 * np.arange(len(down)) % high, 2, 1)[:, None] / high
        self._down = _float32(_parts(down[:, self._above : self._above + rows]).reshape(-1, rows))
        self._up = _float32(_parts(down[:, : self.rows] * twice).reshape(-1, self.rows).T)
        self._across = _float32(_complex(across).reshape(2 * _TILE, -1))
        back = _complex(across.conj().T[: self._cells] / _TILE).transpose(1, 0, 3, 2)
        self._back = _float32(back.reshape(2 * self._cells, -1))
        taps = np.einsum("fy,gx->fgyx", down[:, : self._kernel], across[:, : self._kernel])
        a = a.transpose(2, 3, 1, 0).reshape(-1, before * planes)
        spectra = _float32(_parts(taps.reshape(-1, len(a))).reshape(-1, len(a))) @ a
        spectra = spectra.reshape(len(down), _TILE, 2, before, planes).transpose(0, 1, 3, 2, 4)
        self._weights = _float32(spectra.reshape(len(down), _TILE, before, 2 * planes))

    def __call__(self, u: Floats) -> tuple[Floats, list[list[Part]]]:
        (high, w, before), planes, count = u.shape, len(self._silence), len(self._weights)
        step, cells = self._step, self._cells
        columns = w + 2 * self._beside - self._more
        tiles = -(-columns // (step * cells))
        wide = np.zeros((high + 2 * self._above, tiles * cells * step + self._more, before), np.float32)
        maps = wide[self._above : self._above + high]
        maps[:, self._beside : self._beside + w] = u
        v = self._inhibition(wide).reshape(self.rows, tiles, cells * step, 1)
        heard = np.flatnonzero(v.any(axis=(0, 2, 3)))
        spectra = (self._down @ maps.reshape(high, -1)).reshape(count, 2, -1, before)
        f, part, x, one = spectra.strides
        shape = count, 2, _TILE, tiles, step, before
        in_tiles = as_strided(spectra, shape, (f, part, x * step, x * step * cells, x, one))
        found = np.empty((count, 2, len(heard), cells, step * planes), np.float32)
        out = np.zeros((self.rows, tiles, cells * step, planes), np.float32)
        block = max(1, 160 // planes)  # frequencies, and tiles, of a part of the work
        some = max(1, 2**16 // (self.rows * cells * step * planes))

        def frequencies(start: int) -> None:
            own = slice(start, min(start + block, count))
            n, rows = own.stop - start, len(heard) * step
            seen = in_tiles[own][:, :, :, heard].reshape(n, 2 * _TILE, -1)
            parts = (self._across @ seen).reshape(n, _TILE, 2 * rows, before)
            products = (parts @ self._weights[own]).reshape(n, _TILE, 2, rows, 2, planes)
            sums = np.empty((n, _TILE, 2, rows, planes), np.float32)
            np.add(products[:, :, 0, :, 0], products[:, :, 1, :, 1], out=sums[:, :, 0])
            np.subtract(products[:, :, 1, :, 0], products[:, :, 0, :, 1], out=sums[:, :, 1])
            back = self._back @ sums.reshape(n, 2 * _TILE, -1)
            found[own] = back.reshape(n, 2, cells, len(heard), -1).swapaxes(2, 3)

        def respond(start: int) -> None:
            own = slice(start, start + some)
            e = self._up @ found.reshape(2 * count, len(heard), -1)[:, own].reshape(2 * count, -1)
            where = heard[own]
            out[:, where] = self._respond(e.reshape(self.rows, len(where), -1, planes), v[:, where])

        first: list[Part] = [partial(frequencies, start) for start in range(0, count, block)]
        then: list[Part] = [partial(respond, start) for start in range(0, len(heard), some)]
        parts = [first, then] if len(heard) else [[], []]
        return out.reshape(self.rows, -1, planes)[:, :columns], parts


def _dft(n: int) -> NDArray[np.complex128]:
    """The matrix of the discrete Fourier transform of n numbers."""
    return np.asarray(np.exp(-2j * np.pi / n * (np.outer(np.arange(n), np.arange(n)) % n)))


def _parts(m: NDArray[np.complex128]) -> NDArray[np.float64]:
    """Real and imaginary part of a matrix, (M, N) -> (M, 2, N)."""
    return np.stack([m.real, m.imag], axis=1)


def _complex(m: NDArray[np.complex128]) -> NDArray[np.float64]:
    """A matrix as one of real numbers, (M, N) -> (M, 2, 2, N).

    The 2s are real and imaginary part: the first of the product, the second of what is multiplied.
    """
    return np.stack([_parts(m.conj()), _parts(1j * m.conj())], axis=1)


class _Head:
    """The head over columns: UC4 (2, K4, T) -> scores (n, T)."""

    def __init__(self, head: Head) -> None:
        self._taps = [_float32(w.transpose(2, 1, 0)).reshape(-1, len(w)) for w in head.weights]
        self._biases, self._own, self._bias = head.biases, head.own, head.bias[:, None]

    def __call__(self, u: Floats) -> tuple[Floats, list[list[Part]]]:
        x = _float32(u.reshape(-1, u.shape[2]).T)  # (T, 2 K4), not negative
        for taps, bias in zip(self._taps, self._biases, strict=True):
            around = len(taps) // x.shape[1] // 2
            wide = np.pad(np.maximum(x, 0), ((around, around), (0, 0)))
            x = as_strided(wide, (len(x), len(taps)), wide.strides).copy() @ taps + bias
        return self._own @ u[0] + self._bias + x.T, []


class LineEngine:
    """A line model, ready to read strips on the CPU; DeviceError if ``device`` is another.

    It runs on ``threads``, all cores by default. UsageError if ``threads`` is below 1.
    """

    precision = "fp32"

    def __init__(self, model: LineModel, *, device: str = "cpu", threads: int | None = None) -> None:
        if device != "cpu":
            raise DeviceError(f"device {device!r}: this engine runs on 'cpu'; use open_engine")
        self.model, self.device = model, device
        self._parallel = ParallelMap(threads)
        self.threads = self._parallel.threads
        digits, spec = model.digits, model.spec
        stages: list[tuple[str, Layer]] = [
            ("U0", lambda strip: (strip_u0(strip)[..., None], [])),
            ("UG", _Contrast(spec.contrast)),
        ]
        rows = spec.size("UG")
        for i, (s, weights) in enumerate(zip(spec.s, digits.s, strict=True)):
            way = _SpectralCells if _SpectralCells.fits(s, weights, rows) else _PlainCells
            cells = way(s, weights, rows, 2 if i == 3 else 1)
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
        """The device, for people."""
        return f"cpu, {self.threads} threads"

    def likelihoods(self, strips: Sequence[NDArray[Any]]) -> list[Floats]:
        """Return log likelihoods of each strip's columns, (columns(w), n) float32, n - 1 being the blank.

        Strips are (48, w), ink as floats 0 .. 1 or uint8, ink 255; InputError if one is not.
        """
        out = []
        for some in self._groups(strips):
            ((_, scores),) = deque(self._pass(some), maxlen=1)
            logs = (log_likelihoods(z, self.model.temperature) for z in scores)
            out += [one[: columns(strip.shape[1])] for strip, one in zip(some, logs, strict=True)]
        return out

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
            spent = {name: 0.0 for name, _ in self._stages}
            for some in self._groups(strips):
                last = time.perf_counter()
                for name, _ in self._pass(some):
                    now = time.perf_counter()
                    spent[name] += now - last
                    last = now
            passes.append([*spent.values(), sum(spent.values())])
        return dict(zip([*spent, "total"], 1e3 * np.array(passes[2:]).T, strict=True))

    def _groups(self, strips: Sequence[NDArray[Any]]) -> Iterator[Sequence[NDArray[Any]]]:
        size = max(_GROUP, self.threads)
        return (strips[first : first + size] for first in range(0, len(strips), size))

    def _pass(self, strips: Sequence[NDArray[Any]]) -> Iterator[tuple[str, list[Any]]]:
        """Yield what each layer responds to some strips."""
        us: list[Any] = list(strips)
        with one_blas_thread():
            for name, layer in self._stages:
                begun = self._parallel(layer, us)
                for steps in zip(*(parts for _, parts in begun), strict=True):
                    same = (part for parts in zip_longest(*steps) for part in parts if part)
                    self._parallel(lambda part: part(), list(same))
                us = [u for u, _ in begun]
                yield name, us
