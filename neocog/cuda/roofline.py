"""What a device can do at most, measured on it once: bytes and operations a second.

The roofline of a stage (Williams, Waterman, Patterson 2009, doi:10.1145/1498765.1498785) is the
longer of its operations at the device's rate and its least bytes at the rate of its memory. Maps
that stay in the L2 cache may move faster than that.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from neocog.cuda import cache as builds
from neocog.cuda.kernel import Kernel, Launch
from neocog.cuda.lanes import elapsed
from neocog.cuda.launcher import Gpu
from neocog.cuda.plan import code_hash
from neocog.cuda.steps import Precision, Work

_COPIED = 2**28  # bytes
_SIDE = 8192  # rows of the square matrices
_ROUNDS = 4096
_CHAIN_FLOPS = 2 * 16 * 8  # of a thread a round, as kernels/roofline.cu
_THREADS = 256
_SAMPLES = 5


@dataclass(frozen=True, slots=True)
class Peaks:
    """Rates of a device: bytes a second, operations a second."""

    copy: float  # bytes of a copy in its memory
    fma: float  # float32 multiply-adds
    tensor: float | None  # cuBLAS products of half matrices; None without cuBLAS
    tensor_tf32: float | None  # and of TF32 matrices

    def seconds(self, work: Work, precision: Precision, *, tensor: bool) -> float:
        """Return the least seconds of a digit's work by the plain equations, on which cores."""
        return max(work.flops / self._rate(precision, tensor), work.bytes / self.copy)

    def _rate(self, precision: Precision, tensor: bool) -> float:
        if not tensor:
            return self.fma
        if precision == "tf32":
            return self.tensor_tf32 or self.fma
        if precision == "fp32":  # three products of halves make one of float32
            return (self.tensor or 3 * self.fma) / 3
        return self.tensor or self.fma


def peaks(gpu: Gpu) -> Peaks:
    """Return the rates of a device, measured unless this code did so before."""
    about = f"{gpu.name} {gpu.arch} {gpu.processors} {code_hash()}"
    key = hashlib.sha256(about.encode()).hexdigest()[:16]
    name = f"peaks-{key}.json"

    def measured() -> Peaks:
        with gpu.current():
            return Peaks(_copy(gpu), _fma(gpu), _product(gpu, "float16"), _product(gpu, "tf32"))

    return builds.kept(name, Peaks, measured)


def _copy(gpu: Gpu) -> float:
    runtime = gpu.xp.cuda.runtime
    a, b = (gpu.xp.zeros(_COPIED, np.uint8) for _ in range(2))
    stream = gpu.xp.cuda.get_current_stream().ptr

    def work() -> None:
        kind = runtime.memcpyDeviceToDevice
        runtime.memcpyAsync(b.data.ptr, a.data.ptr, _COPIED, kind, stream)

    return 2 * _COPIED / _seconds(gpu, work)


def _fma(gpu: Gpu) -> float:
    blocks = 8 * gpu.processors
    out = gpu.xp.zeros(blocks * _THREADS, np.float32)
    args = (out, np.float32(0.999), np.int32(_ROUNDS))
    launch = Launch(Kernel("roofline.cu", "fma_rate", threads=_THREADS), (blocks, 1, 1), args)
    flops = float(_CHAIN_FLOPS * _ROUNDS * _THREADS * blocks)
    return flops / _seconds(gpu, lambda: gpu.launch(launch))


def _product(gpu: Gpu, kind: str) -> float | None:
    """Rate of a matrix product; None where cuBLAS is not installed or does not know the type."""
    xp = gpu.xp
    try:
        from cupy._core import _routines_linalg as linalg

        dtype = np.float16 if kind == "float16" else np.float32
        a = xp.zeros((_SIDE, _SIDE), dtype)
        out = xp.empty_like(a)
        before = linalg.get_compute_type(dtype)
        wanted = linalg.COMPUTE_TYPE_FP32 if kind == "float16" else linalg.COMPUTE_TYPE_TF32
        linalg.set_compute_type(dtype, wanted)
        try:
            return 2.0 * _SIDE**3 / _seconds(gpu, lambda: xp.matmul(a, a, out=out))
        finally:
            linalg.set_compute_type(dtype, before)
    except xp.cuda.memory.OutOfMemoryError:  # says nothing about cuBLAS
        raise
    except Exception:  # CuPy's own errors, and whatever loading cuBLAS raises
        return None


def _seconds(gpu: Gpu, work: Callable[[], object]) -> float:
    """Return the least of some times of work on the current stream."""
    stream = gpu.xp.cuda.get_current_stream()
    found = [1e-3 * elapsed(gpu, stream, work) for _ in range(_SAMPLES + 1)]
    return min(found[1:])
