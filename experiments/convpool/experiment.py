"""``neocog bench convpool``: counts operations; on a GPU checks every system, then times it."""

from collections.abc import Iterable

from experiments.convpool import systems
from experiments.convpool.systems import Case
from experiments.convpool.tables import plots, tables
from experiments.harness.run import Request, Result, Save
from neocog.errors import DeviceError

__all__ = ["faults", "measure", "plots", "tables"]

_QUICK_SECONDS = 45.0


def measure(request: Request, save: Save, *, cases: Iterable[Case] | None = None) -> Result:
    """Check and time every system at each configuration; ``cases`` instead of the usual ones."""
    result: Result = {
        "experiment": "convpool",
        **request.about(),
        "sizes": {name: getattr(systems, name.upper()) for name in ("size", "kernel", "pool", "padding")},
        "counts": systems.counts(),
        "paper": systems.ABOUT_PAPER,
        "rows": [],
    }
    if not request.on_gpu:
        save(result)
        return result
    try:
        from experiments.convpool.device import Device
        from experiments.convpool.run import run_cases
    except ModuleNotFoundError as missing:
        raise DeviceError(
            f"{missing.name} is not installed, and neocog bench convpool compares with it: "
            "install neocog[bench] and neocog[cuda13], or use --cpu"
        ) from None
    device = Device(request.number)
    result["facts"] = device.facts()
    chosen = cases or (systems.quick_cases() if request.quick else systems.standard_cases())
    seconds = min(request.seconds, _QUICK_SECONDS) if request.quick else request.seconds
    run_cases(device, list(chosen), result, seconds=seconds, save=save)
    return result


def faults(result: Result) -> list[str]:
    """Return what is wrong: counts that are not the paper's, systems of ours that err or fail."""
    counted = {row["channels"]: row["direct"] for row in result.get("counts", ())}
    wrong = []
    if counted.get(512, systems.CHECK) != systems.CHECK:
        wrong.append(f"direct sum at 512 channels counts {counted[512]}, the paper {systems.CHECK}")
    for row in result.get("rows", ()):
        where = f"{row['precision']} batch {row['batch']} channels {row['channels']}"
        for name, found in row["systems"].items():
            if found.get("wrong") or (name.startswith("ours") and "us" not in found):
                wrong.append(f"{where}: {systems.LABELS[name]}: {found.get('why', 'no figure')}")
    return wrong
