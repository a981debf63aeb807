"""Which CUDA devices are there, and if none can be used, why: nothing here needs one."""

import ctypes
import re
import sys
from functools import cache
from typing import Any

from neocog.errors import DeviceError

_INSTALL = "install neocog[cuda13] (or [cuda12]), or use --device cpu"


def driver_library() -> Any:
    """Return the CUDA driver as a ctypes library; a DeviceError if there is none."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        return ctypes.CDLL(name)
    except OSError:
        raise DeviceError("no NVIDIA driver is installed; use --device cpu") from None


@cache
def driver_version() -> int | None:
    """Return the newest CUDA that the driver knows, e.g. 13000, or None without a driver."""
    try:
        library = driver_library()
    except DeviceError:
        return None
    version = ctypes.c_int(0)
    return version.value if library.cuDriverGetVersion(ctypes.byref(version)) == 0 else None


@cache
def trouble() -> str | None:
    """Return why no CUDA device can be used here, in a line, or None if one can."""
    version = driver_version()
    if version is None:
        return "no NVIDIA driver is installed; use --device cpu"
    try:
        import cupy
    except ImportError as error:
        what = str(error).strip().partition("\n")[0]
        missing = isinstance(error, ModuleNotFoundError) and error.name == "cupy"
        return f"CuPy is not installed; {_INSTALL}" if missing else f"CuPy: {what}; {_INSTALL}"
    try:
        built = cupy.cuda.driver.get_build_version()
        if built // 1000 > version // 1000:
            return (
                f"the driver supports CUDA {_spoken(version)}, this CuPy is for {_spoken(built)}; "
                "update the driver, install the CuPy of its version, or use --device cpu"
            )
        count = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # CuPy's own errors cannot be named before it is imported
        what = str(error).strip().partition("\n")[0]
        return f"CuPy finds no GPU ({what}); check with nvidia-smi, or use --device cpu"
    return None if count else "CuPy finds no GPU; check with nvidia-smi, or use --device cpu"


def count() -> int:
    """Return how many CUDA devices can be used."""
    if trouble() is not None:
        return 0
    import cupy

    return int(cupy.cuda.runtime.getDeviceCount())


def number_of(device: str) -> int:
    """Return the number of the device ``"cuda"`` (the first one) or ``"cuda:N"``.

    A DeviceError if there is no such device, or none can be used.
    """
    found = re.fullmatch(r"cuda(?::(\d+))?", device)
    if found is None:
        raise DeviceError(f"device '{device}': expected cuda or cuda:N")
    reason = trouble()
    if reason is not None:
        raise DeviceError(f"device '{device}': {reason}")
    number, there = int(found[1] or 0), count()
    if number >= there:
        have = "cuda:0 only" if there == 1 else f"cuda:0 .. cuda:{there - 1}"
        raise DeviceError(f"device '{device}' does not exist; available: {have}")
    return number


def _spoken(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"
