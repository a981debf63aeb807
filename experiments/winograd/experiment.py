"""``neocog bench winograd``: decomposed Winograd convolution as Lee and Kwak measure it.

Active lanes of the filter transform in both orders of threads; the transform alone, and the whole
convolution with filters that change; the four layers with fixed filters beside cuDNN and FFT.
"""

import json
import time
from pathlib import Path
from typing import Any

from experiments.harness.processes import build_all
from experiments.harness.run import Request, Result, Save, need_device, progress, synchronise, told, tried
from experiments.winograd import layers as known
from experiments.winograd.lanes import lane_kernels, lane_rows, profile_launches, read_profile
from experiments.winograd.layers import BATCHES, LAYERS, PAPER_WAY, QUICK_WAYS, WAYS, Data, Layer, Way
from experiments.winograd.tables import plots, tables
from neocog.cuda.kernel import Machine
from neocog.errors import InputError, UsageError

__all__ = ["faults", "measure", "plots", "run_launches", "tables", "with_profile"]

#: Input channels of the census on the CPU, where a thread takes microseconds.
_EMULATED_CHANNELS = 1


_QUICK_SECONDS, _QUICK_ROUNDS = 60.0, 3
#: Share of the time that is kept for the names of cuDNN's kernels.
_NAMING = 0.12


def facts(request: Request, gpu: Any = None) -> dict[str, Any]:
    """Return what a result depends on: machine, driver, CUDA, libraries, code, day."""
    found = request.about()
    if gpu is not None:
        found |= {"multiprocessors": gpu.processors, "compute capability": f"{gpu.arch / 10:.1f}"}
        for name, get in (("driver's CUDA", "driverGetVersion"), ("CUDA", "runtimeGetVersion")):
            version = getattr(gpu.xp.cuda.runtime, get, lambda: 0)()
            found[name] = f"{version // 1000}.{version % 1000 // 10}"
    return found


def measure(request: Request, save: Save) -> Result:
    """Count, and on a GPU check and time everything; the lane census without one too."""
    if request.on_gpu:
        return run_on_gpu(request, save)
    result: Result = {"facts": facts(request), "quick": request.quick, "device": "cpu"}
    result["counts"] = known.count_rows(BATCHES[:1] if request.quick else BATCHES)
    save(result)
    if not request.quick:
        from experiments.emulator import Emulator

        progress("lane census, the kernels run on the CPU")
        result["lanes"] = list(lane_rows(Emulator(), most_channels=_EMULATED_CHANNELS))
        save(result)
    return result


def run_on_gpu(
    request: Request,
    save: Save,
    *,
    gpu: Any = None,
    peers: bool = True,
    layers: tuple[Layer, ...] = LAYERS,
    batches: tuple[int, ...] = BATCHES,
    ways: tuple[Way, ...] | None = None,
) -> Result:
    """Check and time everything on a GPU, as long as time is left."""
    from experiments.winograd.gpu import ROUNDS, Ours

    quick, gpu = request.quick, gpu or _device(request.number)
    seconds = min(request.seconds, _QUICK_SECONDS) if quick else request.seconds
    end = time.monotonic() + seconds
    batches = tuple(b for b in batches if not quick or b <= 16)
    ways = ways or (QUICK_WAYS if quick else WAYS)
    rounds = _QUICK_ROUNDS if quick else ROUNDS
    result: Result = {"facts": facts(request, gpu), "quick": quick, "device": "cuda"}
    result |= {"counts": known.count_rows(batches), "layers": [], "changing": [], "filters": []}
    result["peers"] = _torch_facts(request.number) if peers else None

    progress("float64 references")
    ours = [Ours(gpu, Data(layer, batch), rounds=rounds) for batch in batches for layer in layers]
    progress("building kernels")
    kernels = {k for one in ours for k in one.kernels(*_ways(one.data, ways))}
    try:
        build_all(gpu, kernels | lane_kernels())
    except Exception as error:  # each is built when it is launched, then
        progress(f"kernels are not built together: {told(error)}")
    lanes = tried(lambda: {"rows": list(lane_rows(gpu))}, lambda: synchronise(gpu))
    result["lanes"] = lanes.get("rows", [])
    if "failed" in lanes:
        result["wrong"] = [f"lanes: {lanes['failed']}"]
    save(result)
    timed: list[Data] = []
    precisions = ("fp32",) if quick else ("fp32", "tf32", "fp16")
    while ours and time.monotonic() < end - _NAMING * seconds:
        one = ours.pop(0)
        timed.append(one.data)
        progress(f"{one.data.layer.name}, batch {one.data.batch}")
        every, changing = _ways(one.data, ways)
        result["layers"] += one.rows(every, known.chosen_way(one.data.layer, one.data.batch))
        result["changing"] += one.changing(changing)
        result["filters"] += one.filters(changing) if one.data.batch == batches[0] else []
        one.free()
        if result["peers"]:
            result["layers"] += _peers(one.data, rounds).rows(precisions)
        result["summary"] = summary(result["layers"])
        save(result)
    result["not_run"] = [f"{one.data.layer.name}, batch {one.data.batch}" for one in ours]
    save(result)
    for data in timed if result["peers"] else ():
        if time.monotonic() < end:
            _peers(data, rounds).name(result["layers"])
            save(result)
    return result


def _device(number: int) -> Any:
    from neocog.cuda.launcher import gpu

    need_device("winograd", number)
    found = gpu(number)
    if number:
        found.xp.cuda.Device(number).use()
    return found


def _ways(data: Data, ways: tuple[Way, ...]) -> tuple[list[Way], list[Way]]:
    """The ways of a layer with fixed filters, and those with filters that change."""
    chosen = known.chosen_way(data.layer, data.batch)
    return list(dict.fromkeys((*ways, chosen))), list(dict.fromkeys((PAPER_WAY, chosen)))


def _torch_facts(number: int) -> dict[str, str] | None:
    try:
        import torch

        from experiments.winograd.peers import facts as torch_facts
    except ImportError:
        progress("PyTorch is not installed: cuDNN and FFT are left out (install neocog[bench])")
        return None
    if number:
        torch.cuda.set_device(number)
    return torch_facts()


def _peers(data: Data, rounds: int) -> Any:
    import torch

    from experiments.winograd.peers import Peers

    torch.cuda.empty_cache()
    return Peers(data, rounds=rounds)


def summary(rows: list[Result]) -> list[Result]:
    """Return, by layer and batch, ours of choice and ours at best beside cuDNN in float32."""
    out: list[Result] = []
    for layer, batch in dict.fromkeys((row["layer"], row["batch"]) for row in rows):
        here = [
            row
            for row in rows
            if (row["layer"], row["batch"], row["precision"]) == (layer, batch, "fp32") and row.get("us")
        ]
        ours = [row for row in here if "chosen" in row]
        chosen = next((row for row in ours if row["chosen"]), None)
        best = min(ours, key=lambda row: float(row["us"]), default=None)
        line: dict[str, Any] = {"layer": layer, "batch": batch}
        for name, row in (("chosen", chosen), ("best", best)):
            line[name] = row and row["way"]
            line[f"{name}_us"] = row and row["us"]
        for way in ("cuDNN", "FFT"):
            line[f"{way}_us"] = next((row["us"] for row in here if row["way"] == way), None)
        if line["cuDNN_us"] and chosen:
            line["ratio"] = line["cuDNN_us"] / line["chosen_us"]
        out.append(line)
    return out


def faults(result: dict[str, Any]) -> list[str]:
    rows = [r for part in ("layers", "changing", "filters") for r in result.get(part, ())]
    failed = (row for row in rows if "failed" in row and "multiplications" in row)
    return [
        *result.get("wrong", ()),
        *(f"{r['layer']}, batch {r['batch']}, {r['way']}: {r['failed']}" for r in failed),
    ]


def with_profile(path: Path | None, profile: Path) -> dict[str, Any]:
    """Return an earlier result (``path``) with a profiler's active lanes (``profile``)."""
    if path is None:
        raise UsageError("--profile adds to an earlier result: name it with --output")
    try:
        result: Any = json.loads(path.read_text(encoding="utf-8"))
        text = profile.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InputError(f"{path}, {profile}: {str(error).partition(chr(10))[0]}") from None
    if not isinstance(result, dict) or not result.get("lanes"):
        raise InputError(f"{path}: has no lanes; run neocog bench winograd -o {path.name} first")
    read_profile(text, result["lanes"])
    result.pop("profiled", None)  # it is of this run
    return result


def run_launches(device: Machine | None = None, *, number: int = 0) -> int:
    return sum(1 for _ in profile_launches(device or _device(number)))
