"""The section of ``docs/experiments.md`` on decomposed Winograd, and its figures, from the JSON."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.harness.markdown import left
from experiments.winograd.layers import PAPER_GAIN
from experiments.winograd.orders import (
    ALGORITHM,
    changing,
    order_words,
    percent,
    saved_figure,
    traffic_of,
)
from experiments.winograd.summary import FIGURE, MISSING, method_words, summary
from neocog.cuda.winograd_filters import ORDERS
from neocog.evaluation.figures import Axis, Line, standalone

__all__ = ["section", "summary", "verdict", "write_figures"]

Row = dict[str, Any]
_ON_HOST = re.compile(r"cu(da)?[A-Z][a-z]|Activity |Mem(set|cpy) ")  # calls, not kernels
_MISSING = MISSING


def section(result: Row, *, figures: str = "figures") -> str:
    """Return the section in Markdown.

    Parameters
    ----------
    result : dict
        What ``neocog bench winograd --json`` writes.
    figures : str
        Folder of the figures, as a link from the page.
    """
    parts = [
        "## Decomposed Winograd convolution (Lee and Kwak 2025)",
        _origin(result),
        *(_lanes(result["lanes"], figures) if result.get("lanes") else ()),
        *(_layers(result, figures) if result.get("summary") else ()),
        *(_changing(result["changing"]) if result.get("changing") else ()),
        *(_filters(result["filters"]) if result.get("filters") else ()),
        *_counts(result),
        left(result),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def verdict(result: Row) -> str:
    """Return a few sentences: whether the method pays on this device."""
    return f"{method_words(result)} {order_words(result.get('changing', ()))}".rstrip()


def write_figures(result: Row, folder: Path) -> list[Path]:
    """Draw the figures that the result has rows for, as SVG; returns their files."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {}
    if result.get("lanes"):
        drawn["winograd-lanes"] = lanes_figure(result["lanes"])
    if result.get("summary"):
        drawn["winograd-layers"] = layers_figure(result["summary"])
    if result.get("changing"):
        drawn[FIGURE] = saved_figure(result["changing"])
    paths = []
    for name, text in drawn.items():
        paths.append(folder / f"{name}.svg")
        paths[-1].write_text(text, encoding="utf-8")
    return paths


def lanes_figure(rows: Sequence[Row]) -> str:
    """Return Fig. 4: active lanes by filter size, in both orders of threads."""
    lines = []
    for indexing in ("channel-wise", "thread-wise"):
        own = [r for r in rows if r["figure"] == 4 and r["indexing"] == indexing]
        lines.append(Line(indexing, [(r["filter"], r["lanes"]) for r in own], dots=True))
        if any(r.get("profiler") for r in own):
            points = [(r["filter"], r["profiler"]) for r in own if r.get("profiler")]
            lines.append(Line(f"{indexing}, by profiler", points))
    sizes = sorted({r["filter"] for r in rows if r["figure"] == 4})
    x = Axis("filter size", sizes[0] - 1, sizes[-1] + 1, [(s, str(s)) for s in sizes])
    y = Axis("active lanes of a warp", 0, 34, [(v, str(v)) for v in (0, 8, 16, 24, 32)])
    return standalone(lines, x, y, title="Active lanes of a warp by filter size")


def layers_figure(rows: Sequence[Row]) -> str:
    """Return how many times as fast as cuDNN each layer is, by batch."""
    rated = [r for r in rows if r.get("ratio")]
    batches = sorted({r["batch"] for r in rows})
    lines = []
    for layer in dict.fromkeys(r["layer"] for r in rated):
        points = [(batches.index(r["batch"]), r["ratio"]) for r in rated if r["layer"] == layer]
        lines.append(Line(layer, points, dots=True))
    top = max([r["ratio"] for r in rated], default=1.0)
    step = 1 if top < 6 else 2 if top < 12 else 5
    ticks = [(v, str(v)) for v in range(0, int(top) + step + 1, step)]
    x = Axis("batch", -0.2, len(batches) - 0.8, [(i, str(b)) for i, b in enumerate(batches)])
    y = Axis("times as fast as cuDNN, float32", 0, ticks[-1][0], ticks)
    return standalone(lines, x, y, title="Decomposed Winograd beside cuDNN in float32")


# -- parts of the section --------------------------------------------------------------------------
def _origin(result: Row) -> str:
    facts, peers = result["facts"], result.get("peers") or {}
    told = {**facts, **{name: peers[name] for name in ("torch", "cuDNN") if name in peers}}
    names = ("machine", "driver", "CUDA", "cuDNN", "torch", "commit", "date")
    about = ", ".join(f"{name} {told[name]}" for name in names if told.get(name))
    return f"`{told['command']}`: {about}. All outputs are held against float64 before timing."


def _lanes(rows: Sequence[Row], figures: str) -> tuple[str, ...]:
    table = [("figure", "filter", "channels", "channel-wise", "thread-wise", "plain mean",
              "profiler, whole kernel", "paper: thread-wise")]  # fmt: skip
    for wise, thread in zip(rows[::2], rows[1::2], strict=True):
        told = [f"{r['profiler']:.1f}" if r.get("profiler") else "-" for r in (wise, thread)]
        size = f"{thread['filter']}x{thread['filter']}"
        table.append((str(thread["figure"]), size, str(thread["channels"]), f"{wise['lanes']:.1f}",
                      f"{thread['lanes']:.1f}", f"{thread['plain']:.1f}", ", ".join(told),
                      thread["paper"]))  # fmt: skip
    return (
        "### Active lanes of a warp while filters are transformed (Figs 4 and 5)",
        f"![active lanes]({figures}/winograd-lanes.svg)",
        "Census: every thread counts itself in its warp and size of sub-filter; the formula agrees "
        "in every warp. A transform counts with its instructions; the plain mean counts all alike. "
        "A profiler counts the whole kernel, its index arithmetic with all 32 lanes too, which is "
        f"why its figures (and the paper's, whose curves are {_MISSING}) may lie above ours.",
        _table(table),
    )


def _layers(result: Row, figures: str) -> tuple[str, ...]:
    table = [("layer", "batch", "ours, chosen by count", "us", "best way, us", "cuDNN fp32, us",
              "FFT, us", "times as fast as cuDNN")]  # fmt: skip
    for r in result["summary"]:
        table.append((r["layer"], str(r["batch"]), r["chosen"] or "-", _us(r["chosen_us"]),
                      _us(r["best_us"]), _us(r["cuDNN_us"]), _us(r["FFT_us"]),
                      f"{r['ratio']:.1f}" if r.get("ratio") else "-"))  # fmt: skip
    every = [("layer", "batch", "precision", "way", "multiplications an output", "us",
              "largest error")]  # fmt: skip
    for r in result["layers"]:
        products = f"{r['multiplications']:.1f}" if "multiplications" in r else "-"
        error = f"{r['error']:.0e}" if r.get("error") is not None else r.get("failed", "-")
        every.append((r["layer"], str(r["batch"]), r["precision"], r["way"], products,
                      _us(r["us"]), error))  # fmt: skip
    names = sorted({_kernels(r["algorithm"]) for r in result["layers"] if r.get("algorithm")})
    timed = {r["way"] for r in result["layers"]}
    untimed = dict.fromkeys(r["way"] for r in result["counts"] if r["way"] not in timed)
    return (
        "### The four layers with fixed filters",
        f"![times as fast as cuDNN]({figures}/winograd-layers.svg)",
        "The way is named before anything is timed, by a count of operations and bytes "
        "(`neocog.cuda.winograd_count`). Filters are transformed once; their bytes count at every "
        "pass. cuDNN has the better of both memory formats and tries its algorithms.",
        _table(table),
        f"Counted but not measured: {'; '.join(untimed)}." if untimed else "",
        "<details><summary>Every way</summary>\n\n" + _table(every) + "\n\n</details>",
        "<details><summary>Kernels that cuDNN and FFT ran</summary>\n\n"
        + "\n".join(f"- {name}" for name in names)
        + "\n\n</details>",
    )


def _changing(rows: Sequence[Row]) -> tuple[str, ...]:
    table = [("layer", "batch", "way", "thread-wise, us", "channel-wise, us", "own banks, us",
              "saved", "share of the transform", "paper saves")]  # fmt: skip
    for orders in changing(rows):
        slow, quick, own = orders
        saved = [percent(orders.saved)] + ([percent(orders.saved_best)] if own else [])
        shares = [f"{100 * row['share']:.0f} %" for row in (slow, quick, own) if row]
        table.append((slow["layer"], str(slow["batch"]), slow["way"], _us(slow["us"]),
                      _us(quick["us"]), _us(own["us"] if own else None), ", ".join(saved),
                      " -> ".join(shares), PAPER_GAIN))  # fmt: skip
    return (
        "### Whole convolution with filters that change (Fig. 6)",
        "The transform of the filters (Algorithm 1, corrected) runs in every pass. What channel-"
        "wise indexing saves depends on the transform's share; the paper's bars are "
        f"{_MISSING}, its text says {PAPER_GAIN}. *Own banks*: the same order without the "
        "eight-fold conflicts of Algorithm 1's places in shared memory.",
        _table(table),
    )


def _filters(rows: Sequence[Row]) -> tuple[str, ...]:
    table = [("layer", "way", "kernel", "thread-wise, us", "channel-wise, us", "own banks, us",
              "GB/s")]  # fmt: skip
    for slow, quick, own in changing(rows):
        rates = "{:.0f}, {:.0f}".format(slow["gigabytes_s"], (own or quick)["gigabytes_s"])
        table.append((slow["layer"], slow["way"], slow["kernel"], _us(slow["us"]),
                      _us(quick["us"]), _us(own["us"] if own else None), rates))  # fmt: skip
    return ("### The transform of the filters alone", _table(table), *_traffic(rows))


def _traffic(rows: Sequence[Row]) -> tuple[str, ...]:
    """What Algorithm 1 asks of memory, counted."""
    table: list[tuple[str, ...]] = [
        ("way", "order", "us by layer", "sectors read", "of", "sectors written", "of",
         "active lanes", "lanes at one bank", "kB that a block reads from",
         "kB of shared memory")]  # fmt: skip
    own = [row for row in rows if row["kernel"].startswith(ALGORITHM) and row.get("us")]
    for way in dict.fromkeys(row["way"] for row in own):
        for order in ORDERS:
            here = [row for row in own if (row["way"], row["indexing"]) == (way, order)]
            found = traffic_of(here[0], order) if here else None
            if found:
                times = " / ".join(_us(row["us"]) for row in here)
                numbers = (found.read, found.least_read, found.written, found.least_written,
                           found.lanes)  # fmt: skip
                sizes = (found.spread / 1000, found.shared / 1000)
                table.append((way, order, times, *(f"{value:.1f}" for value in numbers),
                              str(found.banks), *(f"{size:.0f}" for size in sizes)))  # fmt: skip
    if len(table) == 1:
        return ()
    return (
        "What Algorithm 1 asks of memory for one filter, in sectors of 32 bytes, beside what its "
        "bytes fill; counted, not measured. Active lanes are those of loads and stores:",
        _table(table),
    )


def _counts(result: Row) -> tuple[str, ...]:
    table = [("layer", "batch", "way", "direct GFLOP", "products GFLOP",
              "filters, input, output MB",
              "V and W MB", "least us on an H200")]  # fmt: skip
    for r in result["counts"]:
        if not r["chosen"]:
            continue
        products = next(s for s in r["steps"] if s["step"] == "products")
        table.append((r["layer"], str(r["batch"]), r["way"], f"{r['direct_gflop']:.1f}",
                      f"{products['gflop']:.1f}", f"{sum(s['megabytes'] for s in r['steps']):.0f}",
                      f"{products['between_megabytes']:.0f}", _us(r["floor_us"])))  # fmt: skip
    return ("### What the chosen ways compute and move", _table(table))


def _us(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _table(rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]])


def _kernels(told: str) -> str:
    """Return the kernels of a list of what a profiler saw: calls on the host left out."""
    return "; ".join(name for name in told.split("; ") if not _ON_HOST.match(name)) or told
