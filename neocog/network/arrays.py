"""One piece of code for NumPy and CuPy arrays: the array's own type decides which it is."""

from types import ModuleType
from typing import Any


def array_module(array: Any) -> ModuleType:
    """Return ``cupy`` for a CuPy array, else ``numpy``; cupy is never imported for others."""
    if type(array).__module__.partition(".")[0] == "cupy":
        import cupy

        module: ModuleType = cupy
        return module
    import numpy

    return numpy


def to_numpy(array: Any) -> Any:
    """Return the array on the host."""
    return array.get() if array_module(array).__name__ == "cupy" else array
