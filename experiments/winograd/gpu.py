"""``bench winograd`` on a GPU: every way, and cuDNN, held against float64, then timed.

Passes of a graph go through copies that together exceed the L2 cache: a network has other layers in between.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from experiments.harness.run import synchronise, tried
from experiments.winograd.filters import INDEXINGS, Indexing, filter_split
from experiments.winograd.layers import KERNEL, TOLERANCE, Data, Way
from neocog.cuda.kernel import Array, Launch
from neocog.cuda.lanes import Timed, enqueue
from neocog.cuda.launcher import Gpu
from neocog.errors import NeocogError

ROTATED = 120 << 20  # bytes that the passes of a graph read before they come to the first again
MOST_COPIES = 12
_PASSES = 16  # least passes of a graph whose passes are short
_SHORT = 200.0  # microseconds
_TURN = 3.0  # milliseconds of one measurement, about
ROUNDS = 7
#: Order of threads with inputs transformed thread-wise too.
BOTH_HALVES = "thread-wise, inputs too"


def copies_of(working: float) -> int:
    return max(1, min(MOST_COPIES, math.ceil(ROTATED / working)))


def microseconds(timed: Callable[[int], Any], copies: int, rounds: int) -> float:
    """Return the time of a pass: ``timed`` makes a graph of so many, which go through the copies in turn."""
    first = 1e3 * timed(copies).elapsed(1) / copies
    count = copies * math.ceil((_PASSES if first < _SHORT else 1) / copies)  # many if they are short
    whole = timed(count)
    turns = max(1, min(50, round(_TURN / max(whole.elapsed(1), 1e-3))))
    return 1e3 * float(whole.median(rounds, turns)) / count


def right(error: float) -> float:
    if not error < TOLERANCE:
        raise NeocogError(f"wrong by {error:.1e} of the largest: not timed")
    return error


class Ours:
    """One layer at one batch size on a GPU; a time is the median of ``rounds``."""

    def __init__(self, gpu: Gpu, data: Data, *, rounds: int = ROUNDS) -> None:
        self.gpu, self.data, self.rounds = gpu, data, rounds

    def rows(self, ways: Sequence[Way], chosen: Way) -> Iterator[dict[str, Any]]:
        """Yield a row for each way with filters transformed before."""
        for way in ways:
            per_output = way.plan(self.data.layer).split.per_output(way.m, self.data.layer.size)
            more = {"chosen": way == chosen, "multiplications": per_output}
            yield self._row(way, self._fixed) | more

    def changing(self, ways: Sequence[Way]) -> Iterator[dict[str, Any]]:
        """Yield rows of the convolution with filters that change, in each order of threads."""
        for way in ways:
            both = () if way.m in way.sizes else (BOTH_HALVES,)  # tiles and parts of one size: no such order
            for order in (*INDEXINGS, *both):
                yield self._row(way, self._changing, order) | {"indexing": order}

    def _row(self, way: Way, work: Callable[..., dict[str, Any]], *more: Any) -> dict[str, Any]:
        found = tried(partial(work, way, *more), partial(synchronise, self.gpu))
        return {"layer": self.data.layer.name, "batch": self.data.batch, "way": way.name, **found}

    def _copies(self, array: Array, copies: int) -> list[Array]:
        first = self.gpu.xp.asarray(array)
        return [first, *(first.copy() for _ in range(copies - 1))]

    def _passes(
        self, way: Way, x: list[Array], u: list[Array], *, thread_wise: bool = False
    ) -> tuple[Array, list[list[Launch]]]:
        """Return an output that holds no answer yet, and the launches of a pass by copy."""
        plan, layer = way.plan(self.data.layer, thread_wise=thread_wise), self.data.layer
        y = self.gpu.xp.zeros((self.data.batch, layer.size, layer.size, layer.planes), np.float32)
        y[...] = np.nan
        scratch = {name: self.gpu.xp.zeros(*form) for name, form in plan.scratch(self.data.batch).items()}
        return y, [plan.launches(self.data.batch, xi, ui, y, scratch, self.gpu.processors)
                   for xi, ui in zip(x, u, strict=True)]  # fmt: skip

    def _figures(self, y: Array, passes: list[list[Launch]]) -> dict[str, Any]:
        """Return the error of a pass, and microseconds of one, the passes taken in turn."""
        enqueue(self.gpu, passes[-1])
        error = right(self.data.error(y[self.data.checked].get()))
        return {"error": error, "us": self._time(passes)}

    def _time(self, passes: Sequence[list[Launch]]) -> float:
        def timed(count: int) -> Timed:
            some = [launch for i in range(count) for launch in passes[i % len(passes)]]
            return Timed(self.gpu, partial(enqueue, self.gpu, some))

        return microseconds(timed, len(passes), self.rounds)

    def _fixed(self, way: Way) -> dict[str, Any]:
        plan = way.plan(self.data.layer)
        u = plan.filters(self.gpu.xp.asarray(self.data.w))
        copies = copies_of(self.data.x.nbytes + u.nbytes)
        y, passes = self._passes(way, self._copies(self.data.x, copies), self._copies(u, copies))
        return self._figures(y, passes)

    def _changing(self, way: Way, order: str) -> dict[str, Any]:
        plan, both = way.plan(self.data.layer), order == BOTH_HALVES
        indexing: Indexing = "channel-wise" if order == "channel-wise" else "thread-wise"
        products = plan.split.multiplications(plan.m)
        u = self.gpu.xp.zeros((products, plan.shape.planes, plan.channels), np.float32)
        copies = copies_of(self.data.x.nbytes + self.data.w.nbytes)
        y, rest = self._passes(way, self._copies(self.data.x, copies), [u] * copies, thread_wise=both)
        transforms = [[filter_split(plan, w, u, indexing)] for w in self._copies(self.data.w, copies)]
        passes = [first + more for first, more in zip(transforms, rest, strict=True)]
        found, alone = self._figures(y, passes), self._time(transforms)
        return found | {"filters_us": alone, "share": alone / found["us"]}


def cudnn(data: Data, *, rounds: int = ROUNDS) -> dict[str, Any]:
    """Return a row of the same layer in PyTorch: cuDNN in the better of both memory formats."""
    import torch

    from experiments.network.peers import Graph, set_precision

    inside = slice(KERNEL // 2, KERNEL // 2 + data.layer.size)
    both = np.ascontiguousarray(data.x[:, inside, inside].transpose(0, 3, 1, 2)), data.w
    given = [torch.from_numpy(array).cuda() for array in both]
    set_precision("fp32")

    def quickest() -> dict[str, Any]:
        copies, found = copies_of(4 * sum(t.numel() for t in given)), list[dict[str, Any]]()
        for form in (torch.contiguous_format, torch.channels_last):
            calls: list[Callable[[], Any]] = []
            for _ in range(copies):
                x, w = (t.to(t.dtype, copy=True, memory_format=form) for t in given)
                calls.append(partial(torch.nn.functional.conv2d, x, w, padding=KERNEL // 2))
            with torch.no_grad():
                y = calls[0]()[data.checked].permute(0, 2, 3, 1)
            error = right(data.error(y.float().cpu().numpy()))

            def graph(count: int, calls: list[Any] = calls) -> Graph:
                return Graph(lambda: [calls[i % copies]() for i in range(count)][-1])

            found.append({"us": microseconds(graph, copies, rounds), "error": error})
        return min(found, key=lambda one: float(one["us"]))

    about = {"layer": data.layer.name, "batch": data.batch, "way": "cuDNN"}
    return about | tried(quickest, torch.cuda.synchronize)
