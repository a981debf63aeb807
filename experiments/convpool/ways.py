"""A convolution and average pooling in the ways that PyTorch has, and with kernels of ours.

All compute the same, from x (B, ci, n, n) and w (co, ci, k, k) to (B, co, n', n').
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from experiments.convpool.fused import MAPS, ConvAvgPool, Precision, Tiling
from experiments.convpool.systems import KERNEL, PADDING, POOL, Case
from neocog.cuda.kernel import Kernel, Launch

Tensor = Any
Run = Callable[[], Tensor]

_THREADS, _ROWS = 256, 8  # as kernels/box_sums.cu
#: Memory formats of a library.
LAYOUTS = {"channels last": torch.channels_last, "channels first": torch.contiguous_format}


def naive(x: Tensor, w: Tensor) -> Tensor:
    return functional.avg_pool2d(functional.conv2d(x, w, padding=PADDING), POOL)


def fused(x: Tensor, w: Tensor) -> Tensor:
    return functional.conv2d(x, w, stride=POOL, padding=PADDING)


def fused_filter(w: Tensor) -> Tensor:
    """Return the filter (co, ci, k + p - 1, k + p - 1) that convolves and averages at once."""
    out = w.new_zeros((*w.shape[:2], KERNEL + POOL - 1, KERNEL + POOL - 1))
    for dy in range(POOL):
        for dx in range(POOL):
            out[:, :, dy : dy + KERNEL, dx : dx + KERNEL] += w / POOL**2
    return out


class Operands:
    """Inputs and filters of a case on a device, and the systems that multiply them."""

    def __init__(self, device: Any, case: Case, dtype: Any) -> None:
        self.device, self.case, self.dtype = device, case, dtype
        random = torch.Generator(device=device.name).manual_seed(0)
        n, c = case.size, case.channels
        make = partial(torch.randn, generator=random, device=device.name, dtype=torch.float32)
        self.x = make((case.batch, n, n, c)).to(dtype).permute(0, 3, 1, 2)  # channel-last memory
        self.w = (make((c, c, KERNEL, KERNEL)) / c).to(dtype)
        # the fused filter is summed before it is rounded
        self.fused = fused_filter(self.w.float()).to(dtype)

    def expected(self, pictures: list[int]) -> Tensor:
        """Return the results of some pictures in float64, of the operands as they are."""
        library = torch.backends.cudnn
        before, library.benchmark = library.benchmark, False  # trials of float64 take seconds
        try:
            return naive(self.x[pictures].double(), self.w.double())
        finally:
            library.benchmark = before

    # -- the library ---------------------------------------------------------------------------
    def stock(self, system: str, how: str) -> Run:
        function, filters = {"naive": (naive, self.w), "fused": (fused, self.fused)}[system]
        x, w = (t.contiguous(memory_format=LAYOUTS[how]) for t in (self.x, filters))
        return partial(function, x, w)

    def compiled(self) -> Run:
        run = torch.compile(naive, dynamic=False)
        x, w = (t.contiguous(memory_format=torch.channels_last) for t in (self.x, self.w))
        return partial(run, x, w)

    # -- own kernels in front of the library ---------------------------------------------------
    def direct(self) -> Run:
        """Return the direct sum by box sums of our own and the library's strided convolution."""
        sums, launch = self._sums()
        w = self.w.contiguous(memory_format=torch.channels_last)
        seen = sums.permute(0, 3, 1, 2)

        def run() -> Tensor:
            self.device.launch(launch)
            return functional.conv2d(seen, w, stride=POOL)

        return run

    def product(self, system: str) -> Run:
        """Return the fused filter or the direct sum as gathering and a matrix product."""
        box = POOL if system == "direct_gemm" else 1
        taps = KERNEL + POOL - box
        filters = self.w if box > 1 else self.fused
        c, case = self.case.channels, self.case
        rows = self._empty(case.batch * case.out**2, taps**2 * c)
        columns = filters.permute(2, 3, 1, 0).reshape(taps**2 * c, -1).contiguous()
        defines = {"MAP": self._map, "BOX": box, "KSIZE": taps, "STRIDE": POOL}
        kernel = Kernel("box_sums.cu", "gather", tuple(defines.items()), _THREADS, arch=80)
        sizes = (case.batch, case.size, case.size, c, case.out, case.out, PADDING)
        items = case.batch * case.out**2 * (c // self._values)
        launch = self._launch(kernel, items, (self._stored, rows), sizes, taps**2)

        def run() -> Tensor:
            self.device.launch(launch)
            return (rows @ columns).view(case.batch, case.out, case.out, -1).permute(0, 3, 1, 2)

        return run

    def _sums(self) -> tuple[Tensor, Launch]:
        """Return the map of box sums, and the launch that writes it."""
        case, c = self.case, self.case.channels
        side = case.size + 2 * PADDING - POOL + 1
        sums = self._empty(case.batch, side, side, c)
        kernel = Kernel("box_sums.cu", "box_sums", (("MAP", self._map), ("BOX", POOL)), _THREADS, arch=80)
        items = case.batch * -(-side // _ROWS) * side * (c // self._values)
        sizes = (case.batch, case.size, case.size, c, PADDING)
        return sums, self._launch(kernel, items, (self._stored, sums), sizes)

    # -- ours ----------------------------------------------------------------------------------
    def ours(self, tiling: Tiling | None = None) -> Run:
        """Return ours with a tiling, or with the one that ranks best."""
        return self._layer_run(POOL, tiling, self.device.array(self._stored))

    def ours_two(self, tiling: Tiling) -> Run:
        sums, first = self._sums()
        run = self._layer_run(1, tiling, self.device.array(sums))

        def both() -> Tensor:
            self.device.launch(first)
            return run()

        return both

    def _layer_run(self, box: int, tiling: Tiling | None, stored: Any) -> Run:
        case = self.case
        layer = ConvAvgPool(
            self.device.array(self.w), POOL, padding=PADDING if box > 1 else 0,
            precision=case.precision, box=box, tiling=tiling, machine=self.device.machine,
        )  # fmt: skip
        out = self._empty(case.batch, case.out, case.out, case.channels)
        launch = layer.launch(stored, self.device.array(out))
        seen = out.permute(0, 3, 1, 2)

        def run() -> Tensor:
            self.device.launch(launch)
            return seen

        return run

    # -- helpers -------------------------------------------------------------------------------
    @property
    def _stored(self) -> Tensor:
        return self.x.permute(0, 2, 3, 1)

    @property
    def _map(self) -> int:
        return MAPS[self.case.precision]

    @property
    def _values(self) -> int:
        """Channels in 16 bytes."""
        return 4 if self._map == 0 else 8

    def _empty(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=self.dtype, device=self.device.name)

    def _launch(
        self, kernel: Kernel, items: int, tensors: tuple[Tensor, ...], sizes: tuple[int, ...], rows: int = 1
    ) -> Launch:
        arrays = tuple(self.device.array(tensor) for tensor in tensors)
        numbers = tuple(np.int32(n) for n in sizes)
        return Launch(kernel, (-(-items // _THREADS), rows, 1), (*arrays, *numbers))


def type_of(precision: Precision) -> Any:
    return {"fp16": torch.float16, "bf16": torch.bfloat16}.get(precision, torch.float32)
