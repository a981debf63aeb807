"""Kernels, launches, tilings, layouts of maps, steps of the pass, for a GPU and for the emulator alike."""

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np

from neocog.errors import UsageError
from neocog.network.model import Model
from neocog.network.spec import NetworkSpec

Array = Any  # a NumPy array (emulator) or a CuPy array (GPU)
Precision = Literal["fp32", "fp16"]
"""``fp32``: float32 maps and results within its bounds; ``fp16``: maps, operands in 16 bits, sums float32."""
PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16")
Forms = dict[str, tuple[tuple[int, ...], Any]]  #: shape and type of buffers, by name
_SHARED = {75: 65536, 80: 166912, 86: 101376, 87: 166912, 89: 101376, 90: 232448, 100: 232448}
_HALVES_ARCH = 80  # compute capability that has 16-bit matrix products


def shared_limit(arch: int) -> int:
    """Return the bytes of shared memory that a block may have on a compute capability."""
    return _SHARED.get(arch, 101376)


def up(n: int, step: int) -> int:
    """Round ``n`` up to a multiple of ``step``."""
    return -(-n // step) * step


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel, specialised."""

    file: str  # source below ``kernels/``, or an absolute path
    name: str  # the ``extern "C"`` function
    defines: tuple[tuple[str, int | float | str], ...] = ()
    threads: int = 256  # of a block
    shared: int = 0  # bytes of dynamic shared memory
    arch: int = 75  # least compute capability
    registers: int = 255  # a build that takes more a thread, or spills any, is at fault
    features: str = ""  # "a": built for the instructions of ``arch`` alone (sm_90a)
    #: As much shared memory and as little L1 cache as there can be: kernels that overlap need the same
    #: division, which a multiprocessor changes only when it is idle.
    carveout: bool = False

    def runs_on(self, arch: int) -> bool:
        """Whether it runs on a compute capability; with features of one, on that alone."""
        return arch == self.arch if self.features else arch >= self.arch


def named(values: object, names: str, prefix: str = "") -> dict[str, int]:
    """Return defines of whole numbers: attributes by name, the names in capitals."""
    return {prefix + name.upper(): int(getattr(values, name)) for name in names.split()}


class Launch(NamedTuple):
    """A kernel, its grid and its arguments."""

    kernel: Kernel
    grid: tuple[int, int, int]  # blocks along x, y, z
    args: tuple[Any, ...]  # arrays, or NumPy scalars of the very type that the kernel takes


class Machine(Protocol):
    """What compiles and launches kernels: :class:`neocog.cuda.launcher.Gpu`, or the emulator of the tests."""

    xp: Any  # numpy or cupy
    arch: int  # compute capability, e.g. 90
    processors: int
    shared: int  # most bytes of shared memory of a block

    def launch(self, launch: Launch) -> None: ...  # it is enqueued

    def current(self) -> AbstractContextManager[None]: ...  # the thread's device within the block


@cache
def _table() -> Any:
    return json.loads(Path(__file__).with_name("tilings.json").read_text(encoding="utf-8"))


def tilings(
    kind: str, shape: Sequence[int], batch: int, arch: int, exact: bool = False
) -> Iterator[list[Any]]:
    """Yield tilings of S- ("s"; of strips "lines") or C-layers ("c"): of the shape, then of the nearest."""
    # architectures other than 90 are told apart by the memory of a block
    fitting = [a for a in (86, 80, 100) if shared_limit(a) <= shared_limit(arch)]
    like = 90 if arch == 90 else fitting[-1] if fitting else 86
    known = [(other, rows) for found, other, rows in _table()[kind] if found == like]
    sizes = np.log1p(shape)
    for other, rows in sorted(known, key=lambda one: float(np.abs(np.log1p(one[0]) - sizes).sum())):
        if not exact or other == list(shape):
            yield next(tiling for least, *tiling in reversed(rows) if least <= batch)


@dataclass(frozen=True, slots=True)
class Layout:
    """How a layer's maps lie in memory: channel-last, (B, width, width, channels)."""

    planes: int
    size: int  # rows and columns of the layer
    border: int  # silent cells on every side, held at 0: the padding of the layer that reads the maps
    channels: int  # planes stored, those beyond ``planes`` held at 0
    dtype: str = "float32"  # or float16

    @property
    def width(self) -> int:
        return self.size + 2 * self.border

    @property
    def code(self) -> int:
        """MAP in the kernels: 0 float, 1 half."""
        return ("float32", "float16").index(self.dtype)

    def shape(self, batch: int) -> tuple[int, int, int, int]:
        return (batch, self.width, self.width, self.channels)


def precision_on(arch: int, wanted: str | None = None) -> Precision:
    """Return a precision by its name, by default a device's; a UsageError if there is no such precision."""
    if wanted is None:
        return "fp16" if arch >= _HALVES_ARCH else "fp32"
    if wanted in PRECISIONS:
        return wanted
    raise UsageError(f"precision {wanted!r} is unknown: choose {', '.join(PRECISIONS)}")


def layouts(spec: NetworkSpec, planes: tuple[int, int, int], precision: Precision) -> dict[str, Layout]:
    """Return the layout of UG .. US4; a UsageError if there is no such precision.

    Channels are 8 n; UG and UC1 .. UC3 have the border of the S-layer that reads them. US4 is float32 in
    every precision: the decision reads it.
    """
    dtype = {"fp32": "float32", "fp16": "float16"}[precision_on(0, precision)]
    out = {"UG": Layout(2, spec.size("UG"), spec.s[0].padding, 2, dtype)}
    for i, k in enumerate((spec.orientations, *planes)):
        s, c = f"US{i + 1}", f"UC{i + 1}"
        out[s] = Layout(k, spec.size(s), 0, up(k, 8), "float32" if i == 3 else dtype)
        if i < 3:
            reader = spec.s[i + 1]  # tensor cores take 16 channels, of a tap or of two neighbours
            out[c] = Layout(k, spec.size(c), reader.padding, up(k, 16 if reader.kernel % 2 else 8), dtype)
    return out


Place = tuple[Machine, Model, int, dict[str, Layout], Precision]
"""Machine, model, layer (0 .. 3 for US1 .. US4 and UC1 .. UC4), layouts of all layers, precision."""


class Step:
    """One step of the pass, constructed of a :data:`Place`; UsageError if it does not do this layer."""

    version: ClassVar[str]  # name of the way it computes, e.g. "tensor", "winograd"
    reads: str  # a layer, "digits" (uint8 28x28) or "U0"
    writes: str  # a layer or "answers"

    def scratch(self, batch: int) -> Forms:
        """Return the buffers that the step needs for itself."""
        return {}

    def launches(self, batch: int, source: Array, target: Array, scratch: dict[str, Array]) -> list[Launch]:
        """Return the launches for a batch; nothing is allocated, arrays are None if launches are only named.

        Of ``target`` all cells and planes are written; border and spare channels hold 0 and stay so.
        """
        raise NotImplementedError

    def kernels(self, batch: int) -> list[Kernel]:
        nothing: dict[str, Any] = dict.fromkeys(self.scratch(batch))
        return [launch.kernel for launch in self.launches(batch, None, None, nothing)]


class LayerStep(Step):
    """A step of an S- or C-layer, and its layouts; ``tiling`` is taken instead of those it would choose."""

    kind: ClassVar[str]  # "S" or "C"

    def __init__(self, *place: *Place, tiling: Any = None) -> None:
        self.machine, self.model, i, layouts, self.precision = place
        s, c, before, spec = f"US{i + 1}", f"UC{i + 1}", f"UC{i}" if i else "UG", self.model.spec
        self.layer, (self.reads, self.writes) = i, (before, s) if self.kind == "S" else (s, c)
        self._tiling = tiling
        self.source, self.target = layouts[self.reads], layouts[self.writes]
        self.padding = (spec.s if self.kind == "S" else spec.c)[i].padding


def kernel_folder() -> Path:
    """Return the folder of the sources: ``kernels/`` of a checkout, ``_kernels`` of a wheel."""
    package = Path(__file__).parent.parent
    installed = package / "_kernels"
    return installed if installed.is_dir() else package.parent / "kernels"
