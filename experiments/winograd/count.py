"""What a decomposed Winograd convolution computes and moves, its least time, the best plan.

Counted, not measured: operations and bytes of the three kernels by their loops, set against what a
GPU does at most. The transforms are bound by bytes; the products by operations where there are many
tiles, by the bytes of the transformed filters where there are few.
"""

from collections.abc import Iterator
from typing import NamedTuple

from experiments.winograd.filters import Dense, filter_split_shared
from neocog.cuda.kernel import shared_limit
from neocog.cuda.winograd import Shape, Split
from neocog.errors import UsageError


class Rates(NamedTuple):
    """Operations a second on CUDA and on tensor cores (three products of TF32 for one), bytes a second."""

    cores: float
    tensor: float
    memory: float
    cache: float


#: An H200 (data sheet), and the shares of these rates that kernels of this kind reach.
H200, _REACHED = Rates(67e12, 165e12, 4.8e12, 10e12), Rates(45e12, 70e12, 3.8e12, 6e12)
_CACHED = 30 << 20  # bytes of a kernel's results that the next one still finds in the L2 cache
_LAUNCH = 2e-6  # seconds from one kernel of a graph to the next
#: Taps of the filters that are served along an axis (SLaK has 51x51).
LEAST_TAPS, MOST_TAPS = 3, 51
#: Tiles that ``choose`` offers; larger ones lose digits of float32.
CHOSEN_TILES = (2, 3, 4)


class Count(NamedTuple):
    """What one kernel computes and has to move."""

    name: str
    flops: float
    bytes: float  # from and to memory: input, filters, output
    between: float  # bytes of V and W, which the kernels hand over


def counts(plan: Dense, batch: int) -> tuple[Count, Count, Count]:
    """Return the counts of the three kernels for ``batch`` images."""
    shape, m = plan.shape, plan.m
    tiles = plan.tiles**2
    v = float(batch * plan.starts * plan.channels)
    w = float(batch * plan.split.points(m) * tiles * shape.planes)
    x = 4.0 * batch * shape.width**2 * shape.channels
    y = 4.0 * batch * shape.out**2 * shape.planes
    products = plan.split.multiplications(m) * plan.channels * shape.planes
    largest = m + plan.split.groups[0].size - 1
    return (
        Count("input transform", 2.0 * v * largest, x, 4 * v),
        Count("products", 2.0 * batch * tiles * products, 4.0 * products, 4 * (v + w)),
        Count("inverse transform", 2.0 * w * m, y, 4 * w),
    )


def seconds(plan: Dense, batch: int, rates: Rates = H200) -> float:
    """Return the least time of a convolution by its counts."""
    steps, total = counts(plan, batch), 0.0
    between = rates.cache if steps[1].between <= _CACHED else rates.memory
    for step in steps:
        rate = rates.tensor if step.name == "products" and plan.on_tensor_cores else rates.cores
        total += _LAUNCH + max(step.bytes / rates.memory + step.between / between, step.flops / rate)
    return total


def splits(kernel: int) -> Iterator[Split]:
    """Yield the ways to split a filter that are worth counting: 4s, 4s and 3, 3s, 3s and a rest."""
    found = {(4,) * -(-kernel // 4), (3,) * -(-kernel // 3)}
    for large, small in ((4, 3), (3, 2), (3, 1), (4, 2)):
        for count in range(1, kernel // large + 1):
            rest = kernel - large * count
            if rest and rest % small == 0:
                found.add((large,) * count + (small,) * (rest // small))
    yield from (Split(kernel, sizes) for sizes in sorted(found))


def choose(shape: Shape, batch: int, *, arch: int = 90) -> Dense:
    """Return the way of least time by count for a convolution of ``batch`` images.

    Below compute capability 8.0 products run on the CUDA cores, in float32. A UsageError if filters
    are not 3x3 to 51x51.
    """
    if not LEAST_TAPS <= shape.kernel <= MOST_TAPS:
        raise UsageError(f"filters of {shape.kernel}x{shape.kernel}: choose 3x3 to 51x51")
    operand = "tf32x3" if arch >= 80 else "fp32"
    plans = [Dense(shape, split, m, operand) for split in splits(shape.kernel) for m in CHOSEN_TILES]
    limit = shared_limit(arch)  # below 8.0 parts of 4 are too large to be transformed
    return min((plan for plan in plans if filter_split_shared(plan) <= limit),
               key=lambda plan: seconds(plan, batch, _REACHED))  # fmt: skip
