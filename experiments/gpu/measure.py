"""Checks and times the network on one GPU, PyTorch beside it in the same run.

    python -m experiments.gpu.measure DATA [SECTION ...] -o RESULT [options]

Sections: ``decisions`` (all MNIST test digits against the CPU engine, which decides as float64
does), ``errors`` (each step fed with the float64 reference's maps, and the whole pass), ``speed``
(passes beside PyTorch), ``s`` (versions of the S-layers), ``c`` (C-layers beside PyTorch's ways),
``start`` (first answer of a new process). All by default. The file is written after every row; a
section that fails is noted and the next begins.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from itertools import product
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from experiments.harness.arguments import data_and_output
from experiments.harness.record import commit, today, without_places, write_results
from experiments.harness.run import told
from experiments.network.gpu import PEERS, compare_on_gpu
from experiments.network.ours import StepRun, usable
from experiments.network.peers import layer_times
from experiments.slayer.gpu import limit
from neocog.cuda.engine import CudaEngine
from neocog.cuda.launcher import gpu
from neocog.cuda.plan import Shelf
from neocog.learning.datasets import open_digits
from neocog.network import reference
from neocog.network.engine import Engine
from neocog.network.model import Model, load_model
from neocog.network.parallel import cores
from neocog.network.u0 import u0_from_digits

COLUMNS = {
    "model": "model", "batch": "batch", "precision": "precision", "digits": "digits",
    "neocog": "us a digit|.2f", "card": "plan card|.2f", "torch": "PyTorch|.2f",
    "compile": "torch.compile|.2f", "ratio": "times as fast as the better|.2f",
    "difference": "largest difference of a score|.1e",
}  # fmt: skip

LAYERS = ("UG", "US1", "UC1", "US2", "UC2", "US3", "UC3", "US4")
ERROR_DIGITS = 16
#: Digits of 10 000 whose decision may change in 16 bits.
MAY_CHANGE = 5


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


def decisions(run: Run) -> Iterator[dict[str, Any]]:
    """Decisions of all test digits, those of the CPU engine beside them."""
    test = open_digits(run.args.data / "mnist", split="test")
    for name, model in run.models.items():
        cpu = Engine(model).recognise(test.images, batch=64 * cores())
        run.say(f"{name}: {len(test)} digits on {cores()} cores")
        for precision, plan in product(run.args.precisions, run.args.plans):
            engine = CudaEngine(model, device="cuda:0", precision=precision, plan=plan)
            got = engine.recognise(test.images)
            changed = np.flatnonzero(got.label != cpu.label)
            yield {
                "model": model.id, "precision": precision, "plan": plan, "digits": len(test),
                "same": len(test) - len(changed), "accuracy": float((got.label == test.labels).mean()),
                "score_difference": float(np.abs(got.score - cpu.score).max()),
                "largest_margin_changed": float(cpu.margin[changed].max(initial=0.0)),
                "passed": len(changed) <= (0 if precision == "fp32" else MAY_CHANGE),
            }  # fmt: skip


def speed(run: Run) -> Iterator[dict[str, Any]]:
    """Whole passes by batch, precision and plan, PyTorch beside them."""
    todo = product(run.models.values(), run.args.batches, run.args.precisions)
    for model, batch, precision in todo:
        try:
            found = compare_on_gpu(
                model, batch=batch, precision=precision, plans=run.args.plans, digits=run.digits,
                peers=["torch"] if run.late else PEERS, rounds=run.args.rounds, host=batch <= 8,
            )  # fmt: skip
        except Exception as failure:
            traceback.print_exc()
            yield failed(failure, model, precision, "pass", f"batch {batch}")
            continue
        for line in found.lines():
            run.say("  " + line)
        facts = found.to_dict()
        us = facts["us_per_digit"]
        ours = {name: time for name, time in us.items() if name.startswith("neocog")}
        best = min(ours, key=lambda name: ours[name], default=None)
        row = {
            "model": facts["model"], "batch": batch, "precision": precision, "neocog": ours.get(best),
            "card": ours.get("neocog card"), **{name: time for name, time in us.items() if name not in ours},
            "ratio": min(facts["ratio"].values(), default=None), "plan": best,
            "difference": facts["difference"].get(best),
            "planes": "/".join(map(str, (model.spec.orientations, *model.planes))), "digits": "MNIST, test",
            "commit": commit(), "date": today(), "ratios": facts["ratio"], "differences": facts["difference"],
        }  # fmt: skip
        yield {**row, **{key: value for key, value in facts.items() if key not in row}}


# -- single steps, fed with the reference's maps ---------------------------------------------------
def errors(run: Run) -> Iterator[dict[str, Any]]:
    """Each version of each step fed with the reference's maps; the whole pass."""
    for name, model in run.models.items():
        want = maps_of(run, name)
        for precision in run.args.precisions:
            engine = CudaEngine(model, device="cuda:0", precision=precision)
            runner = engine.runner
            shelf, about = runner.shelf, {"model": model.id, "precision": precision}
            planned = {s.writes: s.version for s in shelf.choose(runner.plan, ERROR_DIGITS)}
            for stage in LAYERS:
                all_of_them = usable(shelf, stage, ERROR_DIGITS)
                for version in all_of_them if model is run.main else [planned[stage]]:
                    try:
                        error = StepRun(shelf, shelf.step(stage, version), want).error(want)
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
        runner = engine.runner
        shelf = runner.shelf
        for stage in ("US1", "US2", "US3", "US4"):
            before = {batch: Repeated(run, run.args.models[0], batch) for batch in batches}
            planned = {batch: {s.writes: s.version for s in shelf.choose(runner.plan, batch)}
                       for batch in batches}  # fmt: skip
            for version in usable(shelf, stage, 8):
                row: dict[str, Any] = {"precision": precision, "layer": stage, "version": version}
                try:
                    step = shelf.step(stage, version)
                    error = StepRun(shelf, step, want).error(want)
                    us = {batch: StepRun(shelf, step, before[batch]).microseconds()
                          for batch in batches}  # fmt: skip
                except Exception as failure:
                    yield failed(failure, run.main, precision, stage, version)
                    continue
                s, t, taps = step.source, step.target, step.taps
                flops = 2.0 * t.size**2 * taps**2 * (t.planes * s.planes + 1) + 2.0 * s.size**2 * s.planes
                yield row | {
                    "error": error,
                    "us_step": us,
                    "tflops": {batch: 1e-6 * flops * batch / time for batch, time in us.items()},
                    "taken_at": [b for b in batches if planned[b].get(stage) == version],
                }
            us = {batch: min(layer_times(run.main, stage, maps[_before(stage)], precision).values())
                  for batch, maps in before.items()}  # fmt: skip
            yield {"precision": precision, "layer": stage, "version": "PyTorch", "us_step": us}


def _before(stage: str) -> str:
    return LAYERS[LAYERS.index(stage) - 1]


def c_layers(run: Run) -> Iterator[dict[str, Any]]:
    """C-layers: our direct sum in one kernel, and the ways PyTorch has."""
    for precision in run.args.precisions:
        shelf = Shelf(gpu(0), run.main, precision)
        width = 4 if precision == "fp32" else 2
        for stage, batch in product(("UC1", "UC2", "UC3"), run.args.step_batches):
            maps = Repeated(run, run.args.models[0], batch)
            moved = width * (maps[_before(stage)].size + maps[stage].size)
            us: dict[str, float] = {}
            for version in usable(shelf, stage, batch):
                try:
                    step = shelf.step(stage, version)
                    us[f"neocog {version}"] = StepRun(shelf, step, maps).microseconds()
                except Exception as failure:
                    yield failed(failure, run.main, precision, stage, version)
            torch = layer_times(run.main, stage, maps[_before(stage)], precision)
            ours = min(us.values(), default=None)
            yield {
                **{"precision": precision, "layer": stage, "batch": batch, "bytes": moved, **us},
                **{f"torch {form}": time for form, time in torch.items()},
                "gb_per_s": ours and 1e-3 * moved / ours,
                "ratio": ours and min(torch.values()) / ours,
            }


# -- a new process ---------------------------------------------------------------------------------
_FIRST = """
import time
start = time.perf_counter()
import sys
import numpy as np
from neocog.cuda.engine import CudaEngine
from neocog.network.model import load_model
engine = CudaEngine(load_model(sys.argv[1]), device="cuda:0", precision=sys.argv[2])
ready = time.perf_counter()
engine.recognise(np.zeros((1, 28, 28), np.uint8))
print(ready - start, time.perf_counter() - ready)
"""


def start(run: Run) -> Iterator[dict[str, Any]]:
    """Seconds until a new process has its first answer, builds not there yet and there."""
    with tempfile.TemporaryDirectory() as folder:
        variables = {**os.environ, "NEOCOG_CACHE": folder}
        for cache_state in ("empty", "warm", "warm"):
            begin = time.perf_counter()
            words = [sys.executable, "-c", _FIRST, run.args.models[0], "fp16"]
            found = subprocess.run(
                words, env=variables, capture_output=True, text=True, check=False, timeout=300
            )
            if found.returncode:
                raise RuntimeError((found.stderr.strip().splitlines() or ["it failed"])[-1])
            ready, first = map(float, found.stdout.split())
            yield {
                "cache": cache_state,
                "engine_s": ready,
                "first_answer_s": first,
                "process_s": time.perf_counter() - begin,
            }


SECTIONS: dict[str, Callable[[Run], Iterator[dict[str, Any]]]] = {
    "decisions": decisions, "errors": errors, "speed": speed, "s": s_versions, "c": c_layers, "start": start,
}  # fmt: skip


def parse() -> argparse.Namespace:
    models = ["neocog-small", "neocog", "fukushima"]
    parser = data_and_output(
        __doc__, models=(models, "the versions of the first one's layers are timed"),
        batches=[1, 8, 64, 1024, 4096], step_batches=[1, 8, 256],
        precisions=["fp32", "fp16"], rounds=20,
        plans=(["default", "card"], "the first is shown beside others"),
        compile_until=(300.0, "seconds after which torch.compile takes no further part"),
    )  # fmt: skip
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    args = parser.parse_args()
    unknown = set(args.sections) - set(SECTIONS)
    if unknown:
        parser.error(f"no section {sorted(unknown)[0]}; choose {', '.join(SECTIONS)}")
    return args


def main() -> None:
    """Run the sections; write the file after each."""
    args = parse()
    run = Run(args)
    words = without_places(sys.argv[1:])
    found: dict[str, Any] = {}
    if args.output.is_file():  # sections of earlier runs stay until they are run again
        found = json.loads(args.output.read_text()).get("sections", {})
    failures: dict[str, str] = {}
    wrong = 0

    def write() -> None:
        rows = found.get("speed", {}).get("rows", [])
        about = {"sections": found, "failures": failures}
        write_results(args.output, rows, columns=COLUMNS, gpu=True, **about)

    for name in args.sections or SECTIONS:
        run.say(f"section {name}")
        rows: list[dict[str, Any]] = []
        found[name] = {"commit": commit(), "date": today(), "options": words, "rows": rows}
        try:
            for row in SECTIONS[name](run):
                rows.append(row)
                run.say(json.dumps(row, default=str))
                write()
        except Exception as error:
            traceback.print_exc()
            failures[name] = f"{type(error).__name__}: {error}"
        write()
        wrong += sum(row.get("passed") is False or "failed" in row for row in rows)
    for name, failure in failures.items():
        print(f"section {name} FAILED: {failure}")
    print(f"{wrong} checks and {len(failures)} sections failed")
    sys.exit(1 if wrong or failures else 0)


if __name__ == "__main__":
    main()
