"""One piece of code for NumPy and CuPy arrays: the array's own type decides which it is."""

import importlib
from types import ModuleType
from typing import Any

import numpy

from neocog.errors import DeviceError, UsageError


def array_module(array: Any) -> ModuleType:
    """Return ``cupy`` for a CuPy array, else ``numpy``; cupy is never imported for others."""
    return importlib.import_module("cupy") if type(array).__module__.split(".")[0] == "cupy" else numpy


def to_numpy(array: Any) -> Any:
    return array.get() if array_module(array) is not numpy else array


def module_of_device(device: str) -> ModuleType:
    """Return numpy or cupy for cpu, cuda, auto; UsageError for others, DeviceError without a GPU or CuPy."""
    if device not in ("auto", "cpu", "cuda"):
        raise UsageError(f"device '{device}' is unknown: choose one of auto, cpu, cuda")
    if device != "cpu":
        trouble = "CuPy finds no GPU; use --device cpu"
        try:
            cupy = importlib.import_module("cupy")
            if cupy.cuda.is_available():
                return cupy
        except ImportError:
            trouble = "CuPy is not installed; install neocog[cuda13] or use --device cpu"
        if device == "cuda":
            raise DeviceError(f"device 'cuda': {trouble}")
    return numpy
