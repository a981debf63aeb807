"""How the work of ``kernels/s_tensor.cu`` is dealt to blocks and warps; tilings by shape and batch."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from neocog.cuda.kernel import shared_limit, up
from neocog.errors import UsageError


@dataclass(frozen=True, slots=True)
class Tiling:
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
    def steps(self) -> int:
        """Products of 32 bytes' depth a tap."""
        return 1 if self.pair else self.channels * (2 if self.joined else 1) // 16

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
        cell_bytes = 2 * self.chunk(tiling).channels  # of one of the two halves of mode 3
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


#: Bytes that the kernel takes beside its dynamic shared memory.
_STATIC = 32


@cache
def _table() -> Any:
    return json.loads(Path(__file__).with_name("tilings.json").read_text(encoding="utf-8"))


def tilings(kind: str, shape: Sequence[int], batch: int, arch: int) -> Iterator[list[Any]]:
    """Yield tilings of ``tilings.json`` (``"s"`` or ``"c"``): that of the shape, then of the nearest."""
    # architectures other than 90 are told apart by the memory of a block
    fitting = [a for a in (86, 80, 100) if shared_limit(a) <= shared_limit(arch)]
    like = 90 if arch == 90 else fitting[-1] if fitting else 86
    known = [(other, rows) for found, other, rows in _table()[kind] if found == like]
    sizes = np.log1p(shape)
    for _, rows in sorted(known, key=lambda one: float(np.abs(np.log1p(one[0]) - sizes).sum())):
        yield next(tiling for least, *tiling in reversed(rows) if least <= batch)


@cache
def choose(shape: Shape, batch: int, arch: int) -> Tiling:
    """Return the tiling of this shape, or of the nearest one that fits; a UsageError if none does."""
    some = [Tiling(*row) for row in tilings("s", astuple(shape), batch, arch)]
    # a row of cells, few planes, of the window all or a row
    some += [Tiling(1, 1, 2, 1, 1, 2, min(4, -(-shape.planes // 8)), n) for n in (1, shape.kernel)]
    for t in some:
        rows = shape.out if t.group > 1 else min(t.rows, shape.out)
        t = replace(t, rows=rows, stage=shape.taps(t) if shape.pair else min(t.stage, shape.taps(t)))
        if fits(shape, t, arch):
            return t
    raise UsageError(
        f"no tiling of a {shape.kernel}x{shape.kernel} layer over {shape.channels} "
        f"channels fits {shared_limit(arch)} bytes of shared memory; use --plan card"
    )


def fits(shape: Shape, t: Tiling, arch: int) -> bool:
    """Whether the kernel can deal a layer so, and has the memory for it."""
    if shape.kernel % t.ksplit or (shape.pair and t.spread):
        return False
    if (t.spread or t.chunks > 1) and shape.passes(t) > 1:
        return False
    if t.chunks > 1 and (shape.channels % (16 * t.chunks) or shape.joined):
        return False
    if t.wgmma and t.depth > 1:  # whole turns in every stage
        taps, steps = shape.taps(t), shape.chunk(t).steps
        if any(n % t.wk or n // t.wk * steps % t.depth for n in (t.stage, taps % t.stage or t.stage)):
            return False
    return shape.shared(t) <= shared_limit(arch) - _STATIC


def clustered(shape: Shape, t: Tiling, batch: int, arch: int, processors: int) -> bool:
    """Whether blocks that share a window are a cluster: where all of them find room at once.

    On an H200 clusters save 3 to 9 % of a pass, and cost 9 to 10 % where there is no room for all at once
    (``python -m experiments.gpu.latency DIGITS --clusters`` of commit bfe99381). How large one may be and
    where it runs is the device's, so there are clusters only on devices like the one that was measured.
    """
    x, y, _ = shape.blocks(t, batch)
    return serves(arch, processors) and x * y <= t.clusters


def serves(arch: int, processors: int) -> bool:
    """Whether a device is like the H200 that was measured, which has 132 multiprocessors."""
    return arch == 90 and abs(processors - 132) <= 13
