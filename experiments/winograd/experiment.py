"""``neocog bench winograd``: decomposed Winograd convolution as Lee and Kwak measure it."""

from collections.abc import Sequence
from typing import Any

from experiments.harness.run import Request, Result, Save, build_all, in_time, progress
from experiments.winograd.layers import BATCHES, LAYERS, PAPER_WAY, WAYS, Data, Layer, Way, chosen_way
from experiments.winograd.layers import count_rows as counted
from experiments.winograd.tables import plots, tables

__all__ = ["faults", "measure", "plots", "tables"]

_QUICK_SECONDS, _QUICK_ROUNDS = 60.0, 3


def measure(request: Request, save: Save) -> Result:
    """Count, and on a GPU check and time everything."""
    result: Result = {"experiment": "winograd", **request.about(), "counts": counted()}
    if request.on_gpu:
        from neocog.cuda.launcher import gpu

        return result | run_on_gpu(request, gpu(request.number), lambda found: save(result | found))
    return result


def run_on_gpu(
    request: Request, gpu: Any, save: Save, *, peers: bool = True, layers: Sequence[Layer] = LAYERS,
    batches: Sequence[int] = BATCHES, ways: Sequence[Way] = WAYS,
) -> Result:  # fmt: skip
    """Check and time everything on a GPU, as long as time is left."""
    from experiments.winograd.gpu import ROUNDS, Ours, cudnn

    rounds = _QUICK_ROUNDS if request.quick else ROUNDS
    result: Result = {"layers": [], "changing": []}
    left = [(layer, batch) for batch in batches for layer in layers]
    plans = [(way.plan(layer), batch) for layer, batch in left for way in ways]
    launches = (launch for plan, batch in plans for launch in plan.launches(
        batch, None, None, None, dict.fromkeys(plan.scratch(1)), gpu.processors))  # fmt: skip
    build_all(gpu, {launch.kernel for launch in launches})
    for layer, batch in in_time(left, request, _QUICK_SECONDS):
        progress(f"{layer.name}, batch {batch}")
        data, chosen = Data(layer, batch), chosen_way(layer, batch)
        ours = Ours(gpu, data, rounds=rounds)
        result["layers"] += ours.rows(list(dict.fromkeys((*ways, chosen))), chosen)
        result["changing"] += ours.changing(list(dict.fromkeys((PAPER_WAY, chosen))))
        if peers:
            result["layers"].append(cudnn(data, rounds=rounds))
        save(result)
    return result | {"not_run": [f"{layer.name}, batch {batch}" for layer, batch in left]}


def faults(result: Result) -> list[str]:
    rows = [row for part in ("layers", "changing") for row in result.get(part, ())]
    failed = (row for row in rows if "failed" in row and row["way"] != "cuDNN")
    return [f"{row['layer']}, batch {row['batch']}, {row['way']}: {row['failed']}" for row in failed]
