"""Tables and plots of the experiment on decomposed Winograd convolution."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from experiments.harness.pages import MEASURED, Column, Plot, Row, Table, measured, show, span, table
from experiments.winograd.filters import INDEXINGS, ORDERS, OWN_BANKS, Indexing
from experiments.winograd.lanes import Traffic, traffic
from experiments.winograd.layers import BOTH_HALVES, LAYERS, LAYOUTS, PAPER_GAIN, PAPER_WAY, WAYS

ALGORITHM = "Algorithm 1"
_ON_HOST = re.compile(r"cu(da)?[A-Z][a-z]|Activity |Mem(set|cpy) ")  # calls, not kernels
_LAYER: dict[str, Column] = {"layer": "layer", "batch": "batch"}


def changing(rows: Sequence[Row]) -> Iterator[Row]:
    """Yield what each piece of work takes in the orders of threads, where both were timed.

    ``rows`` are thread-wise, channel-wise and, where there is one, without conflicts of banks;
    ``saved``, ``saved_own`` and ``saved_both`` (inputs too) are percent of the time.
    """
    found: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in rows:
        if row.get("us"):
            key = (row["layer"], row["batch"], row["way"], row.get("kernel"))
            found.setdefault(key, {})[row["indexing"]] = row
    for (layer, batch, way, kernel), orders in found.items():
        if set(INDEXINGS) <= set(orders):
            thread, channel = orders["thread-wise"], orders["channel-wise"]
            own, both = orders.get(OWN_BANKS), orders.get(BOTH_HALVES)
            yield {
                "layer": layer, "batch": batch, "way": way, "kernel": kernel,
                "rows": [row for row in (thread, channel, own) if row],
                "thread": thread["us"], "channel": channel["us"],
                "own": own and own["us"], "both": both and both["us"],
                "saved": saved(thread, channel), "saved_own": own and saved(thread, own),
                "saved_both": both and saved(both, channel),
            }  # fmt: skip


def saved(before: Row, after: Row, key: str = "us") -> float:
    """Return percent of the time."""
    return 100 * (1 - float(after[key]) / float(before[key]))


_WORK: dict[str, Column] = {**_LAYER, "way": "way"}
_TIMES: dict[str, Column] = {"thread-wise, us": "thread|.1f", "channel-wise, us": "channel|.1f"}
_OWN: dict[str, Column] = {"own banks, us": "own|.1f"}


def tables(result: Row) -> dict[str, Table]:
    peers = result.get("peers") or {}
    facts = {**result["facts"], **{k: peers[k] for k in ("torch", "cuDNN") if k in peers}}
    summary, layers = result.get("summary", ()), result.get("layers", ())
    timed = {r["way"] for r in layers}
    untimed = dict.fromkeys(r["way"] for r in result["counts"] if r["way"] not in timed)
    pairs = list(changing(result.get("changing", ())))
    profiled = [measured(result["profiled"], what="profiler")] if "profiled" in result else []
    kernels = sorted({_kernels(r["algorithm"]) for r in layers if r.get("algorithm")})
    best: dict[str, Column] = {
        "ours, chosen by count": "chosen", "us": "chosen_us|.1f", "best way, us": "best_us|.1f",
        "cuDNN fp32, us": "cuDNN_us|.1f", "FFT, us": "FFT_us|.1f",
        "times as fast as cuDNN": "ratio|.1f",
    }  # fmt: skip
    ways: dict[str, Column] = {
        **_LAYER, "precision": "precision", "way": "way",
        "multiplications an output": "multiplications|.1f", "us": "us|.1f",
        "largest error": lambda r: show(r.get("error"), ".0e") if r.get("us") else r.get("failed"),
    }  # fmt: skip
    filters: dict[str, Column] = {
        "layer": "layer", "way": "way", "kernel": "kernel", **_TIMES, **_OWN,
        "GB/s": lambda p: ", ".join(f"{p['rows'][i]['gigabytes_s']:.0f}" for i in (0, -1)),
    }  # fmt: skip
    return {
        "measured": table(MEASURED, [measured(facts), *profiled]), "lanes": _lanes(result.get("lanes", ())),
        "saved": _saved([pair for pair in pairs if pair["way"] == PAPER_WAY.name]),
        "method": _method(result, [row for row in summary if row.get("chosen_us")]),
        "layers": table(_LAYER | best, summary), "ways": table(ways, layers),
        "kernels": [("kernels that cuDNN and FFT ran",), *((name,) for name in kernels)],
        "changing": _changing(pairs), "filters": table(filters, changing(result.get("filters", ()))),
        "traffic": _traffic(result.get("filters", ())),
        "counts": _counts([row for row in result["counts"] if row["chosen"]]),
        "missing": [(way, "counted but not measured") for way in untimed] if timed else [],
    }  # fmt: skip


def _saved(pairs: Sequence[Row]) -> Table:
    """Fig. 6: the whole convolution with the paper's parts."""
    both: dict[str, Column] = {"inputs thread-wise too, us": "both|.1f",
                               "saved by both": lambda p: _percent(p["saved_both"])}  # fmt: skip
    columns: dict[str, Column] = {
        **_LAYER,
        **_TIMES,
        **(both if any(pair["both"] for pair in pairs) else {}),
        "saved": lambda p: _percent(p["saved"]),
        "saved without conflicts of banks": lambda p: _percent(p["saved_own"]),
        "transform's share": lambda p: _percent(100 * p["rows"][0]["share"]),
        "transform saves": lambda p: _percent(saved(p["rows"][0], p["rows"][1], "filters_us")),
        "paper": lambda p: PAPER_GAIN,
    }
    return table(columns, pairs)


def _changing(pairs: Sequence[Row]) -> Table:
    """All ways with filters that change."""
    columns: dict[str, Column] = {
        **_WORK, **_TIMES, **_OWN,
        "saved": lambda p: ", ".join(f"{_percent(p[key])}" for key in ("saved", "saved_own")
                                     if p[key] is not None),
        "share of the transform": lambda p: " -> ".join(f"{_percent(100 * row['share'])}"
                                                        for row in p["rows"]),
        "paper saves": lambda p: PAPER_GAIN,
    }  # fmt: skip
    return table(columns, pairs)


def _counts(rows: Sequence[Row]) -> Table:
    columns: dict[str, Column] = {
        **_WORK,
        "direct GFLOP": "direct_gflop|.1f",
        "products GFLOP": lambda r: f"{_products(r)['gflop']:.1f}",
        "filters, input, output MB": lambda r: f"{sum(s['megabytes'] for s in r['steps']):.0f}",
        "V and W MB": lambda r: f"{_products(r)['between_megabytes']:.0f}",
        "least us on an H200": "floor_us|.1f",
    }
    return table(columns, rows)


def _percent(value: float | None) -> str | None:
    return None if value is None else f"{round(value)} %"  # no minus before 0


def _products(row: Row) -> Row:
    found: Row = next(step for step in row["steps"] if step["step"] == "products")
    return found


def _kernels(told: str) -> str:
    """Return the kernels of a list of what a profiler saw: calls on the host left out."""
    return "; ".join(name for name in told.split("; ") if not _ON_HOST.match(name)) or told


def _lanes(rows: Sequence[Row]) -> Table:
    pairs = [{"wise": wise, **thread} for wise, thread in zip(rows[::2], rows[1::2], strict=True)]
    columns: dict[str, Column] = {
        "figure": "figure", "filter": lambda r: f"{r['filter']}x{r['filter']}", "channels": "channels",
        "channel-wise": lambda r: f"{r['wise']['lanes']:.1f}", "thread-wise": "lanes|.1f",
        "plain mean": "plain|.1f",
        "profiler, whole kernel": lambda r: ", ".join(show(one.get("profiler"), ".1f")
                                                      for one in (r["wise"], r)),
        "paper: thread-wise": "paper",
    }  # fmt: skip
    return table(columns, pairs)


def _method(result: Row, rows: Sequence[Row]) -> Table:
    """Decomposed Winograd itself beside cuDNN and FFT: least and most over the layers."""
    found: Table = [("batch", "ours, us", "beside cuDNN fp32", "beside FFT", "beside cuDNN tf32",
                     "beside cuDNN fp16", "times the least time by count")]  # fmt: skip
    for batch in sorted({row["batch"] for row in rows}):
        own = [row for row in rows if row["batch"] == batch]
        found.append((
            str(batch),
            span([row["chosen_us"] for row in own], ".0f"),
            span([row.get("ratio") for row in own], ".2f"),
            span([row["FFT_us"] / row["chosen_us"] for row in own if row.get("FFT_us")], ".2f"),
            *(span([_precise(result, row, p) for row in own], ".2f") for p in ("tf32", "fp16")),
            span([_floor(result, row) for row in own], ".1f"),
        ))  # fmt: skip
    return found


def _precise(result: Row, row: Row, precision: str) -> float | None:
    """Return cuDNN's time by our best in a precision."""
    key = (row["layer"], row["batch"], precision)
    here = [r for r in result["layers"]
            if (r["layer"], r["batch"], r["precision"]) == key and r.get("us")]  # fmt: skip
    ours = [r["us"] for r in here if "chosen" in r]
    theirs = [r["us"] for r in here if r["way"] == "cuDNN"]
    return min(theirs) / min(ours) if ours and theirs else None


def _floor(result: Row, row: Row) -> float | None:
    """Return our time by the least time that a count allows."""
    for found in result["layers"]:
        same = (found["layer"], found["batch"]) == (row["layer"], row["batch"])
        if same and found.get("chosen") and found.get("floor_us") and found.get("us"):
            return float(found["us"]) / float(found["floor_us"])
    return None


def traffic_of(row: Row, indexing: Indexing) -> Traffic | None:
    """Return what a row's transform asks of memory; None for ways that are not known any more."""
    paper_layout = LAYOUTS.get(row["kernel"], False)
    layer = next((layer for layer in LAYERS if layer.name == row["layer"]), None)
    way = next((way for way in WAYS if way.name == row["way"]), None)
    if layer is None or way is None:
        return None
    return traffic(way.plan(layer), indexing, paper_layout=paper_layout)


def _traffic(rows: Sequence[Row]) -> Table:
    found: Table = [("way", "order", "us by layer", "sectors read", "of", "sectors written", "of",
                     "active lanes", "lanes at one bank", "kB that a block reads from",
                     "kB of shared memory")]  # fmt: skip
    own = [row for row in rows if row["kernel"].startswith(ALGORITHM) and row.get("us")]
    for way, kernel in dict.fromkeys((row["way"], row["kernel"]) for row in own):
        words = f"{way}; the paper's layout" if LAYOUTS.get(kernel) else way
        for order in ORDERS:
            key = (way, kernel, order)
            here = [row for row in own if (row["way"], row["kernel"], row["indexing"]) == key]
            asked = traffic_of(here[0], order) if here else None
            if asked:
                numbers = (asked.read, asked.least_read, asked.written, asked.least_written,
                           asked.lanes)  # fmt: skip
                times = " / ".join(f"{row['us']:.1f}" for row in here)
                sizes = (asked.spread / 1000, asked.shared / 1000)
                found.append((words, order, times, *(f"{value:.1f}" for value in numbers),
                              str(asked.banks), *(f"{size:.0f}" for size in sizes)))  # fmt: skip
    return found


def plots(result: Row) -> dict[str, Plot]:
    """Return Figs 4 and 6, and how many times as fast as cuDNN each layer is, by batch."""
    found = {}
    lanes = [r for r in result.get("lanes", ()) if r["figure"] == 4]
    if lanes:
        lines = {}
        for indexing in ("channel-wise", "thread-wise"):
            own = [r for r in lanes if r["indexing"] == indexing]
            lines[indexing] = [(r["filter"], r["lanes"]) for r in own]
            if profiled := [(r["filter"], r["profiler"]) for r in own if r.get("profiler")]:
                lines[f"{indexing}, by profiler"] = profiled
        title = "Active lanes of a warp by filter size"
        found["lanes"] = Plot(title, "filter size", "active lanes of a warp", lines)
    rated = [r for r in result.get("summary", ()) if r.get("ratio")]
    if rated:
        batches = sorted({r["batch"] for r in rated})
        lines = {layer: [(batches.index(r["batch"]), r["ratio"]) for r in rated
                         if r["layer"] == layer]
                 for layer in dict.fromkeys(r["layer"] for r in rated)}  # fmt: skip
        title, y = "Decomposed Winograd beside cuDNN", "times as fast as cuDNN, float32"
        found["layers"] = Plot(title, "batch", y, lines, batches)
    pairs = [pair for pair in changing(result.get("changing", ())) if pair["way"] == PAPER_WAY.name]
    if pairs:
        layers = list(dict.fromkeys(pair["layer"] for pair in pairs))
        lines = {}
        for batch in sorted({pair["batch"] for pair in pairs}):
            own = [pair for pair in pairs if pair["batch"] == batch]
            lines[f"batch {batch}"] = [(layers.index(p["layer"]), p["saved_both"] or p["saved"]) for p in own]
        title = "Time saved by channel-wise indexing of filters and inputs"
        band = (f"paper: {PAPER_GAIN}", 11.0, 15.0)
        found["saved"] = Plot(title, "layer", "% of the time saved", lines, layers, band)
    return found
