"""What Algorithm 1 of Lee and Kwak asks of memory in each order of threads, counted exactly.

A warp's loads and stores go to memory in sectors of 32 bytes. How many it touches follows from the
filter and sub-filter of each lane: enumerated here for 512 filters, as
``kernels/winograd_filters.cu`` addresses them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from neocog.cuda.winograd import Convolution
from neocog.cuda.winograd_filters import (
    BLOCK_FAST,
    BLOCK_SLOW,
    WARP,
    Indexing,
    filter_split_kernel,
)

_SECTOR, _FLOAT, _BANKS = 32, 4, 32
_FILTERS = BLOCK_FAST * BLOCK_SLOW  # that a group of blocks takes


@dataclass(frozen=True, slots=True)
class Traffic:
    """What the transform of one filter takes, on average.

    Sectors of 32 bytes ``read`` and ``written`` and the ``least`` that the bytes fill; active lanes
    of an access; lanes that wait for one bank; bytes of filters that a block reads from
    (``spread``) and of shared memory that it has.
    """

    read: float
    written: float
    least_read: float
    least_written: float
    lanes: float
    banks: int
    spread: int
    shared: int


@lru_cache(maxsize=64)
def traffic(plan: Convolution, indexing: Indexing, *, paper_layout: bool = False) -> Traffic:
    """Count the sectors of Algorithm 1, filters (K, C, k, k), where channels fill the blocks."""
    read = written = lanes = accesses = 0
    for load, times, sectors, active in _accesses(plan, indexing, paper_layout):
        read += times * sectors * load
        written += times * sectors * (not load)
        lanes, accesses = lanes + times * active, accesses + times
    kernel = filter_split_kernel(plan, indexing)
    subfilters = len(plan.split.sizes) ** 2 if indexing == "thread-wise" else 1
    held = kernel.shared // (kernel.threads * _FLOAT)
    step = BLOCK_SLOW if indexing == "channel-wise" else 1
    banks = np.bincount(np.arange(WARP) * step * held % _BANKS).max()
    return Traffic(
        read / _FILTERS,
        written / _FILTERS,
        plan.split.kernel**2 * _FLOAT / _SECTOR,
        plan.split.multiplications(plan.m) * _FLOAT / _SECTOR,
        lanes / accesses,
        int(banks),
        kernel.threads // subfilters * plan.split.kernel**2 * _FLOAT,
        kernel.shared,
    )


def _accesses(
    plan: Convolution, indexing: Indexing, paper_layout: bool
) -> Iterator[tuple[bool, int, int, int]]:
    """Yield loads and stores of warps: whether it is a load, how often, its sectors, its lanes."""
    sizes, size = plan.split.sizes, plan.split.kernel
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    most = plan.m + plan.split.groups[0].size - 1
    for place, q, sid in _warps(plan, indexing, paper_layout):
        rows, columns = np.divmod(sid, len(sizes))
        for ry in dict.fromkeys(sizes):
            for rx in dict.fromkeys(sizes):
                mine = (np.take(sizes, rows) == ry) & (np.take(sizes, columns) == rx)
                if not mine.any():
                    continue
                top, left = first[rows[mine]], first[columns[mine]]
                for y in range(ry):
                    for x in range(rx):
                        inside = (top + y < size) & (left + x < size)
                        at = place[mine] * size**2 + (top + y) * size + left + x
                        if inside.any():
                            yield True, 1, _sectors(at[inside]), int(inside.sum())
                high, wide = ry + plan.m - 1, rx + plan.m - 1
                if paper_layout:  # the sub-filters of a point lie side by side
                    at = q[mine] * (most**2 * len(sizes) ** 2) + sid[mine]
                    for point in (y * most + x for y in range(high) for x in range(wide)):
                        stored = at + point * len(sizes) ** 2
                        yield False, 1, _sectors(stored), int(mine.sum())
                    continue
                # every point of a sub-filter lies in a matrix of its own
                stored = sid[mine].astype(np.int64) << 40 | q[mine]
                yield False, high * wide, _sectors(stored), int(mine.sum())


def _warps(
    plan: Convolution, indexing: Indexing, paper_layout: bool
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
    """Yield each warp's filters by their place in w and in U, and their sub-filters."""
    subfilters = len(plan.split.sizes) ** 2
    along_channels = plan.on_tensor_cores and not paper_layout
    if indexing == "thread-wise":
        filters, sid = np.divmod(np.arange(_FILTERS * subfilters), subfilters)
        channels = plan.channels
        k, c = np.divmod(filters, channels)
    else:
        thread = np.arange(_FILTERS * subfilters)
        sid, thread = thread // _FILTERS, thread % _FILTERS
        fast, slow = thread % BLOCK_FAST, thread // BLOCK_FAST
        k, c = (slow, fast) if along_channels else (fast, slow)
    place = k * plan.channels + c
    q = place if along_channels else c * plan.shape.planes + k
    for start in range(0, len(sid), WARP):
        part = slice(start, start + WARP)
        yield place[part], q[part], sid[part]


def _sectors(floats: NDArray[np.int64]) -> int:
    return len(set((floats * _FLOAT // _SECTOR).tolist()))
