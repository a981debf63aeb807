"""C-cells on tensor cores: how ``kernels/c_tensor.cu`` is specialised, fed and launched."""

import math
from functools import cache
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from neocog.cuda.c_direct_sum import combined
from neocog.cuda.kernel import Array, Kernel, Launch, LayerStep, Place, named, shared_limit, tilings, up
from neocog.errors import UsageError

_MOST_TAPS = 34  # a row of a kernel then reaches over three steps of 16 columns
_WEIGHT_REGISTERS = 80  # of a thread that weights may take
_SCALES = 1025  # tried for weights that are rounded once


def register_limit(threads: int) -> int:
    """Return the registers a thread where ``threads`` share a multiprocessor's four quarters."""
    return min(255, 65536 // up(threads, 128) // 8 * 8)


class Tiling(NamedTuple):
    """How a layer is dealt to blocks."""

    stream: bool  # warps go down the input, sums moving on (c_stream); else each has a row (c_band)
    rows: int  # of cells, of a block
    groups: int  # of 16 planes, of a block
    steps: int  # pairs of input rows a stage
    stages: int  # of the ring of input rows; without ``stream`` it holds them all
    blocks: int = 1  # that share a multiprocessor


class Shape(NamedTuple):
    """What a layer asks of the kernel."""

    size: int
    channels: int
    out: int
    taps: int
    padding: int
    code: int

    @property
    def live(self) -> int:
        """Rows of cells that a pair of input rows reaches."""
        return (self.taps + 1) // 2

    @property
    def depth(self) -> int:
        """Products of depth 16 for a tile and an input row."""
        return -(-(14 + self.taps) // 16)

    @property
    def parts(self) -> int:
        """Halves of an input, and of a weight."""
        return 2 if self.code == 0 else 1

    @property
    def resident(self) -> bool:
        """Whether a thread of ``c_stream`` has registers for its share of the weights."""
        return self.parts == 1 and 2 * self.live * self.depth * 2 <= _WEIGHT_REGISTERS

    def pairs(self, rows: int) -> int:
        """Pairs of input rows that ``rows`` rows of cells see, those outside the map left out."""
        whole = (self.size - 1 + self.padding) // 2 - self.padding // 2 + 1
        return min(rows + self.live - 1, whole)

    def threads(self, t: Tiling) -> int:
        return 32 * -(-self.out // 8) * t.groups * (1 if t.stream else t.rows)

    def shared(self, t: Tiling) -> int:
        """Bytes of shared memory of a block: the ring, and weights unless they are registers."""
        seen = 16 * (-(-self.out // 8) + self.depth - 1)
        line = up(max(self.size + self.padding, seen - self.padding), 8) * 32
        ring = t.stages * 2 * t.steps * t.groups * line + max(seen * 32 - line, 0)
        row_words = self.parts * 32 * 2 * self.depth  # of packed weights
        weights = 0 if t.stream and self.resident else (2 * self.live + 1) * row_words * 4
        return self.parts * ring + weights


@cache
def choose(shape: Shape, batch: int, arch: int) -> Tiling:
    """Return the tiling of this shape, or of the nearest one that fits; a UsageError if none does."""
    some, groups = [], -(-shape.channels // 16)
    for row in tilings("c", shape, batch, arch):
        t = Tiling(*row)
        t = t._replace(rows=min(t.rows, shape.out), groups=math.gcd(t.groups, groups))
        some.append(t if t.stream else t._replace(steps=shape.pairs(t.rows)))
    some += [Tiling(True, shape.out, 1, 1, stages, 1) for stages in (8, 4, 2)]
    for t in some:
        if fits(shape, t, arch):
            return t
    limit = shared_limit(arch)
    raise UsageError(f"C version 'tensor' does not fit {limit} bytes of shared memory: choose box")


def fits(shape: Shape, t: Tiling, arch: int) -> bool:
    """Whether a device has the registers and the memory for a tiling."""
    threads, limit = shape.threads(t), shared_limit(arch)
    if not t.stream:
        return threads <= 768 and shape.shared(t) <= limit
    registers = (54 if shape.parts == 1 else 90) + 10 * shape.live  # about what a thread takes
    enough = threads <= 512 and registers <= register_limit(threads * t.blocks)
    return enough and t.blocks * (shape.shared(t) + 1024) <= limit + 1024


class TensorC(LayerStep):
    """UC1 .. UC3 as banded matrix products of halves on tensor cores; any blur up to 34 taps.

    Of float32 maps inputs and weights are sums of two halves.
    """

    kind = "C"
    version: ClassVar[str] = "tensor"

    def __init__(self, *place: *Place, tiling: Tiling | None = None) -> None:
        super().__init__(*place, tiling=tiling)
        a = combined(self.model.blurs[self.layer])
        if len(a) > _MOST_TAPS or self.padding >= len(a):
            has = f"{self.writes} has {len(a)}, padding {self.padding}: choose box"
            raise UsageError(f"C version 'tensor' takes kernels of up to {_MOST_TAPS} taps; {has}")
        s, t = self.source, self.target
        self.shape = Shape(s.size, s.channels, t.size, len(a), self.padding, s.code)
        scale, words = pack(a, self.shape)
        self._scale, self._weights = np.float32(scale), self.machine.xp.asarray(words)

    def tiling(self, batch: int) -> Tiling:
        return self._tiling or choose(self.shape, batch, self.machine.arch)

    def launches(self, batch: int, source: Array, target: Array, scratch: dict[str, Array]) -> list[Launch]:
        s, t, tiling = self.shape, self.target, self.tiling(batch)
        threads = s.threads(tiling)
        defines = {
            "STREAM" if tiling.stream else "BAND": 1, "MAP": s.code,
            **named(s, "size channels out"), **named(t, "width border channels", "UC_"),
            **named(s, "taps padding"), "PSI": int(self.model.psi == "ratio"),
            **named(tiling, "rows groups steps stages blocks"), **named(s, "resident"),
        }  # fmt: skip
        name, limit = "c_stream" if tiling.stream else "c_band", register_limit(threads * tiling.blocks)
        shared = s.shared(tiling)
        kernel = Kernel("c_tensor.cu", name, tuple(defines.items()), threads, shared, 80, limit)
        grid = -(-s.out // tiling.rows), -(-s.channels // (16 * tiling.groups)), batch
        return [Launch(kernel, grid, (source, target, self._weights, self._scale))]


def pack(a: NDArray[np.float64], shape: Shape) -> tuple[float, NDArray[np.uint32]]:
    """Return a scale and a_C (taps, taps) as the banded operands of its rows, in the order of a warp's lanes.

    Words are flat: row (to an even number, then one of silence), halves (fp32: two), lane, step, two words.
    """
    rows = np.zeros((2 * shape.live + 1, shape.taps))
    rows[: shape.taps] = a
    # banded[dy, column, cell] = a[dy, column - 2 cell]
    banded = np.zeros((len(rows), 16 * shape.depth, 8))
    for cell in range(8):
        banded[:, 2 * cell : 2 * cell + shape.taps, cell] = rows
    scale = _best_scale(a) if shape.parts == 1 else float(2.0 ** np.floor(np.log2(np.abs(a).max() or 1.0)))
    parts, left = [], banded / scale
    for _ in range(shape.parts):
        parts.append(left.astype(np.float16))
        left = left - parts[-1]
    bits = np.stack(parts, axis=1).reshape(len(rows), len(parts), shape.depth, 2, 4, 2, 8)
    # ... step, half of its depth, t, first or second, g -> lane 4 g + t, step, half, first, second
    lanes = np.ascontiguousarray(bits.transpose(0, 1, 6, 4, 2, 3, 5))
    return scale, lanes.view(np.uint32).reshape(-1)


def _best_scale(a: NDArray[np.float64]) -> float:
    """Return the scale at which rounding to half changes the weights and their sum least.

    The few different values of a_C err alike: so a layer errs a third as much as at a power of two.
    """
    top = float(np.abs(a).max()) or 1.0
    scales = top / np.geomspace(1.0, 2.0, _SCALES)
    errors = [(a / s).astype(np.float16).astype(np.float64) * s - a for s in scales]
    return float(scales[int(np.argmin([(e**2).sum() + e.sum() ** 2 for e in errors]))])
