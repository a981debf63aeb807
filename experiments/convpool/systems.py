"""Convolution with average pooling: the systems of the paper that names the direct sum, and ours.

The paper (Bulletin of Networking, Computing, Systems, and Software 8(1), 45-49, 2019) moves the pooling into
the filter (k + p - 1 taps a side at stride p: the *fused filter*) or in front of the convolution (sums of
p x p inputs, then k taps at stride p: the *direct sum*), by a library's convolution or as a matrix product.
"""

from dataclasses import dataclass
from itertools import product

from experiments.convpool.fused import Precision, Shape, Tiling, candidates

SIZE, KERNEL, POOL, PADDING = 32, 3, 2, 1  # the paper's section V
CHANNELS = (32, 64, 128, 256, 512)
#: The paper's own check of its Table I: direct sum, n = 32, 512 channels.
CHECK = 1_209_925_632
#: The paper's headlines, direct sum as a matrix product by naive library at 512 channels (V100).
PAPER: dict[Precision, float] = {"fp32": 1.8, "fp16": 4.4}
#: Systems: what they are called, and whose operations they take (Table I).
SYSTEMS = {
    "naive": ("naive: convolution, then pooling (library)", "naive"),
    "winograd": ("naive with Winograd (library)", "winograd"),
    "fused": ("fused filter, library convolution", "fused"),
    "fused_gemm": ("fused filter, gather + matrix product", "fused"),
    "direct": ("direct sum, sums + library convolution", "direct"),
    "direct_gemm": ("direct sum, sums and gather + matrix product", "direct"),
    "ours": ("ours: direct sum in one kernel", "direct"),
    "compiled": ("torch.compile of the naive form", "naive"),
}


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
        places = self.batch * (self.size**2 + self.out**2)
        width = 2 if self.precision == "fp16" else 4
        return width * self.channels * (places + self.channels * KERNEL**2)

    @property
    def words(self) -> str:
        return f"{self.precision} batch {self.batch} channels {self.channels}"

    def contenders(self, arch: int, processors: int, *, count: int = 5) -> list[Tiling]:
        """Return tilings that are worth measuring: the best by size of block."""
        found: dict[tuple[int, ...], Tiling] = {}
        for tiling in candidates(self.shape, arch, processors):
            found.setdefault((tiling.patches, tiling.planes, tiling.units), tiling)
        return list(found.values())[:count]

    @property
    def shape(self) -> Shape:
        c = self.channels
        return Shape(self.batch, c, c, self.out, self.out, KERNEL, POOL, self.precision)


def operations(counted: str, *, ci: int, co: int, n: int) -> int:
    """Return the operations of one picture of n x n places, ci to co channels, by Table I."""
    k, p, cells = KERNEL, POOL, (n // POOL) ** 2
    return {
        "naive": 2 * k**2 * ci * co * n**2 + p**2 * cells * co,
        "winograd": 36 * ci * co + 68 * (n // 2) ** 2 * (ci - 1) * co + p**2 * cells * co,
        "fused": (2 * (k + p - 1) ** 2 * ci - 1) * cells * co,
        "direct": 2 * p * n**2 * ci + (2 * k**2 * ci - 1) * co * cells,
    }[counted]


def standard_cases(*, quick: bool = False) -> list[Case]:
    """Return the 40 configurations of the standard run, the most telling first; quick: five of them."""
    if quick:
        return [*(Case(batch, 512, p) for p in reversed(PAPER) for batch in (64, 1)), Case(64, 256, "fp16")]
    return [Case(batch, channels, precision)
            for channels, batch, precision in product(CHANNELS[::-1], (64, 1, 16, 256), PAPER)]  # fmt: skip


def counts() -> list[dict[str, int]]:
    """Return Table I, one row for each number of channels: operations of one picture."""
    systems = ("naive", "winograd", "fused", "direct")
    return [{"channels": c} | {how: operations(how, ci=c, co=c, n=SIZE) for how in systems} for c in CHANNELS]
