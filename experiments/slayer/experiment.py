"""The GPU paper's experiments on the S-layers (Ikeda et al. 2011), each a section of one result.

Every system is checked against float64 before it is timed; a section that fails is noted, the next begins.
"""

import traceback
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from experiments.harness.run import Request, Result, Save, build_all, progress, synchronise, tried
from experiments.network.compare import TOLERANCES
from experiments.network.ours import OurSide, StepRun
from experiments.slayer.inputs import PAPER_DIGITS, SIZES, STAGES, Fed, error, find_digits, networks
from experiments.slayer.ladder import VERSIONS, Ladder
from neocog.cuda.kernel import Precision, Step
from neocog.cuda.launcher import Gpu, gpu
from neocog.cuda.plan import Shelf, plan_of
from neocog.errors import UsageError
from neocog.evaluation.timing import milliseconds
from neocog.network.model import load_model
from neocog.network.registry import list_models

Row = dict[str, Any]

ON_CPU, ON_GPU = ("silence",), ("ladder", "character")  #: sections without and with a GPU, in order
ALLOWED, ALLOWED_WINOGRAD = 1e-5, 5e-5  #: largest error of a layer in fp32, direct and by Winograd
PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16")
_FED, _CHECKED, _TIMED = 32, 2, 4  # digits that layers are fed with, float64 computes, are timed alone
_FRAMES, _DIGITS = 30, 8  # frames a second, and digits of each: what the paper wanted to read


def checked(shelf: Shelf, step: Step, fed: Fed) -> float:
    """Return a step's error against float64, fed with the first digits' maps."""
    run = StepRun(shelf, step, fed.before(step.writes)[:_CHECKED])
    return error(run.maps(), fed.want(step.writes, _CHECKED))


def spent(shelf: Shelf, step: Step, fed: Fed, batch: int) -> float:
    """Return microseconds of a character: in a batch, or the mean of single ones."""
    maps = fed.before(step.writes)
    one = [maps[i : i + 1] for i in range(min(_TIMED, len(maps)))]
    some = one if batch == 1 else [maps[np.arange(batch) % len(maps)]]
    held, turns = (10, 7) if batch == 1 else (2, 3)  # many digits last long enough
    runs = (StepRun(shelf, step, own) for own in some)
    return float(np.mean([run.microseconds(repeats=held, rounds=turns) for run in runs])) / batch


class Bench:
    """The paper's ladder and our S-layers on a GPU, of one network."""

    def __init__(self, gpu: Gpu, fed: Fed, *, quick: bool = False) -> None:
        self.gpu, self.fed, self.quick = gpu, fed, quick
        self.batches = (1,) if quick else (1, 256)

    def _row(self, about: Row, work: Callable[..., Row], *given: Any) -> Row:
        found = tried(partial(work, *given), partial(synchronise, self.gpu))
        progress(f"{about}: {found}")
        return about | found | ({"passed": False} if "failed" in found else {})

    def trial(self) -> list[Row]:
        """Time every block size of every rung that has a choice (Fig. 6)."""
        rows: list[Row] = []
        for stage, version in product(STAGES, ("T4", "T5")):
            choices = Ladder(self.gpu, self.fed.model).step(stage, version).choices()
            if self.quick:
                choices = sorted({choices[0], choices[len(choices) // 2], choices[-1]})
            for n in choices:
                about = {"stage": stage, "system": version, "places": n}
                rows.append(self._row(about, self._trial, stage, version, n))
        return rows

    def _trial(self, stage: str, version: str, places: int) -> Row:
        shelf = Ladder(self.gpu, self.fed.model, {(stage, version): places})
        step = shelf.step(stage, version)
        run = StepRun(shelf, step, self.fed.before(stage)[:1])
        return {"threads": step.threads, "us": run.microseconds(rounds=3)}

    def ladder(self, places: dict[tuple[str, str], int]) -> list[Row]:
        """Check and time every rung on every stage; ``us`` is of a character, by batch."""
        shelf = Ladder(self.gpu, self.fed.model, places)
        return [self._row({"stage": stage, "system": version}, self._timed, shelf, stage, version)
                for stage, version in product(STAGES, VERSIONS)]  # fmt: skip

    def ours(self) -> list[Row]:
        """Check and time our S-layers as the plans take them."""
        rows: list[Row] = []
        for precision, plan, stage in product(PRECISIONS, ("default", "card"), STAGES):
            shelf, own = Shelf(self.gpu, self.fed.model, precision), plan_of(plan, precision)
            steps = [shelf.choose(own, batch, stages=(stage,))[0] for batch in self.batches]
            build_all(self.gpu, {one for step in steps for n in {_CHECKED, *self.batches}
                                 for one in step.kernels(n)})  # fmt: skip
            about = {"stage": stage, "system": f"ours, {plan}, {precision}"}
            rows.append(self._row(about, self._timed, shelf, stage, *(step.version for step in steps)))
        return rows

    def _timed(self, shelf: Shelf, stage: str, *versions: str) -> Row:
        """Check and time a stage by a version, or by one for each batch."""
        steps = [shelf.step(stage, version) for version in versions]
        errors = {step.version: checked(shelf, step, self.fed) for step in steps}
        steps = steps * len(self.batches) if len(steps) == 1 else steps
        us = {str(n): spent(shelf, step, self.fed, n) for n, step in zip(self.batches, steps, strict=True)}
        exact = {name: ALLOWED_WINOGRAD if "winograd" in name else ALLOWED for name in errors}
        most = exact if shelf.precision == "fp32" else dict.fromkeys(errors, TOLERANCES[shelf.precision])
        passed = all(wrong <= most[version] for version, wrong in errors.items())
        return {"error": max(errors.values()), "passed": passed, "us": us}


class Sections:
    """The sections, a method each, and what they share."""

    def __init__(self, request: Request) -> None:
        self.request, quick = request, request.quick
        self.digits, self.source = find_digits(request.data, _FED if quick else PAPER_DIGITS)
        self.model = load_model("neocog-small")  # whose whole passes are timed
        some, sizes = self.digits[: 8 if quick else _FED], request.sizes or tuple(SIZES)
        self.fed = {size: Fed(model, some) for size, model in networks(sizes).items()}

    def silence(self) -> list[Row]:
        """Table 8: how much of each S-layer's input is not silent, in models that ship or are named."""
        models = [load_model(path.stem) for path in list_models()]
        models += [fed.model for size, fed in self.fed.items() if "/" not in size]
        return [{"model": model.id, "stage": stage, "heard": share} for model in models
                for stage, share in Fed(model, self.digits[:100]).heard().items()]  # fmt: skip

    def ladder(self) -> dict[str, list[Row]]:
        """Fig. 6 and Table 5: block sizes tried, the ladder, our plans."""
        found: dict[str, list[Row]] = {"trial": [], "rows": []}
        for size, fed in self.fed.items():
            bench = Bench(gpu(self.request.number), fed, quick=self.request.quick)
            trial = bench.trial()
            timed = sorted((row for row in trial if "us" in row), key=lambda row: -float(row["us"]))
            best = {(row["stage"], row["system"]): row["places"] for row in timed}  # the quickest comes last
            found["trial"] += [{"planes": size, **row} for row in trial]
            found["rows"] += [{"planes": size, **row} for row in (*bench.ladder(best), *bench.ours())]
        return found

    def character(self) -> list[Row]:
        """One whole character and a frame's eight: the pass, and from host to host."""
        rows = []
        for batch in (1, _DIGITS):
            side, some = OurSide(self.model, batch, "fp16", number=self.request.number), self.digits[:batch]
            side.load(some)
            us = 1e3 * float(np.median([side.elapsed(50) for _ in range(9)]))
            whole = 1e3 * float(np.median([milliseconds(partial(side.trip, some)) for _ in range(100)][10:]))
            rows.append({
                "batch": batch, "pass_us": us, "in_all_us": whole, "transfers_us": whole - us,
                "share_of_gpu": 1e-6 * _FRAMES * us, "share_of_time": 1e-6 * _FRAMES * whole,
            })  # fmt: skip
        return rows


def measure(request: Request, save: Save) -> Result:
    """Run the sections, ``save`` takes the result after each; UsageError if there is no such section here."""
    names = request.sections or (ON_CPU + ON_GPU if request.on_gpu else ON_CPU)
    for name in names:
        if name not in ON_CPU + ON_GPU:
            raise UsageError(f"slayer has no section {name!r}; choose {', '.join(ON_CPU + ON_GPU)}")
        if name in ON_GPU and not request.on_gpu:
            raise UsageError(f"section {name!r} needs a GPU: --device cuda")
    bench = Sections(request)
    result: Result = {
        "experiment": "slayer", **request.about(), "model": bench.model.id, "digits": bench.source,
        "networks": {size: fed.model.name for size, fed in bench.fed.items()}, "sections": {}, "failures": {},
    }  # fmt: skip
    for name in names:
        progress(f"section {name}")
        try:
            with gpu(request.number).current() if name in ON_GPU else nullcontext():
                result["sections"][name] = getattr(bench, name)()
        except Exception as failure:  # the other sections still run; it is told at the end
            traceback.print_exc()
            result["failures"][name] = f"{type(failure).__name__}: {failure}"
        save(result)
    return result


def faults(result: Result) -> list[str]:
    lines = [f"section {name}: {text}" for name, text in result["failures"].items()]
    for name, section in result["sections"].items():
        rows = [*section["trial"], *section["rows"]] if isinstance(section, dict) else section
        wrong = (row for row in rows if row.get("passed") is False)
        lines += [f"{name}: { {k: v for k, v in row.items() if k != 'us'} }" for row in wrong]
    return lines
