"""The whole network as one of the experiments: passes on CPU and GPU beside PyTorch, a section."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.harness.markdown import table
from neocog.errors import NeocogError
from neocog.evaluation.machine import about
from neocog.network.model import load_model

Row = dict[str, Any]

_MODEL = "neocog-small"
_BATCHES = (1, 8, 64, 4096)
_PRECISIONS = ("fp32", "fp16")
_ROUNDS, _QUICK_ROUNDS = 20, 5


def run(
    device: str, *, quick: bool, log: Callable[[str], None], keep: Callable[[Row], None]
) -> Row:
    """Time passes: on the CPU, and on the GPU if it is asked for, peers beside as far as installed.

    Parameters
    ----------
    device : str
        ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.
    quick : bool
        Batch 8 alone, a few rounds, PyTorch not compiled.
    log, keep : callable
        Take a line of progress; the result so far.
    """
    from experiments.network.compare import compare

    model, rounds = load_model(_MODEL), _QUICK_ROUNDS if quick else _ROUNDS
    result: Row = {
        "experiment": "network",
        **about("neocog bench all", gpu=device != "cpu"),
        "rows": [],
    }
    log(f"network: {model.id} on the CPU")
    for batch in (1, 8):
        found = compare(model, batch=batch, rounds=rounds).to_dict()
        us = {side: 1e3 * ms for side, ms in found["ms_per_digit"].items()}
        result["rows"].append({"where": "CPU", "precision": "fp32", "batch": batch, "us": us})
    keep(result)
    if device == "cpu":
        return result
    for batch in (8,) if quick else _BATCHES:
        for precision in _PRECISIONS:
            result["rows"].append(_on_gpu(device, batch, precision, rounds, quick, log))
            keep(result)
    return result


def _on_gpu(
    device: str, batch: int, precision: str, rounds: int, quick: bool, log: Callable[[str], None]
) -> Row:
    from experiments.network.gpu import compare_on_gpu

    row: Row = {"where": "GPU", "precision": precision, "batch": batch}
    number = int(device.partition(":")[2] or 0)
    for peers in (("torch",) if quick else ("torch", "compile"), ()):
        try:
            found = compare_on_gpu(
                load_model(_MODEL), batch=batch, precision=precision, peers=peers,
                rounds=rounds, number=number, log=log,
            )  # fmt: skip
        except NeocogError as failure:  # PyTorch is missing, or something computes other scores
            row["failed"] = str(failure)
            log(f"network, batch {batch}, {precision}: {failure}")
            continue
        facts = found.to_dict()
        return {**row, "us": facts["us_per_digit"], "difference": facts["difference"]}
    return row


def faults(result: Row) -> list[str]:
    """Return a line for every row without times, or without a peer that was asked for."""
    return [
        f"batch {row['batch']}, {row['precision']}: {row['failed']}"
        for row in result["rows"]
        if "failed" in row
    ]


def section(result: Row, *, figures: str = "figures") -> str:
    """Return the section of ``docs/experiments.md``."""
    sides = list(dict.fromkeys(side for row in result["rows"] for side in row.get("us", ())))
    head = ["on", "batch", "precision", *(f"{side}, us a digit" for side in sides)]
    rows = [head]
    for row in result["rows"]:
        us = [row.get("us", {}).get(side) for side in sides]
        cells = [row["where"], str(row["batch"]), row["precision"]]
        cells += ["–" if value is None else f"{value:.2f}" for value in us]
        rows.append(cells)
    machine = ", ".join(str(result[key]) for key in ("machine", "cpu", "commit", "date"))
    return f"## The whole network\n\n`{result['command']}`: {machine}.\n\n{table(rows)}\n"


def verdict(result: Row) -> str:
    """Return one sentence: how many times as fast as PyTorch."""
    ratios = [
        min(peers) / ours
        for row in result["rows"]
        if (ours := min(_times(row, True), default=None)) and (peers := _times(row, False))
    ]
    if not ratios:
        return "The whole network was not measured beside PyTorch."
    return (
        f"The whole network is {min(ratios):.1f} to {max(ratios):.1f} times as fast as PyTorch's."
    )


def _times(row: Row, ours: bool) -> list[float]:
    return [us for side, us in row.get("us", {}).items() if side.startswith("neocog") == ours]


def write_figures(result: Row, folder: Path) -> list[Path]:
    """Draw nothing."""
    return []
