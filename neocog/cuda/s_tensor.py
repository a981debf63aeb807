"""S-cells on tensor cores: how ``kernels/s_tensor.cu`` is specialised, fed, dealt to blocks and launched."""

from functools import cache
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from neocog.cuda import kernel
from neocog.cuda.kernel import Array, Forms, Kernel, Launch, LayerStep, Place, named, shared_limit, up
from neocog.errors import UsageError
from neocog.network.model import s_constants

_STRIPS_TILING = 16  # digits whose tiling strips have where none was chosen for them
_STATIC = 32  # bytes that the kernel takes beside its dynamic shared memory


class Tiling(NamedTuple):
    """How the cells, planes and window of a layer are dealt to blocks and warps."""

    group: int  # digits of a block
    rows: int  # of their cells
    wm: int  # warps along cells,
    wn: int  # planes
    wk: int  # and window
    mt: int  # tiles of 16 cells of a warp
    nt: int  # tiles of 8 planes
    ksplit: int = 1  # blocks that share a window; it divides the kernel's rows
    stage: int = 1  # taps of weights in shared memory at a time
    depth: int = 1  # steps whose operands a warp holds; without wgmma 2: the next step's are brought
    compact: bool = False  # only cells that may respond are computed
    wgmma: bool = False  # four warps multiply together (sm_90a); wm is a multiple of 4
    chunks: int = 1  # parts of the channels, one after another; cells take one pass then
    clusters: int = 0  # groups of blocks sharing a window that an H200 has room for at once


class Shape(NamedTuple):
    """What a layer asks of the kernel: sizes of its window, input and output."""

    kernel: int
    width: int
    channels: int
    out: int
    planes: int
    mode: int  # 0: products of halves; 3: of numbers that are two halves each

    @property
    def pair(self) -> bool:
        """Whether the input is UG, whose windows have rows of (cell, side) as one run."""
        return self.channels == 2

    @property
    def joined(self) -> bool:
        """Whether two neighbouring taps count as one: a cell ends in half a step."""
        return not self.pair and self.channels % 16 != 0


class Deal:
    """What a tiling makes of a layer."""

    def __init__(self, shape: Shape, t: Tiling) -> None:
        channels, rows = shape.channels // t.chunks, shape.kernel // t.ksplit
        halves = 2 if shape.mode == 3 else 1
        self.threads = 32 * t.wm * t.wn * t.wk
        #: Whether more than one warp has a part of a window.
        self.spread = t.wk > 1 or t.ksplit > 1
        #: Taps of a block's part of the window (rows of it if ``pair``, pairs of taps if ``joined``), and
        #: products of 32 bytes' depth a tap, of the channels that are in shared memory at a time.
        self.taps = rows if shape.pair else rows * shape.kernel // (2 if shape.joined else 1)
        self.steps = 1 if shape.pair else channels * (2 if shape.joined else 1) // 16
        cells = t.group * t.rows * shape.out
        self.passes = -(-cells // (t.wm * t.mt * 16))  # of a block's warps over its cells
        self.slices = -(-shape.planes // (8 * t.wn * t.nt))
        #: Numbers that a block has where blocks share a window: sums, and v^2 of its cells.
        self.part = t.wm * t.wn * t.mt * -(-t.nt // 2) * 256 + up(cells, 4)
        pixels = t.group * (t.rows + rows - 1) * shape.width
        pitch = 2 * channels + (0 if shape.pair or shape.joined else 16)  # bytes, of one of the two halves
        operands = halves * up(pixels * pitch + (16 * channels if shape.pair else 0), 16)
        buffers = 2 if self.taps > t.stage or t.chunks > 1 else 1
        operands += buffers * t.stage * self.steps * t.wn * t.nt * 64 * halves * 4
        # where several warps have a part of a window their sums take the operands' place
        summed = self.threads * t.mt * t.nt * 16 if self.spread else 0
        summed += self.part * 4 if t.ksplit > 1 else 0
        numbers = up(cells, 4) + up(pixels, 4) + t.wn * t.nt * 8 + up(shape.kernel**2 // t.ksplit, 4)
        if t.compact:
            numbers += up(cells, 8) // 2 + (0 if shape.pair else up(shape.kernel**2, 4))
        self.shared = 4 * numbers + max(operands, summed)  # bytes of a block


def blocks_of(shape: Shape, t: Tiling, batch: int) -> tuple[int, int, int]:
    return -(-batch // t.group) * -(-shape.out // t.rows), Deal(shape, t).slices, t.ksplit


@cache
def choose(shape: Shape, batch: int, arch: int) -> Tiling:
    """Return the tiling of this shape, or of the nearest one that fits; a UsageError if none does."""
    some = [Tiling(*row) for row in kernel.tilings("s", shape, batch, arch)]
    # a row of cells, few planes, of the window all or a row
    some += [Tiling(1, 1, 2, 1, 1, 2, min(4, -(-shape.planes // 8)), n) for n in (1, shape.kernel)]
    for t in some:
        rows, taps = shape.out if t.group > 1 else min(t.rows, shape.out), Deal(shape, t).taps
        t = t._replace(rows=rows, stage=taps if shape.pair else min(t.stage, taps))
        if fits(shape, t, arch):
            return t
    what = f"no tiling of a {shape.kernel}x{shape.kernel} layer over {shape.channels} channels"
    raise UsageError(f"{what} fits {shared_limit(arch)} bytes of shared memory; use --plan card")


@cache
def choose_for_strips(shape: Shape, batch: int, arch: int) -> Tiling:
    """Return a tiling whose sums are the same to the bit for every batch; measured ones are for one shape."""
    known = [Tiling(*row) for row in kernel.tilings("lines", shape, batch, arch, exact=True)]
    return known[0] if known else choose(shape, _STRIPS_TILING, arch)


def fits(shape: Shape, t: Tiling, arch: int) -> bool:
    """Whether the kernel can deal a layer so, and has the memory for it."""
    deal = Deal(shape, t)
    if shape.kernel % t.ksplit or (shape.pair and deal.spread):
        return False
    if (deal.spread or t.chunks > 1) and deal.passes > 1:
        return False
    if t.chunks > 1 and (shape.channels % (16 * t.chunks) or shape.joined):
        return False
    if t.wgmma and t.depth > 1:  # whole turns in every stage
        stages = (t.stage, deal.taps % t.stage or t.stage)
        if any(n % t.wk or n // t.wk * deal.steps % t.depth for n in stages):
            return False
    return deal.shared <= shared_limit(arch) - _STATIC


def clustered(shape: Shape, t: Tiling, batch: int, arch: int, processors: int) -> bool:
    """Whether blocks that share a window are a cluster: where all find room at once.

    Only on devices like the H200 that was measured. There clusters save 3 to 9 % of a pass; without such room
    they cost 9 to 10 % (``python -m experiments.gpu.latency DIGITS --clusters`` of commit bfe99381).
    """
    x, y, _ = blocks_of(shape, t, batch)
    return serves(arch, processors) and x * y <= t.clusters


def serves(arch: int, processors: int) -> bool:
    """Whether a device is like the H200 that was measured, which has 132 multiprocessors."""
    return arch == 90 and abs(processors - 132) <= 13


class TensorS(LayerStep):
    """US1 .. US4 as an implicit matrix product on tensor cores; ``fp32`` operands are sums of two halves."""

    kind = "S"
    version: ClassVar[str] = "tensor"

    def __init__(self, *place: *Place, tiling: Tiling | None = None) -> None:
        super().__init__(*place, tiling=tiling)
        machine, model, layer, _, precision = place
        taps, s, t = model.spec.s[layer].kernel, self.source, self.target
        self.shape = Shape(taps, s.width, s.channels, t.size, t.channels, 0 if precision == "fp16" else 3)
        weights = model.s[layer]
        a, theta, silence = s_constants(weights)
        self._a, self._silence = np.asarray(a, dtype=np.float64), np.asarray(silence)
        self._theta = np.float32(theta)
        # the largest weight becomes 1 .. 2, a power of two away: halves reach down to 6e-8
        largest = float(np.abs(self._a).max()) or 1.0
        self._scale = np.float32(2.0 ** np.floor(np.log2(largest)))
        self._c = machine.xp.asarray(np.ascontiguousarray(weights.c, dtype=np.float32))
        profile = np.sqrt((self._a**2).sum(axis=1)).max(axis=0) / self._scale
        self._profile = machine.xp.asarray(profile.astype(np.float32))
        self._packed: dict[tuple[int, ...], Array] = {}
        self._silences: dict[int, Array] = {}

    def tiling(self, batch: int) -> Tiling:
        return self._tiling or choose(self.shape, batch, self.machine.arch)

    def launches(self, batch: int, source: Array, target: Array, scratch: dict[str, Array]) -> list[Launch]:
        s, machine, tiling = self.shape, self.machine, self.tiling(batch)
        deal = Deal(s, tiling)
        defines = {
            "MODE": s.mode, "MAP": self.source.code, "OUT_MAP": self.target.code, "KSIZE": s.kernel,
            "IN_W": s.width, "IN_C": s.channels, "OUT": s.out, "OUT_C": s.planes,
            **named(tiling, "group rows wm wn wk mt nt ksplit chunks"), "STAGE_TAPS": tiling.stage,
            **named(tiling, "depth wgmma compact"),
            "CLUSTER": int(clustered(s, tiling, batch, machine.arch, machine.processors)),
        }  # fmt: skip
        arch, features = (90, "a") if tiling.wgmma else (80, "")
        built = Kernel("s_tensor.cu", "s_tensor", tuple(defines.items()), deal.threads, deal.shared, arch,
                       min(255, 65536 // deal.threads), features)  # fmt: skip
        planes = deal.slices * tiling.wn * tiling.nt * 8
        if planes not in self._silences:
            padded = np.full(planes, 1e30, dtype=np.float32)
            padded[: len(self._silence)] = self._silence / self._scale
            self._silences[planes] = machine.xp.asarray(padded)
        key = (tiling.nt, tiling.wn, tiling.ksplit, tiling.chunks, tiling.wgmma)
        if key not in self._packed:
            self._packed[key] = machine.xp.asarray(pack(self._a / float(self._scale), s, tiling))
        weights = self._packed[key], self._c, self._profile, self._silences[planes]
        shared = scratch["partial"], scratch["arrivals"]
        numbers = np.int32(batch), self._theta, np.float32(1 / self._scale)
        args = (source, *weights, target, *shared, *numbers)
        return [Launch(built, blocks_of(s, tiling, batch), args)]

    def scratch(self, batch: int) -> Forms:
        """Parts of sums, and a count of blocks that came, where blocks share a window."""
        t = self.tiling(batch)
        x, y, _ = blocks_of(self.shape, t, batch)
        parts, counts = (x * y * t.ksplit * Deal(self.shape, t).part, x * y) if t.ksplit > 1 else (1, 1)
        return {"partial": ((parts,), np.float32), "arrivals": ((counts,), np.uint32)}


def pack(a: NDArray[np.float64], shape: Shape, tiling: Tiling) -> NDArray[np.uint32]:
    """Pack weights (K, K', kernel, kernel) in the order in which warps take them, 32-bit words, flat.

    Slice of planes, part of the window or of the channels, tap, step, warp along planes, (MODE 3: higher,
    lower halves,) tiles of planes; a lane ends with four planes of two tiles that follow one another.
    """
    k, inputs = a.shape[:2]
    deal = Deal(shape, tiling)
    slices, tiles = deal.slices * tiling.wn, tiling.nt
    # a window's run of values, in the order of the kernel's steps
    runs = np.zeros((k, shape.kernel, *((8, 2) if shape.pair else (shape.kernel, shape.channels))))
    runs[:, :, : shape.kernel, :inputs] = a.transpose(0, 2, 3, 1)
    if tiling.chunks > 1:  # a chunk of the channels of all taps, then the next
        runs = runs.reshape(k, deal.taps, tiling.chunks, -1).transpose(0, 2, 1, 3)
    full = np.zeros((slices * tiles * 8, deal.taps * tiling.ksplit * deal.steps * tiling.chunks * 16))
    full[:k] = runs.reshape(k, -1)
    # plane, among those of a warp, of each column of each tile
    tile, n = np.divmod(np.arange(8 * tiles), 8)
    paired = tile // 2 * 16 + n // 2 * 4 + tile % 2 * 2 + n % 2
    columns = np.where(tile < tiles // 2 * 2, paired, tile * 8 + n)
    # (slice of a block, warp, tile, column) x (part, tap and step, depth of a step)
    full = full.reshape(slices, tiles * 8, tiling.ksplit, -1, 16)
    full = full[:, columns].reshape(slices // tiling.wn, tiling.wn, tiles, 8, tiling.ksplit, -1, 16)
    # -> block slice, part, step, warp, tile, column, depth
    full = full.transpose(0, 4, 5, 1, 2, 3, 6)
    halves = [full.astype(np.float16)]
    if shape.mode == 3:
        halves.append((full - halves[0].astype(np.float64)).astype(np.float16))
    words = [_words(np.ascontiguousarray(half).view(np.uint32), tiling.wgmma) for half in halves]
    return np.ascontiguousarray(np.stack(words, axis=4)).reshape(-1)


def _words(words: NDArray[np.uint32], wgmma: bool) -> NDArray[np.uint32]:
    """(..., tile, column, 8 words) -> (..., words) as an instruction takes them."""
    *lead, tiles = words.shape[:-2]
    held = words.reshape(*lead, tiles, 8, 2, 4)
    if wgmma:  # half of the depth, column, 4 words
        return np.moveaxis(held, -2, -3).reshape(*lead, -1)
    # lane (column, t) holds words t and t + 4
    held = np.moveaxis(held, -2, -1).reshape(*lead, tiles, 32, 2)  # tile, lane, (b0, b1)
    even = tiles // 2 * 2
    pairs = held[..., :even, :, :].reshape(*lead, even // 2, 2, 32, 2)
    pairs = np.moveaxis(pairs, -3, -2).reshape(*lead, -1)
    return np.concatenate([pairs, held[..., even:, :, :].reshape(*lead, -1)], axis=-1)
