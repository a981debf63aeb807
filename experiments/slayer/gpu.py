"""The GPU paper's ladder beside our S-layers on a GPU: checked, tried by block size, timed."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from experiments.harness.processes import build_all
from experiments.harness.run import progress, synchronise, tried
from experiments.network.compare import TOLERANCES
from experiments.network.ours import StepRun
from experiments.slayer.inputs import STAGES, Fed, error
from experiments.slayer.ladder import VERSIONS, Ladder
from neocog.cuda.kernel import Precision, Step
from neocog.cuda.launcher import Gpu
from neocog.cuda.plan import Shelf, plan_of

Row = dict[str, Any]

#: Rungs whose block size is found by trial (T4 and what stands on it).
TRIED = ("T4", "T5")
#: Largest error of a layer: in fp32 direct and by Winograd, in fp16.
ALLOWED, ALLOWED_WINOGRAD = 1e-5, 5e-5
PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16")
_CHECKED = 2  # digits that float64 computes
_TIMED = 4  # digits that single characters are timed on


def limit(precision: str, version: str) -> float:
    if precision != "fp32":
        return TOLERANCES[precision]
    return ALLOWED_WINOGRAD if "winograd" in version else ALLOWED


def checked(shelf: Shelf, step: Step, fed: Fed) -> float:
    """Return a step's error against float64, fed with the first digits' maps."""
    run = StepRun(shelf, step, fed.before(step.writes, slice(0, _CHECKED)))
    return error(run.maps(), fed.want(step.writes, _CHECKED))


def spent(shelf: Shelf, step: Step, fed: Fed, batch: int) -> float:
    """Return microseconds of a character: in a batch, or the mean of single ones."""
    one = [np.array([i]) for i in range(min(_TIMED, len(fed.digits)))]
    chosen = one if batch == 1 else [np.arange(batch) % len(fed.digits)]
    runs = (StepRun(shelf, step, fed.before(step.writes, some)) for some in chosen)
    held, turns = (10, 7) if batch == 1 else (2, 3)  # many digits last long enough
    return float(np.mean([run.microseconds(repeats=held, rounds=turns) for run in runs])) / batch


class Bench:
    def __init__(self, gpu: Gpu, fed: Fed, *, quick: bool = False) -> None:
        self.gpu, self.fed, self.quick = gpu, fed, quick
        self.batches = (1,) if quick else (1, 256)

    def _row(self, about: Row, work: Callable[[], Row]) -> Row:
        found = tried(work, partial(synchronise, self.gpu))
        progress(f"{about}: {found}")
        return {**about, **found, **({"passed": False} if "failed" in found else {})}

    def trial(self) -> list[Row]:
        """Time every block size of every rung that has a choice (Fig. 6)."""
        rows: list[Row] = []
        for stage, version in product(STAGES, TRIED):
            choices = Ladder(self.gpu, self.fed.model).step(stage, version).choices()
            if self.quick:
                choices = sorted({choices[0], choices[len(choices) // 2], choices[-1]})
            for places in choices:
                about: Row = {"stage": stage, "system": version, "places": places}
                rows.append(self._row(about, partial(self._tried, stage, version, places)))
        return rows

    def _tried(self, stage: str, version: str, places: int) -> Row:
        shelf = Ladder(self.gpu, self.fed.model, {(stage, version): places})
        step = shelf.step(stage, version)
        run = StepRun(shelf, step, self.fed.before(stage, slice(0, 1)))
        return {"threads": step.threads, "us": run.microseconds(rounds=3)}

    def ladder(self, places: dict[tuple[str, str], int]) -> list[Row]:
        """Check and time every rung on every stage; ``us`` is of a character, by batch."""
        shelf = Ladder(self.gpu, self.fed.model, places)
        return [
            self._row({"stage": stage, "system": version}, partial(self._rung, shelf, stage, version))
            for stage, version in product(STAGES, VERSIONS)
        ]

    def _rung(self, shelf: Ladder, stage: str, version: str) -> Row:
        return self._timed(shelf, [shelf.step(stage, version)])

    def ours(self) -> list[Row]:
        """Check and time our S-layers as the plans take them."""
        rows: list[Row] = []
        for precision, plan, stage in product(PRECISIONS, ("default", "card"), STAGES):
            shelf = Shelf(self.gpu, self.fed.model, precision)
            own = plan_of(plan, precision)
            steps = [shelf.choose(own, batch, stages=(stage,))[0] for batch in self.batches]
            build_all(self.gpu, {one for step in steps for n in {_CHECKED, *self.batches}
                                 for one in step.kernels(n)})  # fmt: skip
            about = {"stage": stage, "system": f"ours, {plan}, {precision}"}
            rows.append(self._row(about, partial(self._timed, shelf, steps)))
        return rows

    def _timed(self, shelf: Shelf, steps: Sequence[Step]) -> Row:
        """Check and time a step, or a step for each batch."""
        steps = list(steps) * len(self.batches) if len(steps) == 1 else steps
        errors = {step.version: checked(shelf, step, self.fed) for step in steps}
        us = {str(n): spent(shelf, step, self.fed, n) for n, step in zip(self.batches, steps, strict=True)}
        passed = all(wrong <= limit(shelf.precision, version) for version, wrong in errors.items())
        return {"error": max(errors.values()), "passed": passed, "us": us}


def best_places(tried: Sequence[Row]) -> dict[tuple[str, str], int]:
    """Return the places a block of the quickest trial, by stage and version."""
    timed = sorted((row for row in tried if "us" in row), key=lambda row: -float(row["us"]))
    return {(row["stage"], row["system"]): row["places"] for row in timed}  # the quickest comes last
