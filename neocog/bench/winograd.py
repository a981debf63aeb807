"""``neocog bench winograd``: decomposed Winograd convolution as Lee and Kwak measure it.

Active lanes of the filter transform in both orders of threads; the transform alone, and the whole
convolution with filters that change; the four layers with fixed filters beside cuDNN and FFT.
"""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from neocog.bench import machine
from neocog.bench.winograd_lanes import (
    add_profile,
    lane_kernels,
    lane_rows,
    profile_launches,
    read_profile,
)
from neocog.bench.winograd_layers import (
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
from neocog.cuda.kernel import Machine
from neocog.errors import DeviceError, InputError, UsageError

Rows = list[dict[str, Any]]
Save = Callable[[dict[str, Any]], None]
Log = Callable[[str], None]

#: Input channels of the census on the CPU, where a thread takes microseconds.
_EMULATED_CHANNELS = 1


def facts(gpu: Any = None, *, quick: bool = False) -> dict[str, Any]:
    """Return what a result depends on: machine, driver, CUDA, libraries, code, day."""
    options = " --quick" * quick + " --cpu" * (gpu is None)
    found = machine.about(f"neocog bench winograd{options}", gpu=gpu is not None)
    if gpu is not None:
        found |= {"multiprocessors": gpu.processors, "compute capability": f"{gpu.arch / 10:.1f}"}
        for name, get in (("driver's CUDA", "driverGetVersion"), ("CUDA", "runtimeGetVersion")):
            version = getattr(gpu.xp.cuda.runtime, get, lambda: 0)()
            found[name] = f"{version // 1000}.{version % 1000 // 10}"
    return found


def run_on_cpu(*, quick: bool, save: Save, log: Log) -> dict[str, Any]:
    """Count operations and bytes, and take the lane census in the emulator: no GPU is needed.

    Parameters
    ----------
    quick : bool
        Batch 1 alone, and no census.
    save : callable
        Takes the result so far, after each part.
    log : callable
        Takes lines of progress.
    """
    result: dict[str, Any] = {"facts": facts(quick=quick), "quick": quick, "device": "cpu"}
    result["counts"] = count_rows(BATCHES[:1] if quick else BATCHES)
    save(result)
    if not quick:
        from neocog.cuda.emulator import Emulator

        log("lane census, the kernels run on the CPU")
        result["lanes"] = list(lane_rows(Emulator(), most_channels=_EMULATED_CHANNELS))
        save(result)
    return result


def run_on_gpu(
    *,
    quick: bool,
    save: Save,
    log: Log,
    gpu: Any = None,
    peers: bool = True,
    layers: tuple[Layer, ...] = LAYERS,
    batches: tuple[int, ...] = BATCHES,
    ways: tuple[Way, ...] | None = None,
) -> dict[str, Any]:
    """Check and time everything on a GPU.

    Parameters
    ----------
    quick : bool
        Fewer ways, batch 1 and 16, three rounds: within a minute.
    save : callable
        Takes the result so far, after each layer and batch.
    log : callable
        Takes lines of progress.
    gpu : Gpu, optional
        Device 0 if not given.
    peers : bool
        Whether PyTorch runs beside.
    layers, batches, ways : tuple
        What is run.

    Raises
    ------
    DeviceError
        If there is no GPU.
    """
    if gpu is None:
        from neocog.cuda.devices import trouble
        from neocog.cuda.launcher import gpu as device

        why = trouble()
        if why:
            raise DeviceError(
                f"bench winograd: {why.partition(';')[0]}; add --cpu for counts alone"
            )
        gpu = device()
    from neocog.bench.winograd_gpu import ROUNDS, Ours, build_all

    batches = tuple(b for b in batches if not quick or b <= 16)
    ways = ways or (QUICK_WAYS if quick else WAYS)
    rounds = 3 if quick else ROUNDS
    result: dict[str, Any] = {"facts": facts(gpu, quick=quick), "quick": quick, "device": "cuda"}
    result |= {"counts": count_rows(batches), "layers": [], "changing": [], "filters": []}
    result["peers"] = _torch_facts(log) if peers else None
    peers = bool(result["peers"])

    log("float64 references")
    ours = [
        Ours(gpu, Data(layer, batch, gpu.xp), rounds=rounds)
        for batch in batches
        for layer in layers
    ]
    log("building kernels")
    kernels = {k for one in ours for k in one.kernels(*_ways(one.data, ways))}
    build_all(gpu, kernels | lane_kernels())
    log("active lanes")
    try:
        result["lanes"] = list(lane_rows(gpu))
    except Exception as error:  # told at the end; the layers are still timed
        result["wrong"] = [f"lanes: {type(error).__name__}: {error}"]
    save(result)
    for one in ours:
        data = one.data
        log(f"{data.layer.name}, batch {data.batch}")
        every, changing = _ways(data, ways)
        result["layers"] += one.rows(every, chosen_way(data.layer, data.batch))
        result["changing"] += one.changing(changing)
        if data.batch == batches[0]:
            result["filters"] += one.filters(changing)
        _free(gpu)
        if peers:
            try:
                result["layers"] += _peer_rows(data, rounds, quick)
            except Exception as error:  # ours are still timed
                log(f"PyTorch: {type(error).__name__}: {error}")
        result["summary"] = summary(result["layers"])
        save(result)
    return result


def _ways(data: Data, ways: tuple[Way, ...]) -> tuple[list[Way], list[Way]]:
    """The ways of a layer with fixed filters, and those with filters that change."""
    chosen = chosen_way(data.layer, data.batch)
    return list(dict.fromkeys((*ways, chosen))), list(dict.fromkeys((PAPER_WAY, chosen)))


def _torch_facts(log: Log) -> dict[str, str] | None:
    try:
        from neocog.bench.winograd_peers import facts as torch_facts
    except ImportError:
        log("PyTorch is not installed: cuDNN and FFT are left out (install neocog[bench])")
        return None
    return torch_facts()


def _peer_rows(data: Data, rounds: int, quick: bool) -> Iterator[dict[str, Any]]:
    import torch

    from neocog.bench.winograd_peers import PRECISIONS, Peers

    yield from Peers(data, rounds=rounds).rows(PRECISIONS[:1] if quick else PRECISIONS)
    torch.cuda.empty_cache()


def _free(gpu: Any) -> None:
    pool = getattr(gpu.xp, "get_default_memory_pool", None)
    if pool is not None:
        pool().free_all_blocks()


def summary(rows: Rows) -> Rows:
    """Return, by layer and batch, ours of choice and ours at best beside cuDNN in float32."""
    out: Rows = []
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

    Parameters
    ----------
    path : Path or None
        The result, as ``-o`` wrote it.
    profile : Path
        What the profiler printed, see :func:`~neocog.bench.winograd_lanes.read_profile`.

    Raises
    ------
    UsageError, InputError
        If no result is named; if one of the files cannot be read or has other rows.
    """
    if path is None:
        raise UsageError("--profile adds to an earlier result: name it with --output")
    try:
        result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        text = profile.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InputError(f"{path}, {profile}: {str(error).partition(chr(10))[0]}") from None
    if not result.get("lanes"):
        raise InputError(f"{path}: has no lanes; run neocog bench winograd -o {path.name} first")
    add_profile(result["lanes"], read_profile(text))
    return result


def run_launches(device: Machine | None = None) -> int:
    """Launch every transform of Figs 4 and 5 once, for a profiler; returns how many."""
    if device is None:
        from neocog.cuda.launcher import gpu

        device = gpu()
    return sum(1 for _ in profile_launches(device))


def progress(line: str) -> None:
    """Print a line of progress on stderr."""
    print(f"neocog: {line}", file=sys.stderr, flush=True)
