"""Tables and plots of the experiment on decomposed Winograd convolution."""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from experiments.harness.pages import MEASURED, Plot, Row, Table, measured, show, span, table
from experiments.winograd.layers import (
    BOTH_HALVES,
    LAYERS,
    LAYOUTS,
    PAPER_GAIN,
    PAPER_WAY,
    WAYS,
)
from experiments.winograd.traffic import Traffic, traffic
from neocog.cuda.winograd_filters import INDEXINGS, ORDERS, OWN_BANKS, Indexing

ALGORITHM = "Algorithm 1"
_ON_HOST = re.compile(r"cu(da)?[A-Z][a-z]|Activity |Mem(set|cpy) ")  # calls, not kernels
_LAYER = {"layer": "layer", "batch": "batch"}


class Orders(NamedTuple):
    """The rows of the same work in the orders of threads."""

    thread: Row
    channel: Row
    own_banks: Row | None
    both_halves: Row | None = None

    @property
    def paper(self) -> bool:
        return str(self.thread["way"]) == PAPER_WAY.name

    def us(self, name: str) -> str:
        row = getattr(self, name)
        return show(row and row["us"], ".1f")

    def saved(self, own_banks: bool = False, key: str = "us") -> float:
        row = (self.own_banks if own_banks else None) or self.channel
        return 100 * (1 - float(row[key]) / float(self.thread[key]))

    def saved_by_both(self) -> float | None:
        """Percent that channel-wise filters and inputs save, where that was timed."""
        both = self.both_halves
        return 100 * (1 - float(self.channel["us"]) / float(both["us"])) if both else None


def changing(rows: Sequence[Row]) -> Iterator[Orders]:
    """Yield the orders of threads of each piece of work that was timed in both."""
    found: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in rows:
        if row.get("us"):
            key = (row["layer"], row["batch"], row["way"], row.get("kernel"))
            found.setdefault(key, {})[row["indexing"]] = row
    for orders in found.values():
        if set(INDEXINGS) <= set(orders):
            names = ("thread-wise", "channel-wise", OWN_BANKS, BOTH_HALVES)
            yield Orders(*map(orders.get, names))  # type: ignore[arg-type]


def tables(result: Row) -> dict[str, Table]:
    peers = result.get("peers") or {}
    facts = {**result["facts"], **{k: peers[k] for k in ("torch", "cuDNN") if k in peers}}
    summary, layers = result.get("summary", ()), result.get("layers", ())
    timed = {r["way"] for r in layers}
    untimed = dict.fromkeys(r["way"] for r in result["counts"] if r["way"] not in timed)
    times = {f"{name}-wise, us": partial(Orders.us, name=name) for name in ("thread", "channel")}
    pairs = list(changing(result.get("changing", ())))
    profiled = [measured(result["profiled"], what="profiler")] if "profiled" in result else []
    return {
        "measured": table(MEASURED, [measured(facts), *profiled]),
        "lanes": _lanes(result.get("lanes", ())),
        "saved": table(
            {
                "layer": lambda p: p.thread["layer"],
                "batch": lambda p: p.thread["batch"],
                **times,
                **_both_halves(pairs),
                "saved": lambda p: _percent(p.saved()),
                "saved without conflicts of banks": lambda p: (
                    _percent(p.saved(own_banks=True)) if p.own_banks else None
                ),
                "transform's share": lambda p: _percent(100 * p.thread["share"]),
                "transform saves": lambda p: _percent(p.saved(key="filters_us")),
                "paper": lambda p: PAPER_GAIN,
            },
            [pair for pair in pairs if pair.paper],
        ),
        "method": _method(result, [row for row in summary if row.get("chosen_us")]),
        "layers": table(
            _LAYER
            | {
                "ours, chosen by count": "chosen",
                "us": "chosen_us|.1f",
                "best way, us": "best_us|.1f",
                "cuDNN fp32, us": "cuDNN_us|.1f",
                "FFT, us": "FFT_us|.1f",
                "times as fast as cuDNN": "ratio|.1f",
            },
            summary,
        ),
        "ways": table(
            _LAYER
            | {
                "precision": "precision",
                "way": "way",
                "multiplications an output": "multiplications|.1f",
                "us": "us|.1f",
                "largest error": lambda r: show(r.get("error"), ".0e") if r.get("us")
                else r.get("failed"),
            },
            layers,
        ),
        "kernels": [
            ("kernels that cuDNN and FFT ran",),
            *((name,) for name in sorted({_kernels(r["algorithm"]) for r in layers
                                          if r.get("algorithm")})),
        ],
        "changing": table(
            {
                "layer": lambda p: p.thread["layer"],
                "batch": lambda p: p.thread["batch"],
                "way": lambda p: p.thread["way"],
                **times,
                "own banks, us": partial(Orders.us, name="own_banks"),
                "saved": lambda p: ", ".join(
                    _percent(p.saved(own)) for own in (False, True)[: 2 if p.own_banks else 1]
                ),
                "share of the transform": lambda p: " -> ".join(
                    _percent(100 * row["share"]) for row in p[:3] if row
                ),
                "paper saves": lambda p: PAPER_GAIN,
            },
            pairs,
        ),
        "filters": table(
            {
                "layer": lambda p: p.thread["layer"],
                "way": lambda p: p.thread["way"],
                "kernel": lambda p: p.thread["kernel"],
                **times,
                "own banks, us": partial(Orders.us, name="own_banks"),
                "GB/s": lambda p: "{:.0f}, {:.0f}".format(
                    p.thread["gigabytes_s"], (p.own_banks or p.channel)["gigabytes_s"]
                ),
            },
            changing(result.get("filters", ())),
        ),
        "traffic": _traffic(result.get("filters", ())),
        "counts": table(
            _LAYER
            | {
                "way": "way",
                "direct GFLOP": "direct_gflop|.1f",
                "products GFLOP": lambda r: f"{_products(r)['gflop']:.1f}",
                "filters, input, output MB": lambda r: (
                    f"{sum(s['megabytes'] for s in r['steps']):.0f}"
                ),
                "V and W MB": lambda r: f"{_products(r)['between_megabytes']:.0f}",
                "least us on an H200": "floor_us|.1f",
            },
            [row for row in result["counts"] if row["chosen"]],
        ),
        "missing": [(way, "counted but not measured") for way in untimed] if timed else [],
    }  # fmt: skip


def _both_halves(pairs: Sequence[Orders]) -> dict[str, Any]:
    if not any(pair.both_halves for pair in pairs):
        return {}

    return {
        "inputs thread-wise too, us": partial(Orders.us, name="both_halves"),
        "saved by both": lambda p: None if (n := p.saved_by_both()) is None else _percent(n),
    }


def _percent(value: float) -> str:
    return f"{round(value)} %"  # no minus before 0


def _products(row: Row) -> Row:
    found: Row = next(step for step in row["steps"] if step["step"] == "products")
    return found


def _kernels(told: str) -> str:
    """Return the kernels of a list of what a profiler saw: calls on the host left out."""
    return "; ".join(name for name in told.split("; ") if not _ON_HOST.match(name)) or told


def _lanes(rows: Sequence[Row]) -> Table:
    pairs = [{"wise": wise, **thread} for wise, thread in zip(rows[::2], rows[1::2], strict=True)]
    return table(
        {
            "figure": "figure",
            "filter": lambda r: f"{r['filter']}x{r['filter']}",
            "channels": "channels",
            "channel-wise": lambda r: f"{r['wise']['lanes']:.1f}",
            "thread-wise": "lanes|.1f",
            "plain mean": "plain|.1f",
            "profiler, whole kernel": lambda r: ", ".join(
                show(one.get("profiler"), ".1f") for one in (r["wise"], r)
            ),
            "paper: thread-wise": "paper",
        },
        pairs,
    )


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
    pairs = [pair for pair in changing(result.get("changing", ())) if pair.paper]
    if pairs:
        layers = list(dict.fromkeys(pair.thread["layer"] for pair in pairs))
        points = [(p, layers.index(p.thread["layer"]), p.saved_by_both() or p.saved())
                  for p in pairs]  # fmt: skip
        lines = {f"batch {batch}": [(x, y) for p, x, y in points if p.thread["batch"] == batch]
                 for batch in sorted({pair.thread["batch"] for pair in pairs})}  # fmt: skip
        title = "Time saved by channel-wise indexing of filters and inputs"
        band = (f"paper: {PAPER_GAIN}", 11.0, 15.0)
        found["saved"] = Plot(title, "layer", "% of the time saved", lines, layers, band)
    return found
