"""The sections of ``measure.py`` that run single steps, fed with the reference's maps."""

import argparse
import time
from collections.abc import Iterator
from functools import cache, cached_property
from itertools import product
from typing import Any

import numpy as np

from experiments.harness.run import told
from experiments.network.ours import StepRun
from experiments.network.peers import layer_times
from experiments.slayer.gpu import limit
from neocog.cuda.engine import CudaEngine
from neocog.cuda.launcher import gpu
from neocog.cuda.plan import Shelf
from neocog.learning.datasets import open_digits
from neocog.network import reference
from neocog.network.model import Model, load_model
from neocog.network.u0 import u0_from_digits

LAYERS = ("UG", "US1", "UC1", "US2", "UC2", "US3", "UC3", "US4")
ERROR_DIGITS = 16


class Run:
    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.start = time.perf_counter()
        self.models = {name: load_model(name) for name in args.models}
        self.main = next(iter(self.models.values()))

    @cached_property
    def digits(self) -> np.ndarray:
        return open_digits(self.args.data / "mnist", split="test").images

    def say(self, line: str) -> None:
        print(f"[{time.perf_counter() - self.start:6.1f} s] {line}", flush=True)

    @property
    def late(self) -> bool:
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
    return {"model": model.id, "precision": precision, "layer": what[0], "version": what[1],
            "failed": told(error)}  # fmt: skip


def errors(run: Run) -> Iterator[dict[str, Any]]:
    """Each version of each step fed with the reference's maps; the whole pass."""
    for name, model in run.models.items():
        want = maps_of(run, name)
        for precision in run.args.precisions:
            engine = CudaEngine(model, device="cuda:0", precision=precision)
            runner = engine.runner(0)
            shelf, about = runner.shelf, {"model": model.id, "precision": precision}
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
                    yield {**about, "layer": stage, "version": version, "error": error,
                           "limit": largest, "passed": error <= largest}  # fmt: skip
            got = engine.maps(want["U0"].astype(np.float32))
            for stage in ("US4", "UC4"):
                error = float(np.abs(got[stage] - want[stage]).max() / np.abs(want[stage]).max())
                yield {**about, "layer": stage, "version": "whole pass", "error": error}


def s_versions(run: Run) -> Iterator[dict[str, Any]]:
    """S-layers: every version's time and error, which one the plan takes; PyTorch's beside."""
    want, batches = maps_of(run, run.args.models[0]), run.args.step_batches
    for precision in run.args.precisions:
        engine = CudaEngine(run.main, device="cuda:0", precision=precision, plan=run.args.plans[0])
        runner = engine.runner(0)
        shelf = runner.shelf
        for stage in ("US1", "US2", "US3", "US4"):
            before = {batch: Repeated(run, run.args.models[0], batch) for batch in batches}
            planned = {batch: {s.writes: s.version for s in shelf.choose(runner.plan, batch)}
                       for batch in batches}  # fmt: skip
            for version in shelf.usable(stage, 8):
                row: dict[str, Any] = {"precision": precision, "layer": stage, "version": version}
                try:
                    step = StepRun(shelf, stage, version, want)
                    error = step.error(want)
                    us = {batch: StepRun(shelf, stage, version, before[batch]).microseconds()
                          for batch in batches}  # fmt: skip
                except Exception as failure:
                    yield failed(failure, run.main, precision, stage, version)
                    continue
                flops = step.step.work().flops
                yield row | {
                    "error": error,
                    "us_step": us,
                    "tflops": {batch: 1e-6 * flops * batch / time for batch, time in us.items()},
                    "taken_at": [b for b in batches if planned[b].get(stage) == version],
                }
            us = {batch: min(theirs(run, stage, before[batch], precision).values())
                  for batch in batches}  # fmt: skip
            yield {"precision": precision, "layer": stage, "version": "PyTorch", "us_step": us}


def theirs(run: Run, stage: str, maps: Repeated, precision: str) -> dict[str, float]:
    return layer_times(run.main, stage, maps[_before(stage)], precision)


def _before(stage: str) -> str:
    return LAYERS[LAYERS.index(stage) - 1]


def c_layers(run: Run) -> Iterator[dict[str, Any]]:
    """C-layers: our direct sum in one kernel, and the ways PyTorch has."""
    for precision in run.args.precisions:
        shelf = Shelf(gpu(0), run.main, precision)
        width = 4 if precision in ("fp32", "tf32") else 2
        for stage, batch in product(("UC1", "UC2", "UC3"), run.args.step_batches):
            maps = Repeated(run, run.args.models[0], batch)
            moved = width * (maps[_before(stage)].size + maps[stage].size)
            us: dict[str, float] = {}
            for version in shelf.usable(stage, batch):
                try:
                    us[f"neocog {version}"] = StepRun(shelf, stage, version, maps).microseconds()
                except Exception as failure:
                    yield failed(failure, run.main, precision, stage, version)
            torch = theirs(run, stage, maps, precision)
            ours = min(us.values(), default=None)
            yield {
                **{"precision": precision, "layer": stage, "batch": batch, "bytes": moved, **us},
                **{f"torch {form}": time for form, time in torch.items()},
                "gb_per_s": ours and 1e-3 * moved / ours,
                "ratio": ours and min(torch.values()) / ours,
            }
