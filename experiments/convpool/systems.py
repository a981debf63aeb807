"""Convolution with average pooling: the systems of the paper that names the direct sum, and ours.

The paper (Bulletin of Networking, Computing, Systems, and Software 8(1), 45-49, 2019) compares a
library's convolution and pooling with two rewrites: pooling is linear, so it may be moved into the
filter (k + p - 1 taps a side at stride p: the *fused filter*) or in front of the convolution (sums
of p x p inputs, then k taps at stride p: the *direct sum*). Each by a library's convolution and as
a matrix product. Ours is the direct sum in one kernel (:mod:`experiments.convpool.fused`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

from experiments.convpool.fused import Precision, Shape, Tiling, candidates

SIZE, KERNEL, POOL, PADDING = 32, 3, 2, 1  # the paper's section V
CHANNELS = (32, 64, 128, 256, 512)
BATCHES = (1, 16, 64, 256)
#: The paper's own check of its Table I: direct sum, n = 32, 512 channels.
CHECK = 1_209_925_632
#: The paper's headlines, direct sum as a matrix product by naive library at 512 channels (V100).
PAPER: dict[str, float] = {"fp32": 1.8, "fp16": 4.4}
COUNTED = ("naive", "winograd", "fused", "direct")  # the columns of Table I
ABOUT_PAPER = {"ratio": PAPER, "machine": "V100, CUDA 9.2, cuDNN 7.3", "tables II, III": "not in our copy"}


@dataclass(frozen=True, slots=True)
class System:
    name: str
    label: str
    counted: str  # whose operations it takes (Table I), one of COUNTED


SYSTEMS = (
    System("naive", "naive: convolution, then pooling (library)", "naive"),
    System("winograd", "naive with Winograd (library)", "winograd"),
    System("fused", "fused filter, library convolution", "fused"),
    System("fused_gemm", "fused filter, gather + matrix product", "fused"),
    System("direct", "direct sum, own sums + library convolution", "direct"),
    System("direct_gemm", "direct sum, sums and gather + matrix product", "direct"),
    System("ours", "ours: direct sum in one kernel", "direct"),
    System("ours_two", "ours: sums written first, then the product", "direct"),
    System("compiled", "torch.compile of the naive form", "naive"),
)
LABELS = {system.name: system.label for system in SYSTEMS}


@dataclass(frozen=True, slots=True)
class Case:
    batch: int
    channels: int
    precision: Precision
    size: int = SIZE

    @property
    def out(self) -> int:
        return (self.size + 2 * PADDING - KERNEL + 1) // POOL

    @property
    def bytes(self) -> int:
        width = 2 if self.precision in ("fp16", "bf16") else 4
        places = self.batch * (self.size**2 + self.out**2)
        return width * self.channels * (places + self.channels * KERNEL**2)

    def words(self) -> str:
        return f"{self.precision} batch {self.batch} channels {self.channels}"


def operations(counted: str, *, ci: int, co: int, n: int) -> int:
    """Return the operations of one picture of n x n places, ci to co channels, by Table I."""
    k, p = KERNEL, POOL
    cells = (n // p) ** 2
    if counted == "naive":
        return 2 * k**2 * ci * co * n**2 + p**2 * cells * co
    if counted == "winograd":
        return 36 * ci * co + 68 * (n // 2) ** 2 * (ci - 1) * co + p**2 * cells * co
    if counted == "fused":
        return (2 * (k + p - 1) ** 2 * ci - 1) * cells * co
    if counted == "direct":
        return 2 * p * n**2 * ci + (2 * k**2 * ci - 1) * co * cells
    raise ValueError(counted)


def standard_cases() -> list[Case]:
    """Return the 56 configurations of the standard run, the most telling first."""
    all_of = [
        Case(batch, channels, precision)
        for channels, batch in product(sorted(CHANNELS, reverse=True), (64, 1, 16, 256))
        for precision in ("fp16", "fp32", "tf32", "bf16")
    ]
    return [c for c in all_of if c.precision in PAPER or c.channels in (128, 512)]


def quick_cases() -> list[Case]:
    """Return the configurations of ``--quick``: those that targets are set for."""
    return [
        *(Case(b, 512, precision) for precision in ("fp16", "fp32") for b in (64, 1)),
        Case(64, 256, "fp16"),
    ]


def counts(channels: Iterable[int] = CHANNELS) -> list[dict[str, int]]:
    """Return Table I, one row for each number of channels: operations of one picture."""
    return [{"channels": c} | {how: operations(how, ci=c, co=c, n=SIZE) for how in COUNTED} for c in channels]


def contenders(shape: Shape, arch: int, processors: int, *, count: int = 5) -> list[Tiling]:
    """Return tilings that are worth measuring: the best by size of block."""
    found: dict[tuple[int, ...], Tiling] = {}
    for tiling in candidates(shape, arch, processors):
        found.setdefault((tiling.patches, tiling.planes, tiling.units, tiling.raws), tiling)
    return list(found.values())[:count]
