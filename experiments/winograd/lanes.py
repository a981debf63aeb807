"""Active lanes of a warp while filters are transformed: by the kernel, by formula, by profiler.

Figs 4 and 5 of Lee and Kwak. A warp runs the transform of each size of sub-filter that it holds,
with the lanes that have it. Active lanes are averaged over the warps' executions of transforms,
each weighed with its instructions (``lanes``), or all alike (``plain``).

:func:`traffic` counts what the same transforms ask of memory. A warp's loads and stores go to it in
sectors of 32 bytes. How many it touches follows from the filter and sub-filter of each lane:
enumerated here for 512 filters, as ``kernels/winograd_filters.cu`` addresses them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.harness import ncu
from experiments.winograd.dense import Dense
from experiments.winograd.filters import (
    BLOCK_FAST,
    BLOCK_SLOW,
    INDEXINGS,
    WARP,
    Indexing,
    filter_grid,
    filter_split,
    filter_split_kernel,
    warps_of,
)
from neocog.cuda.kernel import Kernel, Machine
from neocog.cuda.winograd import Shape, Split, cook_toom
from neocog.errors import InputError, NeocogError

_SECTOR, _FLOAT, _BANKS = 32, 4, 32
_FILTERS = BLOCK_FAST * BLOCK_SLOW  # that a group of blocks takes
#: Filters of Fig. 4 and channels (in and out) of Fig. 5.
FILTERS = tuple(range(5, 26, 2))
CHANNELS = (64, 96, 128, 160, 192, 224, 256)
FIG_4_CHANNELS, FIG_5_FILTER = 64, 7
#: What the paper says of its plotted values, which are not in our copy.
PAPER = {
    4: {"channel-wise": "32", "thread-wise": "at most 23, 32 at multiples of 3"},
    5: {"channel-wise": "32", "thread-wise": "at most 15"},
}
TILE = 2  # outputs of the paper's transforms (equation 5, and 21 floats of shared memory a thread)
#: The profiler's figure: active threads per warp and instruction, over the whole kernel.
METRIC = "smsp__thread_inst_executed_per_inst_executed.ratio"


def paper_split(kernel: int) -> Split:
    """Return a filter split as the paper splits it: 3x3 parts and what remains."""
    rest = (kernel % 3,) if kernel % 3 else ()
    return Split(kernel, (3,) * (kernel // 3) + rest)


def filter_plan(kernel: int, channels: int, planes: int) -> Dense:
    return Dense(Shape(kernel, kernel + TILE - 1, channels, planes), paper_split(kernel), TILE)


class Active(NamedTuple):
    """Active lanes of a warp."""

    lanes: float  # mean over executed instructions of transforms
    plain: float  # mean over transforms


def operations(split: Split, m: int) -> NDArray[np.int64]:
    """Return instructions of transforms by size: rows of size i, columns of size j at 2 i + j."""
    out = np.zeros(4, np.int64)
    for i, y in enumerate(split.groups):
        for j, x in enumerate(split.groups):
            gy, gx = cook_toom(m, y.size)[1], cook_toom(m, x.size)[1]
            ny, nx = len(gy), len(gx)
            first, second = np.count_nonzero(gy) * x.size, np.count_nonzero(gx) * ny
            out[2 * i + j] = y.size * x.size + first + second + ny * nx
    return out


def classes(split: Split) -> NDArray[np.int64]:
    """Return the size of each sub-filter, as :func:`operations` counts them."""
    sizes = [0 if size == split.groups[0].size else 1 for size in split.sizes]
    return np.array([2 * y + x for y in sizes for x in sizes])


def lanes_by_formula(indexing: Indexing, planes: int, channels: int, split: Split) -> NDArray[np.int64]:
    """Return the lanes of each warp by size of sub-filter, (warps, 4), in closed form.

    Thread-wise, lane l of warp w has sub-filter (32 w + l) mod SF of its filter; channel-wise it
    has sub-filter bx mod SF, which the whole block shares, and the lanes are those whose filter
    is there.
    """
    of_part, subfilters = classes(split), len(split.sizes) ** 2
    grid = filter_grid(indexing, planes, channels, subfilters)
    warps = warps_of(grid)
    out = np.zeros((warps, 4), np.int64)
    if indexing == "thread-wise":
        threads = np.arange(warps * WARP)
        there = threads < planes * channels * subfilters
        size = of_part[threads % subfilters]
        for i in range(4):
            out[:, i] = ((size == i) & there).reshape(warps, WARP).sum(1)
        return out
    warp = np.arange(warps)
    of_block = BLOCK_FAST * BLOCK_SLOW // WARP
    block, row = warp // of_block, warp % of_block // (BLOCK_FAST // WARP)
    first = block % grid[0] // subfilters * BLOCK_FAST + warp % (BLOCK_FAST // WARP) * WARP
    there = np.clip(planes - first, 0, WARP) * (block // grid[0] * BLOCK_SLOW + row < channels)
    out[warp, of_part[block % grid[0] % subfilters]] = there
    return out


def active(counts: NDArray[Any], split: Split) -> Active:
    """Return the active lanes of counts (warps, 4) of lanes by size of sub-filter."""
    weights = operations(split, TILE)
    run = counts > 0
    return Active(float((counts * weights).sum() / (run * weights).sum()), float(counts.sum() / run.sum()))


def census(
    machine: Machine, kernel: int, planes: int, channels: int, indexing: Indexing
) -> NDArray[np.int64]:
    """Run the transform with its census, checked; return its counts (warps, 4)."""
    xp, plan = machine.xp, filter_plan(kernel, channels, planes)
    w = np.random.default_rng(kernel).standard_normal((planes, channels, kernel, kernel))
    given = xp.asarray(w.astype(np.float32))
    wanted = plan.filters(given)
    u = xp.zeros(wanted.shape, np.float32)
    grid = filter_grid(indexing, planes, channels, len(plan.split.sizes) ** 2)
    counts = xp.asarray(np.zeros((warps_of(grid), 4), np.uint32))
    machine.launch(filter_split(plan, given, u, indexing, census=counts))
    error = float(abs(u - wanted).max() / abs(wanted).max())
    if not error < 1e-6:
        raise NeocogError(f"{kernel}x{kernel} filters transformed {indexing}: wrong by {error:.1e}")
    found = counts if xp is np else counts.get()
    return np.asarray(found, dtype=np.int64)


def cases() -> Iterator[tuple[int, int, int]]:
    """Yield figure, filter and channels."""
    yield from ((4, kernel, FIG_4_CHANNELS) for kernel in FILTERS)
    yield from ((5, FIG_5_FILTER, channels) for channels in CHANNELS)


def lane_rows(machine: Machine, *, most_channels: int = 256) -> Iterator[dict[str, Any]]:
    """Yield the rows of Figs 4 and 5; a NeocogError if the census differs from the formula."""
    for figure, kernel, channels in cases():
        split, few = paper_split(kernel), min(channels, most_channels)
        for indexing in INDEXINGS:
            counts = census(machine, kernel, channels, few, indexing)
            formula = lanes_by_formula(indexing, channels, few, split)
            if not np.array_equal(counts, formula):
                raise NeocogError(
                    f"{kernel}x{kernel}, {channels} channels, {indexing}: the kernel's census "
                    "differs from the formula"
                )
            by_formula = active(lanes_by_formula(indexing, channels, channels, split), split)
            counted = active(counts, split)
            yield {
                "figure": figure, "filter": kernel, "channels": channels, "indexing": indexing,
                "lanes": counted.lanes, "plain": counted.plain, "formula": by_formula.lanes,
                "counted_channels": few, "profiler": None, "paper": PAPER[figure][indexing],
            }  # fmt: skip


def lane_kernels() -> set[Kernel]:
    return {
        filter_split_kernel(filter_plan(kernel, channels, channels), indexing, census=counted)
        for _, kernel, channels in cases()
        for indexing in INDEXINGS
        for counted in (False, True)
    }


def profile_launches(machine: Machine) -> Iterator[tuple[int, int, Indexing]]:
    """Launch each transform of Figs 4 and 5 once, without census, for a profiler."""
    for _, kernel, channels in cases():
        plan = filter_plan(kernel, channels, channels)
        w = machine.xp.asarray(np.ones((channels, channels, kernel, kernel), np.float32))
        size = (plan.split.multiplications(TILE), channels, channels)
        u = machine.xp.asarray(np.zeros(size, np.float32))
        for indexing in INDEXINGS:
            machine.launch(filter_split(plan, w, u, indexing))
            yield kernel, channels, indexing


def read_profile(text: str, rows: list[dict[str, Any]]) -> None:
    """Put a profiler's active lanes into the rows of :func:`lane_rows`, in order."""
    found = [row[METRIC] for row in ncu.launches(text, "filter_split") if METRIC in row]
    if not found:
        raise InputError(
            f"the profile has no {METRIC} of filter_split: run ncu as `neocog bench winograd --help` says"
        )
    if len(found) != len(rows):
        raise InputError(
            f"the profile has {len(found)} launches, expected {len(rows)}: profile "
            "`neocog bench winograd --launches` from its first launch to its last"
        )
    for row, value in zip(rows, found, strict=True):
        row["profiler"] = value


# -- memory ----------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Traffic:
    """What the transform of one filter takes, on average."""

    read: float  # sectors of 32 bytes
    written: float
    least_read: float  # sectors that the bytes fill
    least_written: float
    lanes: float  # active, of an access
    banks: int  # lanes that wait for one bank
    spread: int  # bytes of filters that a block reads from
    shared: int  # bytes of shared memory of a block


@lru_cache(maxsize=64)
def traffic(plan: Dense, indexing: Indexing, *, paper_layout: bool = False) -> Traffic:
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
    size, spread = plan.split.kernel**2 * _FLOAT, kernel.threads // subfilters
    stored = plan.split.multiplications(plan.m) * _FLOAT
    means = read / _FILTERS, written / _FILTERS, size / _SECTOR, stored / _SECTOR, lanes / accesses
    return Traffic(*means, int(banks), spread * size, kernel.shared)


def _accesses(plan: Dense, indexing: Indexing, paper_layout: bool) -> Iterator[tuple[bool, int, int, int]]:
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
    plan: Dense, indexing: Indexing, paper_layout: bool
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
    """Yield each warp's filters by their place in w and in U, and their sub-filters."""
    subfilters = len(plan.split.sizes) ** 2
    along_channels = plan.on_tensor_cores and not paper_layout
    if indexing == "thread-wise":
        filters, sid = np.divmod(np.arange(_FILTERS * subfilters), subfilters)
        k, c = np.divmod(filters, plan.channels)
    else:
        sid, thread = np.divmod(np.arange(_FILTERS * subfilters), _FILTERS)
        slow, fast = np.divmod(thread, BLOCK_FAST)
        k, c = (slow, fast) if along_channels else (fast, slow)
    place = k * plan.channels + c
    q = place if along_channels else c * plan.shape.planes + k
    for start in range(0, len(sid), WARP):
        part = slice(start, start + WARP)
        yield place[part], q[part], sid[part]


def _sectors(floats: NDArray[np.int64]) -> int:
    return len(set((floats * _FLOAT // _SECTOR).tolist()))
