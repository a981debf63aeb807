"""The GPU paper's ladder beside our S-layers on a GPU: checked, tried by block size, timed."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from experiments.harness.processes import build_all
from experiments.harness.run import progress, synchronise, tried
from experiments.network.gpu import TOLERANCES
from experiments.network.ours import StepRun, usable
from experiments.slayer.inputs import STAGES, Fed, error
from experiments.slayer.ladder import VERSIONS, Ladder
from neocog.cuda.kernel import Kernel
from neocog.cuda.launcher import Gpu
from neocog.cuda.plan import VERSIONS as KINDS
from neocog.cuda.plan import Shelf, kernels_of, plan_of
from neocog.cuda.s_tensor import TensorS
from neocog.cuda.steps import Precision, Step
from neocog.errors import DeviceError, InputError, UsageError

Row = dict[str, Any]

#: Rungs whose block size is found by trial (T4 and what stands on it).
TRIED = ("T4", "T5", "T5, u > 0", "B", "skip")
#: Largest error of a layer in fp32: direct, and by Winograd.
ALLOWED = (1e-5, 5e-5)
PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16")
_CHECKED = 2  # digits that float64 computes
_TIMED = 4  # digits that single characters are timed on


def limit(precision: str, version: str) -> float:
    return ALLOWED["winograd" in version] if precision == "fp32" else TOLERANCES[precision]


def checked(shelf: Shelf, step: Step, fed: Fed) -> float:
    """Return a step's error against float64, fed with the first digits' maps."""
    run = StepRun(shelf, step, fed.before(step.writes, slice(0, _CHECKED)))
    return error(run.maps(), fed.want(step.writes, _CHECKED))


def spent(shelf: Shelf, step: Step, fed: Fed, batch: int) -> float:
    """Return microseconds of a character: in a batch, or the mean of single ones."""
    if batch == 1:
        chosen = [np.array([i]) for i in range(min(_TIMED, len(fed.digits)))]
    else:
        chosen = [np.arange(batch) % len(fed.digits)]
    runs = (StepRun(shelf, step, fed.before(step.writes, some)) for some in chosen)
    held, turns = (10, 7) if batch == 1 else (2, 3)  # many digits last long enough
    return float(np.mean([run.microseconds(repeats=held, rounds=turns) for run in runs])) / batch


class Bench:
    def __init__(self, gpu: Gpu, fed: Fed) -> None:
        self.gpu, self.fed = gpu, fed

    def _row(self, about: Row, work: Callable[..., Row], *given: Any) -> Row:
        found = tried(partial(work, *given), partial(synchronise, self.gpu))
        progress(f"{about}: {found}")
        return {**about, **found, **({"passed": False} if "failed" in found else {})}

    def prepare(self, batches: Sequence[int]) -> None:
        """Build what is going to be timed, several kernels at a time."""
        kernels: list[Kernel] = []
        model = self.fed.model
        shelves: list[tuple[Shelf, Sequence[str]]] = [(Ladder(self.gpu, model), tuple(VERSIONS))]
        for precision in PRECISIONS:
            shelves.append((Shelf(self.gpu, model, precision), tuple(KINDS["US"])))
        for shelf, names in shelves:
            for stage, version, batch in product(STAGES, names, {_CHECKED, *batches}):
                with suppress(DeviceError, InputError, UsageError):
                    kernels += kernels_of(shelf.step(stage, version), batch)
        kernels = [kernel for kernel in kernels if kernel.runs_on(self.gpu.arch)]
        progress(f"{model.name}: {len(set(kernels))} kernels")
        try:
            build_all(self.gpu, set(kernels))
            self.gpu.prepare(kernels)
        except Exception as failure:  # told again where the version is timed
            progress(f"{type(failure).__name__}: {failure}")

    def trial(self, *, quick: bool = False) -> list[Row]:
        """Time every block size of every rung that has a choice (Fig. 6)."""
        rows: list[Row] = []
        for stage, version in product(STAGES, TRIED):
            about: Row = {"stage": stage, "system": version}
            rung = partial(Ladder(self.gpu, self.fed.model).step, stage, version)
            found = self._row(about, lambda rung=rung: {"all": rung().choices()})
            if "failed" in found:
                rows.append(found)
                continue
            choices = found["all"]
            if quick:
                choices = sorted({choices[0], choices[len(choices) // 2], choices[-1]})
            for places in choices:
                more = {**about, "places": places}
                rows.append(self._row(more, self._tried, stage, version, places))
        return rows

    def _tried(self, stage: str, version: str, places: int) -> Row:
        shelf = Ladder(self.gpu, self.fed.model, {(stage, version): places})
        step = shelf.step(stage, version)
        run = StepRun(shelf, step, self.fed.before(stage, slice(0, 1)))
        return {"threads": step.threads, "us": run.microseconds(rounds=3)}

    def ladder(self, places: dict[tuple[str, str], int], batches: Sequence[int]) -> list[Row]:
        """Check and time every rung on every stage; ``us`` is of a character, by batch."""
        shelf = Ladder(self.gpu, self.fed.model, places)

        def run(stage: str, version: str) -> Row:
            step = shelf.step(stage, version)
            found = {"threads": step.threads, "places": step.places}
            return found | self._timed(shelf, step, batches)

        return [
            self._row({"stage": s, "system": version, "precision": "fp32"}, run, s, version)
            for s, version in product(STAGES, VERSIONS)
        ]

    def _timed(self, shelf: Shelf, step: Step, batches: Sequence[int]) -> Row:
        wrong = checked(shelf, step, self.fed)
        us = {str(n): spent(shelf, step, self.fed, n) for n in batches}
        return {"error": wrong, "passed": wrong <= limit(shelf.precision, step.version), "us": us}

    def ours(self, batches: Sequence[int]) -> list[Row]:
        """Check and time every version of our S-layers; say which is the quickest, and which card takes."""
        rows: list[Row] = []
        for precision, stage in product(PRECISIONS, STAGES):
            shelf = Shelf(self.gpu, self.fed.model, precision)
            found = [
                self._row(
                    {"stage": stage, "system": f"ours {version}", "precision": precision},
                    *(self._timed, shelf, shelf.step(stage, version), batches),
                )
                for version in usable(shelf, stage, 1)
            ]
            right = [row for row in found if row["passed"]]
            for n in map(str, batches):
                least = min(right, key=lambda row: float(row["us"][n]), default=None)
                (taken,) = shelf.choose(plan_of("card", precision), int(n), stages=(stage,))
                for row in found:
                    plans = row.setdefault("plans", {}).setdefault(n, [])
                    plans += ["auto"] * (row is least)
                    plans += ["card"] * (row["system"] == f"ours {taken.version}")
            rows += found
        return rows

    def compact(self, batches: Sequence[int]) -> list[Row]:
        """Time our tensor-core S-kernel by the plan's tiling, silent cells left out and not."""
        return [
            self._row({"stage": stage, "batch": batch, "precision": "fp16"}, *(self._compact, stage, batch))
            for stage, batch in product(("US1", "US2", "US3"), batches)
        ]

    def _compact(self, stage: str, batch: int) -> Row:
        gpu, model = self.gpu, self.fed.model
        base = Shelf(gpu, model, "fp16")
        step = base.step(stage, "tensor")
        assert isinstance(step, TensorS)
        tiling = step.tiling(batch)
        us, errors = {}, []
        for on in (True, False):
            wanted = replace(tiling, compact=on)
            if (on and tiling.ksplit > 1) or step.shape.shared(wanted) > gpu.shared:
                continue
            other = TensorS(
                gpu, model, int(stage[-1]) - 1, base.layouts, "fp16",
                tilings=dict.fromkeys((_CHECKED, batch), wanted),
            )  # fmt: skip
            errors.append(checked(base, other, self.fed))
            key = "silent cells left out" if on else "all cells"
            us[key] = spent(base, other, self.fed, batch)
        wrong = max(errors, default=0.0)
        passed = wrong <= limit("fp16", "tensor")
        return {"error": wrong, "passed": passed, "us": us, "plan_leaves_out": tiling.compact}


def best_places(tried: Sequence[Row]) -> dict[tuple[str, str], int]:
    """Return the places a block of the quickest trial, by stage and version."""
    best: dict[tuple[str, str], Row] = {}
    for row in tried:
        key = (row["stage"], row["system"])
        if "us" in row and (key not in best or row["us"] < best[key]["us"]):
            best[key] = row
    return {key: row["places"] for key, row in best.items()}
