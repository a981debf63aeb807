"""Checks and times the systems of the experiment on convolution with pooling."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import torch

from neocog.bench.convpool import (
    KERNEL,
    LABELS,
    POOL,
    SYSTEMS,
    Case,
    Log,
    Result,
    System,
    operations,
)
from neocog.bench.convpool_cudnn import CudnnWinograd
from neocog.bench.convpool_ways import Operands, Way, type_of
from neocog.cuda.convpool_tilings import Shape, Tiling, contenders, kernel
from neocog.errors import NeocogError

#: Largest error, of the largest value, that a system may make against float64 on its operands.
TOLERANCES = {"fp32": 5e-5, "tf32": 5e-3, "fp16": 5e-3, "bf16": 5e-2}
#: Where torch.compile runs too, which costs seconds: batch, channels, precision.
COMPILED = {(64, 512, "fp16"), (1, 512, "fp16"), (64, 512, "fp32"), (1, 512, "fp32")}
#: Where the library's kernels are named by a profiler, which takes its time.
_NAMED = {(1, 512), (64, 512)}
_LIBRARY = {"naive", "fused", "fused_gemm", "direct", "direct_gemm", "compiled"}
#: What is measured last.
LATE = {"winograd", "compiled"}
_CHECKED = 8  # pictures that float64 computes
_FEW = 3  # samples by which ways of one system are told apart
_MOST_RECOMPILED = 100

Ways = Iterator[Callable[[], Way]]


def run_cases(
    device: Any,
    cases: list[Case],
    result: Result,
    *,
    seconds: float,
    save: Callable[[Result], None],
    log: Log,
) -> None:
    """Fill ``result`` with a row for each case, as long as time is left.

    What depends on the library's innards or takes long to compile (``LATE``) comes when all else
    is measured and saved.
    """
    end = time.monotonic() + seconds
    rows: list[Result] = result.setdefault("rows", [])
    left: list[str] = result.setdefault("not_run", [])
    _warm(device, cases, log)
    done: dict[Case, Result] = {}
    for case in cases:
        if time.monotonic() > end:
            left.append(case.words())
            continue
        start = time.monotonic()
        done[case] = row = measure(device, case, [s for s in SYSTEMS if s.name not in LATE])
        rows.append(row)
        log(f"{_told(row)}  ({time.monotonic() - start:.1f} s)")
        save(result)
        if not device.gathered and _only_gathered(row):
            device.gathered = True
            log(
                "products of operands in shared memory are wrong here: all are gathered from now on"
            )
            _warm(device, cases, log)
    for case, row in done.items():
        if time.monotonic() > end:
            left.append(f"Winograd and torch.compile at {case.words()}")
            continue
        more = measure(device, case, [s for s in SYSTEMS if s.name in LATE])
        row["systems"] |= more["systems"]
        _add_ratios(row)
        save(result)


def _only_gathered(row: Result) -> bool:
    """Whether our kernel was right only where warps gather operands themselves."""
    ours = row["systems"].get("ours", {})
    gathers = ours.get("tiling", {}).get("tiling", {}).get("gather", False)
    return bool(gathers and any("wrong" in text for text in ours.get("failed", ())))


def measure(device: Any, case: Case, systems: Sequence[System] = SYSTEMS) -> Result:
    """Return the row of one case: each system's best way, checked, and the ratios."""
    device.prepare(case.precision)
    operands = Operands(device, case, type_of(case.precision))
    pictures = sorted({int(i * (case.batch - 1) / (_CHECKED - 1)) for i in range(_CHECKED)})
    want = operands.expected(pictures)
    check = Check(want, pictures, TOLERANCES[case.precision])
    fits = case.bytes < device.cache
    row: Result = {"batch": case.batch, "channels": case.channels, "precision": case.precision}
    row |= {"flushed": fits, "systems": {}}
    for system in systems:
        ways = _ways(device, operands, system.name)
        if ways is None:
            continue
        row["systems"][system.name] = entry = _best(device, ways, check, fits)
        way = entry.pop("way", None)
        if way is not None and system.name in _LIBRARY and (case.batch, case.channels) in _NAMED:
            entry["kernels"] = device.kernels(way.run)
        if way is not None and way.tiling is not None:
            shape = _shape(case, POOL)
            tiling = {**asdict(way.tiling), "warps": list(way.tiling.warps)}
            entry["tiling"] = {"shape": asdict(shape), "tiling": tiling}
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
        """Return the largest error, of the largest value."""
        seen = got[self._pictures].double()
        return float((seen - self._want).abs().max()) / self._largest

    def passes(self, error: float) -> bool:
        """Whether an error may be (none may be NaN)."""
        return error <= self._tolerance


def _best(device: Any, ways: Ways, check: Check, fits: bool) -> Result:
    """Check the ways of a system; time the quickest (``way``), and tell of those that fail."""
    tried: list[tuple[float, float, Way]] = []
    failed: list[str] = []
    wrong = False
    for make in ways:
        try:
            way = make()
            with torch.no_grad():
                got = way.run()
            device.wait()
            error = check.error(got)
            if not check.passes(error):
                failed.append(f"{way.how}: wrong by {error:.1e}")
                wrong = True
                continue
            tried.append((device.microseconds(way.run, samples=_FEW), error, way))
        except (RuntimeError, NeocogError, NotImplementedError) as failure:
            failed.append(str(failure).strip().partition("\n")[0][:200])
    if not tried:
        return {"why": "; ".join(failed) or "nothing to run", "wrong": wrong}
    _, error, way = min(tried, key=lambda one: one[0])
    entry: Result = {"how": way.how, "warm_us": device.microseconds(way.run)}
    with torch.no_grad():  # what races shows after many runs rather than at the first
        again = way.run()
    device.wait()
    entry["error"] = max(error, check.error(again))
    if not check.passes(entry["error"]):
        return {"why": f"{way.how}: wrong by {entry['error']:.1e} after many runs", "wrong": True}
    entry["us"] = entry["warm_us"]
    if fits:  # a difference of two times: noise may bring it below what a warm run takes
        entry["us"] = max(entry["us"], device.flushed_microseconds(way.run))
    entry["way"] = way
    entry["tried"] = {way.how: us for us, _, way in sorted(tried, key=lambda one: one[0])}
    if failed:
        entry["failed"] = failed
    return entry


def _ways(device: Any, operands: Operands, system: str) -> Ways | None:
    """Return what makes the ways of a system; None where it is not asked for."""
    case = operands.case
    if system in ("naive", "fused"):
        return (partial(_itself, way) for way in operands.ways_of(system))
    if system == "winograd":
        return (partial(_winograd, device, operands, fused) for fused in (True, False))
    if system == "compiled":
        if (case.batch, case.channels, case.precision) not in COMPILED:
            return None
        torch._dynamo.config.recompile_limit = _MOST_RECOMPILED
        return iter([operands.compiled])
    if system == "direct":
        return iter([operands.direct])
    if system in ("fused_gemm", "direct_gemm"):
        return iter([partial(operands.product, system)])
    if system == "ours_two":
        return (partial(operands.ours_two, t) for t in _tilings(device, case, 1)[:1])
    return (partial(operands.ours, t) for t in _tilings(device, case, POOL))


def _itself(way: Way) -> Way:
    return way


def _winograd(device: Any, operands: Operands, fused: bool) -> Way:
    return CudnnWinograd(device, operands, fused=fused).way()


def _tilings(device: Any, case: Case, box: int) -> list[Tiling]:
    """Return the tilings to try; gathered ones only where much is looked at."""
    machine = device.machine
    found = contenders(_shape(case, box), machine.arch, machine.processors)
    if device.gathered:
        return [replace(t, gather=t.wgmma) for t in found if not t.gather]
    return [t for t in found if not t.gather or (case.batch, case.channels) in _NAMED]


def _shape(case: Case, box: int) -> Shape:
    return Shape(
        *(case.batch, case.channels, case.channels, case.out, case.out),
        kernel=KERNEL,
        pool=POOL,
        box=box,
        precision=case.precision,
    )


def _warm(device: Any, cases: list[Case], log: Log) -> None:
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
    except NeocogError as failure:  # told again where the kernel is tried
        log(f"some kernels do not build: {failure}")
    log(f"{len(kernels)} kernels of ours built and loaded in {time.monotonic() - start:.1f} s")


def _told(row: Result) -> str:
    parts = [f"{row['precision']} batch {row['batch']} channels {row['channels']}:"]
    for name, entry in row["systems"].items():
        us = entry.get("us")
        parts.append(f"{name} {us:.1f}" if us is not None else f"{name} -")
    ratio = row["ratio"].get("ours")
    if ratio is not None:
        parts.append(f"us; {LABELS['ours'].partition(':')[0]} {ratio:.2f} times naive")
    return " ".join(parts)
