"""A convolution for any maps and filters: ``conv2d_winograd``, by decomposed Winograd on tensor cores.

Filters are transformed on the device, threads in the orders of Lee and Kwak's Algorithm 1.
"""

from pathlib import Path
from typing import Any, Literal

import numpy as np

from neocog.cuda.kernel import Array, Kernel, Launch, Machine, up
from neocog.cuda.launcher import gpu
from neocog.cuda.winograd import Convolution, Shape, Split
from neocog.errors import InputError, UsageError

Indexing = Literal["channel-wise", "thread-wise"]
#: The two orders that the paper compares.
INDEXINGS: tuple[Indexing, ...] = ("channel-wise", "thread-wise")
#: Threads of a block along the channels that lie side by side in U (Algorithm 1: along filters, K),
#: and along the others (lines 2 and 3).
BLOCK_FAST, BLOCK_SLOW = 64, 8
_THREADS = BLOCK_FAST * BLOCK_SLOW
#: Taps of the filters that are served along an axis (SLaK has 51x51).
LEAST_TAPS, MOST_TAPS = 3, 51


class Dense(Convolution):
    """A `Convolution` of a dense layer; ``thread_wise`` orders its inputs so: then no part is of size m."""

    most = 2 << 30

    def __init__(
        self, shape: Shape, split: Split, m: int, operand: str = "fp32", *, thread_wise: bool = False
    ) -> None:
        super().__init__(shape, split, m, operand)
        self.thread_wise = thread_wise
        if thread_wise and m in split.sizes:
            raise UsageError(f"parts {split.sizes} share inputs with tiles of {m}x{m}")

    def _order(self) -> tuple[int, int, dict[str, int]]:
        if self.thread_wise:
            return self.tiles * len(self.split.sizes), 1, {"THREAD_WISE": 1}
        return super()._order()


def usual(shape: Shape, batch: int, *, arch: int = 90) -> Dense:
    """Return a good way to convolve ``batch`` images; UsageError if filters are not 3x3 to 51x51.

    Parts are of at most 4x4, as equal as can be; one of 3 among 4s becomes one of 4 where there are many:
    these share inputs (winograd.json). Below 8.0 products run on CUDA cores, where parts of 4 are too large.
    """
    if not LEAST_TAPS <= shape.kernel <= MOST_TAPS:
        raise UsageError(f"filters of {shape.kernel}x{shape.kernel}: choose 3x3 to 51x51")
    on_tensor_cores, places = arch >= 80, batch * shape.out**2
    count = -(-shape.kernel // (4 if on_tensor_cores else 3))
    least, larger = divmod(shape.kernel, count)
    sizes = (least + 1,) * larger + (least,) * (count - larger)
    if on_tensor_cores and places >= 1024 and sizes[:-1] == (4,) * larger and 1 < count < 5:
        sizes = (4,) * count
    m = 4 if places >= 256 else 2
    return Dense(shape, Split(shape.kernel, sizes), m, "tf32x3" if on_tensor_cores else "fp32")


def filter_split(plan: Dense, w: Array, u: Array, indexing: Indexing) -> Launch:
    """Return the launch that makes U of filters (K, C, k, k), Algorithm 1; what ``w`` lacks stays."""
    planes, channels = w.shape[:2]
    defines = (*plan.geometry().items(), ("INDEXING", INDEXINGS.index(indexing)),
               ("CHANNELS_FAST", int(plan.on_tensor_cores)))  # fmt: skip
    source, largest = str(Path(__file__).with_name("winograd_filters.cu")), plan.split.groups[0].size
    held = (largest * largest + (plan.m + largest - 1) * largest) | 1
    kernel = Kernel(source, "filter_split", defines, _THREADS, 4 * _THREADS * held, 75, registers=128)
    # channels that lie side by side in U, and the others
    fast, slow = (channels, planes) if plan.on_tensor_cores else (planes, channels)
    parts = len(plan.split.sizes) ** 2
    grid = (-(-fast // BLOCK_FAST) * parts, -(-slow // BLOCK_SLOW), 1)
    if indexing == "thread-wise":
        grid = (-(-fast * slow * parts // _THREADS), 1, 1)
    return Launch(kernel, grid, (w, u, np.int32(planes), np.int32(channels)))


def conv2d_winograd(x: Any, w: Any, *, padding: int | None = None, machine: Machine | None = None) -> Array:
    """Convolve maps with filters (as deep learning has it: no filter is turned), stride 1.

    ``x`` (B, C, H, W) and ``w`` (K, C, k, k), k from 3 to 51, are float32 arrays of CuPy; ``padding`` is
    (k - 1) // 2 if not given. Errors are below 5e-5 of the largest output. InputError if shapes do not
    fit. Filters are split into parts of at most 4x4 whose products are summed in the Winograd domain (Lee and
    Kwak 2025, section II; Huang et al. 2020), every float32 as two TF32 numbers; each call transforms them.
    """
    planes, channels, kernel = (int(n) for n in w.shape[:3])
    border = (kernel - 1) // 2 if padding is None else padding
    batch, _, height, width = (int(n) for n in x.shape)
    rows, columns = (n + 2 * border - kernel + 1 for n in (height, width))
    fits = w.shape[1:] == (x.shape[1], kernel, kernel) and LEAST_TAPS <= kernel <= MOST_TAPS
    if not fits or min(rows, columns, border + 1) < 1 or not x.dtype == w.dtype == np.float32:
        came = f"maps {x.shape} of {x.dtype}, filters {w.shape} of {w.dtype} and padding {border}"
        wanted = "float32, as many channels, filters of 3x3 to 51x51 that are no larger than the maps"
        raise InputError(f"got {came}, expected {wanted}")
    machine = machine or gpu(int(x.device.id))
    xp = machine.xp
    with machine.current():
        side = max(height, width) + 2 * border  # tiles are counted for a square
        held = xp.zeros((batch, side, side, channels), np.float32)
        inside = slice(border, border + height), slice(border, border + width)
        held[:, inside[0], inside[1]] = x.transpose(0, 2, 3, 1)
        plan = usual(Shape(kernel, side, channels, up(planes, 8)), batch, arch=machine.arch)
        u = xp.zeros((plan.split.multiplications(plan.m) * plan.channels * plan.shape.planes,), np.float32)
        machine.launch(filter_split(plan, xp.ascontiguousarray(w), u, "channel-wise"))
        y = xp.empty((batch, plan.shape.out, plan.shape.out, plan.shape.planes), np.float32)
        scratch = {name: xp.empty(*form) for name, form in plan.scratch(batch).items()}
        for launch in plan.launches(batch, held, u, y, scratch, machine.processors):
            machine.launch(launch)
        return xp.ascontiguousarray(y[:, :rows, :columns, :planes].transpose(0, 3, 1, 2))
