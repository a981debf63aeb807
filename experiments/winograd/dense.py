"""Dense layers by decomposed Winograd convolution, in all ways that the kernels have."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from experiments.harness.rounding import tf32
from neocog.cuda.kernel import Array
from neocog.cuda.winograd import Convolution, cook_toom
from neocog.errors import UsageError
from neocog.network.arrays import array_module

#: What pairs of halves may become in the Winograd domain: half of the largest half.
_LARGEST_HALF = 2.0**15


@dataclass(frozen=True)
class Dense(Convolution):
    """A `Convolution` with two more operands: TF32, and pairs of halves of numbers whose range is known."""

    operands: ClassVar[dict[str, int]] = {**Convolution.operands, "tf32": 1, "fp16x3": 4}

    most: int = 2 << 30
    largest: tuple[float, float] = (1.0, 1.0)  # |input| and |filter| that fp16x3 takes
    thread_wise: bool = False  # neighbouring threads transform the sub-inputs of one tile: no part of size m

    def __post_init__(self) -> None:
        if self.thread_wise and self.m in self.split.sizes:
            raise UsageError(
                f"parts {self.split.sizes} share inputs with tiles of {self.m}x{self.m}; choose "
                "other tiles for thread-wise indexing"
            )

    @property
    def row_bytes(self) -> int:
        return max(64, super().row_bytes) if self.operand == "fp16x3" else super().row_bytes

    @cached_property
    def scales(self) -> tuple[float, float]:
        """Powers of two that V and U of ``fp16x3`` are multiplied by."""
        out = []
        for matrix, largest in zip((2, 1), self.largest, strict=True):
            sums = [abs(cook_toom(self.m, g.size)[matrix]).sum(1).max() for g in self.split.groups]
            out.append(2.0 ** math.floor(math.log2(_LARGEST_HALF / (max(sums) ** 2 * largest))))
        return out[0], out[1]

    def filters(self, w: Array) -> Array:
        if self.operand == "tf32":
            return tf32(self.transformed(w))
        if self.operand != "fp16x3":
            return super().filters(w)
        u = self.transformed(w) * self.scales[1]  # for 8 channels their higher halves, then the lower ones
        high = u.astype(np.float16)
        halves = [high, (u - high.astype(np.float64)).astype(np.float16)]
        both = [half.reshape(*u.shape[:-1], -1, 1, 8) for half in halves]
        return array_module(w).concatenate(both, axis=-2).view(np.float32).reshape(u.shape)

    def geometry(self) -> Iterator[tuple[str, int | float | str]]:
        yield from super().geometry()
        if self.operand == "fp16x3":
            yield from zip(("V_SCALE", "U_SCALE"), (f"{s!r}f" for s in self.scales), strict=True)

    def _order(self) -> tuple[int, int, dict[str, int]]:
        if self.thread_wise:
            return self.tiles * len(self.split.sizes), 1, {"THREAD_WISE": 1}
        return super()._order()
