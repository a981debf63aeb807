"""The GPU paper's future work: characters in flight, transfers overlapped."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.harness.run import progress
from experiments.network.ours import OurSide
from neocog.cuda.lanes import PassLane, Timed, enqueue
from neocog.cuda.passes import ANSWER_COLUMNS, Pass
from neocog.cuda.runner import Runner, bucket_of
from neocog.evaluation.timing import milliseconds
from neocog.network.model import Model

Digits = NDArray[np.uint8]
Row = dict[str, Any]

FRAMES, DIGITS = 30, 8  # a second, and digits of each: what the paper wanted to read
_ROUNDS = 9
#: Stages of the pipeline that the paper names: S1 to S4, each with what stands around it.
_PIPELINE = (("UG", "US1", "UC1"), ("US2", "UC2"), ("US3", "UC3"), ("US4", "UC4"))
_TRIPS = 100


def character(model: Model, digits: Digits, precision: str, number: int) -> list[Row]:
    """Time one character and a frame's eight: the pass, and from host to host."""
    rows = []
    for batch in (1, DIGITS):
        side = OurSide(model, batch, precision=precision, number=number)
        some = digits[:batch]
        side.load(some)
        us = 1e3 * float(np.median([side.elapsed(50) for _ in range(_ROUNDS)]))
        trips = [1e3 * milliseconds(partial(side.trip, some)) for _ in range(_TRIPS)]
        whole = float(np.median(trips[len(trips) // 10 :]))
        row: Row = {"batch": batch, "precision": precision, "pass_us": us, "in_all_us": whole}
        row["transfers_us"] = whole - us
        if batch == DIGITS:
            row |= {"share_of_gpu": 1e-6 * FRAMES * us, "share_of_time": 1e-6 * FRAMES * whole}
        progress(f"batch {batch}: {us:.1f} us on the GPU, {whole:.1f} us in all")
        rows.append(row)
    return rows


def in_flight(runner: Runner, digits: Digits, counts: Sequence[int]) -> list[Row]:
    """Time single characters in flight, all of them in one CUDA graph.

    Each on a stream of its own; one after another; as a pipeline of four groups of stages.
    """
    rows: list[Row] = []
    gpu = runner.gpu
    with runner.lock, gpu.current():
        steps = runner.shelf.choose(runner.plan, 1)
        late = runner.plan.late_at(1)
        lines = [gpu.xp.cuda.Stream(non_blocking=True) for _ in _PIPELINE]
        for count in counts:
            main = gpu.xp.cuda.Stream(non_blocking=True)
            streams = [gpu.xp.cuda.Stream(non_blocking=True) for _ in range(count)]
            with main:
                passes = [Pass(gpu, steps, runner.shelf.layouts, 1, 0, late) for _ in streams]
                for work, i in zip(passes, cycle(range(len(digits))), strict=False):
                    work.arrays["digits"].set(digits[i : i + 1])
                    work.run()
                main.synchronize()
            each = [launch for work in passes for launch in work.launches]
            ways: dict[str, Callable[[], None]] = {
                "together": partial(_together, gpu, main, streams, passes),
                "one after another": partial(enqueue, gpu, each),
                "pipeline": partial(_pipeline, gpu, main, lines, passes),
            }
            row: Row = {"in_flight": count}
            answers = []
            for name, record in ways.items():
                row[name] = 1e3 * Timed(gpu, record, 4, main).median(_ROUNDS, 4) / count
                answers.append([work.arrays["answers"].get().tobytes() for work in passes])
            row["same"] = answers[0] == answers[1] == answers[2]
            progress(f"{count} in flight: {row}")
            rows.append(row)
    return rows


def _together(gpu: Any, main: Any, streams: Sequence[Any], passes: Sequence[Pass]) -> None:
    """Enqueue passes on streams of their own, between two meetings on the main stream."""
    begin = main.record()
    for stream, work in zip(streams, passes, strict=True):
        stream.wait_event(begin)
        with stream:
            enqueue(gpu, tuple(work.launches))
        main.wait_event(stream.record())


def _pipeline(gpu: Any, main: Any, lines: Sequence[Any], passes: Sequence[Pass]) -> None:
    begin = main.record()
    for line in lines:
        line.wait_event(begin)
    for work in passes:
        done = begin
        for line, names in zip(lines, _PIPELINE, strict=True):
            line.wait_event(done)
            with line:
                enqueue(gpu, [one for s in work.stages if s.name in names for one in s.launches])
            done = line.record()
    for line in lines:
        main.wait_event(line.record())


def overlap(runner: Runner, digits: Digits, repeats: int) -> list[Row]:
    """Time many characters from host to host: with several lanes transfers go beside work."""
    gpu, batch = runner.gpu, bucket_of(runner.chunk, runner.plan.part)
    rows: list[Row] = []
    with runner.lock, gpu.current():
        lanes = [runner.lane(batch, i) for i in range(3)]
        many = digits[np.arange(batch) % len(digits)]
        out = np.empty((len(lanes) * batch, ANSWER_COLUMNS), np.float32)
        alone = 1e3 * float(np.median([lanes[0].elapsed(8) for _ in range(_ROUNDS)])) / batch
        for count in range(1, len(lanes) + 1):
            seconds = [_dealt(lanes[:count], many, out, repeats) for _ in range(3)]
            us = 1e6 * min(seconds) / (repeats * batch)
            rows.append({"lanes": count, "batch": batch, "us": us, "graph_alone_us": alone})
            progress(f"{count} lanes: {us:.3f} us a character from host to host")
    return rows


def _dealt(lanes: Sequence[PassLane], digits: Digits, out: NDArray[np.float32], repeats: int) -> float:
    start = time.perf_counter()
    for turn in range(repeats):
        lane = lanes[turn % len(lanes)]
        lane.collect(out)
        lane.submit(digits, turn % len(lanes) * len(digits))
    for lane in lanes:
        lane.collect(out)
    return time.perf_counter() - start
