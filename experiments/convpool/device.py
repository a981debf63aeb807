"""A GPU as the experiment on convolution with pooling sees it: tensors, our kernels, clocks.

PyTorch's tensors and CuPy's arrays share memory; kernels of both go onto PyTorch's stream, so that
one CUDA graph holds them.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from experiments.harness.processes import build_all
from experiments.network.peers import Graph, kernels_of, set_precision
from neocog.cuda.kernel import Array, Launch, Machine
from neocog.cuda.launcher import gpu
from neocog.errors import DeviceError

Tensor = Any
Run = Callable[[], Tensor]

_GRAPH_MS = 0.4  # what one graph of repeats lasts, about
_MOST_REPEATS = 40
_SAMPLES = 7
_FLUSHED = 6  # runs in a graph that empties the L2 cache in front of each
_FLUSH = 2.0  # bytes written to empty it, in sizes of the cache


class Device:
    """GPU ``number`` through PyTorch and CuPy, from then on the current one of both."""

    name = "cuda"

    def __init__(self, number: int = 0) -> None:
        if not torch.cuda.is_available():
            raise DeviceError("PyTorch finds no GPU: neocog bench convpool --cpu tells what needs none")
        self.machine: Machine = gpu(number)
        if number:
            torch.cuda.set_device(number)
            self.machine.xp.cuda.Device(number).use()
        properties = torch.cuda.get_device_properties(number)
        self.cache = int(getattr(properties, "L2_cache_size", 60 << 20))
        self._flushed = torch.empty(int(self.cache * _FLUSH), dtype=torch.uint8, device=self.name)
        self._flush_ms: float | None = None

    def facts(self) -> dict[str, Any]:
        version = torch.backends.cudnn.version() or 0
        major, minor, patch = version // 10000, version // 100 % 100, version % 100
        return {
            "torch": torch.__version__, "CUDA": torch.version.cuda, "cuDNN": f"{major}.{minor}.{patch}",
            "L2": self.cache, "multiprocessors": self.machine.processors,
        }  # fmt: skip

    def prepare(self, precision: str) -> None:
        set_precision(precision)

    def warm(self, kernels: Any) -> None:
        build_all(self.machine, kernels)
        self.machine.prepare(kernels)  # type: ignore[attr-defined]

    def array(self, tensor: Tensor) -> Array:
        """Return a contiguous tensor as the array that our kernels take, in the same memory."""
        xp = self.machine.xp
        if tensor.dtype == torch.bfloat16:
            return xp.from_dlpack(tensor.view(torch.int16)).view(np.uint16)
        return xp.from_dlpack(tensor)

    def launch(self, launch: Launch) -> None:
        stream = torch.cuda.current_stream().cuda_stream
        with self.machine.xp.cuda.ExternalStream(stream):
            self.machine.launch(launch)

    def wait(self) -> None:
        torch.cuda.synchronize()

    def free(self) -> None:
        torch.cuda.empty_cache()

    def microseconds(self, run: Run, *, samples: int = _SAMPLES) -> float:
        """Return the time of one run among many: the median over replays of a CUDA graph."""
        once = Graph(run).elapsed(1)
        repeats = int(np.clip(_GRAPH_MS / max(once, 1e-3), 1, _MOST_REPEATS))
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

    def kernels(self, run: Run) -> list[str]:
        return kernels_of(run)[:3]
