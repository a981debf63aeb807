"""The pass as steps: each computes one layer (or several, fused) from the layer before.

How maps lie in memory is settled here, per precision, so that any version of a step can follow any
other.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from neocog.cuda.kernel import Array, Launch, Layout
from neocog.errors import UsageError
from neocog.network.spec import NetworkSpec

#: ``fp32``: float32 maps and results within the float32 bounds; ``tf32``: float32 maps, operands of
#: products rounded to TF32; ``fp16``, ``bf16``: maps and operands in 16 bits. Sums are float32.
Precision = Literal["fp32", "tf32", "fp16", "bf16"]
PRECISIONS: tuple[Precision, ...] = ("fp32", "tf32", "fp16", "bf16")

_STORED = {"fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16"}


def layouts(
    spec: NetworkSpec, planes: tuple[int, int, int], precision: Precision
) -> dict[str, Layout]:
    """Return the layout of UG .. US4.

    UG has the silent border that US1 reads and its two planes side by side. UC1 .. UC3 have the
    border of the S-layer that reads them and 8 n channels (16 n where its kernel is odd), US1 ..
    US4 no border and 8 n channels. US4 is float32 in every precision: the decision reads it.

    Parameters
    ----------
    spec : NetworkSpec
        The architecture.
    planes : tuple of int
        Planes of US2, US3, US4.
    precision : {"fp32", "tf32", "fp16", "bf16"}
        Type of the maps.

    Raises
    ------
    UsageError
        If the precision is another.
    """
    if precision not in PRECISIONS:
        raise UsageError(f"precision {precision!r} is unknown: choose {', '.join(PRECISIONS)}")
    dtype = _STORED[precision]
    out = {"UG": Layout(2, spec.size("UG"), spec.s[0].padding, 2, dtype)}
    for i, k in enumerate((spec.orientations, *planes)):
        s, c = f"US{i + 1}", f"UC{i + 1}"
        out[s] = Layout(k, spec.size(s), 0, up(k, 8), "float32" if i == 3 else dtype)
        if i < 3:
            reader = spec.s[i + 1]  # tensor cores take 16 channels, of a tap or of two neighbours
            channels = up(k, 8 if reader.kernel % 2 == 0 else 16)
            out[c] = Layout(k, spec.size(c), reader.padding, channels, dtype)
    return out


def up(n: int, step: int) -> int:
    """Round ``n`` up to a multiple of ``step``."""
    return -(-n // step) * step


@dataclass(frozen=True, slots=True)
class Work:
    """What a step does for one digit, for the roofline: operations and least bytes moved."""

    flops: float
    bytes: float


def s_work(source: Layout, target: Layout, kernel: int) -> Work:
    """Return the work of an S-layer: excitation and inhibition of every cell; both maps once."""
    flops = 2.0 * target.size**2 * kernel**2 * (target.planes * source.planes + 1)
    flops += 2.0 * source.size**2 * source.planes  # planes summed
    return Work(flops, _bytes(source) + _bytes(target))


def c_work(source: Layout, target: Layout, kernel: int) -> Work:
    """Return the work of a C-layer: a_C at every cell, saturation; both maps once."""
    flops = target.size**2 * target.planes * (2.0 * kernel**2 + 2)
    return Work(flops, _bytes(source) + _bytes(target))


def _bytes(layout: Layout) -> float:
    """Bytes of a digit's maps without border and spare channels."""
    return float(layout.size**2 * layout.planes * layout.storage.itemsize)


class Step(ABC):
    """One step of the pass: reads the maps of one layer, writes those of another.

    Attributes
    ----------
    version : str
        Name of the way it computes, e.g. ``"direct"``, ``"tensor"``, ``"winograd"``.
    reads, writes : str
        Layers, e.g. ``"UC1"`` and ``"US2"``; the first step reads ``"digits"`` (uint8 28x28) or
        ``"U0"``, the last writes ``"answers"``.
    """

    version: ClassVar[str]
    reads: str
    writes: str

    def scratch(self, batch: int) -> dict[str, tuple[tuple[int, ...], Any]]:
        """Return shape and dtype of each buffer that the step needs for itself, by name."""
        return {}

    @abstractmethod
    def launches(
        self, batch: int, source: Array, target: Array, scratch: dict[str, Array]
    ) -> list[Launch]:
        """Return the launches for a batch; ``target``'s border and spare channels hold 0.

        Nothing is allocated here, and every element of ``target`` inside border and planes is
        written; spare channels may be written with 0, the border is not touched.
        """

    @abstractmethod
    def work(self) -> Work:
        """Return what the step does for one digit, by the plain equations."""
