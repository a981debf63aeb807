"""``neocog bench winograd``: decomposed Winograd convolution as Lee and Kwak measure it.

Active lanes of the filter transform in both orders of threads; the transform alone, and the whole
convolution with filters that change; the four layers with fixed filters beside cuDNN and FFT.
"""

import json
import time
from collections.abc import Callable
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import Any

from experiments.harness.attended import Result, Save, Watch, need_device, synchronise, told
from experiments.harness.builds import build_all
from experiments.harness.run import Request, progress
from experiments.winograd.lanes import (
    lane_kernels,
    lane_rows,
    profile_launches,
    read_profile,
)
from experiments.winograd.layers import (
    BATCHES,
    LAYERS,
    PAPER_WAY,
    QUICK_WAYS,
    WAYS,
    Data,
    Layer,
    Way,
    chosen_way,
    count_rows,
)
from experiments.winograd.tables import plots, tables
from neocog.cuda.kernel import Machine
from neocog.errors import InputError, UsageError

__all__ = ["faults", "measure", "plots", "run_launches", "tables", "with_profile"]

#: Input channels of the census on the CPU, where a thread takes microseconds.
_EMULATED_CHANNELS = 1


QUICK_SECONDS, START_SECONDS = 60.0, 240.0
#: Seconds that the lane census may take at most.
_LANES = 90.0
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


def measure(
    request: Request, *, watch: Watch, earlier: Result, seconds: float, save: Save
) -> Result:
    """Count, and on a GPU check and time everything; the lane census without one too.

    ``--quick``: fewer ways, batch 1 and 16, three rounds; on the CPU batch 1 alone, no census.
    """
    if request.on_gpu:
        return run_on_gpu(request, save=save, seconds=seconds, watch=watch, earlier=earlier)
    result: Result = {"facts": facts(request), "quick": request.quick, "device": "cpu"}
    result["counts"] = count_rows(BATCHES[:1] if request.quick else BATCHES)
    save(result)
    if not request.quick:
        from experiments.emulator import Emulator

        progress("lane census, the kernels run on the CPU")
        result["lanes"] = list(lane_rows(Emulator(), most_channels=_EMULATED_CHANNELS))
        save(result)
    return result


def run_on_gpu(
    request: Request,
    *,
    save: Save,
    seconds: float,
    watch: Watch,
    earlier: Result,
    gpu: Any = None,
    peers: bool = True,
    layers: tuple[Layer, ...] = LAYERS,
    batches: tuple[int, ...] = BATCHES,
    ways: tuple[Way, ...] | None = None,
) -> Result:
    """Check and time everything on a GPU, as long as time is left.

    As :func:`measure`; ``save`` takes the result after each layer and batch. ``gpu`` is the
    request's if not given, ``peers`` says whether PyTorch runs beside, the rest what is run.
    """
    end = time.monotonic() + seconds
    quick, gpu = request.quick, gpu or _device(request.number)
    from experiments.winograd.gpu import ROUNDS, Ours

    watch.doing("building", START_SECONDS)
    batches = tuple(b for b in batches if not quick or b <= 16)
    ways = ways or (QUICK_WAYS if quick else WAYS)
    rounds = 3 if quick else ROUNDS
    result: Result = {"facts": facts(request, gpu), "quick": quick, "device": "cuda"}
    result |= {"counts": count_rows(batches), "layers": [], "changing": [], "filters": []}
    result["peers"] = _torch_facts(request.number) if peers else None
    result |= earlier

    done = {(row["layer"], row["batch"]) for row in result.get("summary", ())}
    progress("float64 references")
    ours = [
        Ours(gpu, Data(layer, batch, gpu.xp), watch, rounds=rounds)
        for batch in batches
        for layer in layers
        if (layer.name, batch) not in done
    ]
    progress("building kernels")
    kernels = {k for one in ours for k in one.kernels(*_ways(one.data, ways))}
    try:
        build_all(gpu, kernels | lane_kernels())
    except Exception as error:  # each is built when it is launched, then
        progress(f"kernels are not built together: {told(error)}")
    if "lanes" not in result:
        lanes = watch.attempt(
            "active lanes",
            lambda: {"rows": list(lane_rows(gpu))},
            healthy=partial(synchronise, gpu),
            seconds=_LANES,
        )
        result["lanes"] = lanes.get("rows", [])
        if "failed" in lanes:
            result["wrong"] = [f"lanes: {lanes['failed']}"]
        save(result)
    timed: list[Data] = []
    theirs = methodcaller("rows", ("fp32",) if quick else ("fp32", "tf32", "fp16"))
    while ours and time.monotonic() < end - _NAMING * seconds:
        one = ours.pop(0)
        timed.append(one.data)
        progress(f"{one.data.layer.name}, batch {one.data.batch}")
        every, changing = _ways(one.data, ways)
        rows = list(one.rows(every, chosen_way(one.data.layer, one.data.batch)))
        changed = list(one.changing(changing))
        alone = list(one.filters(changing)) if one.data.batch == batches[0] else []
        one.free()
        _free(gpu)
        if result["peers"]:
            rows += _peers(one.data, watch, theirs, rounds=rounds) or []
        for name, found in (("layers", rows), ("changing", changed), ("filters", alone)):
            result[name] += found  # all of a layer and batch, or none
        result["summary"] = summary(result["layers"])
        save(result)
    result["not_run"] = [f"{one.data.layer.name}, batch {one.data.batch}" for one in ours]
    save(result)
    for data in timed if result["peers"] else ():
        if time.monotonic() > end:
            break
        _peers(data, watch, methodcaller("name", result["layers"]))
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
    chosen = chosen_way(data.layer, data.batch)
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


def _peers(data: Data, watch: Watch, use: Callable[[Any], Any], **more: int) -> Any:
    """Return what is made of PyTorch's side; None if it cannot be had at all."""
    import torch

    from experiments.winograd.peers import Peers

    try:
        found = use(Peers(data, watch, **more))
        torch.cuda.empty_cache()
    except Exception as error:  # ours are still timed
        progress(f"PyTorch: {told(error)}")
        return None
    return found


def _free(gpu: Any) -> None:
    pool = getattr(gpu.xp, "get_default_memory_pool", None)
    if pool is not None:
        pool().free_all_blocks()


def summary(rows: list[Result]) -> list[Result]:
    """Return, by layer and batch, ours of choice and ours at best beside cuDNN in float32."""
    out: list[Result] = []
    for layer, batch in dict.fromkeys((row["layer"], row["batch"]) for row in rows):
        here = [
            row
            for row in rows
            if (row["layer"], row["batch"], row["precision"]) == (layer, batch, "fp32")
            and row.get("us")
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
    """Return a line for everything of ours that failed or was wrong."""
    rows = [r for part in ("layers", "changing", "filters") for r in result.get(part, ())]
    failed = (row for row in rows if "failed" in row and "multiplications" in row)
    return [
        *result.get("wrong", ()),
        *(f"{r['layer']}, batch {r['batch']}, {r['way']}: {r['failed']}" for r in failed),
    ]


def with_profile(path: Path | None, profile: Path) -> dict[str, Any]:
    """Return an earlier result with a profiler's active lanes.

    ``path`` is the result as ``-o`` wrote it, ``profile`` what the profiler printed.
    """
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
    """Launch every transform of Figs 4 and 5 once, for a profiler; returns how many."""
    return sum(1 for _ in profile_launches(device or _device(number)))
