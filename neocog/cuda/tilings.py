"""How the work of ``kernels/s_tensor.cu`` is dealt to blocks and warps, and which way is best."""

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

from neocog.cuda import cache as builds
from neocog.cuda.kernel import shared_limit, up
from neocog.errors import UsageError
from neocog.text import to_json


@dataclass(frozen=True, slots=True)
class Tiling:
    """How the cells, planes and window of a layer are dealt to blocks and warps.

    A block computes ``rows`` of cells of ``group`` digits with ``wm``, ``wn``, ``wk`` warps along
    cells, planes and window, each of which holds ``mt`` x ``nt`` tiles of 16 cells x 8 planes. With
    ``wgmma`` four warps together multiply (sm_90a) and ``wm`` is a multiple of 4; with ``compact``
    only cells that may respond are computed.
    """

    group: int
    rows: int
    wm: int
    wn: int
    wk: int
    mt: int
    nt: int
    ksplit: int = 1  # blocks that share a window; it divides the kernel's rows
    stage: int = 1  # taps of weights in shared memory at a time
    depth: int = 1  # steps whose operands a warp holds; without wgmma 2: the next step's are brought
    compact: bool = False
    wgmma: bool = False
    chunks: int = 1  # parts of the channels, one after another; cells take one pass then

    @property
    def spread(self) -> bool:
        """Whether more than one warp has a part of a window."""
        return self.wk > 1 or self.ksplit > 1

    @property
    def threads(self) -> int:
        return 32 * self.wm * self.wn * self.wk


@dataclass(frozen=True, slots=True)
class Shape:
    """What a layer asks of the kernel: sizes of its input, window and output."""

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

    @property
    def cell_bytes(self) -> int:
        """Bytes of a cell's channels in shared memory, of one of the two halves of mode 3."""
        return 2 * self.channels

    @property
    def steps(self) -> int:
        """Products of 32 bytes' depth a tap."""
        return 1 if self.pair else self.cell_bytes * (2 if self.joined else 1) // 32

    def chunk(self, tiling: Tiling) -> "Shape":
        """Return the shape with those channels that are in shared memory at a time."""
        return replace(self, channels=self.channels // tiling.chunks)

    def taps(self, tiling: Tiling) -> int:
        """Taps of a block's part of the window; rows of it if ``pair``, pairs of taps if joined."""
        rows = self.kernel // tiling.ksplit
        return rows if self.pair else rows * self.kernel // (2 if self.joined else 1)

    def cells(self, tiling: Tiling) -> int:
        return tiling.group * tiling.rows * self.out

    def passes(self, tiling: Tiling) -> int:
        """How often a block's warps go over its cells."""
        return -(-self.cells(tiling) // (tiling.wm * tiling.mt * 16))

    def slices(self, tiling: Tiling) -> int:
        return -(-self.planes // (8 * tiling.wn * tiling.nt))

    def blocks(self, tiling: Tiling, batch: int) -> tuple[int, int, int]:
        bands = -(-self.out // tiling.rows)
        return -(-batch // tiling.group) * bands, self.slices(tiling), tiling.ksplit

    def tap_words(self, tiling: Tiling) -> int:
        """32-bit words of one tap's weights for the planes of a block and a chunk of channels."""
        steps = self.chunk(tiling).steps
        return steps * tiling.wn * tiling.nt * 64 * (2 if self.mode == 3 else 1)

    def part(self, t: Tiling) -> int:
        """Numbers that a block has where blocks share a window: sums, and v^2 of its cells."""
        return t.wm * t.wn * t.mt * -(-t.nt // 2) * 256 + up(self.cells(t), 4)

    def shared(self, tiling: Tiling) -> int:
        cell_bytes = self.chunk(tiling).cell_bytes
        pitch = cell_bytes + (0 if self.pair or self.joined else 16)
        in_rows = tiling.rows + self.kernel // tiling.ksplit - 1
        pixels = tiling.group * in_rows * self.width
        operands = up(pixels * pitch + (8 * cell_bytes if self.pair else 0), 16)
        operands *= 2 if self.mode == 3 else 1
        buffers = 2 if self.taps(tiling) > tiling.stage or tiling.chunks > 1 else 1
        operands += buffers * tiling.stage * self.tap_words(tiling) * 4
        # where several warps have a part of a window their sums take the operands' place
        summed = tiling.threads * tiling.mt * tiling.nt * 16 if tiling.spread else 0
        summed += self.part(tiling) * 4 if tiling.ksplit > 1 else 0
        numbers = up(self.cells(tiling), 4) + up(pixels, 4) + tiling.wn * tiling.nt * 8
        numbers += up(self.kernel**2 // tiling.ksplit, 4)
        if tiling.compact:
            numbers += up(self.cells(tiling), 8) // 2 + (0 if self.pair else up(self.kernel**2, 4))
        return 4 * numbers + max(operands, summed)


#: Warps along cells and window, for ``mma.sync`` and for ``wgmma``.
_WARPS = (
    *((1, 4), (2, 1), (2, 2), (2, 4), (4, 1), (4, 2), (4, 3), (6, 1), (6, 2), (8, 1), (8, 2)),
    *((3, 1), (3, 2), (3, 4), (12, 1)),
)
_GROUPS_OF_WARPS = ((4, 1), (4, 2), (4, 3), (8, 1), (8, 2), (12, 1))
#: Tiles of planes that one or two instructions of ``kernels/wgmma.cuh`` serve.
_WGMMA_TILES = (2, 3, 4, 5, 6, 8, 9, 10, 12, 15, 20)
#: Part of the cells of US1 .. US3 that may respond, on handwritten digits.
_HEARD = 0.45
#: Taps of weights a stage, most first.
_STAGES = (81, 36, 27, 18, 12, 9, 6, 3, 2, 1)


#: Tilings measured on an H200: a row of batch, `Shape` and `Tiling` each, and the command that makes them.
TUNED = Path(__file__).with_name("tuned.json")
_PROCESSORS = 132  # of an H200
#: A measured tiling serves batches up to this factor away.
_NEAR = 1.5
#: Multiprocessors that a cluster of blocks runs on, at least, and the most blocks of one.
_TOGETHER = 16
#: Bytes that the kernel takes beside its dynamic shared memory.
_STATIC = 32


def choose(shape: Shape, batch: int, arch: int, processors: int) -> Tiling:
    """Return the tiling measured for about this batch on a device like this, else the best guess.

    Between measured batches the least :func:`estimate` counts, among the tilings measured on
    either side and the one that ranks best of all. A UsageError if none fits the device.
    """
    measured = _tuned().get(shape, {}) if serves(arch, processors) else {}
    if near := [b for b in measured if max(b, batch) <= _NEAR * min(b, batch)]:
        return measured[min(near, key=lambda b: abs(math.log2(b / batch)))]
    smaller, larger = [b for b in measured if b < batch], [b for b in measured if b > batch]
    beside = [measured[max(smaller)]] if smaller else []
    if larger and all(measured[b].group <= batch for b in larger):
        beside.append(measured[min(larger)])
    beside.append(_best(shape, batch, arch, processors))
    return min(beside, key=lambda t: estimate(shape, t, batch, arch, processors))


def serves(arch: int, processors: int) -> bool:
    """Whether a device is like the one that was measured."""
    return arch == 90 and abs(processors - _PROCESSORS) <= _PROCESSORS // 10


@cache
def _tuned() -> dict[Shape, dict[int, Tiling]]:
    table: dict[Shape, dict[int, Tiling]] = {}
    for batch, *row in json.loads(TUNED.read_text(encoding="utf-8"))["rows"]:
        table.setdefault(Shape(*row[:6]), {})[batch] = Tiling(*row[6:])
    return table


@cache
def _best(shape: Shape, batch: int, arch: int, processors: int) -> Tiling:
    """Return the candidate that ranks best; to rank them all takes a second, so it is kept."""
    what = repr((shape, batch, arch, processors)).encode() + Path(__file__).read_bytes()
    name = f"tiling-{hashlib.sha256(what).hexdigest()[:32]}.json"

    content = builds.load(name)
    if content is not None:
        return Tiling(**json.loads(content))
    some = candidates(shape, batch, arch)
    found = min(some, key=lambda t: estimate(shape, t, batch, arch, processors), default=None)
    if found is None:
        raise UsageError(
            f"no tiling of a {shape.kernel}x{shape.kernel} layer over {shape.channels} "
            f"channels fits {shared_limit(arch)} bytes of shared memory; use --plan card"
        )
    builds.store(name, to_json(asdict(found)).encode())
    return found


def candidates(shape: Shape, batch: int, arch: int) -> Iterator[Tiling]:
    """Yield the tilings that fit the device and waste little."""
    limit = shared_limit(arch) - _STATIC
    for wgmma in (False, True) if arch == 90 else (False,):
        for nt in _tiles(shape, wgmma):
            for mt in (1, 2, 3, 4):
                for wm, wk in _GROUPS_OF_WARPS if wgmma else _WARPS:
                    for group, rows in _bands(shape, batch):
                        for ksplit, chunks in _splits(shape, group):
                            t = Tiling(group, rows, wm, 1, wk, mt, nt, ksplit, wgmma=wgmma)
                            t = replace(t, chunks=chunks)
                            if _worth(shape, t):
                                yield from _stages(shape, t, limit)


def _tiles(shape: Shape, wgmma: bool) -> list[int]:
    """Tiles of planes a warp may hold without multiplying many planes that are not there."""
    tiles = -(-shape.planes // 8)
    some = {n for n in _WGMMA_TILES if n <= tiles} if wgmma else {min(tiles, n) for n in range(2, 11)}
    return sorted(n for n in some if n <= tiles and -(-tiles // n) * n <= 1.25 * tiles + 1)


def _bands(shape: Shape, batch: int) -> Iterator[tuple[int, int]]:
    """Digits and rows of a block: several whole digits where a digit has few cells."""
    if shape.out <= 8:
        yield from ((g, shape.out) for g in (1, 2, 3, 4, 5, 8, 10) if g <= batch)
        return
    for bands in (1, 2, 3, 4, 6, 8, 11, 12, 13, 17, 19, 23, 34):
        rows = -(-shape.out // bands)
        if rows * (bands - 1) < shape.out:
            yield 1, rows


def _splits(shape: Shape, group: int) -> list[tuple[int, int]]:
    """Blocks that share a window, and chunks of channels where digits are many; not both."""
    if shape.pair:
        return [(1, 1)]
    splits = [(n, 1) for n in (1, 2, 3, shape.kernel) if shape.kernel % n == 0]
    if group >= 4:
        splits += [(1, n) for n in (2, 3, 5, 7, 10) if shape.channels % (16 * n) == 0]
    return splits


def _worth(shape: Shape, t: Tiling) -> bool:
    """Whether registers suffice, no warp is idle, and a window is shared in one pass only."""
    if not _fits_registers(shape, t):
        return False
    if shape.pair and t.wk > 1:
        return False
    if (t.wm // (4 if t.wgmma else 1) - 1) * t.mt * (64 if t.wgmma else 16) >= shape.cells(t):
        return False
    return shape.passes(t) == 1 or (t.ksplit == 1 and t.wk == 1 and t.chunks == 1)


def _fits_registers(shape: Shape, t: Tiling) -> bool:
    return t.threads * registers(shape, t) <= 65536 and registers(shape, t) <= 240


def _stages(shape: Shape, t: Tiling, limit: int) -> Iterator[Tiling]:
    """Yield the most taps a stage that let one, two or three blocks share a multiprocessor."""
    taps, seen = shape.taps(t), set[int]()
    for blocks in (1, 2, 3):
        for stage in (taps, *(n for n in _STAGES if n < taps)):
            staged = replace(t, stage=stage)
            if shape.pair and stage < taps:
                continue
            if shape.shared(staged) <= min(limit, (limit + 1024) // blocks - 1024):
                if stage not in seen:
                    yield from _variants(shape, staged)
                seen.add(stage)
                break


def _variants(shape: Shape, t: Tiling) -> Iterator[Tiling]:
    """Yield the depths and, where cells may be silent, both ways of dealing with them."""
    taps = shape.taps(t)
    for depth in (1,) if shape.pair else (1, 2, 3) if t.wgmma else (1, 2):
        deep = replace(t, depth=depth)
        stages = {t.stage, taps % t.stage or t.stage}
        steps = shape.chunk(t).steps
        uneven = any(n % t.wk or n // t.wk * steps % depth for n in stages)
        if (depth > 1 and t.wgmma and uneven) or not _fits_registers(shape, deep):
            continue
        yield deep
        if t.ksplit == 1 and shape.out > 8:  # parts of windows do not know what is silent
            yield replace(deep, compact=True)


def registers(shape: Shape, t: Tiling) -> int:
    parts = 2 if shape.mode == 3 else 1
    if t.wgmma:
        operands = 8 * t.mt * parts * t.depth
    else:
        operands = (2 * t.nt + 4 * (t.mt if t.depth > 1 else 1)) * parts * t.depth
    sums = t.mt * t.nt * 4 * (2 if shape.mode == 3 else 1)
    held = shape.taps(t) * shape.steps * t.nt * 2 * parts if shape.pair and not t.wgmma else 0
    return up(sums + operands + held + 2 * t.mt + 40, 8)


def resident(shape: Shape, t: Tiling, arch: int) -> int:
    """Estimate the blocks that share a multiprocessor, which keeps 1 KiB for each of them."""
    by_shared = (shared_limit(arch) + 1024) // (shape.shared(t) + 1024)
    return min(by_shared, 65536 // (registers(shape, t) * t.threads))


def clustered(shape: Shape, t: Tiling, batch: int, arch: int, processors: int) -> bool:
    """Whether blocks that share a window are a cluster: where all of them find room at once.

    Those of a cluster run on the same 16 multiprocessors. On an H200 clusters save 3 to 9 % of a
    pass, and cost 9 to 10 % where there is no room for all at once (``python -m
    experiments.gpu.latency DIGITS --clusters``). How large one may be and where it runs is the
    device's, so there are clusters only on devices like the one that was measured.
    """
    x, y, _ = shape.blocks(t, batch)
    room = processors // _TOGETHER * (_TOGETHER * resident(shape, t, arch) // t.ksplit)
    return serves(arch, processors) and 1 < t.ksplit <= _TOGETHER and x * y <= room


def estimate(shape: Shape, t: Tiling, batch: int, arch: int, processors: int) -> float:
    """Estimate the time of a launch in clock cycles, to rank tilings.

    A block brings its input, sums planes, inhibits, multiplies and responds; products go at the
    rate of ``mma.sync`` or ``wgmma`` or of their operands' reads, all else at the rate of
    instructions. Blocks share a multiprocessor as registers and shared memory allow, and then one
    multiplies while another does the rest. Constants were fitted to an H200.
    """
    grid = shape.blocks(t, batch)
    blocks = grid[0] * grid[1] * grid[2]
    heard = _HEARD if t.compact else 1.0
    taps, warps = shape.taps(t), t.wm * t.wn
    passes = -(-int(shape.cells(t) * heard) // (t.wm * t.mt * 16))
    steps = taps * shape.steps
    products = 3.0 if shape.mode == 3 else 1.0
    parts = 2.0 if shape.mode == 3 else 1.0
    tile = 1.0 if t.wgmma else 1.6
    multiplied = passes * warps * t.mt * t.nt * steps * tile * products
    reads_of_weights = t.mt * t.nt * products / 2 if t.wgmma else t.nt * 2 * parts
    read = passes * warps * steps * (t.mt * (16 if shape.pair else 4) * parts + reads_of_weights)
    # a warp's chain of dependent steps cannot be quicker than its latency
    waiting = 90.0 / t.depth if t.wgmma else 140.0 if t.depth == 1 else 60.0
    chain = passes * steps / t.wk * (max(30.0, t.mt * t.nt * 4 * tile * products) + waiting)
    busy = max(1.35 * max(multiplied, read), chain)
    cells = shape.cells(t)
    pixels = t.group * (t.rows + shape.kernel // t.ksplit - 1) * shape.width
    moved = taps * t.chunks * shape.tap_words(t) * 4.0 * (passes if taps > t.stage else 1)
    moved += pixels * shape.cell_bytes * parts
    moved += cells * t.nt * t.wn * 32 * (2 if t.ksplit > 1 else 0)
    planes = t.nt * t.wn * 8
    issued = pixels * shape.cell_bytes * 1.25 + cells * shape.kernel**2 / t.ksplit * 3
    issued += cells * planes * ((6 + 2 * t.wk) * heard + 0.3 * t.compact)
    rate = min(48.0, t.threads / 4)
    other = 2500 + moved / 16 + issued / rate + 60 * passes * -(-taps // t.stage) * t.chunks
    other += 1000 * t.spread + 2500 * (t.ksplit > 1) + 400 * t.compact
    together = min(max(1, min(resident(shape, t, arch), 16)), -(-blocks // processors))
    waves = -(-blocks // (processors * together))
    if together == 1:
        return float(waves * (busy + other))
    return float(waves * (together * max(busy, other) + min(busy, other)))
