"""Which CUDA devices are there, and if none can be used, why: nothing here needs one."""

import ctypes
import re
import sys
from functools import cache
from typing import Any

from neocog.errors import DeviceError

_NO_DRIVER = "no NVIDIA driver is installed; use --device cpu"
_INSTALL = "install neocog[cuda13] (or [cuda12]), or use --device cpu"


def driver_library() -> Any:
    """Return the CUDA driver as a ctypes library; a DeviceError if there is none."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        return ctypes.CDLL(name)
    except OSError:
        raise DeviceError(_NO_DRIVER) from None


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
        return _NO_DRIVER
    try:
        import cupy
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == "cupy"
        return f"CuPy is not installed; {_INSTALL}" if missing else f"CuPy: {first_line(error)}; {_INSTALL}"
    try:
        built = cupy.cuda.driver.get_build_version()
        if built // 1000 > version // 1000:
            has, wants = (f"{known // 1000}.{known % 1000 // 10}" for known in (version, built))
            what = "update the driver, install the CuPy of its version, or use --device cpu"
            return f"the driver supports CUDA {has}, this CuPy is for {wants}; {what}"
        count = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # CuPy's own errors cannot be named before it is imported
        return f"CuPy finds no GPU ({first_line(error)}); check with nvidia-smi, or use --device cpu"
    return None if count else "CuPy finds no GPU; check with nvidia-smi, or use --device cpu"


def count() -> int:
    """Return how many CUDA devices can be used."""
    if trouble() is not None:
        return 0
    import cupy

    return int(cupy.cuda.runtime.getDeviceCount())


def number_of(device: str) -> int:
    """Return the number of ``"cuda"`` (the first) or ``"cuda:N"``; a DeviceError if it cannot be used."""
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


def first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
