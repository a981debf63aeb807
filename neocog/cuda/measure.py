"""Times on the device of each stage within the pass.

Events between the kernels of a pass would cost as much as the kernels do. Instead the kernels of the pass are
captured up to each stage: UG; UG and US1; and so on. A stage takes what its kernels take longer than those
before it: themselves, and the gap in front of them. A copy in front disturbs the kernels behind it, so it
comes last: the upload is what all kernels take longer with it, and what a replay of the engine's own graph
takes beyond is the row ``launch``. So the rows add up to the engine's pass, whose last kernel writes the
answers to the host's memory.
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from neocog.cuda.lanes import PassLane, Timed, enqueue
from neocog.cuda.launcher import Gpu
from neocog.cuda.runner import Runner, bucket_of

_SAMPLE_MS = 2.0  # least milliseconds of one sample of a stage
_OF = 3  # samples that a figure is the median of


def stage_times(
    runner: Runner, digits: NDArray[np.uint8], *, repeats: int = 20
) -> dict[str, NDArray[np.float64]]:
    """Return milliseconds by stage, ``repeats`` of each; see the head of this module.

    ``digits`` (B, 28, 28) are not more than a chunk; the rows are ``upload, UG, US1 .. UC4, launch``
    and their sum, ``total``.
    """
    lane = runner.lane(bucket_of(len(digits), runner.plan.part))
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
    held = 32 if lane.batch <= 64 else 4  # passes a graph, so that its launch does not count
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
