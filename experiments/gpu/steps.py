"""The sections of ``gpu.py`` that run single steps of the pass, fed with the reference's maps."""

import argparse
import time
from collections.abc import Iterator
from functools import cache, cached_property
from typing import Any

import numpy as np

from experiments.slayer.gpu import limit
from neocog.learning.datasets import open_digits
from neocog.network import reference
from neocog.network.model import Model, load_model
from neocog.network.u0 import u0_from_digits

LAYERS = ("UG", "US1", "UC1", "US2", "UC2", "US3", "UC3", "US4")
ERROR_DIGITS = 16


class Run:
    """What was asked for."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.start = time.perf_counter()
        self.models = {name: load_model(name) for name in args.models}
        self.main = next(iter(self.models.values()))

    @cached_property
    def digits(self) -> np.ndarray:
        """MNIST's test digits, (N, 28, 28)."""
        return open_digits(self.args.data / "mnist", split="test").images

    def say(self, line: str) -> None:
        print(f"[{time.perf_counter() - self.start:6.1f} s] {line}", flush=True)

    @property
    def late(self) -> bool:
        """Whether the time for compiling peers is over."""
        return time.perf_counter() - self.start > self.args.compile_until


@cache
def maps_of(run: Run, model: str) -> dict[str, np.ndarray]:
    """The float64 reference's maps of a few digits, and the digits."""
    digits = run.digits[:ERROR_DIGITS]
    maps = reference.respond(u0_from_digits(digits), load_model(model))
    return {"digits": digits, **maps, "U0": maps["U0"][:, 0]}


class Repeated(dict[str, Any]):
    """Maps for a batch, as they are asked for: those of a few digits, again and again."""

    def __init__(self, run: Run, model: str, batch: int) -> None:
        self._few, self._index = maps_of(run, model), np.arange(batch) % ERROR_DIGITS

    def __missing__(self, name: str) -> np.ndarray:
        few = self._few[name]
        self[name] = few.astype("u1" if few.dtype == "u1" else "f4")[self._index]
        return self[name]


def failed(error: Exception, model: Model, precision: str, *what: str) -> dict[str, Any]:
    line = (str(error).splitlines() or [""])[0]
    return {
        "model": model.id,
        "precision": precision,
        "layer": what[0],
        "version": what[1],
        "failed": f"{type(error).__name__}: {line}",
    }


def shelf_of(model: Model, precision: Any) -> Any:
    from neocog.cuda.launcher import gpu
    from neocog.cuda.plan import Shelf

    return Shelf(gpu(0), model, precision)


def errors(run: Run) -> Iterator[dict[str, Any]]:
    """Each version of each step fed with the reference's maps; the whole pass."""
    from experiments.network.ours import StepRun
    from neocog.cuda.engine import CudaEngine

    for name, model in run.models.items():
        want = maps_of(run, name)
        for precision in run.args.precisions:
            engine = CudaEngine(model, device="cuda:0", precision=precision)
            runner = engine.runner(0)
            shelf = runner.shelf
            planned = {s.writes: s.version for s in shelf.choose(runner.plan, ERROR_DIGITS)}
            for stage in LAYERS:
                all_of_them = shelf.usable(stage, ERROR_DIGITS)
                for version in all_of_them if model is run.main else [planned[stage]]:
                    try:
                        error = StepRun(shelf, stage, version, want).error(want)
                    except Exception as failure:
                        yield failed(failure, model, precision, stage, version)
                        continue
                    largest = limit(precision, version)
                    yield {
                        "model": model.id,
                        "precision": precision,
                        "layer": stage,
                        "version": version,
                        "error": error,
                        "limit": largest,
                        "passed": error <= largest,
                    }
            got = engine.maps(want["U0"].astype(np.float32))
            for stage in ("US4", "UC4"):
                scale = np.abs(want[stage]).max()
                yield {
                    "model": model.id,
                    "precision": precision,
                    "layer": stage,
                    "version": "whole pass",
                    "error": float(np.abs(got[stage] - want[stage]).max() / scale),
                }


def s_versions(run: Run) -> Iterator[dict[str, Any]]:
    """S-layers: every version's time and error, which one the plan takes; PyTorch's beside."""
    from experiments.network.ours import StepRun
    from experiments.network.peers import layer_times
    from neocog.cuda.engine import CudaEngine

    want = maps_of(run, run.args.models[0])
    for precision in run.args.precisions:
        engine = CudaEngine(run.main, device="cuda:0", precision=precision, plan=run.args.plans[0])
        runner = engine.runner(0)
        for stage in ("US1", "US2", "US3", "US4"):
            for version in runner.shelf.usable(stage, 8):
                times, taken = {}, []
                try:
                    step = StepRun(runner.shelf, stage, version, want)
                    error = step.error(want)
                    for batch in run.args.step_batches:
                        before = Repeated(run, run.args.models[0], batch)
                        one = StepRun(runner.shelf, stage, version, before)
                        times[batch] = one.microseconds()
                        chosen = {s.writes: s for s in runner.shelf.choose(runner.plan, batch)}
                        if stage in chosen and chosen[stage].version == version:
                            taken.append(batch)
                except Exception as failure:
                    yield failed(failure, run.main, precision, stage, version)
                    continue
                work = step.step.work()
                yield {
                    "precision": precision,
                    "layer": stage,
                    "version": version,
                    "error": error,
                    "us_step": times,
                    "tflops": {b: 1e-6 * work.flops * b / us for b, us in times.items()},
                    "taken_at": taken,
                }
            times = {}
            for batch in run.args.step_batches:
                seen = Repeated(run, run.args.models[0], batch)[_before(stage)]
                times[batch] = min(layer_times(run.main, stage, seen, precision).values())
            yield {"precision": precision, "layer": stage, "version": "PyTorch", "us_step": times}


def _before(stage: str) -> str:
    return LAYERS[LAYERS.index(stage) - 1]


def c_layers(run: Run) -> Iterator[dict[str, Any]]:
    """C-layers: our direct sum in one kernel, and the ways PyTorch has."""
    from experiments.network.ours import StepRun
    from experiments.network.peers import layer_times

    for precision in run.args.precisions:
        shelf = shelf_of(run.main, precision)
        width = 4 if precision in ("fp32", "tf32") else 2
        for stage in ("UC1", "UC2", "UC3"):
            for batch in run.args.step_batches:
                before = Repeated(run, run.args.models[0], batch)
                moved = width * (before[_before(stage)].size + before[stage].size)
                row = {"precision": precision, "layer": stage, "batch": batch, "bytes": moved}
                for version in shelf.usable(stage, batch):
                    try:
                        us = StepRun(shelf, stage, version, before).microseconds()
                    except Exception as failure:
                        yield failed(failure, run.main, precision, stage, version)
                        continue
                    row[f"neocog {version}"] = us
                theirs = layer_times(run.main, stage, before[_before(stage)], precision)
                row |= {f"torch {form}": us for form, us in theirs.items()}
                ours = min((v for k, v in row.items() if k.startswith("neocog")), default=None)
                row["gb_per_s"] = ours and 1e-3 * moved / ours
                row["ratio"] = ours and min(theirs.values()) / ours
                yield row
