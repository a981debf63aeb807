"""Times on the device: of each stage within the pass, and of every version of a stage.

Events between the kernels of a pass would cost as much as the kernels do. Instead the kernels of the pass are
captured up to each stage: UG; UG and US1; and so on. A stage takes what its kernels take longer than those
before it: themselves, and the gap in front of them. A copy in front disturbs the kernels behind it, so it
comes last: the upload is what all kernels take longer with it, and what a replay of the engine's own graph
takes beyond is the row ``launch``. So the rows add up to the engine's pass, whose last kernel writes the
answers to the host's memory.
"""

import math
import sys
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from neocog.cuda.kernel import Launch
from neocog.cuda.lanes import PassLane, Timed, enqueue
from neocog.cuda.launcher import Gpu
from neocog.cuda.passes import Pass, as_float32, form
from neocog.cuda.plan import ANCHORS, MOST_CHUNK, STAGES, Plan, Shelf, kernels_of
from neocog.errors import DeviceError, InputError, UsageError
from neocog.network.arrays import to_numpy
from neocog.network.u0 import made_digits

if TYPE_CHECKING:
    from neocog.cuda.runner import Runner

_SAMPLES = 7
_SAMPLE_MS = 2.0  # least milliseconds of one sample of a stage
_OF = 3  # samples that a figure is the median of
_PARTS = (64, 128, 256, 512)
_CHUNKS = (256, 512, 640, 1024, 1280)
_MANY = 4096  # digits that chunks are tried on
_REPLAYS = 50  # of a pass, in a sample that compares two ways of launching it
_SHORTER = 0.997  # another way of launching has to be this much better
_WORTH = 0.98  # a larger part or chunk has to be this much better than a smaller one
#: A version whose maps differ by more than this share of the strongest response is not taken.
_SAME = {"fp32": 1e-4, "tf32": 2e-2, "fp16": 2e-2, "bf16": 1e-1}


def repeats_of(batch: int) -> int:
    """Return how many passes a graph holds, so that its launch does not count."""
    return 32 if batch <= 64 else 4


def stage_times(
    runner: "Runner", digits: NDArray[np.uint8], *, repeats: int = 20
) -> dict[str, NDArray[np.float64]]:
    """Return milliseconds by stage, ``repeats`` of each; see the head of this module.

    ``digits`` (B, 28, 28) are not more than a chunk; the rows are ``upload, UG, US1 .. UC4, launch``
    and their sum, ``total``.
    """
    lane = runner.lane(runner.bucket(len(digits)))
    lane.fill(digits)
    with runner.gpu.current():
        lane.upload()  # passes without an upload take these digits too
        samples = _samples(runner.gpu, lane)
        rows = np.median(
            [[[one() for _ in range(_OF)] for one in samples] for _ in range(repeats + 1)], axis=2
        )[1:]
    names = [stage.name for stage in lane.work.stages]
    rows = np.maximum.accumulate(rows, axis=1)  # a pass with one more stage takes no less
    spent = np.diff(rows, axis=1, prepend=0).T
    times = dict(zip([*names, "upload", "launch"], spent, strict=True))
    order = ("upload", *names, "launch")
    return {**{name: times[name] for name in order}, "total": rows[:, -1]}


def _samples(gpu: Gpu, lane: PassLane) -> list[Callable[[], float]]:
    """Return what measures the parts of a pass, each with one more stage, and the whole pass."""
    held = repeats_of(lane.batch)
    # the kernels up to each stage, then the upload too
    stages = range(1, len(lane.work.stages) + 1)
    works: list[Callable[[], object]] = [partial(enqueue, gpu, tuple(lane.work.up_to(n))) for n in stages]
    works.append(lane.enqueue)
    timed = [Timed(gpu, work, held, lane.stream) for work in works]
    times = [max(1, math.ceil(_SAMPLE_MS / held / max(t.elapsed(), 1e-6))) for t in timed]

    def own() -> float:
        for _ in range(times[-1]):
            timed[-1].replay()  # the device is at work while the graphs are launched
        return lane.elapsed(held * times[-1])

    return [*(partial(t.elapsed, n) for t, n in zip(timed, times, strict=True)), own]


def measure_plan(runner: "Runner") -> Plan:
    """Time every version of every stage on this device, use the quickest and remember them.

    Versions are timed on maps of made digits. One that cannot be launched, that the device has no
    memory for, or whose maps are not those of the default plan, is left out.
    """
    print(f"neocog: timing the kernels on {runner.gpu.name}, once", file=sys.stderr, flush=True)
    with runner.lock, runner.gpu.current():
        times = {anchor: _anchor_times(runner, anchor) for anchor in ANCHORS}
    table = {
        anchor: {stage: tuple(sorted(row, key=row.__getitem__)) for stage, row in rows.items()}
        for anchor, rows in times.items()
    }
    plan = Plan(table, runner.chunk, runner.plan.part, "measured").over(runner.plan)
    plan, chunks = _with_best_chunk(runner, plan)
    with runner.lock, runner.gpu.current():
        late = {n: Launchings(runner, plan, made_digits(n)).best() for n in ANCHORS}
    plan = replace(plan, late=late)
    micro = {
        str(anchor): {
            stage: {name: round(1e3 * ms, 3) for name, ms in row.items()} for stage, row in rows.items()
        }
        for anchor, rows in times.items()
    }
    runner.store.save(plan, {**micro, "chunks, a digit": chunks})
    runner.use(plan)
    runner.measured = True
    return plan


def _anchor_times(runner: "Runner", batch: int) -> dict[str, dict[str, float]]:
    """Milliseconds of a batch by stage and version."""
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
    no_memory = gpu.xp.cuda.memory.OutOfMemoryError
    for stage, names in usable.items():
        found[stage] = {}
        for version in names:
            with suppress(DeviceError, InputError, UsageError, no_memory):
                ms = _version_time(gpu, shelf, base, (stage, version), stream)
                if ms is not None:
                    found[stage][version] = ms
    return found


def _version_time(gpu: Gpu, shelf: Shelf, base: Pass, which: tuple[str, str], stream: Any) -> float | None:
    """Milliseconds of one version at the pass's batch; None if it answers otherwise."""
    step = shelf.step(*which)
    with stream:
        shape, dtype = form(step.writes, shelf.layouts, base.batch)
        target = gpu.xp.zeros(shape, dtype)
        scratch = {name: gpu.xp.zeros(*kind) for name, kind in step.scratch(base.batch).items()}
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
    timed = Timed(gpu, partial(enqueue, gpu, launches), repeats_of(base.batch), stream)
    return timed.median(_SAMPLES)


class Launchings:
    """Times a pass of digits (B, 28, 28) by which of its stages are late.

    The answers stay on the device. The caller holds the runner's lock and device.
    """

    def __init__(self, runner: "Runner", plan: Plan, digits: NDArray[np.uint8]) -> None:
        self._runner, self._digits, self._part = runner, digits, plan.part
        self._steps = runner.shelf.choose(plan, len(digits))
        self._stream = runner.gpu.xp.cuda.Stream(non_blocking=True)

    def spent(self, late: Collection[str], change: Callable[[Launch], Launch] | None = None) -> float:
        """Return milliseconds of a pass, its launches changed: the median of some replays."""
        gpu, layouts = self._runner.gpu, self._runner.shelf.layouts
        with self._stream:
            work = Pass(gpu, self._steps, layouts, len(self._digits), self._part, late)
            work.arrays["digits"].set(self._digits)
            launches = tuple(map(change, work.launches) if change else work.launches)
            gpu.prepare(launch.kernel for launch in launches)
            self._stream.synchronize()
        timed = Timed(gpu, partial(enqueue, gpu, launches), 1, self._stream)
        return timed.median(_SAMPLES, _REPLAYS)

    def best(self) -> tuple[str, ...]:
        """Return the stages that had better be late.

        One stage after another is tried the other way, until none makes the pass shorter.
        """
        if not self._runner.gpu.programmatic:
            return ()
        best: frozenset[str] = frozenset()
        least, before = self.spent(best), math.inf
        while least < _SHORTER * before:
            before = least
            for stage in STAGES[:-1]:
                ms = self.spent(best ^ {stage})
                if ms < _SHORTER * least:
                    best, least = best ^ {stage}, ms
        return tuple(stage for stage in STAGES if stage in best)


def _with_best_chunk(runner: "Runner", plan: Plan) -> tuple[Plan, dict[str, float]]:
    """Try how many digits should go through the pass together, and through UG .. UC3.

    Returns the plan, and microseconds of a digit by ``"chunk/part"``.
    """
    digits = np.tile(made_digits(64), (_MANY // 64, 1, 1))
    out = np.empty((_MANY, 16), np.float32)
    spent: dict[str, float] = {}

    def tried(wanted: Plan) -> float:
        key = f"{wanted.chunk}/{wanted.part}"
        if key not in spent:
            runner.use(wanted)
            ms = []
            for _ in range(_SAMPLES):
                start = time.perf_counter()
                runner.run(digits, out, wanted.chunk)
                ms.append(time.perf_counter() - start)
            spent[key] = round(1e6 * float(np.median(ms)) / _MANY, 4)
        return spent[key]

    best = _least([replace(plan, chunk=MOST_CHUNK, part=part) for part in _PARTS], tried)
    chunks = sorted({max(chunk, best.part) for chunk in _CHUNKS})
    return _least([replace(best, chunk=chunk) for chunk in chunks], tried), spent


def _least(plans: Sequence[Plan], tried: Callable[[Plan], float]) -> Plan:
    """Return the quickest plan, an earlier one where a later is hardly better."""
    best = plans[0]
    for plan in plans[1:]:
        if tried(plan) < _WORTH * tried(best):
            best = plan
    return best
