"""``neocog bench winograd``: decomposed Winograd convolution as Lee and Kwak measure it.

On a GPU every way, and cuDNN, is held against float64, then timed. Passes of a graph go through copies that
together exceed the L2 cache: a network has other layers in between.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from experiments.harness.run import Request, Result, Save, build_all, in_time, progress, synchronise, tried
from experiments.winograd.conv2d import INDEXINGS, Indexing, filter_split
from experiments.winograd.layers import LAYERS, PAPER_WAY, WAYS, Data, Layer, Way, chosen_way, count_rows
from neocog.cuda import launcher
from neocog.cuda.kernel import Array, Launch
from neocog.cuda.lanes import Timed, enqueue
from neocog.errors import NeocogError

MOST_COPIES = 12
TOLERANCE = 5e-5  # largest error that is let pass, of the largest output
_PASSES = 16  # least passes of a graph whose passes are short
_TURN = 3.0  # milliseconds of one measurement, about
_QUICK_SECONDS = 60.0
#: Order of threads with inputs transformed thread-wise too.
BOTH_HALVES = "thread-wise, inputs too"


def measure(
    request: Request, save: Save, *, peers: bool = True, layers: Sequence[Layer] = LAYERS,
    batches: Sequence[int] = (1, 16, 64), ways: Sequence[Way] = WAYS,
) -> Result:  # fmt: skip
    """Count; on a GPU check and time everything, as long as time is left."""
    result: Result = {"experiment": "winograd", **request.about(), "counts": count_rows()}
    if not request.on_gpu:
        return result
    gpu, rounds = launcher.gpu(request.number), 3 if request.quick else 7
    result |= {"layers": [], "changing": []}
    left = [(layer, batch) for batch in batches for layer in layers]
    plans = [(way.plan(layer), batch) for layer, batch in left for way in ways]
    launches = (launch for plan, batch in plans for launch in plan.launches(
        batch, None, None, None, dict.fromkeys(plan.scratch(1)), gpu.processors))  # fmt: skip
    build_all(gpu, {launch.kernel for launch in launches})
    for layer, batch in in_time(left, request, _QUICK_SECONDS):
        progress(f"{layer.name}, batch {batch}")
        data, chosen = Data(layer, batch), chosen_way(layer, batch)
        ours = Ours(gpu, data, rounds)
        result["layers"] += [ours.fixed(way, chosen) for way in dict.fromkeys((*ways, chosen))]
        for way in dict.fromkeys((PAPER_WAY, chosen)):
            both = () if way.m in way.sizes else (BOTH_HALVES,)  # tiles and parts of one size: no such order
            orders = (*INDEXINGS, *both)
            result["changing"] += [ours.row(way, order) | {"indexing": order} for order in orders]
        if peers:
            result["layers"].append(cudnn(data, rounds))
        save(result)
    return result | {"not_run": [f"{layer.name}, batch {batch}" for layer, batch in left]}


def copies_of(working: float) -> int:
    """Return how many passes of a graph read 120 MiB before they come to the first again."""
    return max(1, min(MOST_COPIES, math.ceil((120 << 20) / working)))


def microseconds(timed: Callable[[int], Any], copies: int, rounds: int) -> float:
    """Return the time of a pass: ``timed`` makes a graph of so many, which go through the copies in turn."""
    first = 1e3 * timed(copies).elapsed(1) / copies
    count = copies * math.ceil((_PASSES if first < 200 else 1) / copies)  # many if they are short
    whole = timed(count)
    turns = max(1, min(50, round(_TURN / max(whole.elapsed(1), 1e-3))))
    return 1e3 * float(whole.median(rounds, turns)) / count


def right(error: float) -> float:
    if not error < TOLERANCE:
        raise NeocogError(f"wrong by {error:.1e} of the largest: not timed")
    return error


class Ours:
    """One layer at one batch size on a GPU; a time is the median of ``rounds``."""

    def __init__(self, gpu: Any, data: Data, rounds: int) -> None:
        self.gpu, self.data, self.rounds = gpu, data, rounds

    def fixed(self, way: Way, chosen: Way) -> Result:
        """Return the row of a way whose filters are transformed before."""
        per_output = way.plan(self.data.layer).split.per_output(way.m, self.data.layer.size)
        return self.row(way) | {"chosen": way == chosen, "multiplications": per_output}

    def row(self, way: Way, order: str = "") -> Result:
        """Return the row of a way; with an order of threads its filters change in every pass."""
        found = tried(partial(self._figures, way, order), partial(synchronise, self.gpu))
        return {"layer": self.data.layer.name, "batch": self.data.batch, "way": way.name, **found}

    def _figures(self, way: Way, order: str) -> Result:
        """Return the error of a pass, microseconds of one and, if filters change, of their transform."""
        gpu, data, xp, transforms = self.gpu, self.data, self.gpu.xp, list[list[Launch]]()
        plan = way.plan(data.layer, thread_wise=order == BOTH_HALVES)
        if order:
            indexing: Indexing = "channel-wise" if order == "channel-wise" else "thread-wise"
            u = xp.zeros((plan.split.multiplications(plan.m), plan.shape.planes, plan.channels), np.float32)
            copies = copies_of(data.x.nbytes + data.w.nbytes)
            transforms = [[filter_split(plan, w, u, indexing)] for w in self._copies(data.w, copies)]
            filters = [u] * copies
        else:
            u = plan.filters(xp.asarray(data.w))
            copies = copies_of(data.x.nbytes + u.nbytes)
            filters = self._copies(u, copies)
        y = xp.zeros((data.batch, data.layer.size, data.layer.size, data.layer.planes), np.float32)
        y[...] = np.nan  # no answer yet
        scratch = {name: xp.zeros(*form) for name, form in plan.scratch(data.batch).items()}
        passes = [plan.launches(data.batch, xi, ui, y, scratch, gpu.processors)
                  for xi, ui in zip(self._copies(data.x, copies), filters, strict=True)]  # fmt: skip
        if order:
            passes = [first + more for first, more in zip(transforms, passes, strict=True)]
        enqueue(gpu, passes[-1])
        found = {"error": right(data.error(y[data.checked].get())), "us": self._time(passes)}
        if order:
            alone = self._time(transforms)
            found |= {"filters_us": alone, "share": alone / found["us"]}
        return found

    def _copies(self, array: Array, copies: int) -> list[Array]:
        first = self.gpu.xp.asarray(array)
        return [first, *(first.copy() for _ in range(copies - 1))]

    def _time(self, passes: Sequence[list[Launch]]) -> float:
        def timed(count: int) -> Timed:
            some = [launch for i in range(count) for launch in passes[i % len(passes)]]
            return Timed(self.gpu, partial(enqueue, self.gpu, some))

        return microseconds(timed, len(passes), self.rounds)


def cudnn(data: Data, rounds: int) -> Result:
    """Return a row of the same layer in PyTorch: cuDNN in the better of both memory formats."""
    import torch

    from experiments.network.torch_network import Graph, set_precision

    border = data.w.shape[-1] // 2
    inside = slice(border, border + data.layer.size)
    both = np.ascontiguousarray(data.x[:, inside, inside].transpose(0, 3, 1, 2)), data.w
    given = [torch.from_numpy(array).cuda() for array in both]
    set_precision("fp32")

    def quickest() -> Result:
        copies, found = copies_of(4 * sum(t.numel() for t in given)), list[Result]()
        for form in (torch.contiguous_format, torch.channels_last):
            calls: list[Callable[[], Any]] = []
            for _ in range(copies):
                x, w = (t.to(t.dtype, copy=True, memory_format=form) for t in given)
                calls.append(partial(torch.nn.functional.conv2d, x, w, padding=border))
            with torch.no_grad():
                y = calls[0]()[data.checked].permute(0, 2, 3, 1)
            error = right(data.error(y.float().cpu().numpy()))

            def graph(count: int, calls: list[Any] = calls) -> Graph:
                return Graph(lambda: [calls[i % copies]() for i in range(count)][-1])

            found.append({"us": microseconds(graph, copies, rounds), "error": error})
        return min(found, key=lambda one: float(one["us"]))

    about = {"layer": data.layer.name, "batch": data.batch, "way": "cuDNN"}
    return about | tried(quickest, torch.cuda.synchronize)


def faults(result: Result) -> list[str]:
    rows = [row for part in ("layers", "changing") for row in result.get(part, ())]
    failed = (row for row in rows if "failed" in row and row["way"] != "cuDNN")
    return [f"{row['layer']}, batch {row['batch']}, {row['way']}: {row['failed']}" for row in failed]
