"""Tables and plots of the experiment on convolution with pooling."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.convpool.systems import LABELS, PAPER, SYSTEMS
from experiments.harness.pages import MEASURED, NONE, Plot, Row, Table, measured, show, table

MAIN, MANY = 512, 64  # channels of the paper's headlines; the batch whose choices are shown
_SHOWN = ("fused", "direct_gemm", "direct", "ours")
_DRAWN = {"direct_gemm": "direct sum, matrix product", "fused": "fused filter, library",
          "ours": "ours, one kernel"}  # fmt: skip


def tables(result: Row) -> dict[str, Table]:
    rows = sorted(result.get("rows", ()), key=lambda r: (int(r["channels"]), int(r["batch"])))
    precisions = dict.fromkeys(row["precision"] for row in result.get("rows", ()))
    counts = {"channels": "channels", "naive": "naive", "naive, Winograd": "winograd",
              "fused filter": "fused", "direct sum": "direct"}  # fmt: skip
    reasons: dict[str, str] = {}
    for row in result.get("rows", ()):
        for name, entry in row["systems"].items():
            if "why" in entry:
                what = f"{LABELS[name]}: {entry['why']}"
                reasons.setdefault(what, f"not run, first at {row['precision']}")
    return {
        "measured": table(MEASURED, [measured({**result, **(result.get("facts") or {})})]),
        "speedup": _speedup([row for row in rows if row["channels"] == MAIN]),
        "counting": _counting(result, rows, list(precisions)),
        **{p: _times([row for row in rows if row["precision"] == p], p) for p in precisions},
        "chosen": _chosen(result.get("rows", ())),
        "counts": table(counts, result["counts"]),
        "profile": _profile(),
        "missing": list(reasons.items()),
    }


def _profile() -> Table:
    """What ``experiments.convpool.profile`` counted."""
    result = json.loads((Path(__file__).parent / "results/profile.json").read_text())
    formats = result["formats"]
    columns = {head: f"{key}|{formats.get(key, '')}" for key, head in result["columns"].items()}
    return table(columns, result["rows"])


def time(row: Row, *names: str) -> float | None:
    """Return microseconds of the quickest of some systems, None where none was timed."""
    found = [row["systems"].get(name, {}).get("us") for name in names]
    return min((us for us in found if us is not None), default=None)


def gain(row: Row, name: str) -> float | None:
    """Return how many times as fast as the library's quicker naive form a system is."""
    base, us = time(row, "naive", "winograd"), time(row, name)
    return base / us if base and us else None


def _headline(row: Row) -> bool:
    return row["channels"] == MAIN and row["batch"] == 1 and row["precision"] in PAPER


def _speedup(rows: Sequence[Row]) -> Table:
    names = [name for name in _SHOWN if any(name in row["systems"] for row in rows)]
    columns: dict[str, Any] = {
        "": "precision",
        "batch": "batch",
        "naive, us": lambda row: show(time(row, "naive", "winograd"), ".1f"),
        **{LABELS[name]: lambda row, name=name: show(gain(row, name), ".2f") for name in names},
        "paper": lambda row: f"{PAPER[row['precision']]} (matrix product)" if _headline(row) else None,
    }
    return table(columns, [row for p in PAPER for row in rows if row["precision"] == p])


def _counting(result: Row, rows: Sequence[Row], precisions: Sequence[str]) -> Table:
    """What each rewrite saves by counting, and what of it arrives."""
    counted = next(row for row in result["counts"] if row["channels"] == MAIN)
    naive, main = counted["naive"], [row for row in rows if row["channels"] == MAIN]
    there = {row["precision"]: row for row in main if row["batch"] == MANY}
    own = [p for p in precisions if p in there]
    columns: dict[str, Any] = {
        "system": lambda system: system.label,
        "operations, naive by it": lambda system: f"{naive / counted[system.counted]:.2f}",
        **{f"{p}, naive by it": lambda system, p=p: show(there[p]["ratio"].get(system.name), ".2f")
           for p in own},
    }  # fmt: skip
    return table(columns, [s for s in SYSTEMS if any(there[p]["ratio"].get(s.name) for p in own)])


def _times(rows: Sequence[Row], precision: str) -> Table:
    names = [s.name for s in SYSTEMS if any(s.name in row["systems"] for row in rows)]

    def us(row: Row, name: str) -> str:
        return show(row["systems"][name].get("us"), ".1f") if name in row["systems"] else ""

    columns: dict[str, Any] = {
        "batch": lambda row: f"{row['batch']}{'*' * row['flushed']}",
        "channels": "channels",
        **{name: lambda row, name=name: us(row, name) for name in names},
        "ours by naive": lambda row: show(row["ratio"].get("ours"), ".2f"),
        "paper (V100)": lambda row: PAPER[precision] if _headline(row) else None,
        "TFLOP/s of ours": lambda row: show(row["systems"].get("ours", {}).get("tflops"), ".0f"),
    }
    return table(columns, rows)


def _chosen(rows: Sequence[Row]) -> Table:
    """What the library and we chose at the paper's largest size."""
    own = [
        {"case": f"{row['precision']}, batch {row['batch']}", "system": name, **entry}
        for row in rows
        for name, entry in row["systems"].items()
        if "why" not in entry and row["channels"] == MAIN and row["batch"] in (1, MANY)
    ]
    kernel = {"kernel": lambda one: f"`{(one.get('kernels') or [NONE])[0][:70]}`"}
    return table({"case": "case", "system": "system", "how": "how", **kernel, "error": "error|.1e"}, own)


def plots(result: Row) -> dict[str, Plot]:
    """Return Fig. 1 at the most channels, by batch, and the same by channels in fp16."""
    rows = result.get("rows", ())
    if not rows:
        return {}
    channels = max(row["channels"] for row in rows)
    batch = MANY if any(row["batch"] == MANY for row in rows) else rows[0]["batch"]
    batches = sorted({row["batch"] for row in rows})
    most = [r for r in rows if r["channels"] == channels]
    ratios = {
        f"{p}: {label}": sorted((batches.index(r["batch"]), ratio) for r in most
                                if r["precision"] == p and (ratio := gain(r, name)))
        for name, label in _DRAWN.items() for p in PAPER
    }  # fmt: skip
    half = [r for r in rows if (r["batch"], r["precision"]) == (batch, "fp16")]
    sizes = sorted({row["channels"] for row in half})
    times = {
        LABELS[name]: sorted((sizes.index(r["channels"]), r["ratio"][name]) for r in half
                             if r["ratio"].get(name))
        for name in ("fused", "fused_gemm", "direct", "direct_gemm", "ours", "ours_two")
    }  # fmt: skip
    y = "times as fast as cuDNN's naive form"
    return {
        "ratios": Plot(f"{channels} channels", "batch", y, ratios, batches),
        "times": Plot(f"fp16, batch {batch}", "channels", y, times, sizes),
    }
