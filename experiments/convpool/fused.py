"""Convolution and average pooling as one operation: ``conv_avgpool.cu``.

The mean of p x p neighbouring results of a convolution is the convolution, at stride p, of the means of p x p
neighbouring inputs (the *direct sum* of the paper): p^2 times fewer products, and no map in between.
"""

from dataclasses import dataclass
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
_STAGES = 3  # buffers of the weights of a tap


def tf32(x: Array) -> Array:
    """Round finite numbers to TF32 (10 bits of fraction), ties away from zero, as float32."""
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)


@dataclass(frozen=True, slots=True)
class Shape:
    batch: int
    channels: int  # in, as stored
    planes: int
    out_height: int
    out_width: int
    kernel: int  # taps of the filter a side
    pool: int  # stride of the product, and places a side of the box sums
    precision: Precision

    @property
    def values(self) -> int:  # channels in 16 bytes
        return 8 if self.precision == "fp16" else 4

    @property
    def parts(self) -> int:  # numbers that an operand is the sum of
        return 1 if self.precision == "fp16" else 2

    @property
    def patches(self) -> int:  # of 8 x 8 outputs
        return self.batch * -(-self.out_height // 8) * -(-self.out_width // 8)

    def chunks(self, tiling: "Tiling") -> int:
        return -(-self.channels // (self.values * tiling.units))

    def slices(self, tiling: "Tiling") -> int:
        return -(-self.planes // tiling.planes)

    def blocks(self, tiling: "Tiling") -> int:
        return -(-self.patches // tiling.patches) * self.slices(tiling)

    def shared(self, tiling: "Tiling") -> int:
        """Bytes of dynamic shared memory of a block: places, sums and inputs of a chunk, weights of taps."""
        side = 7 * self.pool + self.kernel  # rows of sums that a patch needs
        row, width = side + self.pool - 1, (8 + (self.kernel - 1) // self.pool) | 1
        places = tiling.patches * row**2
        inputs = places + (3 if self.pool < 4 else 2) * row  # with what the last sums may read beyond
        unit = (tiling.patches * side * min(self.pool, self.kernel) * width + 5) // 8 * 128 + 32
        sums, weights = self.parts * tiling.units * unit, self.parts * tiling.units * tiling.planes * 16
        return sum(up(n, 128) for n in (4 * places, sums, inputs * tiling.units * 16)) + _STAGES * weights


@dataclass(frozen=True, slots=True)
class Tiling:
    """How a block works; see the head of the kernel."""

    patches: int  # of 8 x 8 outputs
    planes: int
    units: int  # of 16 bytes of channels, a chunk (even)
    warps: tuple[int, int]  # along outputs and along planes

    @property
    def threads(self) -> int:
        return 32 * self.warps[0] * self.warps[1]

    def words(self) -> str:
        return f"{64 * self.patches}x{self.planes}, {self.units} units, {self.warps[0]}x{self.warps[1]} warps"


def kernel(shape: Shape, tiling: Tiling) -> Kernel:
    """Return the kernel, specialised; sizes beside filter and pooling come with the launch."""
    defines = {
        "MAP": int(shape.precision == "fp16"), "KSIZE": shape.kernel, "STRIDE": shape.pool,
        **named(tiling, "patches planes units"), "STAGES": _STAGES,
        "WARPS_M": tiling.warps[0], "WARPS_N": tiling.warps[1],
    }  # fmt: skip
    return Kernel(
        str(Path(__file__).with_name("conv_avgpool.cu")), "conv_avgpool", tuple(defines.items()),
        threads=tiling.threads, shared=shape.shared(tiling), arch=80,
        registers=min(255, 65536 // tiling.threads // 8 * 8),
    )  # fmt: skip


def candidates(shape: Shape, arch: int, processors: int) -> list[Tiling]:
    """Return the tilings that fit a device: those that fill it first, then large blocks; else UsageError."""
    if arch < 80:
        raise UsageError(f"compute capability {arch / 10:.1f}: convolution with pooling needs 8.0 or above")
    most = shared_limit(arch) - 128  # beside the dynamic memory
    columns = [n for n in (32, 64, 128) if n < 2 * up(shape.planes, 32)]
    warps = ((2, 1), (4, 1), (4, 2), (2, 4), (4, 4))
    found: list[Tiling] = []
    for patches, planes, units, (m, n) in product((1, 2, 4), columns, (2, 4), warps):
        tiling, rows, tiles = Tiling(patches, planes, units, (m, n)), patches * 4 // m, planes // 8 // n
        if patches > 2 * shape.patches or shape.values * (units - 2) >= shape.channels:
            continue
        if not rows or not tiles or patches * 4 % m or tiles % 4 or shape.shared(tiling) > most:
            continue
        held = rows * tiles * 4 * shape.parts  # registers of sums
        operands = (4 * rows + 2 * tiles) * shape.parts
        if held >= 16 and held + operands + 50 <= min(255, 2048 // m // n):  # 50 for all else
            found.append(tiling)
    if not found:
        what = f"a filter of {shape.kernel}x{shape.kernel} with pooling {shape.pool} does not fit"
        raise UsageError(f"{what} the {most} bytes of shared memory of a block; use a smaller filter")

    def rank(tiling: Tiling) -> tuple[float, ...]:
        idle = max(0.0, 1 - shape.blocks(tiling) / processors)
        return idle, -tiling.patches * tiling.planes, tiling.units, tiling.threads

    return sorted(found, key=rank)


def conv_avgpool(x: Array, w: Array, pool: int, *, padding: int = 0, precision: Precision = "fp32") -> Array:
    """``avg_pool2d(conv2d(x, w, padding=padding), pool)`` of PyTorch as one operation on CuPy arrays.

    ``x`` (B, C, H, W) and ``w`` (K, C, k, k), k of 1 .. 11, are of the type of the precision (`DTYPES`);
    ``pool`` is 2 .. 4. Returns (B, K, (H + 2 padding - k + 1) // pool, ...), a view of channel-last memory.
    """
    from neocog.cuda.launcher import gpu

    return ConvAvgPool(w, pool, padding=padding, precision=precision, machine=gpu(int(w.device.id)))(x)


class ConvAvgPool:
    """`conv_avgpool` whose weights are packed once, by the first of `candidates` or a ``tiling``."""

    def __init__(
        self, w: Array, pool: int, *, machine: Machine, precision: Precision, padding: int = 0,
        tiling: Tiling | None = None,
    ) -> None:  # fmt: skip
        if w.ndim != 4 or w.shape[2] != w.shape[3] or w.shape[2] not in range(1, 12) or pool not in (2, 3, 4):
            wanted = "expected (planes, channels, k, k), k 1 to 11; 2 to 4"
            raise InputError(f"got filters {w.shape}, pooling {pool}; {wanted}")
        self.pool, self.padding, self.precision = pool, padding, precision
        self._machine, self._w, self._tiling = machine, w, tiling
        self.planes, self.inputs, self.kernel = int(w.shape[0]), int(w.shape[1]), int(w.shape[2])
        self._packed: dict[tuple[int, int], Array] = {}

    def __call__(self, x: Array) -> Array:
        """Return the pooled convolution of x (B, C, H, W), a view of channel-last memory."""
        machine = self._machine
        for name, array in (("x", x), ("w", self._w)):
            if str(array.dtype) != DTYPES[self.precision]:
                raise InputError(f"{name}: got {array.dtype}, expected {DTYPES[self.precision]}")
        least = self.kernel + self.pool - 1
        if x.ndim != 4 or x.shape[1] != self.inputs or min(x.shape[2:]) + 2 * self.padding < least:
            wanted = f"(batch, {self.inputs}, {least} or more, {least} or more)"
            raise InputError(f"got {x.shape}, expected {wanted}")
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
        outer = self.kernel + self.pool - 1  # what one output sees
        rows, columns = ((n + 2 * self.padding - outer) // self.pool + 1 for n in (height, width))
        return Shape(batch, channels, self.planes, rows, columns, self.kernel, self.pool, self.precision)

    def launch(self, stored: Array, out: Array) -> Launch:
        """Return the launch for x as :meth:`stored` gives it, into out (B, H', W', K)."""
        machine, shape = self._machine, self.shape(stored.shape)
        tiling = self._tiling or candidates(shape, machine.arch, machine.processors)[0]
        if (key := (tiling.planes, tiling.units)) not in self._packed:
            self._packed[key] = pack(machine.xp, self._w, shape, tiling)
        numbers = (*stored.shape, shape.out_height, shape.out_width, self.planes, self.padding)
        args = (stored, self._packed[key], out, *map(np.int32, numbers))
        return Launch(kernel(shape, tiling), (shape.blocks(tiling), 1, 1), args)


def pack(xp: Any, w: Array, shape: Shape, tiling: Tiling) -> Array:
    """Pack filters (K, C, k, k) in the order in which blocks take them.

    Returns 32-bit words, flat: slice of planes, chunk of channels, tap, (fp32: higher, lower part,) unit,
    plane, channel of the unit. Planes are dealt so that a lane ends with eight neighbouring ones.
    """
    (planes, inputs), values = w.shape[:2], shape.values
    slices, chunks, taps = shape.slices(tiling), shape.chunks(tiling), shape.kernel**2
    full = xp.zeros((slices * tiling.planes, taps, chunks * tiling.units * values), w.dtype)
    full[:planes, :, :inputs] = w.reshape(planes, inputs, taps).transpose(0, 2, 1)
    tile, n = np.divmod(np.arange(tiling.planes), 8)
    dealt = xp.asarray(32 * (tile // 4) + 8 * (n // 2) + 2 * (tile % 4) + n % 2)
    full = full.reshape(slices, tiling.planes, taps, chunks, tiling.units, values)[:, dealt]
    full = full.transpose(0, 3, 2, 4, 1, 5)  # slice, chunk, tap, unit, plane, channel
    if shape.parts == 2:
        high = tf32(full)
        full = xp.stack([high, tf32(full - high)], axis=3)
    return xp.ascontiguousarray(full).reshape(-1).view(np.uint32)
