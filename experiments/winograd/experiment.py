"""``neocog bench winograd``: decomposed Winograd convolution as Lee and Kwak measure it.

Active lanes of the filter transform in both orders of threads; the transform alone, and the whole
convolution with filters that change; the four layers with fixed filters beside cuDNN and FFT.
"""

import time
from collections.abc import Sequence
from typing import Any

from experiments.harness.processes import build_all
from experiments.harness.run import Request, Result, Save, progress, synchronise, tried
from experiments.winograd.lanes import lane_rows
from experiments.winograd.layers import (
    BATCHES,
    LAYERS,
    PAPER_WAY,
    WAYS,
    Data,
    Layer,
    Way,
    chosen_way,
    count_rows,
)
from experiments.winograd.tables import plots, tables

__all__ = ["faults", "measure", "plots", "tables"]

#: Input channels of the census on the CPU, where a thread takes microseconds.
_EMULATED_CHANNELS = 1
_QUICK_SECONDS, _QUICK_ROUNDS = 60.0, 3


def measure(request: Request, save: Save) -> Result:
    """Count, and on a GPU check and time everything; the lane census without one too."""
    result: Result = {"experiment": "winograd", **request.about(), "counts": count_rows()}
    if request.on_gpu:
        from neocog.cuda.launcher import gpu

        return result | run_on_gpu(request, gpu(request.number), lambda found: save(result | found))
    if not request.quick:
        from experiments.emulator import Emulator

        progress("lane census, the kernels run on the CPU")
        result["lanes"] = list(lane_rows(Emulator(), most_channels=_EMULATED_CHANNELS))
    return result


def run_on_gpu(
    request: Request,
    gpu: Any,
    save: Save,
    *,
    peers: bool = True,
    layers: Sequence[Layer] = LAYERS,
    batches: Sequence[int] = BATCHES,
    ways: Sequence[Way] = WAYS,
) -> Result:
    """Check and time everything on a GPU, as long as time is left."""
    from experiments.winograd.gpu import ROUNDS, Ours, Peers

    quick, rounds = request.quick, _QUICK_ROUNDS if request.quick else ROUNDS
    end = time.monotonic() + (min(request.seconds, _QUICK_SECONDS) if quick else request.seconds)
    lanes = tried(lambda: {"rows": list(lane_rows(gpu))}, lambda: synchronise(gpu))
    result: Result = {"lanes": lanes.get("rows", []), "layers": [], "changing": [], "filters": []}
    if "failed" in lanes:
        result["wrong"] = [f"lanes: {lanes['failed']}"]
    left = [(layer, batch) for batch in batches for layer in layers]
    plans = [(way.plan(layer), batch) for layer, batch in left for way in ways]
    launches = (launch for plan, batch in plans for launch in plan.launches(
        batch, None, None, None, dict.fromkeys(plan.scratch(1)), gpu.processors))  # fmt: skip
    build_all(gpu, {launch.kernel for launch in launches})
    while left and time.monotonic() < end:
        layer, batch = left.pop(0)
        progress(f"{layer.name}, batch {batch}")
        data, chosen = Data(layer, batch), chosen_way(layer, batch)
        ours = Ours(gpu, data, rounds=rounds)
        result["layers"] += ours.rows(list(dict.fromkeys((*ways, chosen))), chosen)
        result["changing"] += ours.changing(list(dict.fromkeys((PAPER_WAY, chosen))))
        result["filters"] += ours.filters(PAPER_WAY) if batch == batches[0] else []
        if peers:
            result["layers"] += Peers(data, rounds=rounds).rows()
        save(result)
    return result | {"not_run": [f"{layer.name}, batch {batch}" for layer, batch in left]}


def faults(result: Result) -> list[str]:
    rows = [row for part in ("layers", "changing", "filters") for row in result.get(part, ())]
    failed = (row for row in rows if "failed" in row and row["way"] not in ("cuDNN", "FFT"))
    return [*result.get("wrong", ()),
            *(f"{r['layer']}, batch {r['batch']}, {r['way']}: {r['failed']}" for r in failed)]  # fmt: skip
