"""Active lanes of a warp while filters are transformed: by the kernel, and by formula.

Figs 4 and 5 of Lee and Kwak. A warp runs the transform of each size of sub-filter that it holds,
with the lanes that have it. Active lanes are averaged over the warps' executions of transforms,
each weighed with its instructions (``lanes``), or all alike (``plain``).
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.winograd.filters import (
    BLOCK_FAST,
    BLOCK_SLOW,
    INDEXINGS,
    WARP,
    Dense,
    Indexing,
    filter_grid,
    filter_split,
    warps_of,
)
from neocog.cuda.kernel import Machine
from neocog.cuda.winograd import Shape, Split, cook_toom
from neocog.errors import NeocogError

#: Filters of Fig. 4 and channels (in and out) of Fig. 5.
FILTERS = tuple(range(5, 26, 2))
CHANNELS = (64, 96, 128, 160, 192, 224, 256)
FIG_4_CHANNELS, FIG_5_FILTER = 64, 7
#: What the paper says of its plotted values, which are not in our copy.
PAPER = {4: "at most 23, 32 at multiples of 3", 5: "at most 15"}
TILE = 2  # outputs of the paper's transforms (equation 5, and 21 floats of shared memory a thread)


def paper_split(kernel: int) -> Split:
    """Return a filter split as the paper splits it: 3x3 parts and what remains."""
    rest = (kernel % 3,) if kernel % 3 else ()
    return Split(kernel, (3,) * (kernel // 3) + rest)


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


def lanes_by_formula(indexing: Indexing, planes: int, channels: int, split: Split) -> NDArray[np.int64]:
    """Return the lanes of each warp by size of sub-filter, (warps, 4), in closed form.

    Thread-wise, lane l of warp w has sub-filter (32 w + l) mod SF of its filter; channel-wise it
    has sub-filter bx mod SF, which the whole block shares, and the lanes are those whose filter
    is there.
    """
    sizes = [0 if size == split.groups[0].size else 1 for size in split.sizes]
    of_part, subfilters = np.array([2 * y + x for y in sizes for x in sizes]), len(sizes) ** 2
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
    weights, run = operations(split, TILE), counts > 0
    return Active(float((counts * weights).sum() / (run * weights).sum()), float(counts.sum() / run.sum()))


def census(
    machine: Machine, kernel: int, planes: int, channels: int, indexing: Indexing
) -> NDArray[np.int64]:
    """Run the transform with its census, checked; return its counts (warps, 4)."""
    xp, shape = machine.xp, Shape(kernel, kernel + TILE - 1, channels, planes)
    plan = Dense(shape, paper_split(kernel), TILE)
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
    return np.asarray(counts if xp is np else counts.get(), dtype=np.int64)


def lane_rows(machine: Machine, *, most_channels: int = 256) -> Iterator[dict[str, Any]]:
    """Yield the rows of Figs 4 and 5; a NeocogError if the census differs from the formula."""
    cases = [(4, kernel, FIG_4_CHANNELS) for kernel in FILTERS]
    cases += [(5, FIG_5_FILTER, channels) for channels in CHANNELS]
    for figure, kernel, channels in cases:
        split, few = paper_split(kernel), min(channels, most_channels)
        row: dict[str, Any] = {
            "figure": figure,
            "filter": kernel,
            "channels": channels,
            "paper": PAPER[figure],
        }
        for indexing in INDEXINGS:
            counts = census(machine, kernel, channels, few, indexing)
            if not np.array_equal(counts, lanes_by_formula(indexing, channels, few, split)):
                raise NeocogError(f"{kernel}x{kernel}, {channels} channels: the {indexing} census differs")
            row[indexing], row["plain"] = active(counts, split)
        yield row
