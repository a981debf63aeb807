"""The GPU paper's ladder beside our S-layers on a GPU: checked, tried by block size, timed."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from experiments.harness.attended import Watch
from experiments.harness.builds import build_all
from experiments.network.gpu import TOLERANCES
from experiments.network.ours import StepRun
from experiments.slayer.inputs import STAGES, Fed, error
from neocog.cuda.kernel import Kernel
from neocog.cuda.launcher import Gpu
from neocog.cuda.plan import Plan, Shelf, kernels_of, parse_plan, runs_on, versions
from neocog.cuda.s_paper import VERSIONS, Ladder
from neocog.cuda.s_tensor import TensorS
from neocog.cuda.steps import Precision, Step
from neocog.errors import DeviceError, InputError, UsageError
from neocog.network.model import Model

Row = dict[str, Any]
Log = Callable[[str], None]

#: Rungs whose block size is found by trial (T4 and what stands on it).
TRIED = ("T4", "T5", "B", "skip")
#: Largest error of a layer in fp32: direct, and by Winograd.
ALLOWED = (1e-5, 5e-5)
PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16")
_CHECKED = 2  # digits that float64 computes
_TIMED = 4  # digits that single characters are timed on
_FAILURES = (DeviceError, InputError, UsageError)


class OneStep(Shelf):
    """A shelf with one step on it, whichever is asked for."""

    def __init__(self, machine: Gpu, model: Model, precision: Precision, step: Step) -> None:
        super().__init__(machine, model, precision)
        self._one = step

    def step(self, stage: str, version: str) -> Step:
        """Return the step."""
        return self._one


def limit(precision: str, version: str) -> float:
    """Return the largest error that counts as right."""
    return ALLOWED["winograd" in version] if precision == "fp32" else TOLERANCES[precision]


def checked(shelf: Shelf, stage: str, version: str, fed: Fed) -> float:
    """Return a step's error against float64, fed with the first digits' maps."""
    run = StepRun(shelf, stage, version, fed.before(stage, slice(0, _CHECKED)))
    return error(run.maps(), fed.want(stage, _CHECKED))


def spent(
    shelf: Shelf, stage: str, version: str, fed: Fed, *, batch: int = 1, rounds: int = 7
) -> float:
    """Return microseconds of a step: of a batch, or the mean of single characters.

    A batch holds the digits again and again.
    """
    if batch == 1:
        chosen = [np.array([i]) for i in range(min(_TIMED, len(fed.digits)))]
    else:
        chosen = [np.arange(batch) % len(fed.digits)]
    runs = (StepRun(shelf, stage, version, fed.before(stage, some)) for some in chosen)
    held, turns = (10, rounds) if batch == 1 else (2, 3)  # many digits last long enough
    return float(np.mean([run.microseconds(repeats=held, rounds=turns) for run in runs]))


class Rows:
    """Rows of a section, and who is told of them.

    Parameters
    ----------
    log : callable
        Takes lines of progress.
    watch : Watch, optional
        Who is told what comes next, and what is left out.
    """

    def __init__(self, log: Log, watch: Watch | None = None) -> None:
        self.found: list[Row] = []
        self.log, self._watch = log, watch or Watch()

    def left_out(self, about: Row, network: str) -> bool:
        """Whether a row is left out since it broke a process; else tell that it comes."""
        what = _words(about, network)
        why = self._watch.why_not(what)
        if why is None:
            self._watch.doing(what)
            return False
        self.found.append({**about, "failed": why, "passed": False})
        return True

    @contextmanager
    def noted(self, about: Row, gpu: Gpu, network: str) -> Iterator[None]:
        """Make a row of what fails within the block, so that the others still run."""
        try:
            yield
        except Exception as failure:  # CuPy's own errors cannot be named before it is imported
            first = (str(failure).splitlines() or [""])[0]
            told = f"{type(failure).__name__}: {first}"
            self.found.append({**about, "failed": told, "passed": False})
            self.log(f"{about}: {told}")
            synchronize = getattr(gpu.xp.cuda.runtime, "deviceSynchronize", lambda: None)
            self._watch.check(_words(about, network), synchronize)


def _words(about: Row, network: str) -> str:
    names = ("stage", "system", "batch", "precision")
    return ", ".join([network, *(str(about[name]) for name in names if name in about)])


def prepare(gpu: Gpu, fed: Fed, *, batches: Sequence[int], log: Log) -> None:
    """Build what is going to be timed, several kernels at a time."""
    kernels: list[Kernel] = []
    shelves: list[tuple[Shelf, Sequence[str]]] = [(Ladder(gpu, fed.model), tuple(VERSIONS))]
    for precision in PRECISIONS:
        shelves.append((Shelf(gpu, fed.model, precision), tuple(versions("US"))))
    for shelf, names in shelves:
        for stage, version, batch in product(STAGES, names, {_CHECKED, *batches}):
            with suppress(*_FAILURES):
                kernels += kernels_of(shelf.step(stage, version), batch)
    kernels = [kernel for kernel in kernels if runs_on(kernel, gpu.arch)]
    log(f"{fed.model.name}: {len(set(kernels))} kernels")
    try:
        build_all(gpu, set(kernels))
        gpu.prepare(kernels)
    except Exception as failure:  # told again where the version is timed
        log(f"{type(failure).__name__}: {failure}")


def trial(
    gpu: Gpu,
    fed: Fed,
    *,
    stages: Sequence[str] = tuple(STAGES),
    quick: bool = False,
    log: Log,
    watch: Watch | None = None,
) -> tuple[dict[tuple[str, str], int], list[Row]]:
    """Time every block size of every rung that has a choice (Fig. 6).

    Returns
    -------
    dict
        The best number of places by stage and version.
    list of dict
        ``stage, system, places, threads, us`` of each.
    """
    best: dict[tuple[str, str], int] = {}
    rows = Rows(log, watch)
    for stage in stages:
        for version in TRIED:
            about: Row = {"stage": stage, "system": version}
            if rows.left_out(about, fed.model.name):
                continue
            with rows.noted(about, gpu, fed.model.name):
                choices = Ladder(gpu, fed.model).step(stage, version).choices()
                if quick:
                    choices = sorted({choices[0], choices[len(choices) // 2], choices[-1]})
                found: list[Row] = []
                for n in choices:
                    with rows.noted({**about, "places": n}, gpu, fed.model.name):
                        found.append(_tried(gpu, fed, stage, version, n))
                rows.found += found
                least = min(found, key=lambda row: row["us"])
                best[stage, version] = least["places"]
                log(f"{stage} {version}: best of {len(found)} is {least['threads']} threads")
    return best, rows.found


def _tried(gpu: Gpu, fed: Fed, stage: str, version: str, places: int) -> Row:
    ladder = Ladder(gpu, fed.model, {(stage, version): places})
    run = StepRun(ladder, stage, version, fed.before(stage, slice(0, 1)))
    return {
        "stage": stage,
        "system": version,
        "places": places,
        "threads": ladder.step(stage, version).threads,
        "us": run.microseconds(rounds=3),
    }


def ladder(
    gpu: Gpu,
    fed: Fed,
    best: dict[tuple[str, str], int],
    *,
    stages: Sequence[str] = tuple(STAGES),
    batches: Sequence[int] = (1,),
    log: Log,
    watch: Watch | None = None,
) -> list[Row]:
    """Check and time every rung on every stage; ``us`` is of a character, by batch."""
    rows = Rows(log, watch)
    shelf = Ladder(gpu, fed.model, best)
    for stage in stages:
        for version in VERSIONS:
            about: Row = {"stage": stage, "system": version, "precision": "fp32"}
            if rows.left_out(about, fed.model.name):
                continue
            with rows.noted(about, gpu, fed.model.name):
                step = shelf.step(stage, version)
                wrong = checked(shelf, stage, version, fed)
                about |= {"threads": step.threads, "places": step.places, "error": wrong}
                about["passed"] = wrong <= limit("fp32", version)
                us = {str(n): spent(shelf, stage, version, fed, batch=n) / n for n in batches}
                rows.found.append({**about, "us": us})
                log(f"{stage} {version}: {us} us, error {wrong:.1e}")
    return rows.found


def ours(
    gpu: Gpu,
    fed: Fed,
    *,
    stages: Sequence[str] = tuple(STAGES),
    batches: Sequence[int] = (1,),
    precisions: Sequence[Precision] = PRECISIONS,
    log: Log,
    watch: Watch | None = None,
) -> list[Row]:
    """Check and time every version of our S-layers; say which the plans take.

    ``auto`` is the quickest right one of each batch, as ``--plan auto`` finds it; ``card`` what
    the plan of that name takes.
    """
    rows: list[Row] = []
    card = parse_plan("card") or Plan()
    for precision in precisions:
        shelf = Shelf(gpu, fed.model, precision)
        for stage in stages:
            own = Rows(log, watch)
            found = own.found
            for version in shelf.usable(stage, 1):
                about: Row = {
                    "stage": stage,
                    "system": f"ours {version}",
                    "precision": precision,
                }
                if own.left_out(about, fed.model.name):
                    continue
                with own.noted(about, gpu, fed.model.name):
                    wrong = checked(shelf, stage, version, fed)
                    about |= {"error": wrong, "passed": wrong <= limit(precision, version)}
                    us = {str(n): spent(shelf, stage, version, fed, batch=n) / n for n in batches}
                    found.append({**about, "us": us})
                    log(f"{stage} {about['system']} {precision}: {us} us, error {wrong:.1e}")
            right = [row for row in found if row["passed"] and "us" in row]
            for n in batches:
                least = min(right, key=lambda row: row["us"][str(n)], default=None)
                (taken,) = shelf.choose(card, n, stages=(stage,))
                for row in found:
                    plans = row.setdefault("plans", {}).setdefault(str(n), [])
                    plans += ["auto"] * (row is least)
                    plans += ["card"] * (row["system"] == f"ours {taken.version}")
            rows += found
    return rows


def compact(
    gpu: Gpu,
    fed: Fed,
    *,
    stages: Sequence[str] = ("US1", "US2", "US3"),
    batches: Sequence[int] = (1, 8, 256),
    precision: Precision = "fp16",
    log: Log,
    watch: Watch | None = None,
) -> list[Row]:
    """Time our tensor-core S-kernel with silent cells left out and with all cells computed.

    The tiling is that of the plan; the other way takes the same one, the list put in or left out.
    """
    rows = Rows(log, watch)
    base = Shelf(gpu, fed.model, precision)
    for stage in stages:
        for batch in batches:
            about: Row = {"stage": stage, "batch": batch, "precision": precision}
            if rows.left_out(about, fed.model.name):
                continue
            with rows.noted(about, gpu, fed.model.name):
                step = base.step(stage, "tensor")
                assert isinstance(step, TensorS)
                tiling = step.tiling(batch)
                us = {}
                for on in (True, False):
                    wanted = replace(tiling, compact=on)
                    if (on and tiling.ksplit > 1) or step.shape.shared(wanted) > gpu.shared:
                        continue
                    other = TensorS(
                        gpu, fed.model, int(stage[-1]) - 1, base.layouts, precision,
                        dict.fromkeys((_CHECKED, batch), wanted),
                    )  # fmt: skip
                    shelf = OneStep(gpu, fed.model, precision, other)
                    wrong = checked(shelf, stage, "tensor", fed)
                    about["error"] = max(wrong, about.get("error", 0.0))
                    key = "silent cells left out" if on else "all cells"
                    us[key] = spent(shelf, stage, "tensor", fed, batch=batch) / batch
                about["passed"] = about["error"] <= limit(precision, "tensor")
                rows.found.append({**about, "us": us, "plan_leaves_out": tiling.compact})
                log(f"{stage} tensor, batch {batch}: {us} us a character")
    return rows.found
