"""Whether this machine has what neocog needs, each point with what to do about it."""

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from importlib import metadata
from typing import Any, Literal, NamedTuple

import numpy as np

from neocog.errors import DeviceError, ModelError, NeocogError
from neocog.network.parallel import cores

_SAME_SCORE = 0.05  # of the scores of 16-bit maps and of float32
_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")


class Check(NamedTuple):
    """One point: what was found, and what to do if that is not enough; fail: neocog cannot read."""

    name: str
    level: Literal["ok", "warn", "fail"]
    found: str
    advice: str = ""


def examine() -> Iterator[Check]:
    """Look at every point, one after another; none of them raises."""
    found = f"{platform.python_version()}, {platform.system()} {platform.machine()}"
    yield Check("python", "ok", f"{found}, {cores()} cores")
    yield _numpy()
    yield _opencv()
    yield from _models()
    yield from _gpu()
    shown = os.environ.get("WAYLAND_DISPLAY") or os.environ.get("DISPLAY")
    if not shown:
        shown = sys.platform if sys.platform in ("win32", "darwin") else "none; reading files needs none"
    yield Check("display", "ok", shown)
    missing = Check("g++", "warn", "not found: tests that compile are skipped", "apt install g++ for them")
    compiler = shutil.which("g++")
    yield Check("g++", "ok", compiler) if compiler else missing


def _numpy() -> Check:
    config: Any = np.show_config(mode="dicts")
    blas = config.get("Build Dependencies", {}).get("blas", {})
    name = blas.get("name", "unknown")
    threads = next((int(value) for key in _THREADS if (value := os.environ.get(key, "")).isdigit()), cores())
    found = f"{np.__version__}, BLAS {name} {blas.get('version', '')}, {threads} threads"
    if name in ("unknown", "none", "lapack_lite"):
        return Check("numpy", "warn", found, "this NumPy has no fast BLAS: pip install -U numpy")
    if threads > cores():
        return Check("numpy", "warn", found, f"more threads than cores: set OMP_NUM_THREADS={cores()}")
    return Check("numpy", "ok", found)


def _opencv() -> Check:
    wheels = [f"opencv{kind}-python{end}" for kind in ("", "-contrib") for end in ("", "-headless")]
    found = ((own.metadata["Name"], own.version) for own in metadata.distributions())
    there = {name: version for name, version in found if name in wheels}
    try:
        import cv2
    except ImportError as error:  # a missing libGL shows here
        advice = "on a bare server: apt-get install libgl1 libglib2.0-0 libsm6"
        return Check("opencv", "fail", f"cannot be imported: {error}", advice)
    listed = ", ".join(f"{name} {own}" for name, own in there.items())
    told = f"{cv2.__version__} ({listed or 'no wheel'})"
    if len(there) < 2:
        return Check("opencv", "ok", told)
    advice = f"two wheels overwrite each other: pip uninstall {' '.join(there)}, then install one"
    return Check("opencv", "warn", told, advice)


def _models() -> Iterator[Check]:
    from neocog.evaluation.about import verify
    from neocog.network.registry import list_files, models_dir

    entries = list_files()
    if not entries:
        yield Check("models", "fail", f"none in {models_dir()}", "install neocog again")
    for entry in entries:
        try:
            yield Check("model", "ok", verify(entry.stem))
        except ModelError as error:
            yield Check("model", "fail", str(error), "install neocog again")


def _gpu() -> Iterator[Check]:
    from neocog.cuda import devices

    driver, reason = devices.driver_version(), devices.trouble()
    if driver is None:
        yield Check("gpu", "ok", "no NVIDIA driver: the CPU is used")
        return
    if reason is not None:
        what, _, advice = reason.partition("; ")
        yield Check("gpu", "warn", f"{what}: the CPU is used", advice)
        return
    import cupy

    from neocog.cuda.launcher import gpu

    spoken = f"{driver // 1000}.{driver % 1000 // 10}"
    yield Check("gpu", "ok", f"CuPy {cupy.__version__}, a driver that supports CUDA {spoken}")
    for number in range(devices.count()):
        try:
            device = gpu(number)
            memory = cupy.cuda.runtime.getDeviceProperties(number)["totalGlobalMem"]
            found = (
                f"cuda:{number} {device.name}, compute capability {device.arch / 10:.1f}, "
                f"{device.processors} multiprocessors, {memory / 2**30:.0f} GiB"
            )
            yield Check("gpu", "ok", found)
            yield Check("kernels", "ok", _verify_kernels(f"cuda:{number}"))
        except NeocogError as error:
            yield Check("gpu", "warn", str(error), "use --device cpu until it is repaired")


def _verify_kernels(device: str) -> str:
    """Let a GPU answer some digits, compile what it needs, and hold it against the CPU."""
    from neocog.network.engine import Engine
    from neocog.network.model import load_model
    from neocog.network.registry import DEFAULT
    from neocog.network.u0 import made_digits
    from neocog.reading.device import open_engine

    model, digits = load_model(DEFAULT), made_digits(16)
    engine = open_engine(model, device=device)
    off = float(np.abs(engine.recognise(digits).score - Engine(model).recognise(digits).score).max())
    if not off <= _SAME_SCORE:
        raise DeviceError(f"device '{device}': its scores differ from the CPU's by {off:.3f}")
    return f"{model.id} at {engine.precision} on {device} answers as on the CPU"
