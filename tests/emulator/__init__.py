"""Kernels on the CPU: the same sources, built by a C++ compiler, on NumPy arrays.

``emulation.h`` gives the meaning of CUDA's words; this module builds a kernel with it, checks a
launch's arguments against the kernel's own, and runs it: right, strict and slow.
"""

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from neocog.cuda import compiler as builds
from neocog.cuda.compiler import fingerprint, sources
from neocog.cuda.kernel import Kernel, Launch, kernel_folder
from neocog.errors import DeviceError, InputError

#: The order in which the threads of a block run; an integer shuffles them with that seed.
Order = Literal["forward", "reversed"] | int

_FLAGS = (
    "-std=gnu++17 -x c++ -O1 -fPIC -pthread -w -DNEOCOG_EMULATED -U_FORTIFY_SOURCE "
    "-fno-strict-aliasing -fwrapv -ffp-contract=off -fvisibility=hidden"
).split()
#: Addresses and indices that a GPU would not take end the launch (see emulation_launch.h).
_CHECKS = ("-fsanitize=alignment,bounds",)
_HEADERS = Path(__file__).parent
_MESSAGE = 1024  # bytes
_GUARD = 64 * 1024  # bytes watched before and behind every array
_UNTOUCHED = 0xA5
#: Types that a value may have, by the kernel's (see emulation_launch.h): kind and bytes; structures take any.
_TYPES = {
    "f4": ("float32",), "f8": ("float64",), "i4": ("int32",), "u1": ("uint8",), "u2": ("uint16", "float16"),
    "u4": ("uint32", "int32", "float32"), "u8": ("uint64",),
}  # fmt: skip
_LIMITS = (2**31 - 1, 65535, 65535)  # blocks of a grid along x, y, z


#: A built kernel: its library and what its arguments are (see emulation_launch.h).
_Built = tuple[ctypes.CDLL, list[str]]
#: Builds that this process has loaded, by fingerprint.
_loaded: dict[str, _Built] = {}


class Emulator:
    """A machine of NumPy arrays that runs kernels on the CPU.

    A kernel that lacks a barrier fails in one ``order`` of a block's threads. Arrays are watched at
    both ends, and those that are only read must stay as they are.
    """

    xp: ModuleType = np
    arch: int = 90
    processors: int = 132
    #: Most bytes of shared memory of a block at that capability (CUDA Programming Guide).
    shared: int = 227 * 1024

    def __init__(self, *, order: Order = "forward") -> None:
        self.order = order
        self.workers = len(os.sched_getaffinity(0))

    def current(self) -> AbstractContextManager[None]:
        return nullcontext()

    def launch(self, launch: Launch) -> None:
        """Check one launch and run it to its end.

        A DeviceError says what a GPU would not forgive: kernel, block, thread and line. An InputError says
        that an argument has another type, is not C-contiguous or is empty: a GPU reads whatever lies there.
        """
        kernel = launch.kernel
        fits = kernel.shared <= self.shared and 1 <= kernel.threads <= 1024
        fits = fits and all(1 <= n <= most for n, most in zip(launch.grid, _LIMITS, strict=True))
        if not fits or not kernel.runs_on(self.arch):
            raise DeviceError(
                f"kernel {kernel.name} for {kernel.arch}{kernel.features}: {kernel.threads} threads, "
                f"{kernel.shared} bytes and a grid of {launch.grid} are not for {self.arch}"
            )
        library, arguments = _build(kernel)
        got, expected = len(launch.args), len(arguments)
        if got != expected:
            raise InputError(f"kernel {kernel.name}: got {got} arguments, expected {expected}")
        arrays: dict[int, _Guarded] = {}
        words: list[ctypes.c_char_p | ctypes.c_void_p | ctypes.Array[Any]] = []
        for i, (wanted, value) in enumerate(zip(arguments, launch.args, strict=True)):
            where = f"kernel {kernel.name}, argument {i}"
            _check_argument(where, wanted, value)
            if wanted[0] in "rw":
                words.append(ctypes.c_void_p(self._address(where, wanted, value, arrays)))
            else:
                words.append(ctypes.create_string_buffer(value.tobytes()))
        self._run(library, launch, words)
        for guarded in arrays.values():
            guarded.check_and_return()

    def _run(self, library: ctypes.CDLL, launch: Launch, words: list[Any]) -> None:
        pointers = (ctypes.c_void_p * max(1, len(words)))(*(ctypes.addressof(word) for word in words))
        grid = (ctypes.c_uint * 3)(*launch.grid)
        mode, seed = {"forward": (0, 0), "reversed": (1, 0)}.get(self.order, (2, self.order))
        plan = (ctypes.c_uint * 4)(launch.kernel.threads, launch.kernel.shared, self.workers, mode)
        message = ctypes.create_string_buffer(_MESSAGE)
        if library.emulated_launch(pointers, grid, plan, ctypes.c_ulonglong(seed), message, _MESSAGE):
            raise DeviceError(message.value.decode(errors="replace"))

    def _address(self, where: str, wanted: str, value: Any, arrays: "dict[int, _Guarded]") -> int:
        """Return the address that the kernel gets for an array, a guarded copy's."""
        address: int = value.ctypes.data
        known = arrays.get(address)
        if known is None or known.array.nbytes != value.nbytes:
            if any(np.may_share_memory(other.array, value) for other in arrays.values()):
                raise DeviceError(f"{where}: overlaps another array: pass the same array or none")
            known = arrays[address] = _Guarded(where, value)
        known.written |= wanted[0] == "w"
        return known.address


class _Guarded:
    """A copy of an array between two watched zones."""

    def __init__(self, where: str, array: NDArray[Any]) -> None:
        self.where, self.array, self.written = where, array, False
        size = array.nbytes
        self._memory = np.full(size + 2 * _GUARD + 256, _UNTOUCHED, np.uint8)
        start = _GUARD + -(self._memory.ctypes.data + _GUARD) % 256  # as cudaMalloc aligns
        self._slice = slice(start, start + size)
        self._memory[self._slice] = array.reshape(-1).view(np.uint8)
        self.address: int = self._memory.ctypes.data + start

    def check_and_return(self) -> None:
        """Bring the values back; an error if anything beside them was written."""
        zones = self._memory[: self._slice.start], self._memory[self._slice.stop :]
        if any((zone != _UNTOUCHED).any() for zone in zones):
            raise DeviceError(f"{self.where}: the kernel wrote outside the array")
        values, own = self._memory[self._slice], self.array.reshape(-1).view(np.uint8)
        if self.written and self.array.flags.writeable:
            own[...] = values
        elif not np.array_equal(values, own):
            raise DeviceError(f"{self.where}: the kernel wrote to an array that is only read")


def _check_argument(where: str, wanted: str, value: Any) -> None:
    kind = np.ndarray if wanted[0] in "rw" else np.generic
    if not isinstance(value, kind):
        raise InputError(f"{where}: got a {type(value).__name__}, expected a {kind.__name__} of NumPy")
    types = _TYPES.get(wanted.lstrip("rw"))
    if types and str(value.dtype) not in types:
        raise InputError(f"{where}: got {value.dtype}, expected {' or '.join(types)}")
    if value.size == 0 or not value.flags.c_contiguous:
        shape, strides = value.shape, value.strides
        raise InputError(f"{where}: got shape {shape}, strides {strides}, expected a C-contiguous array")


@cache
def _compiler() -> tuple[str, str]:
    path = shutil.which(os.environ.get("CXX", "g++"))
    if path is None:
        raise DeviceError("g++ is not found, and the emulator builds kernels with it: install it")
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    return path, done.stdout.partition("\n")[0]


def _environment() -> tuple[str, ...]:
    return ("emulated", _compiler()[1], os.uname().machine, *_FLAGS, *_CHECKS)


def _build(kernel: Kernel) -> _Built:
    """Build a kernel as its source is now, or take an earlier build of the same source."""
    key = fingerprint(kernel, *_environment(), headers=_HEADERS)
    if key not in _loaded:
        path = _kept(f"{key}.so", partial(_compile, kernel))
        library, out = ctypes.CDLL(str(path)), ctypes.create_string_buffer(1024)
        path.unlink()  # loaded, a library needs its file no more
        library.emulated_arguments(out)
        _loaded[key] = library, out.value.decode().split()
    return _loaded[key]


def _kept(name: str, make: Callable[[Path], None]) -> Path:
    """Return a file of this process with what was built under a name, now or earlier."""
    path, content = Path(_folder().name) / name, builds.load(name)
    if content is None:
        make(path)
        builds.store(name, path.read_bytes())
    else:
        path.write_bytes(content)
    return path


@cache
def _folder() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="neocog-emulator-")


@cache
def _runtime() -> Path:
    """Return ``emulation_block.cpp``, built: every kernel is linked to it."""
    source = _HEADERS / "emulation_block.cpp"
    name = f"{fingerprint(Kernel(str(source), '', ()), *_environment(), headers=_HEADERS)}.o"
    return _kept(name, lambda target: _call("the emulator", source, "-O1", "-c", source, "-o", target))


def _compile(kernel: Kernel, target: Path) -> None:
    source, runtime, name = sources(kernel)[0], _runtime(), f"kernel {kernel.name}"
    defines = "".join(f"#define {name} {value}\n" for name, value in kernel.defines)
    with tempfile.TemporaryDirectory() as folder:
        stub, part = (Path(folder) / name for name in ("stub.cpp", "kernel.o"))
        stub.write_text(f'{defines}#include "{source}"\nNEOCOG_EXPORT({kernel.name})\n')
        _call(name, source, *_CHECKS, "-c", stub, "-o", part)
        # Linked without _CHECKS, the library takes their functions from emulation_block.cpp.
        _call(name, None, "-shared", "-pthread", part, runtime, "-o", target)


def _call(what: str, source: Path | None, *words: str | Path) -> None:
    """Call the compiler, with the flags for a source, or to link."""
    if source:
        words = (*_FLAGS, *(f"-I{folder}" for folder in (kernel_folder(), source.parent, _HEADERS)), *words)
    done = subprocess.run([_compiler()[0], *words], capture_output=True, text=True, check=False)
    if done.returncode:
        first = next((line for line in done.stderr.splitlines() if "error" in line), "no message")
        raise DeviceError(f"{what} does not build: {first}")
