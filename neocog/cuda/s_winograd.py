"""S-cells by decomposed Winograd convolution (``kernels/winograd*.cu``), v by ``inhibition.cu``."""

from typing import ClassVar

import numpy as np

from neocog.cuda.kernel import Array, Kernel, Launch, Layout, Machine
from neocog.cuda.steps import Forms, LayerStep, Precision
from neocog.cuda.winograd import Convolution, Operand, Response, Shape
from neocog.cuda.winograd_transforms import Split, best_tile, uniform
from neocog.network.layers import s_constants
from neocog.network.model import Model

_STRIP = 4  # cells of a column that a thread of the inhibition makes, at most
#: Bytes of the Winograd domain that are worked on at a time: what stays in an L2 cache.
S_BYTES = 40 << 20
#: A plane that stays silent whatever comes.
_SILENT = 1e30


class Inhibition:
    """The inhibition of one S-layer, v (B, size, size) float32 (Ikeda et al. 2011, equation 2)."""

    def __init__(
        self, machine: Machine, model: Model, layer: int, source: Layout, size: int
    ) -> None:
        self._machine, self._source, self._size = machine, source, size
        self._kernel = model.spec.s[layer].kernel
        self._c = machine.xp.asarray(np.ascontiguousarray(model.s[layer].c, dtype=np.float32))

    def launch(self, batch: int, source: Array, v: Array) -> Launch:
        """Return the launch for a batch, with enough blocks for every multiprocessor."""
        bands = min(self._size, -(-self._machine.processors // batch))
        rows = -(-self._size // bands)
        strip = min(_STRIP, rows)
        strips = -(-rows // strip)
        seen = strip * strips + self._kernel - 1
        kernel = Kernel(
            "inhibition.cu",
            "inhibition",
            (
                ("MAP", self._source.code),
                ("WIDTH", self._source.width),
                ("CHANNELS", self._source.channels),
                ("KSIZE", self._kernel),
                ("OUT", self._size),
                ("STRIP", strip),
                ("STRIPS", strips),
            ),
            threads=256,
            shared=4 * (seen * self._source.width + self._kernel**2),
            registers=96,
        )
        grid = (-(-self._size // (strip * strips)), 1, batch)
        return Launch(kernel, grid, (source, self._c, v))


class WinogradS(LayerStep):
    """US1 .. US4 by decomposed Winograd convolution.

    On tensor cores in ``tf32``, ``fp16`` and ``bf16`` (with TF32 operands) from compute capability
    8.0 on, else on CUDA cores. Parts and tiles are those of :func:`way` where ``split`` and ``m``
    are not given.
    """

    kind = "S"
    version: ClassVar[str] = "winograd"

    def __init__(
        self,
        machine: Machine,
        model: Model,
        layer: int,
        layouts: dict[str, Layout],
        precision: Precision,
        split: Split | None = None,
        m: int | None = None,
    ) -> None:
        super().__init__(machine, model, layer, layouts, precision)
        source, target = self.source, self.target
        kernel = model.spec.s[layer].kernel
        operand = _operand_of(precision, machine.arch)
        parts, tile = way(kernel, target.size, operand)
        self.convolution = Convolution(
            Shape(kernel, source.width, source.channels, target.channels, source.code, target.code),
            split or parts,
            m or tile,
            operand,
        )
        a, theta, silence = s_constants(model.s[layer])
        padded = np.full(target.channels, _SILENT, dtype=np.float32)
        padded[: target.planes] = silence
        self._theta = np.float32(theta)
        self._silence = machine.xp.asarray(padded)
        self._u = machine.xp.asarray(self.convolution.filters(np.asarray(a)))
        self._inhibition = Inhibition(machine, model, layer, source, target.size)

    @property
    def taps(self) -> int:
        """Taps of the window."""
        return self.convolution.shape.kernel

    def scratch(self, batch: int) -> Forms:
        """The inhibition, and the Winograd domain of some digits."""
        size = self.target.size
        return {
            "v": ((batch, size, size), np.float32),
            **self.convolution.scratch(batch, S_BYTES),
        }

    def launches(
        self, batch: int, source: Array, target: Array, scratch: dict[str, Array]
    ) -> list[Launch]:
        """Inhibition, then the convolution for as many digits at a time as the cache holds."""
        first = self._inhibition.launch(batch, source, scratch["v"])
        response = Response(scratch["v"], self._silence, self._theta)
        processors = self.machine.processors
        return [
            first,
            *self.convolution.launches(
                batch, source, self._u, target, scratch, processors, response, most=S_BYTES
            ),
        ]


def way(kernel: int, size: int, operand: Operand) -> tuple[Split, int]:
    """Return parts and tiles of a layer of size x size cells.

    On CUDA cores those of least multiplications. On tensor cores products are nearly free, and
    parts as large as the tiles share their inputs, so that least is moved: 2x2 in US2 and US3,
    whose transforms only add and subtract what a cell sees itself; 3x3 in US4, whose windows are
    never nearly silent (in US2 its error is 9e-2 of the strongest response, in US4 5e-4).
    """
    if operand == "fp32":
        split = uniform(kernel)
        return split, best_tile(split, size)
    side = 2 if kernel % 2 == 0 else 3
    return uniform(kernel, side), side


def _operand_of(precision: Precision, arch: int) -> Operand:
    if precision == "fp32" or arch < 80:
        return "fp32"
    return "fp16" if precision == "fp16" else "tf32"


VERSIONS: dict[str, type[WinogradS]] = {WinogradS.version: WinogradS}
