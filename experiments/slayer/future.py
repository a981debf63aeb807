"""The GPU paper's future work: characters in flight, transfers overlapped, several GPUs, energy."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.harness.record import asked
from experiments.harness.run import progress
from experiments.network.ours import OurSide
from neocog.cuda.devices import count as there
from neocog.cuda.engine import CudaEngine
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
_GPUS = (1, 2, 4)
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


def devices(engine: CudaEngine, digits: Digits, each: int, repeats: int, seconds: float) -> list[Row]:
    """Time batches of ``each`` characters per GPU on 1, 2 and 4 GPUs, from host to host.

    Each takes ``repeats`` batches from a thread; then for some ``seconds`` their power is measured.
    """
    rows: list[Row] = []
    numbers = range(there()) if engine.device == "cuda" else [engine.gpu.number]
    many = np.ascontiguousarray(digits[np.arange(each) % len(digits)])
    single = 0.0
    for count in _GPUS:
        if count > len(numbers):
            progress(f"{count} GPUs: there are {len(numbers)}")
            continue
        runners = [
            CudaEngine(engine.model, device=f"cuda:{number}", precision=engine.precision).runner
            for number in numbers[:count]
        ]
        outs = [np.empty((each, ANSWER_COLUMNS), np.float32) for _ in runners]
        with ThreadPoolExecutor(count) as pool:
            spent = []
            for turn in range(4):  # the first builds, loads and warms up
                start = time.perf_counter()
                batches = [many] * (repeats if turn else 1)
                list(pool.map(partial(_run_all, batches), runners, outs))
                spent.append(time.perf_counter() - start)
            best = count * each * repeats / min(spent[1:])

            def work(end: float, runners: Sequence[Runner] = runners, pool: Any = pool) -> int:
                busy = partial(_kept_busy, digits=digits, batch=each, period=0.0, end=end)
                return sum(pool.map(busy, runners))

            watts, done, took = powered(work, seconds, *(r.gpu.number for r in runners))
        single = single or best / count
        same = all(np.array_equal(out[:, 10], outs[0][:, 10]) for out in outs)
        efficiency = best / (count * single)
        row: Row = {"gpus": count, "batch": each, "per_second": best, "efficiency": efficiency,
                    "same": same}  # fmt: skip
        if watts is not None:
            row |= {"watts": watts, "joules_per_1000": 1000.0 * watts * took / done}
        rows.append(row)
        progress(f"{count} GPUs: {best:.0f} characters a second, {efficiency:.0%}, {watts or 0:.0f} W")
    return rows


def _run_all(batches: Sequence[Digits], runner: Runner, out: NDArray[np.float32]) -> None:
    for digits in batches:
        runner.run(digits, out, runner.chunk)


def energy(engine: CudaEngine, digits: Digits, seconds: float, number: int) -> list[Row]:
    """Measure power while the GPU idles and while it recognises; none without nvidia-smi."""
    runner = engine.runner
    works: dict[str, tuple[int, float]] = {
        "idle": (0, 0.0),
        "8 characters, 30 frames a second": (DIGITS, 1.0 / FRAMES),
        "8 characters at a time": (DIGITS, 0.0),
        "batches of 4096": (4096, 0.0),
    }
    rows: list[Row] = []
    for what, (batch, period) in works.items():
        work = partial(_kept_busy, runner, digits, batch, period)
        watts, done, took = powered(work, seconds, number)
        if watts is None:
            progress("power: nvidia-smi gives none")
            return []
        row: Row = {"what": what, "watts": watts, "per_second": done / took}
        if done:
            row["joules_per_1000"] = 1000.0 * watts * took / done
        progress(f"{what}: {watts:.0f} W, {row['per_second']:.0f} characters a second")
        rows.append(row)
    return rows


def _kept_busy(runner: Runner, digits: Digits, batch: int, period: float, end: float) -> int:
    """Recognise batches until a time has come; return how many characters."""
    if batch == 0:
        time.sleep(max(0.0, end - time.perf_counter()))
        return 0
    many = np.ascontiguousarray(digits[np.arange(batch) % len(digits)])
    out = np.empty((batch, ANSWER_COLUMNS), np.float32)
    done = 0
    while (now := time.perf_counter()) < end:
        runner.run(many, out, runner.chunk)
        done += batch
        if period:
            time.sleep(max(0.0, now + period - time.perf_counter()))
    return done


def powered(work: Callable[[float], int], seconds: float, *numbers: int) -> tuple[float | None, int, float]:
    """Return the mean watts of GPUs while some work runs, what it did, and its seconds.

    The first quarter does not count: nvidia-smi's figure is a mean over the time before.
    """
    found: list[tuple[float, float]] = []
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            watts = power(*numbers)
            if watts is None:
                return
            found.append((time.perf_counter(), watts))

    meter = threading.Thread(target=ask, daemon=True)
    meter.start()
    start = time.perf_counter()
    try:
        done = work(start + seconds)
        took = time.perf_counter() - start
    finally:
        over.set()
        meter.join()
    watts = [value for at, value in found if start + took / 4 <= at <= start + took]
    return (float(np.mean(watts)) if watts else None), done, took


def power(*numbers: int) -> float | None:
    """Return the watts that GPUs draw together, None where nvidia-smi does not tell."""
    told = asked("nvidia-smi", "-i", ",".join(map(str, numbers)), "--query-gpu=power.draw",
                 "--format=csv,noheader,nounits")  # fmt: skip
    try:
        return sum(map(float, told.split())) or None
    except ValueError:
        return None
