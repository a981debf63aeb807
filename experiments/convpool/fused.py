"""Convolution and average pooling as one operation: ``conv_avgpool.cu``.

The mean of p x p neighbouring results of a convolution is the convolution, at stride p, of the
means of p x p neighbouring inputs (the *direct sum* of the paper): p^2 times fewer products. One kernel
does it, with no map in between. :func:`candidates` are the ways to deal it to blocks and warps.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np

from neocog.cuda.kernel import Array, Kernel, Launch, Machine, named, shared_limit, up
from neocog.errors import InputError, UsageError
from neocog.network.arrays import array_module

#: ``fp32``: each number as two of TF32; sums are float32.
Precision = Literal["fp32", "fp16"]
#: Type of the arrays by precision.
DTYPES: dict[Precision, str] = {"fp32": "float32", "fp16": "float16"}
_MODES: dict[Precision, int] = {"fp16": 0, "fp32": 3}  # MODE in the kernel
#: MAP in the kernels, by operand type.
MAPS: dict[Precision, int] = {"fp16": 1, "fp32": 0}
#: Columns that ``wgmma_wide.cuh`` has an instruction for.
_COLUMNS = (32, 64, 128, 256)
_BARRIER_BYTES = 16
_STATIC = 128  # bytes of shared memory beside the dynamic
_OTHERS = 50  # registers of a thread beside sums and operands


def tf32(x: Array) -> Array:
    """Round finite numbers to TF32 (10 bits of fraction), ties away from zero, as float32."""
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)


@dataclass(frozen=True, slots=True)
class Shape:
    """What is computed."""

    batch: int
    channels: int  # in, as stored
    planes: int
    out_height: int
    out_width: int
    kernel: int  # taps of the filter a side
    pool: int  # stride of the product
    box: int  # places a side of the box sums
    precision: Precision

    @property
    def values(self) -> int:
        """Channels in 16 bytes."""
        return 8 if self.precision == "fp16" else 4

    @property
    def parts(self) -> int:
        """Numbers that an operand is the sum of."""
        return 1 if self.precision == "fp16" else 2

    @property
    def patches(self) -> int:
        """Patches of 8 x 8 outputs."""
        return self.batch * -(-self.out_height // 8) * -(-self.out_width // 8)

    @property
    def side(self) -> int:
        """Rows of sums that a patch needs."""
        return 7 * self.pool + self.kernel

    def chunks(self, tiling: "Tiling") -> int:
        return -(-self.channels // (self.values * tiling.units))

    def slices(self, tiling: "Tiling") -> int:
        return -(-self.planes // tiling.planes)

    def tiles(self, tiling: "Tiling") -> int:
        return -(-self.patches // tiling.patches)

    def items(self, tiling: "Tiling") -> int:
        """Pieces of work, each for a block."""
        return self.tiles(tiling) * self.slices(tiling) * tiling.split

    def stage_bytes(self, tiling: "Tiling") -> int:
        """Bytes of the weights of one tap and chunk."""
        return self.parts * tiling.units * tiling.planes * 16

    def raw_bytes(self, tiling: "Tiling") -> int:
        """Bytes of the inputs of one chunk."""
        side = self.side + self.box - 1
        beyond = (3 if self.box < 4 else 2) * side  # that the last rows of sums may read
        return up((self.places(tiling) + beyond) * tiling.units * 16, 128)

    def places(self, tiling: "Tiling") -> int:
        return tiling.patches * (self.side + self.box - 1) ** 2

    def shared(self, tiling: "Tiling") -> int:
        """Bytes of dynamic shared memory of a block."""
        width = (8 + (self.kernel - 1) // self.pool) | 1
        patch = self.side * min(self.pool, self.kernel) * width * 16
        unit = (tiling.patches * patch // 16 + 5) // 8 * 128 + 32
        sum_bytes = up(self.parts * tiling.units * unit, 128)  # of one chunk
        rings = tiling.sums * sum_bytes + tiling.raws * self.raw_bytes(tiling)
        barriers = 2 * tiling.stages + 2 * tiling.sums + 1 + tiling.groups
        head = up(barriers * _BARRIER_BYTES, 128) if tiling.wgmma else 0
        head += up(4 * self.places(tiling), 128)
        return head + rings + tiling.stages * self.stage_bytes(tiling)


@dataclass(frozen=True, slots=True)
class Tiling:
    """How a block works; see the head of the kernel."""

    patches: int  # of 8 x 8 outputs
    planes: int
    units: int  # of 16 bytes of channels, a chunk (even)
    stages: int  # buffers of the weights of a tap
    split: int = 1  # blocks that share a sum
    wgmma: bool = True  # compute capability 9.0 alone
    groups: int = 2  # with wgmma, of four warps that multiply
    producers: int = 4  # warps that bring operands
    sums: int = 2  # buffers of box sums
    raws: int = 2  # buffers of inputs
    warps: tuple[int, int] = (4, 2)  # without wgmma, along outputs and along planes

    @property
    def threads(self) -> int:
        if self.wgmma:
            return 128 * self.groups + 32 * self.producers
        return 32 * self.warps[0] * self.warps[1]

    def words(self) -> str:
        text = f"{64 * self.patches}x{self.planes}, {self.units} units, {self.stages} stages"
        text += f", split {self.split}" * (self.split > 1)
        if self.wgmma:
            return text + f", wgmma {self.groups}+{self.producers}"
        return text + f", mma.sync {self.warps[0]}x{self.warps[1]}"


def kernel(shape: Shape, tiling: Tiling) -> Kernel:
    """Return the kernel, specialised; sizes beside filter and pooling come with the launch."""
    defines = {
        "MODE": _MODES[shape.precision], "MAP": MAPS[shape.precision], "KSIZE": shape.kernel,
        "STRIDE": shape.pool, "BOX": shape.box, **named(tiling, "patches planes units stages"),
        "SPLIT": int(tiling.split > 1), "WGMMA": int(tiling.wgmma),
    }  # fmt: skip
    if tiling.wgmma:
        defines |= {"GROUPS": tiling.groups, "PRODUCER_WARPS": tiling.producers}
        defines |= {"SUM_BUFFERS": tiling.sums, "RAW_BUFFERS": tiling.raws}
    else:
        defines |= {"WARPS_M": tiling.warps[0], "WARPS_N": tiling.warps[1]}
    return Kernel(
        str(Path(__file__).with_name("conv_avgpool.cu")), "conv_avgpool", tuple(defines.items()),
        threads=tiling.threads, shared=shape.shared(tiling), arch=90 if tiling.wgmma else 80,
        features="a" if tiling.wgmma else "", registers=min(255, 65536 // tiling.threads // 8 * 8),
    )  # fmt: skip


def candidates(shape: Shape, arch: int, processors: int) -> list[Tiling]:
    """Return the tilings that fit a device, the best first by :func:`estimate`; UsageError if none fits."""
    if arch < 80:
        raise UsageError(f"compute capability {arch / 10:.1f}: convolution with pooling needs 8.0 or above")
    most = shared_limit(arch) - _STATIC
    found = [split for tiling in _all(shape, arch) if shape.shared(tiling) <= most
             for split in _splits(shape, tiling, processors)]  # fmt: skip
    if not found:
        raise UsageError(
            f"a filter of {shape.kernel}x{shape.kernel} with pooling {shape.pool} does not fit "
            f"the {most} bytes of shared memory of a block; use a smaller filter"
        )
    return sorted(set(found), key=lambda tiling: estimate(shape, tiling, processors))


def _all(shape: Shape, arch: int) -> Iterator[Tiling]:
    """Yield tilings of one block a sum; too large ones among them."""
    columns = [n for n in _COLUMNS if n < 2 * up(shape.planes, 32)]
    for patches, planes, units in product((1, 2, 4), columns, (2, 4)):
        if patches > 2 * shape.patches or shape.values * (units - 2) >= shape.channels:
            continue
        if arch == 90:
            yield from _wgmma(shape, patches, planes, units)
        else:
            yield from _mma(shape, patches, planes, units)


def _wgmma(shape: Shape, patches: int, planes: int, units: int) -> Iterator[Tiling]:
    groups = min(patches, 2)
    sums = patches // groups * planes // 2 * shape.parts  # registers of a thread's sums
    if sums > 128:
        return
    producers = 8 if sums <= 64 else 4  # more would take registers from those that multiply
    for buffers in ((2, 2), (2, 1), (1, 1)):
        tiling = Tiling(patches, planes, units, 2, 1, True, groups, producers, *buffers)
        room = shared_limit(90) - _STATIC - shape.shared(tiling) - 128
        if room < 0:
            continue
        stages = 2 + room // (shape.stage_bytes(tiling) + 2 * _BARRIER_BYTES)
        yield replace(tiling, stages=min(stages, 12))


def _mma(shape: Shape, patches: int, planes: int, units: int) -> Iterator[Tiling]:
    if planes > 128:
        return
    for warps in ((2, 1), (4, 1), (4, 2), (2, 4), (4, 4)):
        rows, columns = patches * 4 // warps[0], planes // 8 // warps[1]
        if not rows or not columns or patches * 4 % warps[0] or columns % 4:
            continue
        held = rows * columns * 4 * shape.parts  # registers of sums
        operands = (4 * rows + 2 * columns) * shape.parts
        if held < 16 or held + operands + _OTHERS > min(255, 2048 // warps[0] // warps[1]):
            continue
        yield Tiling(patches, planes, units, 3, 1, False, 0, 0, sums=1, raws=1, warps=warps)


def _splits(shape: Shape, tiling: Tiling, processors: int) -> Iterator[Tiling]:
    """Yield a tiling with its sum shared by more and more blocks, while there are idle ones."""
    yield tiling
    warps = 4 * tiling.groups if tiling.wgmma else tiling.warps[0] * tiling.warps[1]
    if tiling.patches * tiling.planes * 2 > 64 * warps:
        return  # a thread has more than 64 sums, and no registers left to add parts up
    chunks, items = shape.chunks(tiling), shape.items(tiling)
    for split in range(2, min(chunks, 2 * processors // items) + 1):
        share = -(-chunks // split)
        if -(-chunks // share) == split:
            yield replace(tiling, split=split)


#: Guesses that :func:`estimate` is made of: bytes a cycle that a multiprocessor gets from L2 and
#: from shared memory, instructions for a unit of sums and a cycle of a warp, cycles around an item.
_L2, _SHARED, _SUM_INSTRUCTIONS, _ISSUED, _AROUND = 26.0, 105.0, 45.0, 0.4, 4000.0
_TAP = 50.0  # cycles that the barriers of a tap take
_LATENCY = 1200.0  # cycles from asking for the weights of a tap to having them


def estimate(shape: Shape, tiling: Tiling, processors: int) -> float:
    """Return a guess at the cycles of a launch, to rank tilings by."""
    taps = shape.kernel**2
    loaders = tiling.producers - 1 if tiling.wgmma else tiling.threads // 32
    products = (2 * shape.parts - 1) * tiling.units // 2 * taps * tiling.patches  # of 64 cells by 16 bytes
    multiply = products * tiling.planes * shape.parts / (2 if tiling.wgmma else 1)
    moved = float(products * (2048 + 32 * tiling.planes) * tiling.wgmma)  # bytes of shared memory
    sums = tiling.patches * shape.side**2 * tiling.units
    adding = sums * _SUM_INSTRUCTIONS / 32 / (loaders * _ISSUED)
    moved += 16 * sums * (shape.box + 1 + shape.parts) + taps * shape.stage_bytes(tiling)
    fetched = shape.raw_bytes(tiling) + taps * shape.stage_bytes(tiling)
    busy = max(multiply, moved / _SHARED, fetched / _L2)
    chunk = max(busy, adding) if tiling.wgmma else busy + adding
    chunk *= 1.0 + 0.1 * (2 - tiling.sums) + 0.05 * (2 - tiling.raws)
    chunk += taps * _TAP
    # weights are asked for as many taps ahead as there are buffers, less those being read
    chunk = max(chunk, taps * _LATENCY / (tiling.stages - 1.5))
    share = -(-shape.chunks(tiling) // tiling.split)
    outputs = tiling.patches * 64 * tiling.planes * 4
    around = _AROUND + outputs * (1 if tiling.split == 1 else 1 + 2 * tiling.split / 4) / _L2
    together = 1 if tiling.wgmma else max(1, min(shared_limit(80) // max(shape.shared(tiling), 1), 2))
    waves = -(-shape.items(tiling) // (processors * together))
    return float(waves * together**0.5 * (share * chunk + around))


def conv_avgpool(x: Array, w: Array, pool: int, *, padding: int = 0, precision: Precision = "fp32") -> Array:
    """Convolve, then average over ``pool`` x ``pool`` places, as one operation on the GPU of CuPy arrays.

    The same as ``avg_pool2d(conv2d(x, w, padding=padding), pool)`` of PyTorch: places that fill
    no whole box are left out. ``x`` (B, C, H, W) and ``w`` (K, C, k, k), k of 1 .. 11, are both of the
    type of the precision (`DTYPES`); ``pool`` is 2 .. 4. Returns (B, K, (H + 2 padding - k + 1) // pool,
    ...), a view of channel-last memory.
    """
    from neocog.cuda.launcher import gpu

    return ConvAvgPool(w, pool, padding=padding, precision=precision, machine=gpu(int(w.device.id)))(x)


class ConvAvgPool:
    """:func:`conv_avgpool` whose weights are packed once, on ``machine``.

    Packed weights and scratch are kept from call to call: all calls go on one stream, or wait for
    one another. ``box`` places a side are averaged in front of the product: ``pool`` if not given, 1
    for inputs that are averaged already. ``tiling`` is taken instead of the first of `candidates`.
    """

    def __init__(
        self, w: Array, pool: int, *, machine: Machine, precision: Precision, padding: int = 0,
        box: int | None = None, tiling: Tiling | None = None,
    ) -> None:  # fmt: skip
        if w.ndim != 4 or w.shape[2] != w.shape[3] or w.shape[2] not in range(1, 12) or pool not in (2, 3, 4):
            raise InputError(
                f"got filters {w.shape}, pooling {pool}; expected (planes, channels, k, k), k 1 to 11; 2 to 4"
            )
        self.pool, self.padding, self.box = pool, padding, pool if box is None else box
        self.precision, self._machine, self._w, self._tiling = precision, machine, w, tiling
        self.planes, self.inputs, self.kernel = int(w.shape[0]), int(w.shape[1]), int(w.shape[2])
        self._packed: dict[tuple[int, int], Array] = {}
        self._scratch: dict[tuple[int, int], tuple[Array, Array]] = {}

    def __call__(self, x: Array) -> Array:
        """Return the pooled convolution of x (B, C, H, W), a view of channel-last memory."""
        machine = self._machine
        for name, array in (("x", x), ("w", self._w)):
            if str(array.dtype) != DTYPES[self.precision]:
                raise InputError(f"{name}: got {array.dtype}, expected {DTYPES[self.precision]}")
        least = self.kernel + self.box - 1
        if x.ndim != 4 or x.shape[1] != self.inputs or min(x.shape[2:]) + 2 * self.padding < least:
            raise InputError(
                f"got {x.shape}, expected (batch, {self.inputs}, {least} or more, {least} or more)"
            )
        with machine.current():
            stored = self.stored(x)
            s = self.shape(stored.shape)
            out = machine.xp.empty((s.batch, s.out_height, s.out_width, s.planes), stored.dtype)
            machine.launch(self.launch(stored, out))
        return out.transpose(0, 3, 1, 2)

    def stored(self, x: Array) -> Array:
        """Return x (B, C, H, W) as the kernel reads it: channel-last, in whole units."""
        xp = array_module(x)
        last = x.transpose(0, 2, 3, 1)
        channels = up(self.inputs, 16 // last.dtype.itemsize)
        if channels == self.inputs:
            return last if last.flags.c_contiguous else xp.ascontiguousarray(last)
        filled = xp.zeros((*last.shape[:3], channels), last.dtype)
        filled[..., : self.inputs] = last
        return filled

    def shape(self, stored: tuple[int, ...]) -> Shape:
        """Return the sizes for an input as the kernel reads it, (B, H, W, C)."""
        batch, height, width, channels = stored
        outer = self.kernel + self.box - 1  # what one output sees
        rows, columns = ((n + 2 * self.padding - outer) // self.pool + 1 for n in (height, width))
        sizes = (batch, channels, self.planes, rows, columns, self.kernel, self.pool, self.box)
        return Shape(*sizes, self.precision)

    def launch(self, stored: Array, out: Array) -> Launch:
        """Return the launch for x as :meth:`stored` gives it, into out (B, H', W', K)."""
        machine, shape = self._machine, self.shape(stored.shape)
        tiling = self._tiling or candidates(shape, machine.arch, machine.processors)[0]
        items = shape.items(tiling)
        lasting = tiling.wgmma and tiling.split == 1  # blocks take item after item
        blocks = min(items, machine.processors) if lasting else items
        numbers = (*stored.shape, shape.out_height, shape.out_width, self.planes, self.padding, tiling.split)
        if (key := (tiling.planes, tiling.units)) not in self._packed:
            self._packed[key] = pack(machine.xp, self._w, shape, tiling)
        parts = self._parts(machine.xp, shape, tiling)
        args = (stored, self._packed[key], out, *parts, *map(np.int32, numbers))
        return Launch(kernel(shape, tiling), (blocks, 1, 1), args)

    def _parts(self, xp: Any, shape: Shape, tiling: Tiling) -> tuple[Array, Array]:
        """Parts of sums, and counts of blocks that came (0 before and after a launch)."""
        groups = max(tiling.groups, 1)
        sums = tiling.patches * 64 * tiling.planes * shape.items(tiling) if tiling.split > 1 else 1
        counts = shape.tiles(tiling) * shape.slices(tiling) * groups
        key = sums, counts
        if key not in self._scratch:
            self._scratch[key] = xp.empty(sums, np.float32), xp.zeros(counts, np.uint32)
        return self._scratch[key]


def pack(xp: Any, w: Array, shape: Shape, tiling: Tiling) -> Array:
    """Pack filters (K, C, k, k) in the order in which blocks take them.

    Returns 32-bit words, flat: slice of planes, chunk of channels, tap, (fp32: higher, lower part,) unit,
    plane, channel of the unit. Planes are dealt so that a lane ends with eight neighbouring ones.
    """
    planes, inputs = w.shape[:2]
    slices, chunks, taps = shape.slices(tiling), shape.chunks(tiling), shape.kernel**2
    values = shape.values
    full = xp.zeros((slices * tiling.planes, taps, chunks * tiling.units * values), w.dtype)
    full[:planes, :, :inputs] = w.reshape(planes, inputs, taps).transpose(0, 2, 1)
    column = np.arange(tiling.planes)
    tile, n = column // 8, column % 8
    dealt = xp.asarray(32 * (tile // 4) + 8 * (n // 2) + 2 * (tile % 4) + n % 2)
    full = full.reshape(slices, tiling.planes, taps, chunks, tiling.units, values)[:, dealt]
    full = full.transpose(0, 3, 2, 4, 1, 5)  # slice, chunk, tap, unit, plane, channel
    if shape.parts == 2:
        high = tf32(full)
        full = xp.stack([high, tf32(full - high)], axis=3)
    return xp.ascontiguousarray(full).reshape(-1).view(np.uint32)
