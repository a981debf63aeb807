"""The pass as steps: each computes one layer from the layer before; how maps lie between any of them."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal

from neocog.cuda.kernel import Array, Launch, Layout, Machine, up
from neocog.errors import UsageError
from neocog.network.model import Model
from neocog.network.spec import NetworkSpec

#: ``fp32``: float32 maps and results within the float32 bounds; ``fp16``: maps and operands in 16 bits.
#: Sums are float32.
Precision = Literal["fp32", "fp16"]
PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16")
_STORED: dict[Precision, str] = {"fp32": "float32", "fp16": "float16"}
#: What a step is for: machine, model, layer (0 .. 3 for US1 .. US4 and UC1 .. UC4), layouts of all
#: layers, precision.
Place = tuple[Machine, Model, int, dict[str, Layout], Precision]
#: Shape and type of buffers, by name.
Forms = dict[str, tuple[tuple[int, ...], Any]]


def known_precision(wanted: str) -> Precision:
    """Return a precision by its name; a UsageError if there is no such precision."""
    if wanted in PRECISIONS:
        return wanted
    raise UsageError(f"precision {wanted!r} is unknown: choose {', '.join(PRECISIONS)}")


def layouts(spec: NetworkSpec, planes: tuple[int, int, int], precision: Precision) -> dict[str, Layout]:
    """Return the layout of UG .. US4; a UsageError if there is no such precision.

    Channels are 8 n; UG and UC1 .. UC3 have the border of the S-layer that reads them. US4 is float32 in
    every precision: the decision reads it.
    """
    dtype = _STORED[known_precision(precision)]
    out = {"UG": Layout(2, spec.size("UG"), spec.s[0].padding, 2, dtype)}
    for i, k in enumerate((spec.orientations, *planes)):
        s, c = f"US{i + 1}", f"UC{i + 1}"
        out[s] = Layout(k, spec.size(s), 0, up(k, 8), "float32" if i == 3 else dtype)
        if i < 3:
            reader = spec.s[i + 1]  # tensor cores take 16 channels, of a tap or of two neighbours
            channels = up(k, 8 if reader.kernel % 2 == 0 else 16)
            out[c] = Layout(k, spec.size(c), reader.padding, channels, dtype)
    return out


class Step(ABC):
    """One step of the pass, constructed of a :data:`Place`; UsageError if it does not do this layer."""

    version: ClassVar[str]  # name of the way it computes, e.g. "tensor", "winograd"
    reads: str  # a layer, "digits" (uint8 28x28) or "U0"
    writes: str  # a layer or "answers"

    def scratch(self, batch: int) -> Forms:
        """Return shape and dtype of each buffer that the step needs for itself, by name."""
        return {}

    @abstractmethod
    def launches(self, batch: int, source: Array, target: Array, scratch: dict[str, Array]) -> list[Launch]:
        """Return the launches for a batch; nothing is allocated, arrays are None if launches are only named.

        Of ``target`` all cells and planes are written; border and spare channels hold 0 and stay so.
        """


class LayerStep(Step):
    """A step of an S- or C-layer, and its layouts."""

    kind: ClassVar[str]  # "S" or "C"
    taps: int  # of the layer's kernel a side

    def __init__(self, *place: *Place) -> None:
        self.machine, self.model, self.layer, layouts, self.precision = place
        layer, spec = self.layer, self.model.spec
        s, c = f"US{layer + 1}", f"UC{layer + 1}"
        before = f"UC{layer}" if layer else "UG"
        self.reads, self.writes = (before, s) if self.kind == "S" else (s, c)
        self.source, self.target = layouts[self.reads], layouts[self.writes]
        self.padding = (spec.s if self.kind == "S" else spec.c)[layer].padding
