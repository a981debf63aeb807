"""What a kernel is and what a launch of it is, for a GPU and for the emulator alike."""

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

Array = Any  # a NumPy array (emulator) or a CuPy array (GPU)

#: Most bytes of shared memory of a block, by compute capability.
_SHARED = {75: 65536, 80: 166912, 86: 101376, 87: 166912, 89: 101376, 90: 232448, 100: 232448}


def shared_limit(arch: int) -> int:
    """Return the bytes of shared memory that a block may have."""
    return _SHARED.get(arch, 101376)


def up(n: int, step: int) -> int:
    """Round ``n`` up to a multiple of ``step``."""
    return -(-n // step) * step


def register_limit(threads: int) -> int:
    """Return the registers a thread where ``threads`` share a multiprocessor's four quarters."""
    return min(255, 65536 // up(threads, 128) // 8 * 8)


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

    def late(self) -> "Kernel":
        """Return the kernel that lets the next one begin only when it ends itself."""
        return replace(self, defines=(*self.defines, ("LATE", 1)))


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

    def launch(self, launch: Launch) -> None:
        """Enqueue one launch."""

    def current(self) -> AbstractContextManager[None]:
        """Make this the thread's current device within the block."""


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
        """Return the shape of the array that holds the maps of ``batch`` digits."""
        return (batch, self.width, self.width, self.channels)


def kernel_folder() -> Path:
    """Return the folder of the sources: ``kernels/`` of a checkout, ``_kernels`` of a wheel."""
    package = Path(__file__).parent.parent
    installed = package / "_kernels"
    return installed if installed.is_dir() else package.parent / "kernels"
