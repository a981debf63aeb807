"""``neocog bench convpool``: counts operations; on a GPU checks every system, then times it."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from experiments.convpool.fused import kernel
from experiments.convpool.systems import CHECK, SYSTEMS, Case, counts, operations, standard_cases
from experiments.convpool.tables import plots, tables
from experiments.harness.run import Request, Result, Save, in_time, progress, tried
from neocog.errors import DeviceError, NeocogError

__all__ = ["faults", "measure", "plots", "tables"]

_QUICK_SECONDS = 45.0
#: Largest error, of the largest value, that a system may make against float64 on its operands.
TOLERANCES = {"fp32": 5e-5, "fp16": 5e-3}
#: Where torch.compile runs too, which costs seconds: batch, channels.
_COMPILED = {(64, 512), (1, 512)}
_CHECKED = 8  # pictures that float64 computes
_FEW = 3  # samples by which ways of one system are told apart
_WRONG = "wrong by"

Run = Callable[[], Any]


def measure(request: Request, save: Save, *, cases: Iterable[Case] | None = None) -> Result:
    """Check and time every system at each configuration; ``cases`` instead of the usual ones."""
    result: Result = {"experiment": "convpool", **request.about(), "counts": counts(), "rows": []}
    if not request.on_gpu:
        return result
    try:
        from experiments.convpool.ways import Device
    except ModuleNotFoundError as missing:
        instead = "install neocog[bench] and neocog[cuda13], or use --device cpu"
        raise DeviceError(f"{missing.name} is not installed: {instead}") from None
    device = Device(request.number)
    result["facts"] = device.facts()
    left = list(cases or standard_cases(quick=request.quick))
    device.warm({kernel(case.shape, tiling) for case in left for tiling in device.contenders(case)})
    for case in in_time(left, request, _QUICK_SECONDS):
        row = tried(partial(_row, device, case), device.wait)
        if "failed" in row:  # too little memory, say; the other cases still run
            progress(f"{case.words}: {row['failed']}")
            continue
        result["rows"].append(row)
        us = {name: round(one.get("us", -1.0), 1) for name, one in row["systems"].items()}
        progress(f"{case.words}: {us}")
        save(result)
    return result | {"not_run": [case.words for case in left]}


def _row(device: Any, case: Case) -> Result:
    from experiments.convpool.ways import Operands

    operands = Operands(device, case)
    check, fits = _check(operands), case.bytes < device.cache
    found: dict[str, Result] = {}
    for name, (_, counted) in SYSTEMS.items():
        compiled = (case.batch, case.channels) in _COMPILED
        if name == "winograd" or (name == "compiled" and not compiled):  # cuDNN's by name: commit bb50304a
            continue
        found[name] = one = _best(device, check, fits, operands.ways(name))
        if "us" in one:
            work = case.batch * operations(counted, ci=case.channels, co=case.channels, n=case.size)
            one["tflops"] = 1e-6 * work / one["us"]
    device.free()
    base = found["naive"].get("us")
    ratios = {name: base / one["us"] for name, one in found.items() if base and "us" in one}
    return {"batch": case.batch, "channels": case.channels, "precision": case.precision,
            "flushed": fits, "systems": found, "ratio": ratios}  # fmt: skip


def _check(operands: Any) -> Callable[[Run], float]:
    """Return what runs a way and gives its largest error, of the largest value; it raises if too large."""
    case = operands.case
    pictures = sorted({int(i * (case.batch - 1) / (_CHECKED - 1)) for i in range(_CHECKED)})
    want = operands.expected(pictures)
    largest = float(want.abs().max())

    def error(run: Run) -> float:
        found = float((operands.device.result(run)[pictures].double() - want).abs().max()) / largest
        if not found <= TOLERANCES[case.precision]:  # nor may it be NaN
            raise NeocogError(f"{_WRONG} {found:.1e}")
        return found

    return error


def _best(device: Any, check: Callable[[Run], float], fits: bool, ways: Mapping[str, Any]) -> Result:
    """Check a system's ways; return the figures of the quickest, or why all fail."""
    runs: dict[str, Run] = {}

    def trial(how: str, make: Callable[[], Run]) -> Result:
        runs[how] = make()
        return {"how": how, "error": check(runs[how]), "us": device.microseconds(runs[how], samples=_FEW)}

    def timed(one: Result) -> Result:
        run = runs[one["how"]]
        us = warm = device.microseconds(run)
        if fits:  # a difference of two times: noise may bring it below a warm run's
            us = max(us, device.flushed_microseconds(run))
        # what races shows after many runs rather than at the first
        return one | {"us": us, "warm_us": warm, "error": max(one["error"], check(run))}

    found = [tried(partial(trial, how, make), device.wait) for how, make in ways.items()]
    right = [one for one in found if "failed" not in one]
    if right:
        quickest = min(right, key=lambda one: float(one["us"]))
        found = [tried(partial(timed, quickest), device.wait), *found]
        if "failed" not in found[0]:
            return found[0]
    why = "; ".join(one["failed"] for one in found if "failed" in one)
    return {"why": why, "wrong": _WRONG in why}


def faults(result: Result) -> list[str]:
    """Return what is wrong: counts that are not the paper's, systems of ours that err or fail."""
    counted = {row["channels"]: row["direct"] for row in result["counts"]}
    wrong = [] if counted[512] == CHECK else [f"direct sum counts {counted[512]}, the paper {CHECK}"]
    for row in result["rows"]:
        for name, found in row["systems"].items():
            if found.get("wrong") or (name == "ours" and "us" not in found):
                where = f"{row['precision']} batch {row['batch']} channels {row['channels']}"
                wrong.append(f"{where}: {SYSTEMS[name][0]}: {found.get('why', 'no figure')}")
    return wrong
