"""Checks and times the systems of the experiment on convolution with pooling."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from experiments.convpool.cudnn import CudnnWinograd
from experiments.convpool.fused import Shape, Tiling, kernel
from experiments.convpool.systems import KERNEL, LABELS, POOL, SYSTEMS, Case, contenders, operations
from experiments.convpool.ways import LAYOUTS, Operands, Run, type_of
from experiments.harness.run import Result, Save, progress, tried
from neocog.errors import NeocogError

#: Largest error, of the largest value, that a system may make against float64 on its operands.
TOLERANCES = {"fp32": 5e-5, "tf32": 5e-3, "fp16": 5e-3, "bf16": 5e-2}
#: Where torch.compile runs too, which costs seconds: batch, channels, precision.
COMPILED = {(64, 512, "fp16"), (1, 512, "fp16"), (64, 512, "fp32"), (1, 512, "fp32")}
#: Where the library's kernels are named by a profiler, which takes its time.
_NAMED = {(1, 512), (64, 512)}
_LIBRARY = ("compiled", "direct", "direct_gemm", "fused", "fused_gemm", "naive")
#: Share of the time that is kept for these names: a profiler may slow down what follows it.
_KEPT = 0.1
_CHECKED = 8  # pictures that float64 computes
_FEW = 3  # samples by which ways of one system are told apart
_MOST_RECOMPILED = 100
_WRONG = "wrong by"

#: What makes each way of a system, by how it runs: memory format, algorithm, tiling.
Ways = Mapping[str, Callable[[], Run]]


def run_cases(device: Any, cases: list[Case], result: Result, *, seconds: float, save: Save) -> None:
    start = time.monotonic()
    _warm(device, cases)
    left = dict.fromkeys(cases)
    rows: list[tuple[Case, Result]] = []
    for case in cases:
        if time.monotonic() > start + (1 - _KEPT) * seconds:
            break
        row = tried(partial(measure, device, case), device.wait)
        if "failed" in row:  # too little memory, say; the other cases still run
            progress(f"{case.words()}: {row['failed']}")
            continue
        del left[case]
        rows.append((case, row))
        result["rows"].append(row)
        progress(_words(row))
        save(result)
    for case, row in rows:
        if (case.batch, case.channels) in _NAMED and time.monotonic() < start + seconds:
            name_kernels(device, case, row)
            save(result)
    result["not_run"] = [case.words() for case in left]
    save(result)


def measure(device: Any, case: Case) -> Result:
    device.prepare(case.precision)
    operands = Operands(device, case, type_of(case.precision))
    check = _check(operands)
    fits = case.bytes < device.cache
    found: dict[str, Result] = {}
    for system in SYSTEMS:
        ways = _ways(device, operands, system.name)
        if ways is None:
            continue
        found[system.name] = entry = best(device, check, fits, ways)
        entry.pop("run", None)
        if "us" in entry:
            c, n = case.channels, case.size
            work = case.batch * operations(system.counted, ci=c, co=c, n=n)
            entry["tflops"] = 1e-6 * work / entry["us"]
    row: Result = {"batch": case.batch, "channels": case.channels, "precision": case.precision}
    row |= {"flushed": fits, "systems": found}
    for key, name in (("us", "ratio"), ("warm_us", "warm_ratio")):  # by each clock
        base = found["naive"].get(key)
        row[name] = {n: base / e[key] for n, e in found.items() if base and e.get(key)}
    device.free()
    return row


def _check(operands: Operands) -> Callable[[Any], float]:
    """Return what gives a result's largest error, of the largest value, and raises if too large."""
    case = operands.case
    pictures = sorted({int(i * (case.batch - 1) / (_CHECKED - 1)) for i in range(_CHECKED)})
    want = operands.expected(pictures)
    largest = float(want.abs().max())

    def error(got: Any) -> float:
        found = float((got[pictures].double() - want).abs().max()) / largest
        if not found <= TOLERANCES[case.precision]:  # nor may it be NaN
            raise NeocogError(f"{_WRONG} {found:.1e}")
        return found

    return error


def best(device: Any, check: Callable[[Any], float], fits: bool, ways: Ways) -> Result:
    """Check a system's ways; return the figures of the quickest (``run``), and why others fail."""

    def error(run: Run) -> float:
        with torch.no_grad():
            got = run()
        device.wait()
        return check(got)

    def trial(how: str, make: Callable[[], Run]) -> Result:
        run = make()
        wrong = error(run)
        us = device.microseconds(run, samples=_FEW)
        return {"run": run, "how": how, "error": wrong, "us": us}

    def timed(one: Result) -> Result:
        run = one["run"]
        us = warm = device.microseconds(run)
        # what races shows after many runs rather than at the first
        wrong = max(one["error"], error(run))
        if fits:  # a difference of two times: noise may bring it below a warm run's
            us = max(us, device.flushed_microseconds(run))
        return {**one, "warm_us": warm, "error": wrong, "us": us}

    found = {how: tried(partial(trial, how, make), device.wait) for how, make in ways.items()}
    failed = [f"{how}: {one['failed']}" for how, one in found.items() if "failed" in one]
    right = [one for one in found.values() if "failed" not in one]
    if right:
        quickest = min(right, key=lambda one: float(one["us"]))
        entry = tried(partial(timed, quickest), device.wait)
        if "failed" not in entry:
            entry["tried"] = {one["how"]: one["us"] for one in right}
            return entry | ({"failed": failed} if failed else {})
        failed.append(f"{quickest['how']}: {entry['failed']}")
    wrong = any(_WRONG in why for why in failed)
    return {"why": "; ".join(failed) or "nothing to run", "wrong": wrong}


def name_kernels(device: Any, case: Case, row: Result) -> None:
    """Add the names of the kernels that the library chose; it remembers them by the operands."""
    device.prepare(case.precision)
    operands = Operands(device, case, type_of(case.precision))
    for name in _LIBRARY:
        entry = row["systems"].get(name, {})
        ways = _ways(device, operands, name) if "us" in entry else None
        if ways is not None:
            entry["kernels"] = device.kernels(ways[entry["how"]]())
    device.free()


def _ways(device: Any, operands: Operands, system: str) -> Ways | None:
    case = operands.case
    if system in ("naive", "fused"):
        return {how: partial(operands.stock, system, how) for how in LAYOUTS}
    if system == "winograd":
        return {how: partial(_winograd, device, operands, how == "WINOGRAD")
                for how in ("WINOGRAD", "WINOGRAD_NONFUSED")}  # fmt: skip
    if system == "compiled":
        if (case.batch, case.channels, case.precision) not in COMPILED:
            return None
        torch._dynamo.config.recompile_limit = _MOST_RECOMPILED
        return {"channels last": operands.compiled}
    if system == "direct":
        return {"channels last": operands.direct}
    if system in ("fused_gemm", "direct_gemm"):
        return {"rows of windows": partial(operands.product, system)}
    if system == "ours_two":
        few = _tilings(device, case, 1)[:1]
        return {t.words(): partial(operands.ours_two, t) for t in few}
    return {t.words(): partial(operands.ours, t) for t in _tilings(device, case, POOL)}


def _winograd(device: Any, operands: Operands, fused: bool) -> Run:
    return CudnnWinograd(device, operands, fused=fused).run


def _tilings(device: Any, case: Case, box: int) -> list[Tiling]:
    return contenders(_shape(case, box), device.machine.arch, device.machine.processors)


def _shape(case: Case, box: int) -> Shape:
    c, out = case.channels, case.out
    return Shape(case.batch, c, c, out, out, KERNEL, POOL, box, case.precision)


def _warm(device: Any, cases: list[Case]) -> None:
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
    us = {name: entry.get("us") for name, entry in row["systems"].items()}
    times = " ".join(f"{name} {'-' if one is None else f'{one:.1f}'}" for name, one in us.items())
    ours, ratio = LABELS["ours"].partition(":")[0], row["ratio"].get("ours")
    gain = f" us; {ours} {ratio:.2f} times naive" if ratio is not None else ""
    return f"{row['precision']} batch {row['batch']} channels {row['channels']}: {times}{gain}"
