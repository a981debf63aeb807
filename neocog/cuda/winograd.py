"""Decomposed Winograd convolution on the GPU: of S-layers, and of any dense layer."""

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from neocog.cuda.inhibition import Inhibition
from neocog.cuda.kernel import Array, Launch, Layout, Machine
from neocog.cuda.steps import Precision, Step, Work, s_work, up
from neocog.cuda.winograd_plan import Operand, Plan, Response, Shape, Version
from neocog.cuda.winograd_transforms import Split, best_tile, uniform
from neocog.network.layers import s_constants
from neocog.network.model import Model

#: Bytes of the Winograd domain that S-layers work on at a time: what stays in an L2 cache.
S_BYTES = 40 << 20
#: The same for dense layers, whose digits are too large for the cache.
DENSE_BYTES = 2 << 30
#: A plane that stays silent whatever comes.
_SILENT = 1e30


def images_at_a_time(plan: Plan, batch: int, most: int) -> int:
    """Return how many digits go through a plan's kernels together, in ``most`` bytes of scratch."""
    if plan.version == "fused":
        return batch
    return min(batch, max(1, most // plan.image_bytes))


def _chunks(batch: int, images: int) -> Iterator[slice]:
    return (slice(i, min(i + images, batch)) for i in range(0, batch, images))


def _part(array: Array, part: slice) -> Array:
    """A run of digits; None stays None where launches are only named."""
    return None if array is None else array[part]


class WinogradS(Step):
    """US1 .. US4 by decomposed Winograd convolution, three kernels in float32.

    Parameters
    ----------
    machine : Machine
        Where to run.
    model : Model
        Whose layer.
    layer : int
        0 .. 3 for US1 .. US4.
    layouts : dict
        Of :func:`neocog.cuda.steps.layouts`.
    precision : {"fp32", "tf32", "fp16", "bf16"}
        Type of the maps, and of the products on tensor cores.
    split : Split, optional
        Parts of the filters, 3x3 each if not given.
    m : int, optional
        Outputs of a tile along an axis, by the count of multiplications if not given.

    Raises
    ------
    UsageError
        If the version does not do this precision.
    """

    version: ClassVar[str] = "winograd"
    _way: ClassVar[Version] = "global"
    _most_tile: ClassVar[int] = 5

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
        self.reads, self.writes = (f"UC{layer}" if layer else "UG"), f"US{layer + 1}"
        self._machine = machine
        self._source, self._target = layouts[self.reads], layouts[self.writes]
        source, target = self._source, self._target
        kernel = model.spec.s[layer].kernel
        split = split or uniform(kernel)
        self.plan = Plan(
            Shape(kernel, source.width, source.channels, target.channels, source.code, target.code),
            split,
            m or best_tile(split, target.size, most=self._most_tile),
            self._way,
            self._operand(precision),
        )
        a, theta, silence = s_constants(model.s[layer])
        padded = np.full(target.channels, _SILENT, dtype=np.float32)
        padded[: target.planes] = silence
        self._theta = np.float32(theta)
        self._silence = machine.xp.asarray(padded)
        self._u = machine.xp.asarray(self.plan.filters(np.asarray(a)))
        self._inhibition = Inhibition(machine, model, layer, source, target.size)

    def _operand(self, precision: Precision) -> Operand:
        return "fp32"

    def scratch(self, batch: int) -> dict[str, tuple[tuple[int, ...], Any]]:
        """The inhibition, and the Winograd domain of some digits."""
        size = self._target.size
        images = images_at_a_time(self.plan, batch, S_BYTES)
        return {"v": ((batch, size, size), np.float32), **self.plan.scratch(images)}

    def launches(
        self, batch: int, source: Array, target: Array, scratch: dict[str, Array]
    ) -> list[Launch]:
        """Inhibition, then the convolution for as many digits at a time as the cache holds."""
        out = [self._inhibition.launch(batch, source, scratch["v"])]
        images = images_at_a_time(self.plan, batch, S_BYTES)
        for part in _chunks(batch, images):
            response = Response(_part(scratch["v"], part), self._silence, self._theta)
            out += self.plan.launches(
                part.stop - part.start,
                _part(source, part),
                self._u,
                _part(target, part),
                scratch,
                self._machine.processors,
                response,
            )
        return out

    def work(self) -> Work:
        """Return the work by the plain equations."""
        return s_work(self._source, self._target, self.plan.shape.kernel)


class WinogradFusedS(WinogradS):
    """The same as one kernel: nothing of the Winograd domain leaves the multiprocessor."""

    version: ClassVar[str] = "winograd-fused"
    _way: ClassVar[Version] = "fused"
    _most_tile: ClassVar[int] = 4  # 7 x 7 points leave a multiprocessor one small block


class WinogradTensorS(WinogradS):
    """The same with products on tensor cores: half operands for half maps, else TF32."""

    version: ClassVar[str] = "winograd-tensor"
    _way: ClassVar[Version] = "tensor"
    _most_tile: ClassVar[int] = 2  # larger tiles lose digits that rounded operands do not have

    def _operand(self, precision: Precision) -> Operand:
        if precision == "fp32":
            return "fp32"
        return "fp16" if precision == "fp16" else "tf32"


class WinogradConvolution:
    """A dense k x k layer of stride 1, channel-last, the input's padding as a border of zeros.

    Parameters
    ----------
    machine : Machine
        Where to run.
    channels, planes : int
        Channels in and out.
    kernel : int
        Taps along an axis, k.
    size : int
        Rows (and columns) of the output; the input has size + k - 1.
    split : Split, optional
        Parts of the filters, 3x3 each if not given.
    m : int, optional
        Outputs of a tile along an axis, by the count of multiplications if not given.
    version, operand : str
        See :class:`~neocog.cuda.winograd_plan.Plan`.
    source, target : int
        Types of both maps: 0 float32, 1 half, 2 bfloat16.
    scratch_bytes : int
        Bytes of the Winograd domain to work on at a time.
    """

    def __init__(
        self,
        machine: Machine,
        channels: int,
        planes: int,
        kernel: int,
        size: int,
        *,
        split: Split | None = None,
        m: int | None = None,
        version: Version = "global",
        operand: Operand = "fp32",
        source: int = 0,
        target: int = 0,
        scratch_bytes: int = DENSE_BYTES,
    ) -> None:
        split = split or uniform(kernel)
        shape = Shape(kernel, size + kernel - 1, channels, up(planes, 8), source, target)
        self.plan = Plan(shape, split, m or best_tile(split, size), version, operand)
        self._machine, self._bytes = machine, scratch_bytes

    def scratch(self, batch: int) -> dict[str, tuple[tuple[int, ...], Any]]:
        """Return shape and dtype of each buffer, by name."""
        return self.plan.scratch(images_at_a_time(self.plan, batch, self._bytes))

    def filters(self, w: Array) -> Array:
        """Return filters (K, C, k, k) as the products take them, transformed in float64.

        Filters of CuPy are transformed on the device.
        """
        return self._machine.xp.asarray(self.plan.filters(w))

    def filter_transform(self, w: Array, u: Array, *, indexing: int = 0) -> Launch:
        """Return the launch that transforms filters on the machine, see ``Plan.filter_launch``."""
        return self.plan.filter_launch(w, u, indexing=indexing)

    def launches(
        self, batch: int, source: Array, u: Array, target: Array, scratch: dict[str, Array]
    ) -> list[Launch]:
        """Return the launches: source (B, width, width, C) -> target (B, size, size, planes)."""
        out: list[Launch] = []
        for part in _chunks(batch, images_at_a_time(self.plan, batch, self._bytes)):
            out += self.plan.launches(
                part.stop - part.start,
                _part(source, part),
                u,
                _part(target, part),
                scratch,
                self._machine.processors,
            )
        return out


VERSIONS: dict[str, type[WinogradS]] = {
    cls.version: cls for cls in (WinogradS, WinogradFusedS, WinogradTensorS)
}
