"""The line reader on a CUDA device: strips in, log likelihoods out; how ``kernels/lines.cu`` is fed.

The layers of strips are dealt to tiles as large as a digit's (see the kernels): the S-layers are the digits'
own over a batch of tiles, and strips of any widths go through the pass together.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from neocog.cuda.devices import number_of
from neocog.cuda.kernel import Array, Kernel, Launch, Machine, Precision, layouts, named, precision_on, up
from neocog.cuda.lanes import Timed, captured, enqueue, pinned
from neocog.cuda.launcher import Failing, gpu
from neocog.cuda.s_tensor import TensorS, Tiling, choose_for_strips
from neocog.errors import DeviceError
from neocog.network.arrays import to_numpy
from neocog.network.lines import BESIDE, NARROWEST, ROWS, LineModel, columns, log_likelihoods, strip_u0
from neocog.network.spec import INPUT_SIZE, NetworkSpec, contrast_kernel, pooled

#: Tiles of US4 of a pass, at most (a longer strip goes alone): 40 strips of eight digits, 0.5 GB of maps.
_MOST = 960
_GRAPHS, _TABLES = 128, 256  # sizes of passes and mixtures of widths that are kept
_APART = 2  # columns between two strips in the head: half of its kernels
_THREADS = 256
_SLAB, _MOST_ROWS, _FEW_ROWS = 8, 13, 3  # channels and rows of C-cells of a block, for many and few tiles
_HELD = 12 * 1024  # numbers in shared memory of such a block
_EACH, _LANES = (8, 16, 24), 16  # columns, of few to many, and channels of a block of the head
_HEAD_THREADS = 512

Integers = NDArray[np.int64]
Strips = Sequence[NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Tiles:
    """The tiles of an S-layer and of the layer before, of N strips."""

    places: NDArray[np.int32]  # (tiles, 4), see the kernels
    first: Integers  # tile of each strip, (N,)
    count: Integers  # tiles of each strip: with a dilation those of even columns, as many as of odd ones
    before: Integers  # columns of each strip in the layer before
    cells: Integers  # and in the S-layer
    size: int  # columns of a tile of the S-layer
    dilation: int  # columns between two that an S-cell sees
    beside: int  # silent columns on the left of the layer before

    def find(self, strip: Any, column: Integers) -> tuple[Integers, Integers]:
        """Return tile and column in it of a strip's columns; ``beside`` is added in the layer before."""
        at, odd = np.divmod(column, self.dilation)
        tile = np.minimum(at // self.size, self.count[strip] - 1)
        return self.first[strip] + odd * self.count[strip] + tile, at - tile * self.size


def tiles_of(widths: Integers, spec: NetworkSpec) -> list[Tiles]:
    """Deal strips whose U0 have so many columns, (N,), to tiles of US1 .. US4."""
    out: list[Tiles] = []
    source, begin = widths, INPUT_SIZE * (np.cumsum(widths) - widths)
    before = widths + 2 * spec.contrast.padding - spec.contrast.kernel + 1
    for i, s in enumerate(spec.s):
        size = spec.size(f"US{i + 1}")
        dilation, beside = (2, s.padding + BESIDE) if i == 3 else (1, s.padding)
        cells = before + 2 * beside - dilation * (s.kernel - 1)
        count = -(-cells // (dilation * size))
        first = np.cumsum(dilation * count) - dilation * count
        strip = np.repeat(np.arange(len(widths)), dilation * count)
        odd, tile = np.divmod(np.arange(len(strip)) - first[strip], count[strip])
        column = dilation * size * tile + odd - beside
        places = np.stack([begin[strip], column, source[strip], before[strip]], axis=1).astype(np.int32)
        out.append(Tiles(places, first, count, before, cells, size, dilation, beside))
        source, begin = cells, first
        if i < 3:
            before = (cells + 2 * spec.c[i].padding - spec.c[i].kernel) // (1 if i == 2 else 2) + 1
    return out


class Places(NamedTuple):
    """Where everything of strips lies whose U0 have certain widths."""

    tiles: list[Tiles]
    starts: Integers  # first column of each strip in the head, (N,)
    sizes: tuple[int, ...]  # tiles of US1 .. US4, columns of the head; rounded up, so that graphs are few
    tables: NDArray[np.int32]  # `places` of the kernels one after another, (sum of the sizes, 4)


def places_of(widths: Sequence[int], spec: NetworkSpec) -> Places:
    """Deal strips to tiles, and their columns to the head."""
    tiles = tiles_of(np.array(widths), spec)
    cells = tiles[3].cells
    starts = np.cumsum(cells + _APART) - cells
    strip = np.repeat(np.arange(len(cells)), cells)
    column = np.arange(len(strip)) - (np.cumsum(cells) - cells)[strip]
    found = np.zeros((starts[-1] + cells[-1] + _APART, 4), np.int32)
    found[starts[strip] + column, :2] = np.stack(tiles[3].find(strip, column), axis=1) + np.array([1, 0])
    own = [*(one.places for one in tiles), found]
    sizes = tuple(up(len(table), 1 << max(0, len(table).bit_length() - 2)) for table in own)
    tables = np.zeros((sum(sizes), 4), np.int32)
    for start, table in zip(np.cumsum(sizes) - sizes, own, strict=True):
        tables[start : start + len(table)] = table
    return Places(tiles, starts, sizes, tables)


class _TiledS(TensorS):
    """An S-layer whose sums do not depend on how many tiles there are."""

    def tiling(self, batch: int) -> Tiling:
        return choose_for_strips(self.shape, batch, self.machine.arch)


class LinePass:
    """The layers and the head on a machine; arrays grow as strips come, the tiles' borders stay 0."""

    def __init__(self, machine: Machine, model: LineModel, precision: Precision) -> None:
        self.machine, self.model, self.spec, self._xp = machine, model, model.spec, machine.xp
        digits, head = model.digits, model.head
        self.layouts = layouts(self.spec, digits.planes, precision)
        self._s = [_TiledS(machine, digits, i, self.layouts, precision) for i in range(4)]
        self._contrast = self._on_machine(contrast_kernel(self.spec.contrast)[:4, :4])
        self._c = [(one.shape, self._on_machine(one)) for one in map(profiles_of, digits.blurs)]
        # the last layer of the head sees the strongest responses beside its own input: own y + w3 x
        weights = (*head.weights[:2], np.concatenate([head.own[:, :, None], head.weights[2]], axis=1))
        biases = (*head.biases[:2], head.bias + head.biases[2])
        self._head = [(len(b), w.shape[2], self._on_machine(quads_of(w)), self._on_machine(b))
                      for w, b in zip(weights, biases, strict=True)]  # fmt: skip
        self.places = lru_cache(_TABLES)(partial(places_of, spec=self.spec))
        self.now: Places  # of the strips that were brought last
        self.graphs: dict[tuple[int, ...], Any] = {}  # by sizes, as long as the arrays stay
        self._room: dict[str, Array] = {}
        self._held = np.empty(0, np.int32)

    def bring(self, u0: Sequence[NDArray[np.float32]]) -> tuple[int, ...]:
        """Bring U0 (65, columns) of strips to the machine; returns the sizes that its stages need."""
        self.now = self.places(tuple(u.shape[1] for u in u0))
        parts = [self.now.tables.reshape(-1), *(u.reshape(-1).view(np.int32) for u in u0)]
        source = self._array("given", sum(map(len, parts)), dtype=np.int32)
        if hasattr(source, "set"):  # by way of pinned memory; what was sent before has arrived
            if len(self._held) < len(source):
                self._held = pinned(self.machine, self._room["given"].shape, np.int32)
            held = np.concatenate(parts, out=self._held[: len(source)])
            runtime, stream = self._xp.cuda.runtime, self._xp.cuda.get_current_stream().ptr
            address, kind = held.ctypes.data, runtime.memcpyHostToDevice
            runtime.memcpyAsync(source.data.ptr, address, held.nbytes, kind, stream)
        else:
            np.concatenate(parts, out=source)
        return self.now.sizes

    def stages(self, sizes: tuple[int, ...]) -> dict[str, tuple[Launch, ...]]:
        """Return what computes each stage of the strips that were brought."""
        given = self._room["given"]
        rows = given[: 4 * sum(sizes)].reshape(-1, 4)
        tables = [rows[end - n : end] for end, n in zip(np.cumsum(sizes).tolist(), sizes, strict=True)]
        source, out = given[rows.size :].view(np.float32), dict[str, tuple[Launch, ...]]()
        for i, (s, places) in enumerate(zip(self._s, tables[:4], strict=True)):
            count = len(places)
            ends = ((name, self.layouts[name]) for name in (s.reads, s.writes))
            before, after = (self._array(name, *own.shape(count), dtype=own.dtype) for name, own in ends)
            out[s.reads] = ((self._c_cells if i else self._contrasts)(i, source, before, places),)
            forms = s.scratch(count).items()
            scratch = {name: self._array(s.writes + name, *n, dtype=kind) for name, (n, kind) in forms}
            out[s.writes] = tuple(s.launches(count, before, after, scratch))
            source = after
        out["UC4"], out["head"] = self._heads(source, tables[4])
        return out

    def likelihoods(self) -> list[NDArray[np.float32]]:
        """Return what the stages have made of the strips: log likelihoods (T, n)."""
        ends = self.now.starts + self.now.tiles[3].cells
        logs = log_likelihoods(to_numpy(self._room["Z"][: int(ends[-1])]).T, self.model.temperature)
        return [logs[start:end] for start, end in zip(self.now.starts, ends, strict=True)]

    def maps(self) -> dict[str, NDArray[np.float32]]:
        """Return every layer's map of the only strip, as :func:`neocog.network.reference.respond_line`."""
        out = {}
        for tiles, s in zip(self.now.tiles, self._s, strict=True):
            for name, count, beside in (s.reads, tiles.before, tiles.beside), (s.writes, tiles.cells, 0):
                layout = self.layouts[name]
                tile, column = tiles.find(0, np.arange(count[0]) + beside)
                rows = slice(layout.border, layout.border + layout.size)
                maps = to_numpy(self._room[name][: len(tiles.places)])
                found = maps[tile, rows, column, : layout.planes].transpose(2, 1, 0)
                out[name] = np.ascontiguousarray(found, np.float32)
        inside = slice(_APART, _APART + int(tiles.cells[0]))
        uc4, z = (to_numpy(self._room[name][inside]).T for name in ("UC4", "Z"))
        uc4 = uc4[: 2 * self.layouts["US4"].planes]
        return {**out, "UC4": uc4.reshape(2, -1, uc4.shape[1]), "Z": z}

    def _on_machine(self, values: NDArray[Any]) -> Array:
        return self._xp.asarray(np.ascontiguousarray(values))

    def _array(self, name: str, *shape: int, dtype: Any = np.float32) -> Array:
        """Return rows of an array that grows by powers of two, and is 0 at first."""
        if name not in self._room or len(self._room[name]) < shape[0]:
            self._room.pop(name, None)
            self.graphs.clear()
            self._room[name] = self._xp.zeros((1 << (shape[0] - 1).bit_length(), *shape[1:]), dtype)
        return self._room[name][: shape[0]]

    def _contrasts(self, _: int, u0: Array, ug: Array, places: Array) -> Launch:
        layout, rows = self.layouts["UG"], 8
        defines = {
            "MAP": layout.code, "INPUT": INPUT_SIZE, "CELLS": layout.size, **named(layout, "width border"),
            "ROWS": rows, "SILENCE": self.spec.contrast.silence,
        }  # fmt: skip
        kernel = _kernel("line_contrast", defines, (rows + 6) * (layout.width + 6))
        return Launch(kernel, (-(-layout.size // rows), len(places), 1), (u0, ug, self._contrast, places))

    def _c_cells(self, layer: int, us: Array, uc: Array, places: Array) -> Launch:
        """The launch of UC1 .. UC3; how many rows a block takes does not change a cell's sum."""
        s, c = self.layouts[f"US{layer}"], self.layouts[f"UC{layer}"]
        (rank, _, taps), profiles = self._c[layer - 1]
        few = -(-c.size // _MOST_ROWS) * len(places) * s.channels // _SLAB < self.machine.processors
        # of many, 32 bytes of a place a block: what memory gives at a time
        slab = 2 * _SLAB if s.code and s.channels % (2 * _SLAB) == 0 and not few else _SLAB
        line = rank * slab * (2 * (c.width - 1) + taps)  # numbers that a row of cells holds
        most, slabs = max(1, min(_MOST_ROWS, _HELD // line)), s.channels // slab
        rows = min(most, _FEW_ROWS) if few else -(-c.size // -(-c.size // most))
        defines = {
            "MAP": s.code, **named(s, "size channels"), "OUT": c.size, **named(c, "width border"),
            "UC_CHANNELS": c.channels, "TAPS": taps, "RANK": rank, "FIRST": -self.spec.c[layer - 1].padding,
            "STRIDE": 1 if layer == 3 else 2, "PSI": int(self.model.digits.psi == "ratio"),
            "ROWS": rows, "SLAB": slab,
        }  # fmt: skip
        kernel = _kernel("line_c", defines, rows * line + 2 * rank * taps)
        return Launch(kernel, (-(-c.size // rows), len(places), slabs), (us, uc, profiles, places))

    def _heads(self, us4: Array, places: Array) -> tuple[tuple[Launch, ...], tuple[Launch, ...]]:
        layout, count = self.layouts["US4"], len(places)
        widths = [4 * len(packed) // taps for _, taps, packed, _ in self._head]  # of the layers' inputs
        names = {"UC4": widths[0], "inner": widths[1], "last": widths[2], "Z": self._head[2][0]}
        arrays = [self._array(name, count, width) for name, width in names.items()]
        defines = {**named(layout, "size channels planes"), "SEEN": widths[0], "LAST": widths[2]}
        peaks = Launch(_kernel("line_peaks", defines, 0), (count, 1, 1), (us4, places, arrays[0], arrays[2]))
        layers = []
        for i, (out, taps, packed, bias) in enumerate(self._head):
            slices = -(-out // _LANES)
            most = max(1, self.machine.processors // slices)  # groups of columns at work at once
            held = {n: _HEAD_THREADS * n + (n + taps - 1) * widths[i] for n in _EACH}
            fitting = [n for n in _EACH if 4 * held[n] <= self.machine.shared] or _EACH[:1]
            each = next((n for n in fitting if -(-count // n) <= most), fitting[-1])
            defines = {
                "IN": widths[i], "OUT": out, "TAPS": taps, "FROM": layout.planes if i == 1 else 0,
                "LAST": arrays[i + 1].shape[1], "RELU": int(i < 2), "EACH": each, "LANES": _LANES,
            }  # fmt: skip
            kernel = _kernel("line_convolution", defines, held[each], _HEAD_THREADS)
            args = (arrays[i], packed, bias, places, arrays[i + 1], np.int32(count))
            layers.append(Launch(kernel, (min(-(-count // each), most), slices, 1), args))
        return (peaks,), tuple(layers)


def quads_of(weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return weights (out, in, taps) as the head's kernel takes them: (taps x in / 4, out, 4), in padded."""
    out, inputs, taps = weights.shape
    padded = np.zeros((taps, up(inputs, 4), out), np.float32)
    padded[:, :inputs] = weights.transpose(2, 1, 0)
    return np.ascontiguousarray(padded.reshape(-1, 4, out).transpose(0, 2, 1))


def profiles_of(blur: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a_C of a blur as a sum of outer products, (rank, 2, taps): down the columns, along the rows."""
    u, sigma, vt = np.linalg.svd(pooled(blur.astype(np.float64)))
    rank = max(1, int((sigma > 1e-7 * sigma[0]).sum()))  # what is below is the blur's rounding
    return np.stack([u.T[:rank] * sigma[:rank, None], vt[:rank]], axis=1).astype(np.float32)


def _kernel(name: str, defines: dict[str, Any], held: int, threads: int = _THREADS) -> Kernel:
    options = (*defines.items(), ("THREADS", threads))
    return Kernel("lines.cu", name, options, threads, 4 * held, registers=128)  # so many numbers


class CudaLineEngine:
    """A line model, ready to read strips on a GPU: ``"cuda"`` (the first one) or ``"cuda:N"``.

    Its methods are those of :class:`neocog.network.line_engine.LineEngine`. One thread after another may use
    it. DeviceError if the device cannot be used, UsageError if there is no such precision.
    """

    def __init__(self, model: LineModel, *, device: str = "cuda", precision: str | None = None) -> None:
        self.model, self.device = model, device
        self.precision = precision_on(0, precision or "fp32")
        self._gpu = gpu(number_of(device))
        if self._gpu.arch < 80:
            raise DeviceError(f"device '{device}': lines need compute capability 8.0; use --device cpu")
        self._lock = threading.Lock()
        with Failing(self._gpu, device), self._gpu.current():
            self._stream = self._gpu.xp.cuda.Stream(non_blocking=True)
            with self._stream:
                self._pass = LinePass(self._gpu, model, self.precision)
        self.likelihoods([np.zeros((ROWS, NARROWEST), np.float32)])  # builds the kernels

    @property
    def where(self) -> str:
        return f"{self.device} ({self._gpu.name})"

    def likelihoods(self, strips: Strips) -> list[NDArray[np.float32]]:
        """Return log likelihoods (columns(w), n) of strips (48, w): ink 0 .. 1 as floats, or uint8, ink 255.

        No strip's answer depends on the others. InputError as :func:`neocog.network.lines.strip_u0`,
        DeviceError if the device fails.
        """
        found: list[NDArray[np.float32]] = []
        with self._working():
            parts = self._parts(strips)
            part = next(parts, None)
            while part is not None:
                self._run(part)
                try:
                    part = next(parts, None)  # while the device is at work
                finally:  # a wrong strip must not leave a copy from pinned memory at work
                    found += self._pass.likelihoods()
        return [logs[: columns(strip.shape[1])] for logs, strip in zip(found, strips, strict=True)]

    def maps(self, strip: NDArray[Any]) -> dict[str, NDArray[np.float32]]:
        """Return every layer's map of a strip, as :func:`neocog.network.reference.respond_line`, float32."""
        u0 = strip_u0(strip)
        with self._working():
            self._run([u0])
            return {"U0": u0[None], **self._pass.maps()}

    def stage_times(self, strips: Strips, *, repeats: int = 20) -> dict[str, NDArray[np.float64]]:
        """Return milliseconds of each stage for strips, ``repeats`` of them by stage name, of the first pass.

        ``total`` is :meth:`likelihoods`, ``launch`` what of it is none of the kernels'.
        """
        with self._working():
            part = next(self._parts(strips))
            stages = self._pass.stages(self._pass.bring(part)).items()
            timed = {name: Timed(self._gpu, partial(enqueue, self._gpu, launches), stream=self._stream)
                     for name, launches in stages}  # fmt: skip
            times = {name: np.array([one.elapsed() for _ in range(repeats)]) * len(strips) / len(part)
                     for name, one in timed.items()}  # fmt: skip
        marks = [(time.perf_counter(), self.likelihoods(strips))[0] for _ in range(repeats + 1)]
        total = 1e3 * np.diff(marks)
        return {**times, "launch": total - np.sum(list(times.values()), axis=0), "total": total}

    @contextmanager
    def _working(self) -> Iterator[None]:
        with Failing(self._gpu, self.device), self._lock, self._gpu.current(), self._stream:
            yield

    def _run(self, u0: Sequence[NDArray[np.float32]]) -> None:
        """Launch the graph of a pass, made for the first of its sizes."""
        sizes, graphs = self._pass.bring(u0), self._pass.graphs
        if sizes not in graphs:
            launches = [one._replace(kernel=replace(one.kernel, carveout=True))
                        for stage in self._pass.stages(sizes).values() for one in stage]  # fmt: skip
            self._gpu.prepare(launch.kernel for launch in launches)
            if len(graphs) == _GRAPHS:
                graphs.clear()
            graphs[sizes] = captured(self._stream, partial(enqueue, self._gpu, launches))
        graphs[sizes].launch(self._stream)

    def _parts(self, strips: Strips) -> Iterator[list[NDArray[np.float32]]]:
        """Yield U0 of the strips that go through the pass together."""
        part, tiles = list[NDArray[np.float32]](), 0
        for u in map(strip_u0, strips):
            own = self._pass.places((u.shape[1],)).sizes[3]
            if part and tiles + own > _MOST:
                yield part
                part, tiles = [], 0
            part.append(u)
            tiles += own
        if part:
            yield part
