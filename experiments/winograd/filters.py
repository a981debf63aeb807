"""Filters transformed on the device, threads in the orders of Lee and Kwak's Algorithm 1."""

from pathlib import Path
from typing import Literal

import numpy as np

from neocog.cuda.kernel import Array, Kernel, Launch
from neocog.cuda.winograd import Convolution, Shape, Split
from neocog.errors import UsageError

Indexing = Literal["channel-wise", "thread-wise"]
#: The two orders that the paper compares.
INDEXINGS: tuple[Indexing, ...] = ("channel-wise", "thread-wise")
#: Threads of a block along the channels that lie side by side in U (Algorithm 1: along filters, K),
#: and along the others (lines 2 and 3).
BLOCK_FAST, BLOCK_SLOW = 64, 8
WARP = 32
_THREADS = BLOCK_FAST * BLOCK_SLOW


class Dense(Convolution):
    """A `Convolution` of a dense layer; its inputs are transformed by the paper's two orders too.

    ``thread_wise``: neighbouring threads transform the sub-inputs of one tile, so no part may be of size m.
    """

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


def filter_grid(indexing: Indexing, fast: int, slow: int, subfilters: int) -> tuple[int, int, int]:
    """Return the blocks of 512 threads that transform all ``subfilters`` of each filter.

    ``fast`` channels lie side by side in U, ``slow`` are the others: out (K) and in (C), or the other way.
    """
    if indexing == "thread-wise":
        return (-(-fast * slow * subfilters // _THREADS), 1, 1)
    return (-(-fast // BLOCK_FAST) * subfilters, -(-slow // BLOCK_SLOW), 1)


def filter_split_shared(plan: Dense) -> int:
    """Return the bytes of shared memory that a block of :func:`filter_split` takes."""
    largest = plan.split.groups[0].size
    held = (largest * largest + (plan.m + largest - 1) * largest) | 1
    return _THREADS * held * 4


def filter_split(
    plan: Dense,
    w: Array,
    u: Array,
    indexing: Indexing,
    *,
    census: Array | None = None,
    paper_layout: bool = False,
) -> Launch:
    """Return the launch that makes U of filters (K, C, k, k), Algorithm 1 of Lee and Kwak.

    ``u`` is as `Dense.filters` gives it; where it has more channels or planes than ``w`` the
    rest stays as it is. ``census`` (warps, 4) uint32, zeros, gets the lanes of each warp that
    transformed sub-filters of each size. With ``paper_layout`` ``u`` is the paper's, (C, K, n, n,
    sub-filters), n points of the largest part; the products here do not take it.
    """
    planes, channels = w.shape[:2]
    along_channels = plan.on_tensor_cores and not paper_layout
    defines: tuple[tuple[str, int | float | str], ...] = (
        *plan.geometry(), ("INDEXING", INDEXINGS.index(indexing)), ("CENSUS", int(census is not None)),
        ("CHANNELS_FAST", int(along_channels)), *((("PAPER_LAYOUT", 1),) if paper_layout else ()),
    )  # fmt: skip
    name = "filter_split" if census is None else "filter_census"
    source, shared = str(Path(__file__).with_name("winograd_filters.cu")), filter_split_shared(plan)
    kernel = Kernel(source, name, defines, _THREADS, shared, 75, registers=128)
    sides = (channels, planes) if along_channels else (planes, channels)
    ends = (w, u) if census is None else (w, u, census)
    grid = filter_grid(indexing, *sides, len(plan.split.sizes) ** 2)
    return Launch(kernel, grid, (*ends, np.int32(planes), np.int32(channels)))


def warps_of(grid: tuple[int, int, int]) -> int:
    """Return the warps of a grid of :func:`filter_grid`."""
    return grid[0] * grid[1] * grid[2] * (_THREADS // WARP)
