"""S-cells on tensor cores: how ``kernels/s_tensor.cu`` is specialised, fed and launched."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from neocog.cuda.kernel import Array, Kernel, Launch, Layout, Machine
from neocog.cuda.steps import Precision, Step, Work, up
from neocog.errors import UsageError
from neocog.network.layers import s_constants
from neocog.network.model import Model, SWeights

#: Operand types of the kernel, MODE in its source.
_MODES: dict[Precision, int] = {"fp16": 0, "bf16": 1, "tf32": 2, "fp32": 3}
#: Shared memory that a block may have, by compute capability.
_SHARED = {75: 65536, 80: 166912, 86: 101376, 87: 166912, 89: 101376, 90: 232448, 100: 232448}


def shared_limit(arch: int) -> int:
    """Return the bytes of shared memory that a block may have."""
    return _SHARED.get(arch, 101376)


@dataclass(frozen=True, slots=True)
class Tiling:
    """How the cells, planes and window of a layer are dealt to blocks and warps.

    Attributes
    ----------
    group, rows : int
        Digits, and rows of cells of each, that a block computes.
    wm, wn, wk : int
        Warps along cells, planes and window.
    mt, nt : int
        Tiles of 16 cells x 8 planes that a warp holds.
    ksplit : int
        Blocks that share a window; divides the kernel's rows.
    stage : int
        Taps of weights in shared memory at a time.
    unroll : int
        Taps that the innermost loop unrolls.
    wgmma : bool
        Whether four warps together multiply by ``wgmma`` (sm_90a); ``wm`` is a multiple of 4 then.
    """

    group: int
    rows: int
    wm: int
    wn: int
    wk: int
    mt: int
    nt: int
    ksplit: int = 1
    stage: int = 1
    unroll: int = 1
    wgmma: bool = False

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.wm * self.wn * self.wk


@dataclass(frozen=True, slots=True)
class Shape:
    """What a layer asks of the kernel: sizes of its input, window and output."""

    kernel: int
    width: int
    channels: int
    out: int
    planes: int
    mode: int

    @property
    def pair(self) -> bool:
        """Whether the input is UG, whose windows have rows of (cell, side) as one run."""
        return self.channels == 2

    @property
    def cell_bytes(self) -> int:
        """Bytes of a cell's channels in shared memory, one of the two halves of MODE 3."""
        return self.channels * (4 if self.mode == 2 else 2)

    @property
    def steps(self) -> int:
        """Products of 32 bytes' depth a tap."""
        return (2 if self.mode == 2 else 1) if self.pair else self.cell_bytes // 32

    def taps(self, tiling: Tiling) -> int:
        """Taps of a block's part of the window."""
        return self.kernel // tiling.ksplit * (1 if self.pair else self.kernel)

    def cells(self, tiling: Tiling) -> int:
        """Cells of a block."""
        return tiling.group * tiling.rows * self.out

    def passes(self, tiling: Tiling) -> int:
        """How often a block's warps go over its cells."""
        return -(-self.cells(tiling) // (tiling.wm * tiling.mt * 16))

    def slices(self, tiling: Tiling) -> int:
        """Blocks along the planes."""
        return -(-self.planes // (8 * tiling.wn * tiling.nt))

    def blocks(self, tiling: Tiling, batch: int) -> tuple[int, int, int]:
        """Return the grid."""
        bands = -(-self.out // tiling.rows)
        return -(-batch // tiling.group) * bands, self.slices(tiling), tiling.ksplit

    def tap_words(self, tiling: Tiling) -> int:
        """32-bit words of one tap's weights for the planes of a block."""
        return self.steps * tiling.wn * tiling.nt * 64 * (2 if self.mode == 3 else 1)

    def shared(self, tiling: Tiling) -> int:
        """Bytes of shared memory of a block."""
        pitch = self.cell_bytes if self.pair else self.cell_bytes + 16
        in_rows = tiling.rows + self.kernel // tiling.ksplit - 1
        pixels = tiling.group * in_rows * self.width
        held = up(pixels * pitch + (8 * self.cell_bytes if self.pair else 0), 16)
        held *= 2 if self.mode == 3 else 1
        buffers = 2 if self.taps(tiling) > tiling.stage else 1
        held += buffers * tiling.stage * self.tap_words(tiling) * 4
        held += 4 * (up(self.cells(tiling), 4) + up(pixels, 4) + self.kernel**2)
        summed = (tiling.wk - 1) * tiling.wm * tiling.wn * tiling.mt * tiling.nt * 512
        return max(held, summed + 4 * up(self.cells(tiling), 4))


class TensorS(Step):
    """US1 .. US4 as an implicit matrix product on tensor cores.

    Parameters
    ----------
    machine : Machine
        Where to run; its architecture is 80 or above.
    model : Model
        Whose layer.
    layer : int
        0 .. 3 for US1 .. US4.
    layouts : dict
        Of :func:`neocog.cuda.steps.layouts`.
    precision : {"fp32", "tf32", "fp16", "bf16"}
        Operands; ``fp32`` takes each as the sum of two halves.
    tilings : dict, optional
        Tiling by batch, taken instead of the one that :func:`choose` would pick.
    """

    version: ClassVar[str] = "tensor"

    def __init__(
        self,
        machine: Machine,
        model: Model,
        layer: int,
        layouts: dict[str, Layout],
        precision: Precision,
        tilings: dict[int, Tiling] | None = None,
    ) -> None:
        self.reads, self.writes = (f"UC{layer}" if layer else "UG"), f"US{layer + 1}"
        self._machine, self._layer = machine, layer
        self._source, self._target = layouts[self.reads], layouts[self.writes]
        kernel = model.spec.s[layer].kernel
        self.shape = Shape(
            kernel,
            self._source.width,
            self._source.channels,
            self._target.size,
            self._target.channels,
            _MODES[precision],
        )
        self._weights: SWeights = model.s[layer]
        a, theta, silence = s_constants(self._weights)
        self._a, self._silence = np.asarray(a, dtype=np.float64), np.asarray(silence)
        self._theta = np.float32(theta)
        # the largest weight becomes 1 .. 2, a power of two away: halves reach down to 6e-8
        largest = float(np.abs(self._a).max()) or 1.0
        self._scale = np.float32(2.0 ** np.floor(np.log2(largest)))
        self._c = machine.xp.asarray(np.ascontiguousarray(self._weights.c, dtype=np.float32))
        self._tilings = dict(tilings or {})
        self._packed: dict[tuple[int, int, int, bool], Array] = {}
        self._silences: dict[int, Array] = {}

    def tiling(self, batch: int) -> Tiling:
        """Return the tiling for a batch."""
        if batch not in self._tilings:
            self._tilings[batch] = choose(
                self.shape, batch, self._machine.arch, self._machine.processors
            )
        return self._tilings[batch]

    def kernel(self, tiling: Tiling) -> Kernel:
        """Return the kernel, specialised for a tiling."""
        s = self.shape
        return Kernel(
            "s_tensor.cu",
            "s_tensor",
            (
                ("MODE", s.mode),
                ("MAP", self._source.code),
                ("OUT_MAP", self._target.code),
                ("KSIZE", s.kernel),
                ("IN_W", s.width),
                ("IN_C", s.channels),
                ("OUT", s.out),
                ("OUT_C", s.planes),
                ("GROUP", tiling.group),
                ("ROWS", tiling.rows),
                ("WM", tiling.wm),
                ("WN", tiling.wn),
                ("WK", tiling.wk),
                ("MT", tiling.mt),
                ("NT", tiling.nt),
                ("PASSES", s.passes(tiling)),
                ("KSPLIT", tiling.ksplit),
                ("STAGE_TAPS", tiling.stage),
                ("UNROLL_TAPS", tiling.unroll),
                ("WGMMA", int(tiling.wgmma)),
            ),
            threads=tiling.threads,
            shared=s.shared(tiling),
            arch=90 if tiling.wgmma else 80,
            features="a" if tiling.wgmma else "",
            registers=min(255, 65536 // tiling.threads),
        )

    def scratch(self, batch: int) -> dict[str, tuple[tuple[int, ...], Any]]:
        """Parts of sums, and a count of blocks that came, where blocks share a window."""
        t = self.tiling(batch)
        if t.ksplit == 1:
            return {"partial": ((1,), np.float32), "arrivals": ((1,), np.uint32)}
        blocks = self.shape.blocks(t, batch)
        part = t.mt * t.nt * 4 * t.wm * t.wn * 32 + up(self.shape.cells(t), 4)
        return {
            "partial": ((blocks[0] * blocks[1] * t.ksplit * part,), np.float32),
            "arrivals": ((blocks[0] * blocks[1],), np.uint32),
        }

    def launches(
        self, batch: int, source: Array, target: Array, scratch: dict[str, Array]
    ) -> list[Launch]:
        """One launch."""
        t = self.tiling(batch)
        slices = self.shape.slices(t) * t.wn
        args = (
            source,
            self._weights_for(t),
            self._c,
            self._silence_for(slices * t.nt * 8),
            target,
            scratch["partial"],
            scratch["arrivals"],
            np.int32(batch),
            self._theta,
            self._scale,
        )
        return [Launch(self.kernel(t), self.shape.blocks(t, batch), args)]

    def work(self) -> Work:
        """Excitation and inhibition; maps and weights once."""
        s, cells = self.shape, self._target.size**2
        planes, inputs = self._target.planes, self._source.planes
        window = s.kernel**2
        flops = 2.0 * cells * window * (planes * inputs + 1) + 2.0 * self._source.size**2 * inputs
        moved = self._source.size**2 * inputs * self._source.storage.itemsize
        moved += cells * planes * self._target.storage.itemsize
        return Work(flops, float(moved))

    def _weights_for(self, t: Tiling) -> Array:
        key = (t.nt, t.wn, t.ksplit, t.wgmma)
        if key not in self._packed:
            packed = pack(self._a / float(self._scale), self.shape, t)
            self._packed[key] = self._machine.xp.asarray(packed)
        return self._packed[key]

    def _silence_for(self, planes: int) -> Array:
        if planes not in self._silences:
            padded = np.full(planes, 1e30, dtype=np.float32)
            padded[: len(self._silence)] = self._silence[:planes]
            self._silences[planes] = self._machine.xp.asarray(padded)
        return self._silences[planes]


def pack(a: NDArray[np.float64], shape: Shape, tiling: Tiling) -> NDArray[np.uint32]:
    """Pack weights (K, K', kernel, kernel) in the order in which warps hold or ``wgmma`` reads them.

    Returns 32-bit words, flat: slice of planes, part of the window, tap, step, warp along planes,
    (MODE 3: higher, lower halves,) tiles of planes. Two neighbouring tiles share 16 planes so that
    each lane ends with four of them that follow one another.
    """
    slices = shape.slices(tiling) * tiling.wn
    columns = _columns(tiling.nt)
    inner = 8 if shape.mode == 2 else 16
    depth = shape.taps(tiling) * tiling.ksplit * shape.steps * inner
    full = np.zeros((slices * tiling.nt * 8, depth))
    full[: len(a)] = _window_runs(a, shape)
    # (slice of a block, warp, tile, column) x (part, tap and step, depth of a step)
    full = full.reshape(slices, tiling.nt * 8, tiling.ksplit, -1, inner)
    full = full[:, columns].reshape(
        slices // tiling.wn, tiling.wn, tiling.nt, 8, tiling.ksplit, -1, inner
    )
    # -> block slice, part, step, warp, tile, column, depth
    full = full.transpose(0, 4, 5, 1, 2, 3, 6)
    words = []
    for part in _operands(full, shape.mode):
        words.append(_core_matrices(part) if tiling.wgmma else _lanes(part, tiling.nt))
    return np.ascontiguousarray(np.stack(words, axis=4)).reshape(-1)


def _columns(tiles: int) -> NDArray[np.int64]:
    """Plane, among the 8 ``tiles`` of a warp, of each column of each tile."""
    n = np.arange(8)
    rows = []
    for tile in range(tiles):
        if tile < tiles // 2 * 2:
            rows.append(tile // 2 * 16 + n // 2 * 4 + tile % 2 * 2 + n % 2)
        else:
            rows.append(tile * 8 + n)
    return np.concatenate(rows)


def _window_runs(a: NDArray[np.float64], shape: Shape) -> NDArray[np.float64]:
    """(K, K', ky, kx) -> (K, depth) in the order of the kernel's steps."""
    k, inputs = a.shape[:2]
    if not shape.pair:
        out = np.zeros((k, shape.kernel, shape.kernel, shape.channels))
        out[..., :inputs] = a.transpose(0, 2, 3, 1)
        return out.reshape(k, -1)
    run = np.zeros((k, shape.kernel, 8, 2))
    run[:, :, : shape.kernel] = a.transpose(0, 2, 3, 1)
    if shape.mode == 2:  # a step is four cells, first their on sides, then their off sides
        run = run.reshape(k, shape.kernel, 2, 4, 2).transpose(0, 1, 2, 4, 3)
    return run.reshape(k, -1)


def _operands(full: NDArray[np.float64], mode: int) -> Iterator[NDArray[np.uint32]]:
    """Yield the operand's words: (..., depth) -> (..., 8) words a column, higher halves first."""
    if mode == 2:
        yield tf32(full).view(np.uint32)
        return
    high = full.astype(np.float16)
    if mode == 1:
        yield np.ascontiguousarray(bf16(full)).view(np.uint32)
        return
    yield np.ascontiguousarray(high).view(np.uint32)
    if mode == 3:
        yield np.ascontiguousarray((full - high.astype(np.float64)).astype(np.float16)).view(
            np.uint32
        )


def _lanes(words: NDArray[np.uint32], tiles: int) -> NDArray[np.uint32]:
    """(..., tile, column, 8 words) -> (..., words): lane (column, t) holds words t and t + 4."""
    lead = words.shape[:-3]
    held = words.reshape(*lead, tiles, 8, 2, 4)
    held = np.moveaxis(held, -2, -1).reshape(*lead, tiles, 32, 2)  # tile, lane, (b0, b1)
    even = tiles // 2 * 2
    pairs = held[..., :even, :, :].reshape(*lead, even // 2, 2, 32, 2)
    pairs = np.moveaxis(pairs, -3, -2).reshape(*lead, -1)
    return np.concatenate([pairs, held[..., even:, :, :].reshape(*lead, -1)], axis=-1)


def _core_matrices(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """(..., tile, column, 8 words) -> (..., words): half of the depth, column, 4 words."""
    lead = words.shape[:-3]
    return np.moveaxis(words.reshape(*lead, -1, 8, 2, 4), -2, -3).reshape(*lead, -1)


def tf32(x: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    """Round to TF32 (10 bits of fraction), ties away from zero."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)


def bf16(x: NDArray[np.floating[Any]]) -> NDArray[np.uint16]:
    """Round to bfloat16, ties to even, and return the 16 bits."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


#: Warps along cells and window.
_WARPS = (
    *((1, 4), (2, 1), (2, 2), (2, 4), (4, 1), (4, 2), (4, 3), (6, 1), (6, 2), (8, 1), (8, 2)),
    *((3, 1), (3, 2), (3, 4), (12, 1)),
)


def choose(shape: Shape, batch: int, arch: int, processors: int) -> Tiling:
    """Return the tiling that the cost model of :func:`estimate` likes best.

    Raises
    ------
    UsageError
        If no tiling fits the device's shared memory.
    """
    best = min(
        candidates(shape, batch, arch),
        key=lambda t: estimate(shape, t, batch, processors),
        default=None,
    )
    if best is None:
        raise UsageError(
            f"no tiling of a {shape.kernel}x{shape.kernel} layer over {shape.channels} channels "
            f"fits {shared_limit(arch)} bytes of shared memory; use --plan direct"
        )
    return best


def candidates(shape: Shape, batch: int, arch: int) -> Iterator[Tiling]:
    """Yield the tilings that fit the device and waste little."""
    tiles = -(-shape.planes // 8)
    limit = shared_limit(arch)
    for nt in sorted({min(tiles, n) for n in (2, 3, 4, 5, 6, 8, 9, 10)}):
        if nt > tiles or -(-tiles // nt) * nt > 1.25 * tiles + 1:
            continue
        for group, rows in _bands(shape, batch):
            cells = group * rows * shape.out
            for mt in (1, 2, 3, 4):
                per_tap = nt * 2 * (2 if shape.mode == 3 else 1)
                registers = mt * nt * 4 + per_tap + 2 * mt + (8 if shape.mode == 3 else 4) + 36
                if registers > 240:
                    continue
                for warps, wk in _WARPS:
                    if 32 * warps * wk * up(registers, 8) > 65536 or (shape.pair and wk > 1):
                        continue
                    if (warps - 1) * mt * 16 >= cells:
                        continue
                    for ksplit in (1, 3, shape.kernel) if shape.kernel == 9 else (1, 2, 3):
                        yield from _stages(shape, limit, group, rows, warps, wk, mt, nt, ksplit)


def _bands(shape: Shape, batch: int) -> Iterator[tuple[int, int]]:
    if shape.out <= 8:
        yield from ((g, shape.out) for g in (1, 2, 3, 4, 5, 8, 10) if g <= batch)
        return
    for bands in (1, 2, 3, 4, 6, 8, 11, 12, 13, 17, 19, 23, 34):
        rows = -(-shape.out // bands)
        if rows * (bands - 1) < shape.out:
            yield 1, rows


def _stages(
    shape: Shape, limit: int, group: int, rows: int, wm: int, wk: int, mt: int, nt: int, ksplit: int
) -> Iterator[Tiling]:
    if shape.kernel % ksplit or (shape.pair and ksplit > 1):
        return
    for stage in (81, 36, 27, 18, 12, 9, 6, 3, 2):
        t = Tiling(group, rows, wm, 1, wk, mt, nt, ksplit)
        taps = shape.taps(t)
        stage = min(stage, taps)
        t = Tiling(group, rows, wm, 1, wk, mt, nt, ksplit, stage)
        if (ksplit > 1 or wk > 1) and shape.passes(t) > 1:
            return
        if shape.shared(t) <= limit:
            yield t
            if stage < taps:
                return  # the largest stage that fits, and everything at once if that fits


def estimate(shape: Shape, t: Tiling, batch: int, processors: int) -> float:
    """Estimate the time of a launch in clock cycles, to rank tilings.

    Per block: products at the rate of ``mma.sync``, reads of shared memory, weights and input from
    the L2 cache, a start; blocks share a multiprocessor as registers and shared memory allow.
    """
    grid = shape.blocks(t, batch)
    blocks = grid[0] * grid[1] * grid[2]
    steps = shape.taps(t) * shape.steps
    passes = shape.passes(t)
    warps = t.wm * t.wn
    products = 3.0 if shape.mode == 3 else 1.0
    mma = passes * warps * t.mt * t.nt * steps * 1.6 * products
    reads = 2.0 if shape.mode == 3 else 1.0
    shared = passes * warps * steps * (t.mt * 4 + t.nt * 2) * reads
    taps = shape.taps(t)
    again = passes if taps > t.stage else 1
    weights = taps * shape.tap_words(t) * 4 * again
    cells = shape.cells(t)
    in_rows = t.rows + shape.kernel // t.ksplit - 1
    pixels = t.group * in_rows * shape.width
    moved = weights + pixels * shape.cell_bytes * (2 if shape.mode >= 2 else 1)
    moved += cells * t.nt * t.wn * 8 * 2 * (4 if t.ksplit > 1 else 1)
    registers = up(t.mt * t.nt * 4 + int(t.nt * 2 * reads) + 2 * t.mt + 44, 8)
    resident = int(min(232448 // (shape.shared(t) + 1024), 65536 // (registers * t.threads), 16))
    resident = max(1, resident)
    prologue = 1500 + pixels * shape.cell_bytes / 64 + cells * shape.kernel**2 / t.ksplit / 64
    prologue += 400 * (t.wk > 1) + 1500 * (t.ksplit > 1) + 60 * passes * -(-taps // t.stage)
    # a warp's chain of dependent steps cannot be quicker than its latency
    chain = passes * steps / t.wk * max(33.0 * products, t.mt * t.nt * 6.4 * products)
    busy = max(mma, shared, moved / 32)
    together = min(resident, -(-blocks // processors))
    waves = -(-blocks // (processors * together))
    # blocks that share a multiprocessor hide one another's start
    return float(waves * (max(busy * together, chain) + prologue * (1 + 0.3 * (together - 1))))


VERSIONS = {"tensor": TensorS}
