"""``neocog bench convpool``: counts operations; on a GPU checks every system, then times it."""

from collections.abc import Iterable
from functools import partial

from experiments.convpool.fused import kernel
from experiments.convpool.systems import CHECK, SYSTEMS, Case, counts, standard_cases
from experiments.harness.run import Request, Result, Save, in_time, progress, tried
from neocog.errors import DeviceError

_QUICK_SECONDS = 45.0


def measure(request: Request, save: Save, *, cases: Iterable[Case] | None = None) -> Result:
    """Check and time every system at each configuration; ``cases`` instead of the usual ones."""
    result: Result = {"experiment": "convpool", **request.about(), "counts": counts(), "rows": []}
    if not request.on_gpu:
        return result
    try:
        from experiments.convpool.ways import Device, measured
    except ModuleNotFoundError as missing:
        instead = "install neocog[bench] and neocog[cuda13], or use --device cpu"
        raise DeviceError(f"{missing.name} is not installed: {instead}") from None
    device = Device(request.number)
    result["facts"] = device.facts()
    left = list(cases or standard_cases(quick=request.quick))
    device.warm({kernel(case.shape, tiling) for case in left for tiling in device.contenders(case)})
    for case in in_time(left, request, _QUICK_SECONDS):
        row = tried(partial(measured, device, case), device.wait)
        if "failed" in row:  # too little memory, say; the other cases still run
            progress(f"{case.words}: {row['failed']}")
            continue
        result["rows"].append(row)
        us = {name: round(one.get("us", -1.0), 1) for name, one in row["systems"].items()}
        progress(f"{case.words}: {us}")
        save(result)
    return result | {"not_run": [case.words for case in left]}


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
