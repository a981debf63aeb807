"""The layers of Lee and Kwak's Table 2, and the ways that ``bench winograd`` runs them."""

from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.winograd.count import Count, choose, counts, direct_flops, seconds
from experiments.winograd.dense import Dense
from neocog.cuda.winograd import Shape, Split
from neocog.network.arrays import array_module

KERNEL = 7
BATCHES = (1, 16, 64)
#: Largest error that is let pass, of the largest output.
TOLERANCE = {"fp32": 5e-5, "tf32": 2e-2, "fp16": 2e-2}
#: The paper's figure for a whole convolution, channel-wise against thread-wise (its section IV).
PAPER_GAIN = "11-15 %"
#: Bytes of V and W that a way in pieces works on at a time.
CACHED_BYTES = 30 << 20
#: Order of threads with inputs transformed thread-wise too.
BOTH_HALVES = "thread-wise, inputs too"
#: What the transform of filters alone writes, and whether that is the paper's layout.
LAYOUTS = {
    "Algorithm 1, filters (K, C, 7, 7)": False,
    "Algorithm 1, the paper's layout (C, K, n, n, sub-filters)": True,
}


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer of Table 2: rows (and columns) of the output, channels in and out."""

    size: int
    channels: int
    planes: int

    @property
    def name(self) -> str:
        return f"{self.size}x{self.size} {self.channels}->{self.planes}"

    def shape(self, *, half: bool = False) -> Shape:
        """Return it for a plan; the input has its padding of 3 as a border."""
        width = self.size + KERNEL - 1
        return Shape(KERNEL, width, self.channels, self.planes, int(half), int(half))


LAYERS = (Layer(56, 96, 96), Layer(28, 96, 192), Layer(14, 192, 384), Layer(7, 384, 768))


class Way(NamedTuple):
    """A way to compute a layer; ``cached``: so many images that V and W stay in the L2 cache."""

    what: str
    sizes: tuple[int, ...]
    m: int
    operand: str = "tf32x3"
    cached: bool = False

    @property
    def precision(self) -> str:
        return "fp32" if self.operand in ("tf32x3", "fp16x3") else self.operand

    @property
    def name(self) -> str:
        split = "+".join(map(str, self.sizes))
        cores = ", global on CUDA cores" if self.operand == "fp32" else ""
        if self.operand == "fp16x3":
            cores = ", pairs of halves (range known)"
        pieces = ", in pieces that stay in the L2 cache" if self.cached else ""
        return f"{self.what}: {split}, tiles {self.m}x{self.m}{cores}{pieces}"

    def plan(self, layer: Layer) -> Dense:
        """Return how a layer is computed; half maps go with half operands."""
        shape = layer.shape(half=self.operand == "fp16")
        most = CACHED_BYTES if self.cached else Dense.most
        return Dense(shape, Split(KERNEL, self.sizes), self.m, self.operand, most)


PAPER_WAY = Way("3x3 parts and the rest (the paper's)", (3, 3, 1), 2)
SHARED = "shared input transform"
WAYS = (
    Way(SHARED, (4, 4), 4), Way(SHARED, (4, 4), 4, cached=True), Way("4+3 split", (4, 3), 4),
    Way("4+3 split", (4, 3), 2), Way(SHARED, (4, 4), 4, "fp16x3"), Way("4+3 split", (4, 3), 4, "fp16x3"),
    Way("4+3 split", (4, 3), 2, "fp16x3"), Way("3x3 parts and the rest", (3, 3, 1), 4), PAPER_WAY,
    Way("padded to 9x9", (3, 3, 3), 4), Way(SHARED, (3, 3, 3), 3), Way(SHARED, (4, 4), 4, "fp32"),
    Way("4+3 split", (4, 3), 4, "fp32"), Way(SHARED, (4, 4), 4, "tf32"), Way("4+3 split", (4, 3), 2, "tf32"),
    Way(SHARED, (4, 4), 4, "fp16"), Way("4+3 split", (4, 3), 2, "fp16"),
)  # fmt: skip
#: What ``--quick`` runs.
QUICK_WAYS = (*WAYS[:1], *WAYS[2:4], *(way for way in WAYS[4:] if way.what == SHARED and way.sizes == (4, 4)))


def chosen_way(layer: Layer, batch: int) -> Way:
    """Return the float32 way that the count chooses, before anything is timed."""
    plan = choose(layer.shape(), batch)
    for way in WAYS:
        if not way.cached and (way.sizes, way.m, way.operand) == (plan.split.sizes, plan.m, plan.operand):
            return way
    return Way("chosen by count", plan.split.sizes, plan.m)


class Data:
    """A layer's input (with its border) and filters at random, and the output of some images."""

    def __init__(self, layer: Layer, batch: int) -> None:
        self.layer, self.batch = layer, batch
        rng = np.random.default_rng(layer.size)
        border, width = KERNEL // 2, layer.size + KERNEL - 1
        self.x = np.zeros((batch, width, width, layer.channels), np.float32)
        inside = (batch, layer.size, layer.size, layer.channels)
        middle = slice(border, border + layer.size)
        self.x[:, middle, middle] = rng.random(inside, dtype=np.float32)
        w = rng.standard_normal((layer.planes, layer.channels, KERNEL, KERNEL), np.float32)
        self.w = w / np.float32(np.sqrt(layer.channels) * KERNEL)
        self.checked = sorted({0, batch // 2, batch - 1})
        x, w = self.x[self.checked].astype(np.float64), self.w.astype(np.float64)
        n, taps = layer.size, product(range(KERNEL), repeat=2)
        self._wanted = sum(x[:, i : i + n, j : j + n] @ w[:, :, i, j].T for i, j in taps)

    def error(self, y: NDArray[Any]) -> float:
        """Return the largest error of the checked images, of the largest; infinite for NaN."""
        gap = float(np.abs(y.astype(np.float64) - self._wanted).max())
        gap /= float(np.abs(self._wanted).max())
        return gap if np.isfinite(gap) else float("inf")


def in_paper_layout(plan: Dense, u: Any, planes: int, channels: int) -> Any:
    """Return ``Dense.filters`` as Algorithm 1 stores them, (C, K, n, n, sub-filters)."""
    split, m = plan.split, plan.m
    side, most = len(split.sizes), m + split.groups[0].size - 1
    if plan.on_tensor_cores:
        u = u.swapaxes(1, 2)
    u = u[:, :channels, :planes]
    out = array_module(u).zeros((channels, planes, most, most, side, side), u.dtype)
    row = top = 0
    for y in split.groups:
        left = 0
        for x in split.groups:
            sizes = (m + y.size - 1, m + x.size - 1, y.count, x.count)
            end = row + int(np.prod(sizes))
            part = u[row:end].reshape(*sizes, channels, planes).transpose(4, 5, 0, 1, 2, 3)
            rows, columns = slice(top, top + y.count), slice(left, left + x.count)
            out[:, :, : sizes[0], : sizes[1], rows, columns] = part
            row, left = end, left + x.count
        top += y.count
    return out.reshape(channels, planes, most, most, side * side)


def count_rows(batches: tuple[int, ...] = BATCHES) -> list[dict[str, Any]]:
    """Return operations, bytes and least time on an H200 of every way of every layer."""
    rows = []
    for layer in LAYERS:
        for batch in batches:
            chosen = chosen_way(layer, batch)
            for way in dict.fromkeys((*WAYS, chosen)):
                if way.cached:  # the same work
                    continue
                plan = way.plan(layer)
                steps = counts(plan, batch)
                rows.append({
                    "layer": layer.name, "batch": batch, "way": way.name, "precision": way.precision,
                    "chosen": way == chosen,
                    "multiplications": plan.split.per_output(way.m, layer.size),
                    "direct_gflop": direct_flops(plan, batch) / 1e9,
                    "steps": [_step(step, plan, steps) for step in steps],
                    "floor_us": 1e6 * seconds(plan, batch),
                })  # fmt: skip
    return rows


def _step(step: Count, plan: Dense, steps: tuple[Count, ...]) -> dict[str, Any]:
    return {
        "step": step.name, "gflop": step.flops / 1e9, "megabytes": step.bytes / 1e6,
        "between_megabytes": step.between / 1e6, "floor_us": 1e6 * step.seconds(plan, steps[1].between),
    }  # fmt: skip
