"""Ours of ``bench winograd`` on a GPU: every way is held against float64, then timed.

Passes of one graph go through copies of input and filters that together exceed the L2 cache, so
that no pass finds what it reads there; a real network would have other layers in between.
"""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from experiments.harness.attended import Watch
from experiments.network.ours import Recording
from experiments.winograd.layers import (
    CACHED_BYTES,
    KERNEL,
    TOLERANCE,
    Data,
    Way,
)
from neocog.cuda.kernel import Array, Kernel, Launch
from neocog.cuda.lanes import enqueue
from neocog.cuda.launcher import Gpu
from neocog.cuda.winograd import DENSE_BYTES, WinogradConvolution
from neocog.cuda.winograd_count import seconds
from neocog.cuda.winograd_filters import INDEXINGS, ORDERS, Indexing, filter_split
from neocog.cuda.winograd_plan import Plan
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
    """Return how many copies of so many bytes exceed the L2 cache."""
    return max(1, min(MOST_COPIES, math.ceil(ROTATED / working)))


def u_shape(plan: Plan) -> tuple[int, int, int]:
    """Return the shape of transformed filters as tensor cores take them."""
    return (plan.split.multiplications(plan.m), plan.shape.planes, plan.channels)


def passes_of(copies: int, microseconds: float) -> int:
    """Return passes of a graph: all copies, and many if they are short."""
    least = _PASSES if microseconds < _SHORT else 1
    return copies * math.ceil(least / copies)


class Ours:
    """One layer at one batch size on a GPU; a time is the median of ``rounds``."""

    def __init__(self, gpu: Gpu, data: Data, watch: Watch, *, rounds: int = ROUNDS) -> None:
        self.gpu, self.data, self.rounds, self._watch = gpu, data, rounds, watch
        self._inputs: dict[bool, Array] = {}

    def rows(self, ways: Sequence[Way], chosen: Way) -> Iterator[dict[str, Any]]:
        """Yield a row for each way with filters transformed before."""
        for way in ways:
            convolution = self.convolution(way)
            if way.cached and len(self._nothing(convolution)) <= 3:
                continue  # one piece: the same as without
            yield {
                **self._about(way),
                "chosen": way == chosen,
                **self._tried("fixed", self._fixed, way),
            }

    def changing(self, ways: Sequence[Way]) -> Iterator[dict[str, Any]]:
        """Yield rows of the convolution with filters that change, in each order of threads."""
        for way in ways:
            for indexing in ORDERS:
                row = self._tried("changing", self._changing, way, indexing)
                yield {**self._about(way), "indexing": indexing, **row}

    def filters(self, ways: Sequence[Way]) -> Iterator[dict[str, Any]]:
        """Yield rows of the transform of the filters alone, in each way that there is."""
        for way in ways:
            for indexing in ORDERS:
                row = self._tried("filters", self._split_alone, way, indexing)
                kernel = "Algorithm 1, filters (K, C, 7, 7)"
                yield {**self._about(way), "kernel": kernel, "indexing": indexing, **row}
            for number, indexing in enumerate(INDEXINGS):
                row = self._tried("transform", self._transform_alone, way, number)
                kernel = "filters in the order of the products"
                yield {**self._about(way), "kernel": kernel, "indexing": indexing, **row}

    def kernels(self, ways: Sequence[Way], changing: Sequence[Way]) -> set[Kernel]:
        """Return every kernel that the rows take; no array is needed to name them."""
        found: set[Kernel] = set()
        for way in {*ways, *changing}:
            convolution = self.convolution(way)
            launches = self._nothing(convolution)
            if way in changing:
                launches += [convolution.filter_transform(None, None, indexing=i) for i in (0, 1)]
                for indexing in ORDERS:
                    launches.append(filter_split(convolution.plan, self.data.w, None, indexing))
            found |= {launch.kernel for launch in launches}
        return found

    def convolution(self, way: Way) -> WinogradConvolution:
        """Return the layer computed in one way; half maps go with half operands."""
        layer, plan = self.data.layer, way.plan(self.data.layer)
        return WinogradConvolution(
            self.gpu,
            layer.channels,
            layer.planes,
            KERNEL,
            layer.size,
            split=plan.split,
            m=plan.m,
            version=plan.version,
            operand=plan.operand,
            source=plan.shape.source,
            target=plan.shape.target,
            scratch_bytes=CACHED_BYTES if way.cached else DENSE_BYTES,
        )

    def _nothing(self, convolution: WinogradConvolution) -> list[Launch]:
        nothing = dict.fromkeys(convolution.scratch(self.data.batch))
        return convolution.launches(self.data.batch, None, None, None, nothing)

    def _about(self, way: Way) -> dict[str, Any]:
        layer = self.data.layer
        return {
            "layer": layer.name,
            "batch": self.data.batch,
            "way": way.name,
            "precision": way.precision,
            "multiplications": way.plan(layer).split.per_output(way.m, layer.size),
        }

    def _tried(self, what: str, run: Any, way: Way, *more: Any) -> dict[str, Any]:
        """The row's figures, or why there are none."""
        kind = ", ".join(map(str, (what, way.name, way.precision, *more)))
        words = f"{self.data.layer.name}, batch {self.data.batch}: {kind}"
        healthy = getattr(self.gpu.xp.cuda.runtime, "deviceSynchronize", lambda: None)
        found = self._watch.attempt(words, partial(run, way, *more), kind=kind, healthy=healthy)
        return {"us": None, **found}

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
        """Forget the arrays that all ways share."""
        self._inputs.clear()

    def _scratch(self, convolution: WinogradConvolution) -> dict[str, Array]:
        forms = convolution.scratch(self.data.batch)
        return {name: self.gpu.xp.zeros(*form) for name, form in forms.items()}

    def _error(self, y: Array, precision: str) -> float:
        error = self.data.error(y[self.data.checked].get())
        if not error < TOLERANCE[precision]:
            raise NeocogError(f"wrong by {error:.1e} of the largest output: not timed")
        return error

    def _time(self, passes: Sequence[list[Launch]], count: int) -> float:
        """Microseconds of a pass, the passes taken in turn."""

        def record() -> None:
            for i in range(count):
                enqueue(self.gpu, passes[i % len(passes)])

        recording = Recording(self.gpu, record)
        once = recording.elapsed(1)
        repeats = max(1, min(50, round(_TURN / max(once, 1e-3))))
        ms = [recording.elapsed(repeats) for _ in range(self.rounds)]
        return 1e3 * float(np.median(ms)) / count

    # -- what is timed -----------------------------------------------------------------------------
    def _fixed(self, way: Way) -> dict[str, Any]:
        convolution = self.convolution(way)
        u = convolution.filters(self.gpu.xp.asarray(self.data.w))
        copies = copies_of(self.data.x.nbytes + u.nbytes)
        x, y = self._maps(way, copies)
        scratch = self._scratch(convolution)
        sets = [u, *(u.copy() for _ in range(copies - 1))]
        passes = [
            convolution.launches(self.data.batch, xi, ui, y, scratch)
            for xi, ui in zip(x, sets, strict=True)
        ]
        enqueue(self.gpu, passes[-1])
        error = self._error(y, way.precision)
        floor = 1e6 * seconds(convolution.plan, self.data.batch)
        us = self._time(passes, passes_of(copies, floor))
        return {"us": us, "error": error, "launches": len(passes[0]), "floor_us": floor}

    def _changing(self, way: Way, indexing: Indexing) -> dict[str, Any]:
        convolution = self.convolution(way)
        u = self.gpu.xp.zeros(u_shape(convolution.plan), np.float32)
        copies = copies_of(self.data.x.nbytes + self.data.w.nbytes)
        x, y = self._maps(way, copies)
        w = [self.gpu.xp.asarray(self.data.w)]
        w += [w[0].copy() for _ in range(copies - 1)]
        scratch = self._scratch(convolution)
        transforms = [[filter_split(convolution.plan, wi, u, indexing)] for wi in w]
        passes = [
            first + convolution.launches(self.data.batch, xi, u, y, scratch)
            for first, xi in zip(transforms, x, strict=True)
        ]
        enqueue(self.gpu, passes[-1])
        error = self._error(y, way.precision)
        count = passes_of(copies, 1e6 * seconds(convolution.plan, self.data.batch))
        us = self._time(passes, count)
        alone = self._time(transforms, passes_of(copies, 1.0))
        return {"us": us, "filters_us": alone, "share": alone / us, "error": error}

    def _split_alone(self, way: Way, indexing: Indexing) -> dict[str, Any]:
        plan, given = way.plan(self.data.layer), self.gpu.xp.asarray(self.data.w)
        return self._alone(way, given, partial(filter_split, plan, indexing=indexing))

    def _transform_alone(self, way: Way, number: int) -> dict[str, Any]:
        plan = way.plan(self.data.layer)
        given = plan.arrange(self.gpu.xp.asarray(self.data.w))
        return self._alone(way, given, partial(plan.filter_launch, indexing=number))

    def _alone(self, way: Way, given: Any, launch: Any) -> dict[str, Any]:
        xp = self.gpu.xp
        wanted = way.plan(self.data.layer).filters(xp.asarray(self.data.w))
        u = xp.zeros(wanted.shape, wanted.dtype)
        copies = copies_of(given.nbytes + wanted.nbytes)
        passes = [[launch(given.copy(), u)] for _ in range(copies)]
        enqueue(self.gpu, passes[-1])
        error = float(abs(u - wanted).max() / abs(wanted).max())
        if not error < FILTER_TOLERANCE:
            raise NeocogError(f"filters are wrong by {error:.1e}: not timed")
        us = self._time(passes, passes_of(copies, 1.0))
        moved = given.nbytes + wanted.nbytes
        return {"us": us, "error": error, "gigabytes_s": moved / us / 1e3}
