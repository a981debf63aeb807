"""How ``kernels/winograd*.cu`` are specialised for a convolution, fed and launched."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from neocog.cuda.kernel import Array, Kernel, Launch
from neocog.cuda.rounding import tf32
from neocog.cuda.steps import up
from neocog.cuda.winograd_transforms import TILES, Split, cook_toom, transform_filters
from neocog.errors import UsageError
from neocog.network.arrays import array_module

Version = Literal["global", "tensor", "fused"]
VERSION_NAMES: tuple[Version, ...] = ("global", "tensor", "fused")
Operand = Literal["fp32", "tf32", "fp16", "tf32x3", "fp16x3"]
#: In the order of OPERAND in the kernels; of ``global`` and ``fused`` the first alone.
_OPERANDS: tuple[Operand, ...] = ("fp32", "tf32", "fp16", "tf32x3", "fp16x3")
#: What pairs of halves may become in the Winograd domain: half of the largest half.
_LARGEST_HALF = 2.0**15

#: Which kernel of ``winograd.cu`` is built, STAGE.
_STAGE = {"filter_transform": 0, "input_transform": 1, "product": 2}
_STAGE |= {"output_transform": 3, "s_output_transform": 3}
_THREADS = {"filter_transform": 256, "input_transform": 128}
_THREADS |= {"output_transform": 128, "s_output_transform": 128}
#: Most registers of each; the inverse with two sizes of parts holds both domains' rows.
_REGISTERS = {"filter_transform": 64, "input_transform": 96}
_REGISTERS |= {"output_transform": 128, "s_output_transform": 128}
#: Buffers of the tensor cores' operands, by bytes of channels.
_STAGES = {32: 4, 64: 4, 128: 3}


@dataclass(frozen=True, slots=True)
class Shape:
    """A convolution of stride 1, channel-last, whose input has its padding as a border.

    Attributes
    ----------
    kernel : int
        Taps along an axis.
    width : int
        Rows (and columns) of the input, border included.
    channels : int
        Channels of the input as stored.
    planes : int
        Planes of the output as stored, a multiple of 8.
    source, target : int
        Types of both maps: 0 float32, 1 half, 2 bfloat16.
    """

    kernel: int
    width: int
    channels: int
    planes: int
    source: int = 0
    target: int = 0

    @property
    def out(self) -> int:
        """Rows (and columns) of the output."""
        return self.width - self.kernel + 1


class Response(NamedTuple):
    """What turns sums into responses of S-cells: v (batch, OUT, OUT), silence (planes,), theta'."""

    inhibition: Array
    silence: Array
    theta: np.float32


@dataclass(frozen=True)
class Plan:
    """A convolution and the way it is computed.

    Attributes
    ----------
    shape : Shape
        The convolution.
    split : Split
        Parts of its filters.
    m : int
        Outputs of a tile along an axis, 2 to 5.
    version : {"global", "tensor", "fused"}
        See ``kernels/winograd.cu``.
    operand : {"fp32", "tf32", "fp16", "tf32x3", "fp16x3"}
        Operands of the products; on tensor cores all but the first. The last two give float32
        results: every float32 as the sum of two TF32 numbers, or of two halves.
    largest : tuple of float
        Largest input and filter, in absolute value, that ``fp16x3`` takes: halves have a range.

    Raises
    ------
    UsageError
        If the parts do not go together.
    """

    shape: Shape
    split: Split
    m: int
    version: Version = "global"
    operand: Operand = "fp32"
    largest: tuple[float, float] = (1.0, 1.0)

    def __post_init__(self) -> None:
        if self.version not in VERSION_NAMES:
            raise UsageError(
                f"version {self.version!r} is unknown: choose {', '.join(VERSION_NAMES)}"
            )
        if self.m not in TILES:
            raise UsageError(f"tiles of {self.m}x{self.m} outputs: choose 2 to 5")
        if (self.version == "tensor") != (self.operand != "fp32"):
            raise UsageError(
                f"operands {self.operand} with version {self.version!r}: tensor takes tf32, fp16, "
                "tf32x3 or fp16x3, global and fused take fp32"
            )
        if self.version == "fused" and len(self.split.groups) > 1:
            raise UsageError(f"parts {self.split.sizes}: version 'fused' takes one size only")
        if self.shape.planes % 8 or self.shape.kernel != self.split.kernel:
            raise UsageError(
                f"{self.shape.planes} planes stored, filters {self.shape.kernel}x"
                f"{self.shape.kernel} with parts of {self.split.kernel}: expected a multiple of 8 "
                "and one filter size"
            )

    # -- sizes -------------------------------------------------------------------------------------
    @property
    def tiles(self) -> int:
        """Tiles along an axis."""
        return -(-self.shape.out // self.m)

    @property
    def itemsize(self) -> int:
        """Bytes of an operand."""
        return 2 if self.operand == "fp16" else 4

    @property
    def row_bytes(self) -> int:
        """Bytes of channels that the tensor cores' loader takes at a time."""
        held = self.shape.channels * self.itemsize
        if self.operand in ("tf32x3", "fp16x3") and held % 128 == 0:  # whole lines of the cache
            return 128
        return 64 if held > 32 or self.operand == "fp16x3" else 32

    @property
    def channels(self) -> int:
        """Channels in the Winograd domain, those beyond the input's 0."""
        step = self.row_bytes // self.itemsize if self.version == "tensor" else 8
        return up(self.shape.channels, step)

    @cached_property
    def starts(self) -> int:
        """Input tiles of a digit, all points of all pairs of groups."""
        total = 0
        for y in self.split.groups:
            for x in self.split.groups:
                points = (self.m + y.size - 1) * (self.m + x.size - 1)
                total += points * self._axis_starts(y) * self._axis_starts(x)
        return total

    def _axis_starts(self, group: Any) -> int:
        if group.size == self.m:
            return self.tiles + int(group.count) - 1
        return self.tiles * int(group.count)

    @property
    def image_bytes(self) -> int:
        """Bytes of V and W of one digit."""
        v = self.starts * self.channels * self.itemsize
        w = self.split.points(self.m) * self.tiles**2 * self.shape.planes * 4
        return v + w

    @cached_property
    def scales(self) -> tuple[float, float]:
        """Powers of two that V and U of ``fp16x3`` are multiplied by."""
        out = []
        for matrix, largest in zip((2, 1), self.largest, strict=True):
            sums = [abs(cook_toom(self.m, g.size)[matrix]).sum(1).max() for g in self.split.groups]
            out.append(2.0 ** math.floor(math.log2(_LARGEST_HALF / (max(sums) ** 2 * largest))))
        return out[0], out[1]

    def scratch(self, images: int) -> dict[str, tuple[tuple[int, ...], Any]]:
        """Return shape and dtype of V and W for ``images`` digits at a time."""
        if self.version == "fused":
            return {}
        w = images * self.split.points(self.m) * self.tiles**2 * self.shape.planes
        dtype = np.float16 if self.operand == "fp16" else np.float32
        return {
            "winograd_v": ((images * self.starts * self.channels,), dtype),
            "winograd_w": ((w,), np.float32),
        }

    # -- filters -----------------------------------------------------------------------------------
    def arrange(self, w: Array) -> Array:
        """Pad filters with zeros, in the order of the products.

        Parameters
        ----------
        w : ndarray, shape (K, C, k, k)
            Filters as the model has them; of NumPy or CuPy.

        Returns
        -------
        ndarray, shape (k, k, channels, planes) or, on tensor cores, (k, k, planes, channels)
        """
        planes, channels, k, _ = w.shape
        xp = array_module(w)
        out = xp.zeros((k, k, self.channels, self.shape.planes), w.dtype)
        out[:, :, :channels, :planes] = w.transpose(2, 3, 1, 0)
        return xp.ascontiguousarray(out.swapaxes(2, 3)) if self.version == "tensor" else out

    def filters(self, w: Array) -> Array:
        """Return U of filters (K, C, k, k): transformed in float64, rounded once to the operand."""
        u = transform_filters(self.arrange(w.astype(np.float64)), self.split, self.m)
        if self.operand == "fp16":
            return u.astype(np.float16)
        if self.operand == "fp16x3":  # for 8 channels their higher halves, then the lower ones
            u = u * self.scales[1]
            high = u.astype(np.float16)
            halves = [high, (u - high.astype(np.float64)).astype(np.float16)]
            both = [half.reshape(*u.shape[:-1], -1, 1, 8) for half in halves]
            return array_module(u).concatenate(both, axis=-2).view(np.float32).reshape(u.shape)
        return tf32(u) if self.operand == "tf32" else u.astype(np.float32)

    def filter_launch(self, w: Array, u: Array, *, indexing: int = 0) -> Launch:
        """Return the launch that makes U of float32 filters, as :meth:`arrange` gives them.

        ``indexing`` 0 is channel-wise, 1 thread-wise (Lee and Kwak, Fig. 3).
        """
        filters = self.channels * self.shape.planes
        parts = len(self.split.sizes) ** 2
        kernel = self._kernel("filter_transform", INDEXING=indexing)
        grid = (-(-filters // 256), parts, 1)
        if indexing:
            grid = (-(-filters * parts // 256), 1, 1)
        return Launch(kernel, grid, (w, u, np.int32(filters)))

    # -- launches ----------------------------------------------------------------------------------
    def launches(
        self,
        images: int,
        source: Array,
        u: Array,
        target: Array,
        scratch: dict[str, Array],
        processors: int,
        response: Response | None = None,
    ) -> list[Launch]:
        """Return the launches of ``images`` digits; scratch is that of :meth:`scratch`."""
        count = np.int32(images)
        end: tuple[Any, ...] = (target, count)
        if response is not None:
            end = (response.inhibition, response.silence, response.theta, *end)
        if self.version == "fused":
            kernel, grid = self._fused(images, processors, response is not None)
            return [Launch(kernel, grid, (source, u, *end))]
        v, w = scratch["winograd_v"], scratch["winograd_w"]
        pairs = len(self.split.groups) ** 2
        most = max(self._axis_starts(group) for group in self.split.groups) ** 2
        start = Launch(
            self._kernel("input_transform", MAP=self.shape.source),
            (-(-images * most * self.channels // 128), pairs, 1),
            (source, v, count),
        )
        kernel, grid = self._product(images, processors)
        name = "output_transform" if response is None else "s_output_transform"
        inverse = Launch(
            self._kernel(name, MAP=self.shape.target),
            (-(-images * self.tiles**2 * self.shape.planes // 128), 1, 1),
            (w, *end),
        )
        return [start, Launch(kernel, grid, (v, u, w, count)), inverse]

    def geometry(self) -> Iterator[tuple[str, int | float | str]]:
        """Yield the definitions that all kernels of the plan share (see ``winograd.cuh``)."""
        shape = self.shape
        yield from (("M", self.m), ("KSIZE", shape.kernel), ("TILES", self.tiles))
        yield from (("WIDTH", shape.width), ("CHANNELS", shape.channels), ("CV", self.channels))
        yield from (("OUT", shape.out), ("KM", shape.planes))
        yield "OPERAND", _OPERANDS.index(self.operand)
        if self.operand == "fp16x3":
            yield from zip(("V_SCALE", "U_SCALE"), (f"{s!r}f" for s in self.scales), strict=True)
        for i in range(2):
            there = i < len(self.split.groups)
            group = self.split.groups[i if there else 0]
            yield f"R{i}", group.size
            yield f"P{i}", group.count if there else 0
            for name, matrix in zip(
                ("OUTPUT", "FILTER", "INPUT"), cook_toom(self.m, group.size), strict=True
            ):
                yield f"{name}{i}", ",".join(map(_number, matrix.ravel())) if there else "0.0f"

    def _kernel(self, name: str, **more: int) -> Kernel:
        """One of the kernels of ``winograd.cu`` beside the product."""
        defines = (*self.geometry(), *more.items(), ("STAGE", _STAGE[name]))
        arch = 80 if self.operand in ("tf32", "tf32x3") else 75
        return Kernel(
            "winograd.cu", name, defines, _THREADS[name], arch=arch, registers=_REGISTERS[name]
        )

    def _product(self, images: int, processors: int) -> tuple[Kernel, tuple[int, int, int]]:
        bm, bn = self.block(images, processors)
        rows = -(-images * self.tiles**2 // bm)
        grid = (rows, -(-self.shape.planes // bn), self.split.points(self.m))
        if self.version == "tensor":
            warps = 2 if (bm, bn) == (64, 128) else min(4, bm // 16)
            defines = (*self.geometry(), ("BM", bm), ("BN", bn), ("WARPS_M", warps))
            # whole lines need registers that float32's largest blocks do not have
            row = min(self.row_bytes, 64) if bm * bn >= 8192 else self.row_bytes
            defines += (("BYTES", row), ("STAGES", _STAGES[row]))
            shared = _STAGES[row] * (bm + bn) * (row + 16)
            kernel = Kernel("winograd_tensor.cu", "product", defines, 256, shared, 80, 128)
            return kernel, grid
        tm, tn = 8 if bm >= 64 else 4, 8 if bn >= 64 and bm >= 64 else 4
        threads = bm // tm * (bn // tn)
        defines = (*self.geometry(), ("BM", bm), ("BN", bn), ("BK", 8), ("TM", tm), ("TN", tn))
        defines += (("STAGE", _STAGE["product"]),)
        return Kernel("winograd.cu", "product", defines, threads, registers=168), grid

    def block(self, images: int, processors: int) -> tuple[int, int]:
        """Return tiles and planes of a product's block, for least time by a simple count.

        A block's time goes with its products and, for loads, its rim; two blocks run on each
        multiprocessor.
        """
        rows, points = images * self.tiles**2, self.split.points(self.m)

        def cost(size: tuple[int, int]) -> tuple[float, int]:
            bm, bn = size
            blocks = -(-rows // bm) * -(-self.shape.planes // bn) * points
            waves = (
                -(-blocks // (2 * processors))
                if blocks < 16 * processors
                else (blocks / (2 * processors))
            )
            return waves * (bm * bn + 16 * (bm + bn)), -bm * bn

        sizes = [(bm, bn) for bm in (32, 64, 128) for bn in (32, 64, 96, 128)]
        if self.version == "tensor":
            # eight warps of whole 16x16 fragments; float32's sums and totals fill the registers
            sizes = [(bm, bn) for bm, bn in sizes if bm > 32 or bn % 64 == 0] + [(16, 128)]
            if self.operand in ("tf32x3", "fp16x3"):
                sizes = [(bm, bn) for bm, bn in sizes if bm * bn <= 8192]
        return min(sizes, key=cost)

    def _fused(
        self, images: int, processors: int, s_cells: bool
    ) -> tuple[Kernel, tuple[int, int, int]]:
        tiles, points = images * self.tiles**2, self.split.points(self.m)
        columns = -(-self.shape.planes // 32)
        # half the tiles a block where there are few, or where a thread's share would not fit
        few = -(-tiles // 16) * columns < processors
        bt, tn = (8, 4) if few or points > 36 else (16, 8)
        threads = points * (bt // 8) * (32 // tn)
        loop = points * (8 * (bt + 4) + 8 + 8 * 32 + 16)
        shared = 4 * max(loop, points * bt * 36)
        defines = (*self.geometry(), ("MAP", self.shape.source))
        defines += (("OUT_FLOAT", int(self.shape.target == 0)), ("S_CELLS", int(s_cells)))
        defines += (("BT", bt), ("BN", 32), ("BK", 8), ("TM", 8), ("TN", tn), ("SHARED", shared))
        name = "s_winograd" if s_cells else "winograd"
        limit = min(168, 65536 // up(threads, 128) // 8 * 8)
        kernel = Kernel("winograd_fused.cu", name, defines, threads, shared, 80, limit)
        return kernel, (-(-tiles // bt), columns, 1)


def _number(value: Fraction) -> str:
    return f"{float(value)!r}f"
