"""Checks and times the systems of the experiment on convolution with pooling."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from experiments.convpool.cudnn import CudnnWinograd
from experiments.convpool.systems import (
    KERNEL,
    LABELS,
    POOL,
    SYSTEMS,
    Case,
    System,
    contenders,
    operations,
)
from experiments.convpool.ways import LAYOUTS, Operands, Way, type_of
from experiments.harness.attended import Result, Save, Watch
from experiments.harness.run import progress
from neocog.cuda import tuned
from neocog.cuda.convpool_tilings import Shape, Tiling, kernel
from neocog.errors import NeocogError

#: Largest error, of the largest value, that a system may make against float64 on its operands.
TOLERANCES = {"fp32": 5e-5, "tf32": 5e-3, "fp16": 5e-3, "bf16": 5e-2}
#: Where torch.compile runs too, which costs seconds: batch, channels, precision.
COMPILED = {(64, 512, "fp16"), (1, 512, "fp16"), (64, 512, "fp32"), (1, 512, "fp32")}
#: Where the library's kernels are named by a profiler, which takes its time.
_NAMED = {(1, 512), (64, 512)}
_LIBRARY = {"naive", "fused", "fused_gemm", "direct", "direct_gemm", "compiled"}
#: What is measured late, and the share of the time that is kept for it.
LATE = {"winograd", "compiled"}
_KEPT = 0.25
#: Seconds that building, one way, and what first loads a library or compiles may take at most.
_BUILDING, _WAY, _LOADING = 180.0, 60.0, 150.0
_CHECKED = 8  # pictures that float64 computes
_FEW = 3  # samples by which ways of one system are told apart
_MOST_RECOMPILED = 100
_WRONG = "wrong by"

#: What makes each way of a system, and what it is called.
Ways = Iterator[tuple[str, Callable[[], Way]]]


def run_cases(
    device: Any, cases: list[Case], result: Result, *, seconds: float, save: Save, watch: Watch
) -> None:
    """Fill ``result`` with a row for each case, as long as time is left.

    Rows that are there already stay. What depends on the library's innards or takes long to
    compile (``LATE``), and the names of the library's kernels, have the last quarter of the time.
    """
    run = _Run(device, cases, result, save, watch)
    start = time.monotonic()
    watch.doing("building kernels", _BUILDING)
    _warm(device, cases)
    run.rows(start + (1 - _KEPT) * seconds)
    run.late(start + seconds)
    run.rows(start + seconds)
    result["not_run"] = run.left()
    save(result)


class _Run:
    """The cases of one run, and which of them are done."""

    def __init__(
        self, device: Any, cases: list[Case], result: Result, save: Save, watch: Watch
    ) -> None:
        self._device, self._cases, self._watch = device, cases, watch
        self._result, self._save = result, save
        there = {(row["batch"], row["channels"], row["precision"]): row for row in result["rows"]}
        keys = {case: (case.batch, case.channels, case.precision) for case in cases}
        self._rows: dict[Case, Result] = {c: there[key] for c, key in keys.items() if key in there}

    def rows(self, end: float) -> None:
        """Measure the cases that have no row yet, those of ``LATE`` left out."""
        systems = [s for s in SYSTEMS if s.name not in LATE]
        for case in self._cases:
            if case in self._rows or time.monotonic() > end:
                continue
            row = self._measured(case, systems)
            if "failed" not in row:
                self._rows[case] = row
                self._result["rows"].append(row)
                progress(_words(row))
                self._save(self._result)

    def late(self, end: float) -> None:
        """Add what is measured late to the rows: first where much is looked at."""
        systems = [s for s in SYSTEMS if s.name in LATE]
        order = sorted(self._rows, key=lambda case: (case.batch, case.channels) not in _NAMED)
        for case in order:
            row = self._rows[case]
            if "winograd" in row["systems"] or time.monotonic() > end:
                continue
            more = self._measured(case, systems)
            if "failed" not in more:
                name_kernels(self._device, case, row, self._watch)
                row["systems"] |= more["systems"]
                _add_ratios(row)
                self._save(self._result)

    def _measured(self, case: Case, systems: Sequence[System]) -> Result:
        """Return the row of a case; ``failed`` if its operands cannot be made."""
        found = self._watch.attempt(
            f"{case.words()}: operands",
            partial(measure, self._device, case, systems, self._watch),
            healthy=self._device.wait,
            seconds=_LOADING,
        )
        if "failed" in found:  # too little memory, say; the other cases still run
            progress(f"{case.words()}: {found['failed']}")
        return found

    def left(self) -> list[str]:
        """Return what was not run."""
        late = (c for c, row in self._rows.items() if "winograd" not in row["systems"])
        return [
            *(case.words() for case in self._cases if case not in self._rows),
            *(f"Winograd and torch.compile at {case.words()}" for case in late),
        ]


def measure(device: Any, case: Case, systems: Sequence[System], watch: Watch) -> Result:
    """Return the row of one case: each system's best way, checked, and the ratios."""
    device.prepare(case.precision)
    operands = Operands(device, case, type_of(case.precision))
    pictures = sorted({int(i * (case.batch - 1) / (_CHECKED - 1)) for i in range(_CHECKED)})
    check = Check(operands.expected(pictures), pictures, TOLERANCES[case.precision])
    fits = case.bytes < device.cache
    row: Result = {"batch": case.batch, "channels": case.channels, "precision": case.precision}
    row |= {"flushed": fits, "systems": {}}
    for system in systems:
        ways = _ways(device, operands, system.name)
        if ways is None:
            continue
        trial = Trial(device, check, fits, f"{case.words()}: {system.name}", watch)
        row["systems"][system.name] = entry = trial.best(ways)
        way = entry.pop("way", None)
        if way is not None and way.tiling is not None:
            entry["tiling"] = tuned.row(_shape(case, POOL), way.tiling)
        if "us" in entry:
            work = case.batch * operations(
                system.counted, ci=case.channels, co=case.channels, n=case.size
            )
            entry["tflops"] = 1e-6 * work / entry["us"]
    _add_ratios(row)
    device.free()
    return row


def _add_ratios(row: Result) -> None:
    """Add how many times as fast as naive each system is, by each clock."""
    found = row["systems"]
    for key, name in (("us", "ratio"), ("warm_us", "warm_ratio")):
        base = found.get("naive", {}).get(key)
        row[name] = {n: base / e[key] for n, e in found.items() if base and e.get(key)}


class Check:
    """Holds results against float64."""

    def __init__(self, want: Any, pictures: list[int], tolerance: float) -> None:
        self._want, self._pictures, self._tolerance = want, pictures, tolerance
        self._largest = float(want.abs().max())

    def error(self, got: Any) -> float:
        """Return the largest error, of the largest value; one that is too large is raised."""
        seen = got[self._pictures].double()
        error = float((seen - self._want).abs().max()) / self._largest
        if not error <= self._tolerance:  # nor may it be NaN
            raise NeocogError(f"{_WRONG} {error:.1e}")
        return error


@dataclass(frozen=True, slots=True)
class Trial:
    """The ways of one system at one case, each checked; the quickest is timed."""

    device: Any
    check: Check
    fits: bool
    words: str
    watch: Watch

    def best(self, ways: Ways) -> Result:
        """Return the figures of the quickest (``way``), and tell of those that fail."""
        tried: list[Result] = []
        failed: list[str] = []
        for how, make in ways:
            kind = f": {how}" if "x" in how else ""
            seconds = _LOADING if "compile" in self.words else _WAY
            found = self._attempt(how, partial(self._tried, make), kind, seconds)
            if "failed" in found:
                failed.append(f"{how}: {found['failed']}")
            else:
                tried.append(found)
        if tried:
            best = min(tried, key=lambda one: float(one["us"]))
            how = best["way"].how
            entry = self._attempt(how, partial(self._timed, best["way"], best["error"]), "", _WAY)
            if "failed" not in entry:
                us = {one["way"].how: one["us"] for one in tried}
                return {**entry, "tried": us, **({"failed": failed} if failed else {})}
            failed.append(f"{how}: {entry['failed']}")
        wrong = any(_WRONG in why for why in failed)
        return {"why": "; ".join(failed) or "nothing to run", "wrong": wrong}

    def _attempt(self, how: str, run: Callable[[], Result], kind: str, seconds: float) -> Result:
        what = f"{self.words}: {how}"
        return self.watch.attempt(what, run, kind=kind, seconds=seconds, healthy=self.device.wait)

    def _tried(self, make: Callable[[], Way]) -> Result:
        way = make()
        error = self._error(way)
        return {"way": way, "error": error, "us": self.device.microseconds(way.run, samples=_FEW)}

    def _error(self, way: Way) -> float:
        with torch.no_grad():
            got = way.run()
        self.device.wait()
        return self.check.error(got)

    def _timed(self, way: Way, error: float) -> Result:
        """Time a way in full."""
        us = warm = self.device.microseconds(way.run)
        # what races shows after many runs rather than at the first
        error = max(error, self._error(way))
        if self.fits:  # a difference of two times: noise may bring it below a warm run's
            us = max(us, self.device.flushed_microseconds(way.run))
        return {"how": way.how, "warm_us": warm, "error": error, "us": us, "way": way}


def name_kernels(device: Any, case: Case, row: Result, watch: Watch) -> None:
    """Add the names of the kernels that the library chose, by a profiler, where much is looked at.

    The library is given the same operands again; what it chose for them it remembers.
    """
    if (case.batch, case.channels) not in _NAMED:
        return
    watch.doing(f"{case.words()}: operands", _LOADING)
    device.prepare(case.precision)
    operands = Operands(device, case, type_of(case.precision))
    for name in sorted(_LIBRARY & set(row["systems"])):
        entry = row["systems"][name]
        what = f"{case.words()}: {name}: names of its kernels"
        if "us" not in entry or "kernels" in entry or watch.why_not(what):
            continue
        watch.doing(what, _WAY)
        for how, make in _ways(device, operands, name) or ():
            if how == entry["how"]:
                entry["kernels"] = device.kernels(make().run)
    device.free()


def _ways(device: Any, operands: Operands, system: str) -> Ways | None:
    """Return what makes the ways of a system; None where it is not asked for."""
    case = operands.case
    if system in ("naive", "fused"):
        return ((how, partial(operands.stock, system, how)) for how in LAYOUTS)
    if system == "winograd":
        names = {"WINOGRAD": True, "WINOGRAD_NONFUSED": False}
        return ((how, partial(_winograd, device, operands, one)) for how, one in names.items())
    if system == "compiled":
        if (case.batch, case.channels, case.precision) not in COMPILED:
            return None
        torch._dynamo.config.recompile_limit = _MOST_RECOMPILED
        return iter([("channels last", operands.compiled)])
    if system == "direct":
        return iter([("channels last", operands.direct)])
    if system in ("fused_gemm", "direct_gemm"):
        return iter([("rows of windows", partial(operands.product, system))])
    if system == "ours_two":
        few = _tilings(device, case, 1)[:1]
        return ((t.words(), partial(operands.ours_two, t)) for t in few)
    return ((t.words(), partial(operands.ours, t)) for t in _tilings(device, case, POOL))


def _winograd(device: Any, operands: Operands, fused: bool) -> Way:
    return CudnnWinograd(device, operands, fused=fused).way()


def _tilings(device: Any, case: Case, box: int) -> list[Tiling]:
    """Return the tilings to try."""
    return contenders(_shape(case, box), device.machine.arch, device.machine.processors)


def _shape(case: Case, box: int) -> Shape:
    return Shape(
        *(case.batch, case.channels, case.channels, case.out, case.out),
        kernel=KERNEL,
        pool=POOL,
        box=box,
        precision=case.precision,
    )


def _warm(device: Any, cases: list[Case]) -> None:
    """Build all kernels of ours before anything is timed, several at a time."""
    start = time.monotonic()
    kernels = {
        kernel(_shape(case, box), tiling): None
        for case in cases
        for box in (1, POOL)
        for tiling in _tilings(device, case, box)[: 1 if box == 1 else None]
    }
    try:
        device.warm(kernels)
    except Exception as failure:  # told again where the kernel is tried
        progress(f"some kernels do not build: {failure}")
    progress(f"{len(kernels)} kernels of ours built and loaded in {time.monotonic() - start:.1f} s")


def _words(row: Result) -> str:
    parts = [f"{row['precision']} batch {row['batch']} channels {row['channels']}:"]
    for name, entry in row["systems"].items():
        us = entry.get("us")
        parts.append(f"{name} {us:.1f}" if us is not None else f"{name} -")
    ratio = row["ratio"].get("ours")
    if ratio is not None:
        parts.append(f"us; {LABELS['ours'].partition(':')[0]} {ratio:.2f} times naive")
    return " ".join(parts)
