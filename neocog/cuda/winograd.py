"""S-cells by decomposed Winograd convolution: how ``winograd*.cu`` and ``inhibition.cu`` are launched.

F(m, r) gives m outputs of a correlation with r taps from n = m + r - 1 products, y = A^T [(G g) * (B^T d)];
in two dimensions Y = A^T [sum over parts and channels of (G g G^T) * (B^T d B)] A (Cook-Toom transforms).
Their error grows fast with n, so larger filters are split into parts of at most 4x4 whose products are
summed before the inverse transform (Lee and Kwak: decomposable Winograd convolution).
"""

import math
from fractions import Fraction
from functools import cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from neocog.cuda.kernel import Array, Forms, Kernel, Launch, LayerStep, Machine, Place, shared_limit, up
from neocog.network.arrays import array_module
from neocog.network.model import s_constants

TILES = (2, 3, 4, 5)  # output tiles that are offered
#: Interpolation points after 0, 1, -1 (the last point is always infinity), by n: the sets with the
#: least float32 error among 2, -2, 1/2, -1/2, 4, -4, 1/4, -1/4.
_MORE_POINTS = {5: ("2",), 6: ("-2", "1/2"), 7: ("2", "-2", "-1/4"), 8: ("2", "-2", "1/2", "-1/2")}
_STRIP = 4  # cells of a column that a thread of the inhibition makes, at most
_SILENT = 1e30  # of a plane that stays silent whatever comes
#: Of the kernels of ``winograd.cu`` beside the product: STAGE, threads, most registers.
_STAGES = {"input_transform": (1, 96), "output_transform": (3, 128), "s_output_transform": (3, 128)}
_PRODUCT_STAGE, _THREADS = 2, 128
_OPERANDS = {"fp32": 0, "fp16": 2, "tf32x3": 3}  # OPERAND in the kernels
_BUFFERS = {32: 4, 64: 4, 128: 3}  # of the tensor cores' operands, by bytes of channels


@cache
def cook_toom(m: int, r: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return A^T (m, n), G (n, r) and B^T (n, n) of F(m, r) as Fractions: m outputs, r taps."""
    n = m + r - 1
    a = tuple(Fraction(p) for p in ("0", "1", "-1", *_MORE_POINTS.get(n, ())))[: n - 1]
    output = [[p**i for p in a] + [Fraction(int(i == m - 1))] for i in range(m)]
    others = [a[:j] + a[j + 1 :] for j in range(len(a))]
    scale = [math.prod((p - q for q in rest), start=Fraction(1)) for p, rest in zip(a, others, strict=True)]
    filters = [[p**i / s for i in range(r)] for p, s in zip(a, scale, strict=True)]
    filters.append([Fraction(int(i == r - 1)) for i in range(r)])
    inputs = [[*_polynomial(rest), Fraction(0)] for rest in others]
    inputs.append(_polynomial(a))
    return np.array(output), np.array(filters), np.array(inputs)


def _polynomial(roots: tuple[Fraction, ...]) -> list[Fraction]:
    """Coefficients of prod (x - root), lowest power first."""
    out = [Fraction(1)]
    for root in roots:
        out = [x - root * y for x, y in zip([Fraction(0), *out], [*out, Fraction(0)], strict=True)]
    return out


class Parts(NamedTuple):
    """Parts of ``size`` taps side by side along one axis, ``of`` them, the first at tap ``first``."""

    size: int
    of: int
    first: int


class Split(NamedTuple):
    """A k x k filter as parts along each axis, the same for rows and columns; padded with zeros behind."""

    kernel: int
    sizes: tuple[int, ...]  # taps of each part, 1 to 4, at most two of them different, largest first

    @property
    def groups(self) -> tuple[Parts, ...]:
        """The parts by size, largest first: one or two groups."""
        sizes = sorted(set(self.sizes), reverse=True)
        return tuple(Parts(s, self.sizes.count(s), sum(n for n in self.sizes if n > s)) for s in sizes)

    def points(self, m: int) -> int:
        """Return the points of all groups in the Winograd domain, for tiles of m x m outputs."""
        return sum(m + g.size - 1 for g in self.groups) ** 2

    def multiplications(self, m: int) -> int:
        """Return the multiplications of a tile of m x m outputs, one channel to one plane."""
        return sum(m + size - 1 for size in self.sizes) ** 2

    def per_output(self, m: int, size: int | None = None) -> float:
        """Return multiplications per output; with ``size``, waste at its rim included."""
        side = size or m
        return self.multiplications(m) * (-(-side // m)) ** 2 / side**2


def uniform(kernel: int, size: int = 3) -> Split:
    """Return a k x k filter split into parts of one size, padded with zeros if need be."""
    return Split(kernel, (size,) * -(-kernel // size))


def best_tile(split: Split, size: int) -> int:
    """Return the m of least multiplications for size x size outputs; the smaller one of equals."""
    return min(TILES, key=lambda m: (split.per_output(m, size), m))


def transform_filters(w: Any, split: Split, m: int) -> Any:
    """Return filters (k, k, ...) as U = G g G^T, float64, NumPy or CuPy: pair of groups, point, part, ..."""
    xp = array_module(w)
    spare = sum(split.sizes) - split.kernel
    w = xp.pad(w.astype(np.float64), ((0, spare), (0, spare), *((0, 0),) * (w.ndim - 2)))
    rest = w.shape[2:]
    out = []
    for y in split.groups:
        gy = xp.asarray(cook_toom(m, y.size)[1].astype(np.float64))
        rows = w[y.first : y.first + y.size * y.of].reshape(y.of, y.size, *w.shape[1:])
        for x in split.groups:
            gx = xp.asarray(cook_toom(m, x.size)[1].astype(np.float64))
            taps = rows[:, :, x.first : x.first + x.size * x.of]
            taps = taps.reshape(y.of, y.size, x.of, x.size, -1)
            half = xp.tensordot(gy, taps, axes=([1], [1]))  # point, part, part, tap, filter
            u = xp.tensordot(gx, half, axes=([1], [3])).transpose(1, 0, 2, 3, 4)
            out.append(u.reshape(-1, *rest))
    return xp.concatenate(out)


class Shape(NamedTuple):
    """A convolution of stride 1, channel-last, whose input has its padding as a border."""

    kernel: int  # taps along an axis
    width: int  # rows (and columns) of the input, border included
    channels: int  # as stored
    planes: int  # as stored, a multiple of 8
    source: int = 0  # types of both maps: 0 float32, 1 half
    target: int = 0

    @property
    def out(self) -> int:
        return self.width - self.kernel + 1


class Response(NamedTuple):
    """What turns sums into responses of S-cells: v (batch, OUT, OUT), silence (planes,), theta'."""

    inhibition: Array
    silence: Array
    theta: np.float32


class Convolution:
    """A convolution on CUDA cores (``fp32``) or tensor cores (``fp16``; ``tf32x3``: a float32 is the sum of
    two TF32 numbers); ``split`` are the parts of its filters, ``m`` the outputs of a tile along an axis,
    2 to 5.
    """

    #: Bytes of the Winograd domain that are worked on at a time. What fits an H200's L2 cache (50 MB)
    #: takes 5 to 20 % longer for many digits: its launches are short.
    most = 128 << 20

    def __init__(self, shape: Shape, split: Split, m: int, operand: str = "fp32") -> None:
        self.shape, self.split, self.m, self.operand = shape, split, m, operand
        self.on_tensor_cores, self.tiles = operand != "fp32", -(-shape.out // m)
        self.itemsize = 2 if operand == "fp16" else 4
        #: Bytes of channels that the tensor cores' loader takes at a time: 128 are a line of the cache.
        held = shape.channels * self.itemsize
        self.row_bytes = 128 if operand == "tf32x3" and held % 128 == 0 else 64 if held > 32 else 32
        #: Channels in the Winograd domain, those beyond the input's 0.
        self.channels = up(shape.channels, self.row_bytes // self.itemsize if self.on_tensor_cores else 8)
        #: Input tiles of a digit, all points of all pairs of groups.
        self.starts = sum((m + g.size - 1) * self._axis_starts(g) for g in split.groups) ** 2
        #: Numbers of a digit in the Winograd domain, inputs and outputs.
        self._v, self._w = self.starts * self.channels, split.points(m) * self.tiles**2 * shape.planes

    def _axis_starts(self, group: Parts) -> int:
        return self.tiles + group.of - 1 if group.size == self.m else self.tiles * group.of

    def images_at_a_time(self, batch: int) -> int:
        """Return how many images go through the kernels together, V and W in `most` bytes."""
        return min(batch, max(1, self.most // (self._v * self.itemsize + self._w * 4)))

    def scratch(self, batch: int) -> Forms:
        """Return shape and dtype of V and W, in `most` bytes."""
        images, dtype = self.images_at_a_time(batch), np.float16 if self.operand == "fp16" else np.float32
        return {"winograd_v": ((images * self._v,), dtype), "winograd_w": ((images * self._w,), np.float32)}

    def filters(self, w: Array) -> Array:
        """Return U of filters (K, C, k, k): (channels, planes) a point, on tensor cores turned."""
        planes, channels, k, _ = w.shape
        xp = array_module(w)
        padded = xp.zeros((k, k, self.channels, self.shape.planes), np.float64)
        padded[:, :, :channels, :planes] = w.transpose(2, 3, 1, 0)
        if self.on_tensor_cores:
            padded = xp.ascontiguousarray(padded.swapaxes(2, 3))
        u = transform_filters(padded, self.split, self.m)
        return u.astype(np.float16 if self.operand == "fp16" else np.float32)

    def launches(self, batch: int, source: Array, u: Array, target: Array, scratch: dict[str, Array],
                 processors: int, response: Response | None = None) -> list[Launch]:  # fmt: skip
        """Return the launches, some images each: (B, width, width, C) -> (B, out, out, planes)."""
        v, w = scratch["winograd_v"], scratch["winograd_w"]
        starts, pairs, order = self._order()
        first = self._kernel("input_transform", MAP=self.shape.source, **order)
        name = "output_transform" if response is None else "s_output_transform"
        last = self._kernel(name, MAP=self.shape.target)
        out: list[Launch] = []
        most = self.images_at_a_time(batch)
        for start in range(0, batch, most):
            some = slice(start, min(start + most, batch))
            images, count = some.stop - start, np.int32(some.stop - start)
            blocks = -(-images * starts**2 * self.channels // _THREADS)
            out.append(Launch(first, (blocks, pairs, 1), (_cut(source, some), v, count)))
            kernel, grid = self._product(images, processors)
            out.append(Launch(kernel, grid, (v, u, w, count)))
            own = response._replace(inhibition=_cut(response.inhibition, some)) if response else ()
            blocks = -(-images * self.tiles**2 * self.shape.planes // _THREADS)
            out.append(Launch(last, (blocks, 1, 1), (w, *own, _cut(target, some), count)))
        return out

    def _order(self) -> tuple[int, int, dict[str, int]]:
        """Return input tiles along an axis, pairs of groups, and defines, of the input's transform."""
        return max(map(self._axis_starts, self.split.groups)), len(self.split.groups) ** 2, {}

    def geometry(self) -> dict[str, int | float | str]:
        """Return the definitions that all kernels share (see ``winograd.cuh``)."""
        defines: dict[str, int | float | str] = {
            "M": self.m, "KSIZE": self.shape.kernel, "TILES": self.tiles, "WIDTH": self.shape.width,
            "CHANNELS": self.shape.channels, "CV": self.channels, "OUT": self.shape.out,
            "KM": self.shape.planes, "OPERAND": _OPERANDS[self.operand],
        }  # fmt: skip
        for i in range(2):
            there = i < len(self.split.groups)
            group = self.split.groups[i if there else 0]
            defines |= {f"R{i}": group.size, f"P{i}": group.of if there else 0}
            matrices = zip(("OUTPUT", "FILTER", "INPUT"), cook_toom(self.m, group.size), strict=True)
            for name, matrix in matrices:
                numbers = ",".join(f"{float(value)!r}f" for value in matrix.ravel())
                defines[f"{name}{i}"] = numbers if there else "0.0f"
        return defines

    def _kernel(self, name: str, **more: int) -> Kernel:
        (stage, registers), arch = _STAGES[name], 80 if self.operand == "tf32x3" else 75
        defines = self.geometry() | more | {"STAGE": stage}
        return Kernel("winograd.cu", name, tuple(defines.items()), _THREADS, arch=arch, registers=registers)

    def _product(self, images: int, processors: int) -> tuple[Kernel, tuple[int, int, int]]:
        bm, bn = self.block(images, processors)
        rows = -(-images * self.tiles**2 // bm)
        grid = (rows, -(-self.shape.planes // bn), self.split.points(self.m))
        defines = self.geometry() | {"BM": bm, "BN": bn}
        if self.on_tensor_cores:
            warps = 2 if (bm, bn) == (64, 128) else min(4, bm // 16)
            # whole lines need registers that float32's largest blocks do not have
            row = min(self.row_bytes, 64) if bm * bn >= 8192 else self.row_bytes
            options = tuple((defines | {"WARPS_M": warps, "BYTES": row, "STAGES": _BUFFERS[row]}).items())
            shared = _BUFFERS[row] * (bm + bn) * (row + 16)
            return Kernel("winograd_tensor.cu", "product", options, 256, shared, 80, 128), grid
        tm, tn = 8 if bm >= 64 else 4, 8 if bn >= 64 and bm >= 64 else 4
        options = tuple((defines | {"BK": 8, "TM": tm, "TN": tn, "STAGE": _PRODUCT_STAGE}).items())
        return Kernel("winograd.cu", "product", options, bm // tm * (bn // tn), registers=168), grid

    def block(self, images: int, processors: int) -> tuple[int, int]:
        """Return tiles and planes of a product's block of least time, which goes with its area and rim."""
        rows, points = images * self.tiles**2, self.split.points(self.m)

        def cost(size: tuple[int, int]) -> tuple[float, int]:
            bm, bn = size
            blocks = -(-rows // bm) * -(-self.shape.planes // bn) * points
            waves: float = blocks / (2 * processors)  # two blocks run on each multiprocessor
            if blocks < 16 * processors:
                waves = math.ceil(waves)
            return waves * (bm * bn + 16 * (bm + bn)), -bm * bn

        sizes = [(bm, bn) for bm in (32, 64, 128) for bn in (32, 64, 96, 128)]
        if self.on_tensor_cores:
            # eight warps of whole 16x16 fragments; float32's sums and totals fill the registers
            sizes = [(bm, bn) for bm, bn in sizes if bm > 32 or bn % 64 == 0] + [(16, 128)]
            if self.operand == "tf32x3":
                sizes = [(bm, bn) for bm, bn in sizes if bm * bn <= 8192]
        return min(sizes, key=cost)


def _cut(array: Array, part: slice) -> Array:
    return None if array is None else array[part]


class Fused:
    """One S-layer in one kernel (``winograd_fused.cu``): parts as large as tiles, half operands."""

    def __init__(self, machine: Machine, convolution: Convolution, a: Array) -> None:
        self._machine, self._convolution = machine, convolution
        shape, split, m = convolution.shape, convolution.split, convolution.m
        parts, points, self._depth = len(split.sizes), 2 * m - 1, up(shape.channels, 16)
        pitch = 2 * self._depth + 16
        self._halo = parts - 1
        self._per_row = points**2 * (convolution.tiles + self._halo) * pitch
        w = np.zeros((shape.kernel, shape.kernel, up(len(a), 16), self._depth))
        w[:, :, : len(a), : a.shape[1]] = a.transpose(2, 3, 0, 1)
        u = transform_filters(w, split, m).astype(np.float16)
        # planes as (16s, 8s, lane / 4), channels as (16s, 8s, lane % 4, pairs)
        u = u.reshape(points**2, parts**2, -1, 2, 8, self._depth // 16, 2, 4, 2)
        u = np.ascontiguousarray(u.transpose(2, 0, 1, 5, 4, 7, 3, 6, 8))
        self._u = machine.xp.asarray(u)

    def launch(self, batch: int, source: Array, target: Array, response: Response) -> Launch:
        """Return the launch for a batch, with a block for every multiprocessor if it is small."""
        # two blocks to a multiprocessor, one loads while the other multiplies; where filters are
        # larger than tiles a block of twice the threads, which reads the filters once a digit
        tiles, most = self._convolution.tiles, shared_limit(self._machine.arch)
        several = self._u.nbytes <= (tiles + self._halo) * self._per_row
        held = max(1, (most // 2 - 1024 if several else most) // self._per_row - self._halo)
        rows = min(held, -(-tiles // max(1, self._machine.processors // batch)))
        bands = -(-tiles // rows)
        rows = -(-tiles // bands)  # as even as can be
        threads = 256 if several else 512
        more = {"CV": self._depth, "ROWS": rows, "MAP": 1, "THREADS": threads}
        defines = tuple((self._convolution.geometry() | more).items())
        shared = (rows + self._halo) * self._per_row
        kernel = Kernel("winograd_fused.cu", "s_winograd", defines, threads, shared, 80, 128)
        return Launch(kernel, (bands, batch, 1), (source, self._u, *response, target))


class WinogradS(LayerStep):
    """US1 .. US4; on tensor cores from compute capability 8.0 on, in ``fp32`` as sums of two TF32 numbers."""

    kind = "S"
    version: ClassVar[str] = "winograd"

    def __init__(self, *place: *Place) -> None:
        super().__init__(*place)
        machine, model, layer, _, precision = place
        source, target = self.source, self.target
        self.taps = kernel = model.spec.s[layer].kernel
        operand = "fp32" if machine.arch < 80 else "fp16" if precision == "fp16" else "tf32x3"
        shape = Shape(kernel, source.width, source.channels, target.channels, source.code, target.code)
        self.convolution = Convolution(shape, *way(kernel, target.size, operand), operand)
        a, theta, silence = s_constants(model.s[layer])
        padded = np.full(target.channels, _SILENT, dtype=np.float32)
        padded[: target.planes] = silence
        self._theta = np.float32(theta)
        self._silence = machine.xp.asarray(padded)
        self._c = machine.xp.asarray(np.ascontiguousarray(model.s[layer].c, dtype=np.float32))
        halves = operand == "fp16" and source.code == target.code == 1
        one = halves and set(self.convolution.split.sizes) == {self.convolution.m}
        self._fused = Fused(machine, self.convolution, np.asarray(a)) if one else None
        if not one:
            self._u = machine.xp.asarray(self.convolution.filters(np.asarray(a)))

    def scratch(self, batch: int) -> Forms:
        size = self.target.size
        domain = {} if self._fused else self.convolution.scratch(batch)
        return {"v": ((batch, size, size), np.float32), **domain}

    def launches(self, batch: int, source: Array, target: Array, scratch: dict[str, Array]) -> list[Launch]:
        """Inhibition, then the convolution: in one kernel, or in pieces."""
        first = self._inhibition(batch, source, scratch["v"])
        response = Response(scratch["v"], self._silence, self._theta)
        if self._fused:
            return [first, self._fused.launch(batch, source, target, response)]
        given = batch, source, self._u, target, scratch, self.machine.processors, response
        return [first, *self.convolution.launches(*given)]

    def _inhibition(self, batch: int, source: Array, v: Array) -> Launch:
        """Return the launch of v (B, size, size) float32 (Ikeda et al. 2011, equation 2)."""
        size, width = self.target.size, self.source.width
        bands = min(size, -(-self.machine.processors // batch))
        rows = -(-size // bands)
        strip = min(_STRIP, rows)
        strips = -(-rows // strip)
        seen = strip * strips + self.taps - 1
        defines = (
            ("MAP", self.source.code), ("WIDTH", width), ("CHANNELS", self.source.channels),
            ("KSIZE", self.taps), ("OUT", size), ("STRIP", strip), ("STRIPS", strips),
        )  # fmt: skip
        shared = 4 * (seen * width + self.taps**2)
        kernel = Kernel("inhibition.cu", "inhibition", defines, 256, shared, registers=96)
        return Launch(kernel, (-(-size // (strip * strips)), 1, batch), (source, self._c, v))


def way(kernel: int, size: int, operand: str) -> tuple[Split, int]:
    """Return parts and tiles of a layer of size x size cells, in float32 those of least multiplications.

    In 16 bits products are nearly free, and parts as large as the tiles share their inputs: 2x2 in US2 and
    US3, whose transforms only add and subtract what a cell sees itself; 3x3 in US4, whose windows are never
    nearly silent (in US2 its error is 9e-2 of the strongest response, in US4 5e-4).
    """
    if operand in ("fp32", "tf32x3"):
        split = uniform(kernel)
        return split, best_tile(split, size)
    side = 2 if kernel % 2 == 0 else 3
    return uniform(kernel, side), side
