"""One piece of code for NumPy and CuPy arrays: the array's own type decides which it is."""

from types import ModuleType
from typing import Any

from neocog.errors import DeviceError, UsageError


def array_module(array: Any) -> ModuleType:
    """Return ``cupy`` for a CuPy array, else ``numpy``; cupy is never imported for others."""
    if type(array).__module__.partition(".")[0] == "cupy":
        import cupy

        module: ModuleType = cupy
        return module
    import numpy

    return numpy


def to_numpy(array: Any) -> Any:
    return array.get() if array_module(array).__name__ == "cupy" else array


def module_of_device(device: str) -> ModuleType:
    """Return numpy for ``"cpu"``, cupy for ``"cuda"``; DeviceError without CuPy or a GPU, else UsageError."""
    if device == "cpu":
        import numpy

        return numpy
    if device != "cuda":
        raise UsageError(f"device '{device}' is unknown: choose cpu or cuda")
    try:
        import cupy
    except ImportError:
        raise DeviceError(
            "device 'cuda': CuPy is not installed; install neocog[cuda13] or use --device cpu"
        ) from None
    if not cupy.cuda.is_available():
        raise DeviceError("device 'cuda': CuPy finds no GPU; use --device cpu")
    module: ModuleType = cupy
    return module
