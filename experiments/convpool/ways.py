"""A convolution and average pooling in the ways that PyTorch has, and with kernels of ours.

All compute the same, from x (B, ci, n, n) and w (co, ci, k, k) to (B, co, n', n'). PyTorch's tensors and
CuPy's arrays share memory; kernels of both go onto PyTorch's stream, so that one CUDA graph holds them.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from experiments.convpool.fused import MAPS, ConvAvgPool, Tiling
from experiments.convpool.systems import KERNEL, PADDING, POOL, Case
from experiments.harness.processes import build_all
from experiments.network.peers import TYPES, Graph, set_precision
from neocog.cuda.kernel import Array, Kernel, Launch, Machine
from neocog.cuda.launcher import gpu
from neocog.errors import DeviceError

Tensor = Any
Run = Callable[[], Tensor]

_FILE = str(Path(__file__).with_name("box_sums.cu"))
_THREADS, _ROWS = 256, 8  # as there
#: Memory formats of a library.
LAYOUTS = {"channels last": torch.channels_last, "channels first": torch.contiguous_format}
_GRAPH_MS, _MOST_REPEATS = 0.4, 40  # what one graph of repeats lasts, about
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


def naive(x: Tensor, w: Tensor) -> Tensor:
    return functional.avg_pool2d(functional.conv2d(x, w, padding=PADDING), POOL)


def fused(x: Tensor, w: Tensor) -> Tensor:
    return functional.conv2d(x, w, stride=POOL, padding=PADDING)


class Operands:
    """Inputs and filters of a case on a device, and the systems that multiply them."""

    def __init__(self, device: Device, case: Case) -> None:
        self.device, self.case, self.dtype = device, case, TYPES[case.precision]
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
        self._map = MAPS[case.precision]
        self._values = 8 if self._map else 4  # channels in 16 bytes

    def expected(self, pictures: list[int]) -> Tensor:
        """Return the results of some pictures in float64, of the operands as they are."""
        library = torch.backends.cudnn
        before, library.benchmark = library.benchmark, False  # trials of float64 take seconds
        try:
            return naive(self.x[pictures].double(), self.w.double())
        finally:
            library.benchmark = before

    def ways(self, system: str) -> Mapping[str, Callable[[], Run]]:
        """Return what makes each way of a system, by how it runs: memory format, algorithm, tiling."""
        if system in ("naive", "fused"):
            return {how: partial(self._stock, system, how) for how in LAYOUTS}
        if system == "compiled":
            x, w = (self._as(tensor, "channels last") for tensor in (self.x, self.w))
            return {"channels last": lambda: partial(torch.compile(naive, dynamic=False), x, w)}
        if system == "direct":
            return {"channels last": self._direct}
        if system.endswith("_gemm"):
            return {"rows of windows": partial(self._product, system)}
        return {tiling.words(): partial(self._ours, tiling) for tiling in self.device.contenders(self.case)}

    def _as(self, tensor: Tensor, how: str) -> Tensor:
        return tensor.contiguous(memory_format=LAYOUTS[how])

    def _stock(self, system: str, how: str) -> Run:
        function, filters = {"naive": (naive, self.w), "fused": (fused, self.fused)}[system]
        return partial(function, self._as(self.x, how), self._as(filters, how))

    def _direct(self) -> Run:
        """The direct sum by box sums of our own and the library's strided convolution."""
        case, side, w = self.case, self.case.size + 2 * PADDING - POOL + 1, self._as(self.w, "channels last")
        sums = self._empty(case.batch, side, side, case.channels)
        kernel = Kernel(_FILE, "box_sums", (("MAP", self._map), ("BOX", POOL)), _THREADS, arch=80)
        sizes = (case.batch, case.size, case.size, case.channels, PADDING)
        launch = self._launch(kernel, case.batch * -(-side // _ROWS) * side, (self.stored, sums), sizes)
        return self._after(launch, lambda: functional.conv2d(sums.permute(0, 3, 1, 2), w, stride=POOL))

    def _product(self, system: str) -> Run:
        """The fused filter or the direct sum as gathering and a matrix product."""
        box, filters = (POOL, self.w) if system == "direct_gemm" else (1, self.fused)
        taps, c, case = KERNEL + POOL - box, self.case.channels, self.case
        rows = self._empty(case.batch * case.out**2, taps**2 * c)
        columns = filters.permute(2, 3, 1, 0).reshape(taps**2 * c, -1).contiguous()
        defines = {"MAP": self._map, "BOX": box, "KSIZE": taps, "STRIDE": POOL}
        kernel = Kernel(_FILE, "gather", tuple(defines.items()), _THREADS, arch=80)
        sizes = (case.batch, case.size, case.size, c, case.out, case.out, PADDING)
        launch = self._launch(kernel, case.batch * case.out**2, (self.stored, rows), sizes, taps**2)
        shape = (case.batch, case.out, case.out, -1)
        return self._after(launch, lambda: (rows @ columns).view(shape).permute(0, 3, 1, 2))

    def _ours(self, tiling: Tiling) -> Run:
        case, array = self.case, self.device.array
        layer = ConvAvgPool(array(self.w), POOL, padding=PADDING, precision=case.precision, tiling=tiling,
                            machine=self.device.machine)  # fmt: skip
        out = self._empty(case.batch, case.out, case.out, case.channels)
        launch = layer.launch(array(self.stored), array(out))
        return self._after(launch, lambda: out.permute(0, 3, 1, 2))

    def _after(self, launch: Launch, then: Run) -> Run:
        def run() -> Tensor:
            self.device.launch(launch)
            return then()

        return run

    def _empty(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=self.dtype, device=self.device.name)

    def _launch(
        self, kernel: Kernel, places: int, tensors: tuple[Tensor, ...], sizes: tuple[int, ...], rows: int = 1
    ) -> Launch:
        blocks = -(-places * (self.case.channels // self._values) // _THREADS)
        arrays = tuple(self.device.array(tensor) for tensor in tensors)
        return Launch(kernel, (blocks, rows, 1), (*arrays, *map(np.int32, sizes)))
