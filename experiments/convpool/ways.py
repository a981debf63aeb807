"""A convolution and average pooling in the ways of PyTorch, and by our kernels, checked and timed.

From x (B, ci, n, n) and w (co, ci, k, k) to (B, co, n', n'), on PyTorch's stream: one CUDA graph holds all.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from experiments.convpool.fused import ConvAvgPool, Tiling
from experiments.convpool.systems import KERNEL, PADDING, POOL, SYSTEMS, Case, operations
from experiments.harness.run import Result, build_all, tried
from experiments.network.torch_network import TYPES, Graph, set_precision
from neocog.cuda.kernel import Array, Launch, Machine
from neocog.cuda.launcher import gpu
from neocog.errors import DeviceError, NeocogError

Tensor = Any
Run = Callable[[], Tensor]

#: Largest error, of the largest value, that a system may make against float64 on its operands.
TOLERANCES = {"fp32": 5e-5, "fp16": 5e-3}
#: Where torch.compile runs too, which costs seconds: batch, channels.
_COMPILED = {(64, 512), (1, 512)}
_CHECKED = 8  # pictures that float64 computes
_WRONG = "wrong by"
#: Memory formats of a library.
LAYOUTS = {"channels last": torch.channels_last, "channels first": torch.contiguous_format}
_SAMPLES = 7
_FLUSHED = 6  # runs in a graph that empties the L2 cache in front of each


class Device:
    """GPU ``number`` through PyTorch and CuPy, from then on the current one of both."""

    name = "cuda"

    def __init__(self, number: int = 0) -> None:
        if not torch.cuda.is_available():
            raise DeviceError("PyTorch finds no GPU: --device cpu tells what needs none")
        self.machine: Machine = gpu(number)
        if number:
            torch.cuda.set_device(number)
            self.machine.xp.cuda.Device(number).use()
        self.cache = int(getattr(torch.cuda.get_device_properties(number), "L2_cache_size", 60 << 20))
        self._flushed = torch.empty(2 * self.cache, dtype=torch.uint8, device=self.name)
        self._flush_ms: float | None = None
        self.wait, self.free = torch.cuda.synchronize, torch.cuda.empty_cache

    def facts(self) -> dict[str, Any]:
        return {"torch": torch.__version__, "CUDA": torch.version.cuda,
                "cuDNN": str(torch.backends.cudnn.version())}  # fmt: skip

    def contenders(self, case: Case) -> list[Tiling]:
        return case.contenders(self.machine.arch, self.machine.processors)

    def warm(self, kernels: Any) -> None:
        build_all(self.machine, kernels)
        self.machine.prepare(kernels)  # type: ignore[attr-defined]

    def array(self, tensor: Tensor) -> Array:
        """Return a contiguous tensor as the array that our kernels take, in the same memory."""
        return self.machine.xp.from_dlpack(tensor)

    def launch(self, launch: Launch) -> None:
        with self.machine.xp.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            self.machine.launch(launch)

    def result(self, run: Run) -> Tensor:
        with torch.no_grad():
            found = run()
        self.wait()
        return found

    def microseconds(self, run: Run, *, samples: int = _SAMPLES) -> float:
        """Return the time of one run among many: the median over replays of a CUDA graph."""
        once = Graph(run).elapsed(1)
        repeats = int(np.clip(0.4 / max(once, 1e-3), 1, 40))  # of a graph of about 0.4 ms
        graph = Graph(lambda: [run() for _ in range(repeats)][-1])
        return 1e3 * graph.median(samples, 2) / repeats

    def flushed_microseconds(self, run: Run) -> float:
        """Return the time of one run that finds the L2 cache full of other things."""

        def flush_and(run: Run) -> Tensor:
            for _ in range(_FLUSHED):
                self._flushed.zero_()
                found = run()
            return found

        if self._flush_ms is None:
            self._flush_ms = Graph(lambda: flush_and(lambda: None)).median(3 * _SAMPLES, 2)
        spent = Graph(lambda: flush_and(run)).median(_SAMPLES, 2) - self._flush_ms
        return 1e3 * max(spent, 0.0) / _FLUSHED


def naive(x: Tensor, w: Tensor) -> Tensor:
    return functional.avg_pool2d(functional.conv2d(x, w, padding=PADDING), POOL)


def sums(x: Tensor) -> Tensor:
    return functional.avg_pool2d(functional.pad(x, (PADDING,) * 4), POOL, stride=1)


def product(windows: Tensor, w: Tensor) -> Tensor:
    """Convolve at stride `POOL` as a gathering of windows and a matrix product."""
    rows = functional.unfold(windows, w.shape[2], stride=POOL)  # (B, ci k k, places)
    side = math.isqrt(rows.shape[2])
    return (w.flatten(1) @ rows).unflatten(2, (side, side))


#: Systems by the library alone, and whether their filters are the fused ones.
STOCK: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], bool]] = {
    "naive": (naive, False), "direct": (lambda x, w: functional.conv2d(sums(x), w, stride=POOL), False),
    "fused": (lambda x, w: functional.conv2d(x, w, stride=POOL, padding=PADDING), True),
    "fused_gemm": (lambda x, w: product(functional.pad(x, (PADDING,) * 4), w), True),
    "direct_gemm": (lambda x, w: product(sums(x), w), False),
}  # fmt: skip


def measured(device: Device, case: Case) -> Result:
    return Operands(device, case).row()


class Operands:
    """Inputs and filters of a case on a device, the systems that multiply them, their errors and times."""

    def __init__(self, device: Device, case: Case) -> None:
        self.device, self.case, self.dtype = device, case, TYPES[case.precision]
        self.fits = case.bytes < device.cache
        set_precision(case.precision)
        random = torch.Generator(device=device.name).manual_seed(0)
        n, c = case.size, case.channels
        make = partial(torch.randn, generator=random, device=device.name, dtype=torch.float32)
        self.stored = make((case.batch, n, n, c)).to(self.dtype)
        self.x = self.stored.permute(0, 3, 1, 2)  # channel-last memory
        self.w = (make((c, c, KERNEL, KERNEL)) / c).to(self.dtype)
        # the fused filter (co, ci, k + p - 1, k + p - 1), which is summed before it is rounded
        whole = torch.zeros((c, c, KERNEL + POOL - 1, KERNEL + POOL - 1), device=device.name)
        for i in range(POOL**2):
            dy, dx = divmod(i, POOL)
            whole[:, :, dy : dy + KERNEL, dx : dx + KERNEL] += self.w.float() / POOL**2
        self.fused = whole.to(self.dtype)
        self.pictures = sorted({int(i * (case.batch - 1) / (_CHECKED - 1)) for i in range(_CHECKED)})
        with torch.backends.cudnn.flags(benchmark=False):  # trials of float64 take seconds
            self._want = naive(self.x[self.pictures].double(), self.w.double())

    def row(self) -> Result:
        """Check and time every system: a row of the result."""
        case, found = self.case, dict[str, Result]()
        left_out = {"winograd"}  # cuDNN's by name: commit bb50304a
        if (case.batch, case.channels) not in _COMPILED:
            left_out.add("compiled")
        for name, (_, counted) in SYSTEMS.items():
            if name in left_out:
                continue
            found[name] = one = self.best(self.ways(name))
            if "us" in one:
                work = case.batch * operations(counted, ci=case.channels, co=case.channels, n=case.size)
                one["tflops"] = 1e-6 * work / one["us"]
        self.device.free()
        base = found["naive"].get("us")
        ratios = {name: base / one["us"] for name, one in found.items() if base and "us" in one}
        return {"batch": case.batch, "channels": case.channels, "precision": case.precision,
                "flushed": self.fits, "systems": found, "ratio": ratios}  # fmt: skip

    def best(self, ways: Mapping[str, Callable[[], Run]]) -> Result:
        """Check a system's ways; return the figures of the quickest, or why all fail."""
        found = [tried(partial(self._trial, how, make), self.device.wait) for how, make in ways.items()]
        if right := [one for one in found if "failed" not in one]:
            quickest = min(right, key=lambda one: float(one["us"]))
            found = [tried(partial(self._timed, **quickest), self.device.wait), *found]
            if "failed" not in found[0]:
                return found[0]
        why = "; ".join(one["failed"] for one in found if "failed" in one)
        return {"why": why, "wrong": _WRONG in why}

    def _trial(self, how: str, make: Callable[[], Run]) -> Result:
        run = make()
        error, us = self._error(run), self.device.microseconds(run, samples=3)
        return {"how": how, "run": run, "error": error, "us": us}

    def _timed(self, how: str, run: Run, error: float, us: float) -> Result:
        us = warm = self.device.microseconds(run)
        if self.fits:  # a difference of two times: noise may bring it below a warm run's
            us = max(us, self.device.flushed_microseconds(run))
        # what races shows after many runs rather than at the first
        return {"how": how, "error": max(error, self._error(run)), "us": us, "warm_us": warm}

    def _error(self, run: Run) -> float:
        """Return the largest error of a way, of the largest value; it raises if too large."""
        gap = (self.device.result(run)[self.pictures].double() - self._want).abs().max()
        found = float(gap) / float(self._want.abs().max())
        if not found <= TOLERANCES[self.case.precision]:  # nor may it be NaN
            raise NeocogError(f"{_WRONG} {found:.1e}")
        return found

    def ways(self, system: str) -> Mapping[str, Callable[[], Run]]:
        """Return what makes each way of a system, by how it runs: memory format, algorithm, tiling."""
        if system in STOCK:
            function, is_fused = STOCK[system]
            filters = self.fused if is_fused else self.w
            return {how: partial(self._stock, function, filters, how) for how in LAYOUTS}
        if system == "compiled":
            compiled = torch.compile(naive, dynamic=False)
            return {"channels last": partial(self._stock, compiled, self.w, "channels last")}
        return {tiling.words(): partial(self._ours, tiling) for tiling in self.device.contenders(self.case)}

    def _stock(self, function: Callable[..., Tensor], filters: Tensor, how: str) -> Run:
        return partial(function, *(t.contiguous(memory_format=LAYOUTS[how]) for t in (self.x, filters)))

    def _ours(self, tiling: Tiling) -> Run:
        case, array = self.case, self.device.array
        layer = ConvAvgPool(array(self.w), POOL, padding=PADDING, precision=case.precision, tiling=tiling,
                            machine=self.device.machine)  # fmt: skip
        out = torch.zeros((case.batch, case.out, case.out, case.channels), dtype=self.dtype,
                          device=self.device.name)  # fmt: skip
        launch = layer.launch(array(self.stored), array(out))

        def run() -> Tensor:
            self.device.launch(launch)
            return out.permute(0, 3, 1, 2)

        return run
