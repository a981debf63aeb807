"""What a decomposed Winograd convolution computes and moves, its least time, the best plan.

Counted, not measured: operations and bytes of the three kernels by their loops, set against what a
GPU does at most. The transforms are bound by bytes; the products by operations where there are many
tiles, by the bytes of the transformed filters where there are few.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from experiments.winograd.dense import Dense
from experiments.winograd.filters import filter_split_shared
from neocog.cuda.kernel import shared_limit
from neocog.cuda.winograd import Shape, Split
from neocog.errors import UsageError


@dataclass(frozen=True, slots=True)
class Rates:
    """What a GPU does at most."""

    flops: dict[str, float]  # operations a second; tf32x3 and fp16x3 take three products for one
    memory: float  # bytes a second
    cache: float  # bytes a second
    cached: int  # bytes of a kernel's results that the next one still finds in the L2 cache
    launch: float  # seconds from one kernel of a graph to the next


_TF32 = 495e12
#: An H200 (data sheet).
H200 = Rates(
    {"fp32": 67e12, "tf32": _TF32, "fp16": 2 * _TF32, "tf32x3": _TF32 / 3, "fp16x3": 2 * _TF32 / 3},
    4.8e12,
    10e12,
    30 << 20,
    2e-6,
)
#: Shares of these rates that kernels of this kind reach: mma.sync does not keep up with wgmma.
_REACHED = replace(
    H200,
    flops={"fp32": 45e12, "tf32": 200e12, "fp16": 350e12, "tf32x3": 70e12, "fp16x3": 120e12},
    memory=3.8e12,
    cache=6e12,
)
#: Taps of the filters that are served along an axis (SLaK has 51x51).
LEAST_TAPS, MOST_TAPS = 3, 51
#: Tiles that ``choose`` offers; larger ones lose digits of float32.
CHOSEN_TILES = (2, 3, 4)


@dataclass(frozen=True, slots=True)
class Count:
    """What one kernel computes and has to move."""

    name: str
    flops: float  # operations, of tensor cores as if in float32
    bytes: float  # from and to memory: input, filters, output
    between: float  # bytes of V and W, which the kernels hand over

    def seconds(self, plan: Dense, scratch: float, rates: Rates = H200) -> float:
        """Return the least time; ``scratch`` is how many bytes of V and W there are in all."""
        at = rates.cache if scratch <= rates.cached else rates.memory
        moved = self.bytes / rates.memory + self.between / at
        rate = rates.flops[plan.operand if self.name == "products" else "fp32"]
        return rates.launch + max(moved, self.flops / rate)


def counts(plan: Dense, batch: int) -> tuple[Count, ...]:
    """Return the counts of the three kernels for ``batch`` images."""
    shape, m = plan.shape, plan.m
    points, tiles = plan.split.points(m), plan.tiles**2
    v = float(batch * plan.starts * plan.channels)
    w = float(batch * points * tiles * shape.planes)
    item = 2 if shape.source else 4
    x_bytes = float(batch * shape.width**2 * shape.channels * item)
    y_bytes = float(batch * shape.out**2 * shape.planes * (2 if shape.target else 4))
    products = plan.split.multiplications(m) * plan.channels * shape.planes
    largest = m + plan.split.groups[0].size - 1
    return (
        Count("input transform", 2.0 * v * largest, x_bytes, v * plan.itemsize),
        Count(
            "products",
            2.0 * batch * tiles * products,
            float(products * plan.itemsize),
            v * plan.itemsize + w * 4,
        ),
        Count("inverse transform", 2.0 * w * m, y_bytes, w * 4),
    )


def seconds(plan: Dense, batch: int, rates: Rates = H200) -> float:
    """Return the least time of a convolution by its counts; see :class:`Count`."""
    steps = counts(plan, batch)
    scratch = steps[1].between
    return sum(step.seconds(plan, scratch, rates) for step in steps)


def direct_flops(plan: Dense, batch: int) -> float:
    """Return the operations of the direct convolution, 2 k^2 C K for an output."""
    shape = plan.shape
    return 2.0 * shape.kernel**2 * shape.channels * shape.planes * shape.out**2 * batch


def splits(kernel: int) -> Iterator[Split]:
    """Yield the ways to split a filter that are worth counting: 4s, 4s and 3, 3s, 3s and a rest."""
    found = {(4,) * -(-kernel // 4), (3,) * -(-kernel // 3)}
    for large, small in ((4, 3), (3, 2), (3, 1), (4, 2)):
        for count in range(1, kernel // large + 1):
            rest = kernel - large * count
            if rest and rest % small == 0:
                found.add((large,) * count + (small,) * (rest // small))
    yield from (Split(kernel, sizes) for sizes in sorted(found))


def choose(shape: Shape, batch: int, *, arch: int = 90, operand: str = "tf32x3") -> Dense:
    """Return the way of least time by count for a convolution of ``batch`` images.

    Below compute capability 8.0 products run on the CUDA cores, in float32. A UsageError if filters
    are not 3x3 to 51x51.
    """
    if not LEAST_TAPS <= shape.kernel <= MOST_TAPS:
        raise UsageError(f"filters of {shape.kernel}x{shape.kernel}: choose 3x3 to 51x51")
    held = operand if arch >= 80 else "fp32"
    plans = [Dense(shape, split, m, held) for split in splits(shape.kernel) for m in CHOSEN_TILES]
    limit = shared_limit(arch)  # below 8.0 parts of 4 are too large to be transformed
    plans = [plan for plan in plans if filter_split_shared(plan) <= limit]
    return min(plans, key=lambda plan: seconds(plan, batch, _REACHED))
