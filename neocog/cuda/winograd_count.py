"""What a decomposed Winograd convolution computes and moves, its least time, the best plan.

Counted, not measured: operations and bytes of the three kernels by their loops, set against what a
GPU does at most. The transforms are bound by bytes; the products by operations where there are many
tiles, by the bytes of the transformed filters where there are few.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from neocog.cuda.tilings import shared_limit
from neocog.cuda.winograd_filters import filter_split_shared
from neocog.cuda.winograd_plan import Operand, Plan, Shape, Version
from neocog.cuda.winograd_transforms import Split
from neocog.errors import UsageError


@dataclass(frozen=True, slots=True)
class Rates:
    """What a GPU does at most: an H200 (data sheet).

    Attributes
    ----------
    flops : dict of float
        Operations a second by operand; ``tf32x3`` and ``fp16x3`` take three products for one.
    memory, cache : float
        Bytes a second of the memory and of the L2 cache.
    cached : int
        Bytes of a kernel's results that the next one still finds in the L2 cache.
    launch : float
        Seconds from one kernel of a graph to the next.
    """

    flops: dict[Operand, float]
    memory: float
    cache: float
    cached: int
    launch: float


_TF32 = 495e12
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
#: Tiles that ``choose`` offers; larger ones lose digits of float32.
CHOSEN_TILES = (2, 3, 4)


@dataclass(frozen=True, slots=True)
class Count:
    """Operations of one kernel and the bytes that it has to move.

    Attributes
    ----------
    name : str
        ``"input transform"``, ``"products"`` or ``"inverse transform"``.
    flops : float
        Additions and multiplications (of tensor cores: as if in float32).
    bytes : float
        From and to memory: input, filters, output.
    between : float
        Bytes of V and W that the kernels hand over.
    """

    name: str
    flops: float
    bytes: float
    between: float

    def seconds(self, plan: Plan, scratch: float, rates: Rates = H200) -> float:
        """Return the least time; ``scratch`` is how many bytes of V and W there are in all."""
        at = rates.cache if scratch <= rates.cached else rates.memory
        moved = self.bytes / rates.memory + self.between / at
        rate = rates.flops[plan.operand if self.name == "products" else "fp32"]
        return rates.launch + max(moved, self.flops / rate)


def counts(plan: Plan, batch: int) -> tuple[Count, ...]:
    """Return the counts of the three kernels (of version ``fused``: as if it were three).

    Parameters
    ----------
    plan : Plan
    batch : int
        Images.
    """
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


def seconds(plan: Plan, batch: int, rates: Rates = H200) -> float:
    """Return the least time of a convolution by its counts; see :class:`Count`."""
    steps = counts(plan, batch)
    scratch = steps[1].between
    return sum(step.seconds(plan, scratch, rates) for step in steps)


def direct_flops(plan: Plan, batch: int) -> float:
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


def choose(shape: Shape, batch: int, *, arch: int = 90, operand: Operand = "tf32x3") -> Plan:
    """Return the plan of least time by count for a convolution.

    Parameters
    ----------
    shape : Shape
        The convolution; its filters are 3x3 to 25x25.
    batch : int
        Images that go together.
    arch : int
        Compute capability; below 8.0 products run on the CUDA cores, in float32.
    operand : {"fp32", "tf32", "fp16", "tf32x3", "fp16x3"}
        Operands of the products on tensor cores.

    Raises
    ------
    UsageError
        If filters have another size.
    """
    if not 3 <= shape.kernel <= 25:
        raise UsageError(f"filters of {shape.kernel}x{shape.kernel}: choose 3x3 to 25x25")
    version: Version = "tensor" if arch >= 80 and operand != "fp32" else "global"
    held: Operand = operand if version == "tensor" else "fp32"
    plans = [
        Plan(shape, split, m, version, held) for split in splits(shape.kernel) for m in CHOSEN_TILES
    ]
    limit = shared_limit(arch)  # below 8.0 parts of 4 are too large to be transformed
    plans = [plan for plan in plans if filter_split_shared(plan) <= limit]
    return min(plans, key=lambda plan: seconds(plan, batch, _REACHED))
