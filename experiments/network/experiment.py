"""The whole network as one of the experiments: passes on CPU and GPU beside PyTorch."""

from typing import Any

from experiments.harness.pages import MEASURED, Plot, Row, Table, measured, show, table
from experiments.harness.run import Request, Result, Save, progress
from neocog.errors import NeocogError
from neocog.network.model import load_model

_MODEL = "neocog-small"
_BATCHES = (1, 8, 64, 4096)
_PRECISIONS = ("fp32", "fp16")
_ROUNDS, _QUICK_ROUNDS = 20, 5


def measure(request: Request, save: Save) -> Result:
    """Time passes: on the CPU, and on the GPU if it is asked for, peers beside if installed.

    ``--quick``: batch 8 alone, a few rounds, PyTorch not compiled.
    """
    from experiments.network.compare import compare

    model, rounds = load_model(_MODEL), _QUICK_ROUNDS if request.quick else _ROUNDS
    result: Result = {"experiment": "network", **request.about(), "rows": []}
    for batch in (1, 8):
        progress(f"network: {model.id} on the CPU, batch {batch}")
        found = compare(model, batch=batch, rounds=rounds).to_dict()
        us = {side: 1e3 * ms for side, ms in found["ms_per_digit"].items()}
        result["rows"].append({"where": "CPU", "precision": "fp32", "batch": batch, "us": us})
    save(result)
    for batch in (8,) if request.quick else _BATCHES:
        for precision in _PRECISIONS if request.on_gpu else ():
            row = {"where": "GPU", "precision": precision, "batch": batch}
            result["rows"].append(row | _on_gpu(request, batch, precision, rounds))
            save(result)
    return result


def _on_gpu(request: Request, batch: int, precision: str, rounds: int) -> Row:
    from experiments.network.gpu import compare_on_gpu

    failed: Row = {}
    for peers in (("torch",) if request.quick else ("torch", "compile"), ()):
        try:
            found = compare_on_gpu(
                load_model(_MODEL), batch=batch, precision=precision, peers=peers,
                rounds=rounds, number=request.number, log=progress,
            )  # fmt: skip
        except NeocogError as failure:  # PyTorch is missing, or something computes other scores
            failed["failed"] = str(failure)
            progress(f"network, batch {batch}, {precision}: {failure}")
            continue
        facts = found.to_dict()
        return {**failed, "us": facts["us_per_digit"], "difference": facts["difference"]}
    return failed


def faults(result: Result) -> list[str]:
    """Return a line for every row without times, or without a peer that was asked for."""
    return [
        f"batch {row['batch']}, {row['precision']}: {row['failed']}"
        for row in result["rows"]
        if "failed" in row
    ]


def tables(result: Result) -> dict[str, Table]:
    """Return all tables by name."""
    sides = dict.fromkeys(side for row in result["rows"] for side in row.get("us", ()))
    columns: dict[str, Any] = {"on": "where", "batch": "batch", "precision": "precision"}
    for side in sides:
        columns[f"{side}, us a digit"] = lambda row, side=side: show(
            row.get("us", {}).get(side), ".2f"
        )
    return {
        "measured": table(MEASURED, [measured(result, str(result.get("cpu")))]),
        "passes": table(columns, result["rows"]),
    }


def plots(result: Result) -> dict[str, Plot]:
    """Return none."""
    return {}
