"""Ours of ``bench winograd`` on a GPU: every way is held against float64, then timed.

Passes of one graph go through copies of input and filters that together exceed the L2 cache, so
that no pass finds what it reads there; a real network would have other layers in between.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from experiments.harness.run import synchronise, tried
from experiments.winograd import layers
from experiments.winograd.count import seconds
from experiments.winograd.filters import ORDERS, Indexing, filter_split
from experiments.winograd.layers import BOTH_HALVES, LAYOUTS, TOLERANCE, Data, Way
from neocog.cuda.kernel import Array, Kernel, Launch
from neocog.cuda.lanes import Timed, enqueue
from neocog.cuda.launcher import Gpu
from neocog.errors import NeocogError

ROTATED = 120 << 20  # bytes that the passes of a graph read before they come to the first again
MOST_COPIES = 12
_PASSES = 16  # least passes of a graph whose passes are short
_SHORT = 200.0  # microseconds
_TURN = 3.0  # milliseconds of one measurement, about
ROUNDS = 7
#: Largest error of filters that a kernel transforms in float32.
FILTER_TOLERANCE = 1e-5


def copies_of(working: float) -> int:
    return max(1, min(MOST_COPIES, math.ceil(ROTATED / working)))


def passes_of(copies: int, microseconds: float) -> int:
    """Return passes of a graph: all copies, and many if they are short."""
    least = _PASSES if microseconds < _SHORT else 1
    return copies * math.ceil(least / copies)


def turns(ms: float) -> int:
    """Return how often work of so many milliseconds is repeated in one measurement."""
    return max(1, min(50, round(_TURN / max(ms, 1e-3))))


class Ours:
    """One layer at one batch size on a GPU; a time is the median of ``rounds``."""

    def __init__(self, gpu: Gpu, data: Data, *, rounds: int = ROUNDS) -> None:
        self.gpu, self.data, self.rounds = gpu, data, rounds
        self._inputs: dict[bool, Array] = {}

    def rows(self, ways: Sequence[Way], chosen: Way) -> Iterator[dict[str, Any]]:
        """Yield a row for each way with filters transformed before."""
        for way in ways:
            plan, batch = way.plan(self.data.layer), self.data.batch
            if way.cached and plan.images_at_a_time(batch) == batch:
                continue  # one piece: the same as without
            found = self._tried(self._fixed, way)
            yield {**self._about(way), "chosen": way == chosen, **found}

    def changing(self, ways: Sequence[Way]) -> Iterator[dict[str, Any]]:
        """Yield rows of the convolution with filters that change, in each order of threads."""
        for way in ways:
            shared = way.m in way.sizes  # tiles and parts of one size have no such order
            for order in (*ORDERS, *(() if shared else (BOTH_HALVES,))):
                row = self._tried(self._changing, way, order)
                yield {**self._about(way), "indexing": order, **row}

    def filters(self, ways: Sequence[Way]) -> Iterator[dict[str, Any]]:
        """Yield rows of the transform of the filters alone, in each way that there is."""
        for way, (kernel, paper_layout) in product(ways, LAYOUTS.items()):
            for indexing in ORDERS:
                row = self._tried(self._split_alone, way, indexing, paper_layout)
                yield {**self._about(way), "kernel": kernel, "indexing": indexing, **row}

    def kernels(self, ways: Sequence[Way], changing: Sequence[Way]) -> set[Kernel]:
        """Return every kernel that the rows take; no array is needed to name them."""
        found: set[Kernel] = set()
        for way in {*ways, *changing}:
            plan = way.plan(self.data.layer)
            nothing = dict.fromkeys(plan.scratch(1))
            launches = self._launches(way, None, None, None, nothing)
            if way in changing:
                launches += [
                    filter_split(plan, self.data.w, None, order, paper_layout=paper)
                    for order, paper in product(ORDERS, LAYOUTS.values())
                ]
                if way.m not in way.sizes:
                    launches += self._launches(way, None, None, None, nothing, thread_wise=True)
            found |= {launch.kernel for launch in launches}
        return found

    def _launches(
        self, way: Way, x: Array, u: Array, y: Array, scratch: Any, *, thread_wise: bool = False
    ) -> list[Launch]:
        plan = replace(way.plan(self.data.layer), thread_wise=thread_wise)
        return plan.launches(self.data.batch, x, u, y, scratch, self.gpu.processors)

    def _about(self, way: Way) -> dict[str, Any]:
        layer = self.data.layer
        return {
            "layer": layer.name, "batch": self.data.batch, "way": way.name, "precision": way.precision,
            "multiplications": way.plan(layer).split.per_output(way.m, layer.size),
        }  # fmt: skip

    def _tried(self, run: Any, way: Way, *more: Any) -> dict[str, Any]:
        return {"us": None, **tried(partial(run, way, *more), partial(synchronise, self.gpu))}

    # -- arrays ------------------------------------------------------------------------------------
    def _maps(self, way: Way, copies: int) -> tuple[list[Array], Array]:
        """Copies of the input, and an output that holds no answer yet."""
        xp, layer = self.gpu.xp, self.data.layer
        half = way.operand == "fp16"
        if half not in self._inputs:
            self._inputs[half] = xp.asarray(self.data.x.astype(np.float16) if half else self.data.x)
        x = self._inputs[half]
        shape = (self.data.batch, layer.size, layer.size, layer.planes)
        y = xp.zeros(shape, np.float16 if half else np.float32)
        y[...] = np.nan
        return [x, *(x.copy() for _ in range(copies - 1))], y

    def free(self) -> None:
        self._inputs.clear()
        pool = getattr(self.gpu.xp, "get_default_memory_pool", None)
        if pool is not None:
            pool().free_all_blocks()

    def _scratch(self, way: Way) -> dict[str, Array]:
        forms = way.plan(self.data.layer).scratch(self.data.batch)
        return {name: self.gpu.xp.zeros(*form) for name, form in forms.items()}

    def _error(self, y: Array, precision: str) -> float:
        error = self.data.error(y[self.data.checked].get())
        if not error < TOLERANCE[precision]:
            raise NeocogError(f"wrong by {error:.1e} of the largest output: not timed")
        return error

    def _time(self, passes: Sequence[list[Launch]], count: int) -> float:
        def record() -> None:
            for i in range(count):
                enqueue(self.gpu, passes[i % len(passes)])

        timed = Timed(self.gpu, record)
        return 1e3 * timed.median(self.rounds, turns(timed.elapsed())) / count

    # -- what is timed -----------------------------------------------------------------------------
    def _fixed(self, way: Way) -> dict[str, Any]:
        plan = way.plan(self.data.layer)
        u = self.gpu.xp.asarray(plan.filters(self.gpu.xp.asarray(self.data.w)))
        copies = copies_of(self.data.x.nbytes + u.nbytes)
        x, y = self._maps(way, copies)
        scratch = self._scratch(way)
        sets = [u, *(u.copy() for _ in range(copies - 1))]
        passes = [self._launches(way, xi, ui, y, scratch) for xi, ui in zip(x, sets, strict=True)]
        enqueue(self.gpu, passes[-1])
        error = self._error(y, way.precision)
        floor = 1e6 * seconds(plan, self.data.batch)
        us = self._time(passes, passes_of(copies, floor))
        return {"us": us, "error": error, "launches": len(passes[0]), "floor_us": floor}

    def _changing(self, way: Way, order: str) -> dict[str, Any]:
        plan, both = way.plan(self.data.layer), order == BOTH_HALVES
        indexing: Indexing = "thread-wise" if both else order  # type: ignore[assignment]
        shape = (plan.split.multiplications(plan.m), plan.shape.planes, plan.channels)
        u = self.gpu.xp.zeros(shape, np.float32)
        copies = copies_of(self.data.x.nbytes + self.data.w.nbytes)
        x, y = self._maps(way, copies)
        w = [self.gpu.xp.asarray(self.data.w)]
        w += [w[0].copy() for _ in range(copies - 1)]
        scratch = self._scratch(way)
        transforms = [[filter_split(plan, wi, u, indexing)] for wi in w]
        passes = [
            first + self._launches(way, xi, u, y, scratch, thread_wise=both)
            for first, xi in zip(transforms, x, strict=True)
        ]
        enqueue(self.gpu, passes[-1])
        error = self._error(y, way.precision)
        us = self._time(passes, passes_of(copies, 1e6 * seconds(plan, self.data.batch)))
        alone = self._time(transforms, passes_of(copies, 1.0))
        return {"us": us, "filters_us": alone, "share": alone / us, "error": error}

    def _split_alone(self, way: Way, indexing: Indexing, paper_layout: bool) -> dict[str, Any]:
        xp, plan = self.gpu.xp, way.plan(self.data.layer)
        given = xp.asarray(self.data.w)
        wanted = plan.filters(given)
        if paper_layout:
            wanted = layers.in_paper_layout(plan, wanted, *given.shape[:2])
        u = xp.zeros(wanted.shape, wanted.dtype)
        moved = given.nbytes + wanted.nbytes
        copies = copies_of(moved)
        split = partial(filter_split, plan, u=u, indexing=indexing, paper_layout=paper_layout)
        passes = [[split(w=given.copy())] for _ in range(copies)]
        enqueue(self.gpu, passes[-1])
        error = float(abs(u - wanted).max() / abs(wanted).max())
        if not error < FILTER_TOLERANCE:
            raise NeocogError(f"filters are wrong by {error:.1e}: not timed")
        us = self._time(passes, passes_of(copies, 1.0))
        return {"us": us, "error": error, "gigabytes_s": moved / us / 1e3}
