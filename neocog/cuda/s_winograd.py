"""S-cells by decomposed Winograd convolution (``kernels/winograd*.cu``), v by ``inhibition.cu``."""

from typing import ClassVar

import numpy as np

from neocog.cuda.kernel import Array, Kernel, Launch, Machine, shared_limit, up
from neocog.cuda.steps import Forms, LayerStep, Place
from neocog.cuda.winograd import Convolution, Response, Shape, Split, best_tile, transform_filters, uniform
from neocog.network.layers import s_constants

_STRIP = 4  # cells of a column that a thread of the inhibition makes, at most
#: A plane that stays silent whatever comes.
_SILENT = 1e30


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
        defines = tuple((dict(self._convolution.geometry()) | more).items())
        shared = (rows + self._halo) * self._per_row
        kernel = Kernel("winograd_fused.cu", "s_winograd", defines, threads, shared, 80, 128)
        return Launch(kernel, (bands, batch, 1), (source, self._u, *response, target))


class WinogradS(LayerStep):
    """US1 .. US4 by decomposed Winograd convolution.

    On tensor cores from compute capability 8.0 on, in ``fp32`` every number as the sum of two of
    TF32; else on CUDA cores.
    """

    kind = "S"
    version: ClassVar[str] = "winograd"

    def __init__(self, *place: *Place) -> None:
        super().__init__(*place)
        machine, model, layer, _, precision = place
        source, target = self.source, self.target
        self.taps = kernel = model.spec.s[layer].kernel
        operand = "fp32" if machine.arch < 80 else "fp16" if precision == "fp16" else "tf32x3"
        self.convolution = Convolution(
            Shape(kernel, source.width, source.channels, target.channels, source.code, target.code),
            *way(kernel, target.size, operand),
            operand,
        )
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
        grid = (-(-size // (strip * strips)), 1, batch)
        return Launch(kernel, grid, (source, self._c, v))


def way(kernel: int, size: int, operand: str) -> tuple[Split, int]:
    """Return parts and tiles of a layer of size x size cells.

    In float32 those of least multiplications. In 16 bits products are nearly free, and
    parts as large as the tiles share their inputs, so that least is moved: 2x2 in US2 and US3,
    whose transforms only add and subtract what a cell sees itself; 3x3 in US4, whose windows are
    never nearly silent (in US2 its error is 9e-2 of the strongest response, in US4 5e-4).
    """
    if operand in ("fp32", "tf32x3"):
        split = uniform(kernel)
        return split, best_tile(split, size)
    side = 2 if kernel % 2 == 0 else 3
    return uniform(kernel, side), side
