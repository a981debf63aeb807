"""The layers of Lee and Kwak's Table 2, and the ways that ``bench winograd`` runs them."""

from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.winograd.conv2d import Dense, usual
from neocog.cuda.winograd import Shape, Split

KERNEL = 7


class Layer(NamedTuple):
    """A layer of Table 2: rows (and columns) of the output, channels in and out."""

    size: int
    channels: int
    planes: int

    @property
    def name(self) -> str:
        return f"{self.size}x{self.size} {self.channels}->{self.planes}"

    @property
    def shape(self) -> Shape:
        """Its shape for a plan; the input has its padding of 3 as a border."""
        return Shape(KERNEL, self.size + KERNEL - 1, self.channels, self.planes)


LAYERS = (Layer(56, 96, 96), Layer(28, 96, 192), Layer(14, 192, 384), Layer(7, 384, 768))


class Way(NamedTuple):
    """A way to compute a layer in float32."""

    what: str
    sizes: tuple[int, ...]
    m: int

    @property
    def name(self) -> str:
        return f"{self.what}: {'+'.join(map(str, self.sizes))}, tiles {self.m}x{self.m}"

    def plan(self, layer: Layer, *, thread_wise: bool = False) -> Dense:
        split = Split(KERNEL, self.sizes)
        return Dense(layer.shape, split, self.m, "tf32x3", thread_wise=thread_wise)


PAPER_WAY = Way("3x3 parts and the rest (the paper's)", (3, 3, 1), 2)
WAYS = (
    Way("shared input transform", (4, 4), 4), Way("4+3 split", (4, 3), 4), Way("4+3 split", (4, 3), 2),
    Way("3x3 parts and the rest", (3, 3, 1), 4), PAPER_WAY, Way("padded to 9x9", (3, 3, 3), 4),
    Way("shared input transform", (3, 3, 3), 3),
)  # fmt: skip


def chosen_way(layer: Layer, batch: int) -> Way:
    """Return the way that is taken before anything is timed."""
    plan = usual(layer.shape, batch)
    known = (way for way in WAYS if (way.sizes, way.m) == (plan.split.sizes, plan.m))
    return next(known, Way("chosen", plan.split.sizes, plan.m))


class Data:
    """A layer's input (with its border) and filters at random, and the output of some images."""

    def __init__(self, layer: Layer, batch: int) -> None:
        self.layer, self.batch = layer, batch
        rng, border = np.random.default_rng(layer.size), (KERNEL // 2, KERNEL // 2)
        x = rng.random((batch, layer.size, layer.size, layer.channels), dtype=np.float32)
        self.x = np.pad(x, ((0, 0), border, border, (0, 0)))
        w = rng.standard_normal((layer.planes, layer.channels, KERNEL, KERNEL), np.float32)
        self.w = w / np.float32(np.sqrt(layer.channels) * KERNEL)
        self.checked = sorted({0, batch // 2, batch - 1})
        x, w = self.x[self.checked].astype(np.float64), self.w.astype(np.float64)
        n, taps = layer.size, product(range(KERNEL), repeat=2)
        self._wanted = sum(x[:, i : i + n, j : j + n] @ w[:, :, i, j].T for i, j in taps)

    def error(self, y: NDArray[Any]) -> float:
        """Return the largest error of the checked images, of the largest; infinite for NaN."""
        gap = float(np.abs(y.astype(np.float64) - self._wanted).max() / np.abs(self._wanted).max())
        return gap if np.isfinite(gap) else float("inf")


def count_rows() -> list[dict[str, Any]]:
    """Return the operations of the chosen way of every layer, and of a convolution as it is written."""
    rows = []
    for layer, batch in product(LAYERS, (1, 16, 64)):
        way, products = chosen_way(layer, batch), 2e-9 * layer.channels * layer.planes * batch
        plan, direct = way.plan(layer), products * KERNEL**2 * layer.size**2
        rows.append({"layer": layer.name, "batch": batch, "way": way.name, "direct_gflop": direct,
                     "gflop": products * plan.tiles**2 * plan.split.multiplications(plan.m)})  # fmt: skip
    return rows
