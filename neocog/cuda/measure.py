"""Times on the device: of each stage within the pass, and of every version of a stage.

How a stage is timed. Events between the kernels of a pass would cost as much as the kernels do.
Instead the pass is captured up to each stage: upload; upload and UG; and so on. A stage takes what
its pass takes longer than the one before it: its kernels, and the gap in front of them. So the
stages add up to the captured pass; what a replay of the engine's own graph takes beyond it is the
row ``launch``.
"""

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from neocog.cuda.lanes import Lane, captured, elapsed, enqueue
from neocog.cuda.launcher import Gpu
from neocog.cuda.passes import Pass, as_float32, form
from neocog.cuda.plan import ANCHORS, STAGES, Plan, Shelf, kernels_of
from neocog.errors import DeviceError, InputError, UsageError
from neocog.network.arrays import to_numpy

if TYPE_CHECKING:
    from neocog.cuda.runner import Runner

_SAMPLES = 7
_CHUNKS = (64, 128, 256, 512)
_MANY = 4096  # digits that chunks are tried on
_WORTH = 0.98  # a larger chunk has to be this much better than a smaller one
#: A version whose maps differ by more than this share of the strongest response is not taken.
_SAME = {"fp32": 1e-4, "tf32": 2e-2, "fp16": 2e-2, "bf16": 1e-1}


def repeats_of(batch: int) -> int:
    """Return how many passes a graph holds, so that its launch does not count."""
    return 16 if batch <= 64 else 4


class Timed:
    """Work captured as a graph of some repeats and timed on its stream.

    Parameters
    ----------
    gpu : Gpu
    work : callable
        Enqueues the work on the current stream.
    repeats : int
        How often the graph holds it.
    stream : cupy.cuda.Stream
        Where it is captured and replayed.
    """

    def __init__(self, gpu: Gpu, work: Callable[[], None], repeats: int, stream: Any) -> None:
        self._cuda, self._repeats, self._stream = gpu.xp.cuda, repeats, stream
        with captured(stream) as graphs:
            for _ in range(repeats):
                work()
        self._graph = graphs[0]
        self._graph.upload(stream)
        stream.synchronize()

    def sample(self) -> float:
        """Return milliseconds of the work; a replay before keeps the launch itself out."""
        return elapsed(self._cuda, self._stream, self._graph) / self._repeats


def stage_times(
    runner: "Runner", digits: NDArray[np.uint8], *, repeats: int = 20
) -> dict[str, NDArray[np.float64]]:
    """Return milliseconds by stage, ``repeats`` of each; see the head of this module.

    Parameters
    ----------
    runner : Runner
    digits : ndarray of uint8, shape (B, 28, 28)
        Not more than a chunk.

    Returns
    -------
    dict
        ``upload, UG, US1 .. UC4, download, launch, total``; ``total`` is the sum of the others.
    """
    from neocog.cuda.runner import bucket_of

    lane = runner.lane(bucket_of(len(digits)))
    lane.fill(digits)
    with runner.gpu.current():
        held = repeats_of(lane.batch)
        names, parts = _parts(runner.gpu, lane)
        timed = [
            Timed(runner.gpu, _sequence(parts[: i + 1]), held, lane.stream)
            for i in range(len(parts))
        ]
        rows = np.array(
            [[*(t.sample() for t in timed), lane.elapsed(held) / held] for _ in range(repeats + 1)]
        )[1:]
    spent = np.diff(rows, axis=1, prepend=0)
    times = dict(zip([*names, "launch"], spent.T, strict=True))
    return {**times, "total": rows[:, -1]}


def _parts(gpu: Gpu, lane: Lane) -> tuple[list[str], list[Callable[[], None]]]:
    """Name and enqueue each part of a pass."""
    names, parts = ["upload"], [lane.upload]
    first = True
    for stage in lane.work.stages:
        names.append(stage.name)
        parts.append(_launching(gpu, stage.launches, first))
        first = False
    return [*names, "download"], [*parts, lane.download]


def _launching(gpu: Gpu, launches: Sequence[Any], first: bool) -> Callable[[], None]:
    return lambda: enqueue(gpu, launches, follows=not first)


def _sequence(parts: Sequence[Callable[[], None]]) -> Callable[[], None]:
    def work() -> None:
        for part in parts:
            part()

    return work


def measure_plan(runner: "Runner") -> Plan:
    """Time every version of every stage on this device, use the quickest and remember them.

    Versions are timed on maps of made digits. One that cannot be launched, or whose maps are
    not those of the default plan, is left out.
    """
    print(f"neocog: timing the kernels on {runner.gpu.name}, once", file=sys.stderr, flush=True)
    with runner.lock, runner.gpu.current():
        times = {anchor: _anchor_times(runner, anchor) for anchor in ANCHORS}
    table = {
        anchor: {stage: tuple(sorted(row, key=row.__getitem__)) for stage, row in rows.items()}
        for anchor, rows in times.items()
    }
    plan = Plan(table, runner.chunk, "measured").over(runner.plan)
    plan, chunks = _with_best_chunk(runner, plan)
    micro = {
        str(anchor): {
            stage: {name: round(1e3 * ms, 3) for name, ms in row.items()}
            for stage, row in rows.items()
        }
        for anchor, rows in times.items()
    }
    runner.store.save(plan, {**micro, "chunks, a digit": chunks})
    runner.use(plan)
    runner.measured = True
    return plan


def _anchor_times(runner: "Runner", batch: int) -> dict[str, dict[str, float]]:
    """Milliseconds of a batch by stage and version."""
    from neocog.bench.timing import made_digits

    gpu, shelf = runner.gpu, runner.shelf
    stream = gpu.xp.cuda.Stream(non_blocking=True)
    with stream:
        base = Pass(gpu, shelf.choose(runner.plan, batch), shelf.layouts, batch)
        base.arrays["digits"].set(made_digits(batch))
        base.run()
        stream.synchronize()
    usable = {stage: shelf.usable(stage, batch) for stage in STAGES}
    with suppress(DeviceError):  # told, if at all, where the version is tried
        steps = [shelf.step(stage, name) for stage, names in usable.items() for name in names]
        gpu.prepare(kernel for step in steps for kernel in kernels_of(step, batch))
    found: dict[str, dict[str, float]] = {}
    for stage, names in usable.items():
        found[stage] = {}
        for version in names:
            with suppress(DeviceError, InputError, UsageError):
                ms = _version_time(gpu, shelf, base, (stage, version), stream)
                if ms is not None:
                    found[stage][version] = ms
    return found


def _version_time(
    gpu: Gpu, shelf: Shelf, base: Pass, which: tuple[str, str], stream: Any
) -> float | None:
    """Milliseconds of one version at the pass's batch; None if it answers otherwise."""
    step = shelf.step(*which)
    with stream:
        shape, dtype = form(step.writes, shelf.layouts, base.batch)
        target = gpu.xp.zeros(shape, dtype)
        scratch = {
            name: gpu.xp.zeros(shape, dtype)
            for name, (shape, dtype) in step.scratch(base.batch).items()
        }
        launches = step.launches(base.batch, base.arrays[step.reads], target, scratch)
        enqueue(gpu, launches)
        stream.synchronize()
        got, want = to_numpy(target), to_numpy(base.arrays[step.writes])
    layout = shelf.layouts.get(step.writes)
    if layout is not None:
        got, want = as_float32(got, layout), as_float32(want, layout)
        worst = float(np.abs(got - want).max())
        if not worst <= _SAME[shelf.precision] * max(float(np.abs(want).max()), 1e-30):
            print(f"neocog: {' '.join(which)} differs by {worst:.1e}: not used", file=sys.stderr)
            return None
    timed = Timed(gpu, lambda: enqueue(gpu, launches), repeats_of(base.batch), stream)
    return float(np.median([timed.sample() for _ in range(_SAMPLES)]))


def _with_best_chunk(runner: "Runner", plan: Plan) -> tuple[Plan, dict[str, float]]:
    """Try how many digits should go through the pass together; microseconds of a digit by chunk."""
    from neocog.bench.timing import made_digits

    digits = np.tile(made_digits(64), (_MANY // 64, 1, 1))
    out = np.empty((_MANY, 16), np.float32)
    spent: dict[int, float] = {}
    for chunk in _CHUNKS:
        runner.use(replace(plan, chunk=chunk))
        samples = []
        for _ in range(_SAMPLES):
            start = time.perf_counter()
            runner.run(digits, out, chunk)
            samples.append(time.perf_counter() - start)
        spent[chunk] = 1e6 * float(np.median(samples)) / _MANY
    best = _CHUNKS[0]
    for chunk in _CHUNKS:
        if spent[chunk] < _WORTH * spent[best]:
            best = chunk
    return replace(plan, chunk=best), {str(chunk): round(us, 4) for chunk, us in spent.items()}
