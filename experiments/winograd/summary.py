"""The page's paragraphs on decomposed Winograd: what was claimed, what was found, and why.

Every number comes from the result or from counts of its kernels; a sentence that would be wrong
with other numbers is chosen by them.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from experiments.harness.markdown import between, rest
from experiments.harness.markdown import table as markdown
from experiments.winograd.layers import PAPER_GAIN
from experiments.winograd.orders import (
    changing,
    lanes_words,
    saved_table,
    verdict_words,
    why_words,
)

Row = dict[str, Any]
MISSING = "not in our copy"
TITLE = "Decomposed Winograd convolution, threads by channel (2025)"
FIGURE = "winograd-saved"


def summary(result: Row, *, figures: str, full: str) -> str:
    """Return the part of ``docs/experiments.md`` on this paper.

    Parameters
    ----------
    result : dict
        What ``neocog bench winograd`` writes.
    figures : str
        Folder of the figures, as a link from the page.
    full : str
        The page of all tables, as a link.
    """
    parts = [
        f"## {TITLE}",
        "**Claimed** (RTX 3080, CUDA 12.0): filters larger than 3x3 are split into parts of at "
        "most 3x3, each by Winograd. If the lanes of a warp take parts of one size from different "
        "channels (*channel-wise*), not the parts of one filter one after another (*thread-wise*), "
        "all 32 lanes are active in the transform of the filters, where at most 23 were but at "
        f"multiples of 3; four layers of ConvNeXt then take {PAPER_GAIN} less time. The plotted "
        f"values of its Figs 4 to 6: {MISSING}.",
    ]
    if result.get("lanes"):
        parts.append(lanes_words(result["lanes"]))
    pairs = list(changing(result.get("changing", ())))
    if pairs:
        parts += [saved_table(pairs), f"![time saved by layer]({figures}/{FIGURE}.svg)"]
        parts += [verdict_words(pairs), why_words(result, pairs)]
    parts.append(_method(result))
    parts.append(rest(result, full))
    return "\n\n".join(part for part in parts if part) + "\n"


# -- the method ------------------------------------------------------------------------------------
def _method(result: Row) -> str:
    """Tell whether decomposed Winograd itself pays, beside cuDNN and FFT."""
    rows = [row for row in result.get("summary", ()) if row.get("chosen_us")]
    if not rows:
        return "**The convolution itself: not measured on a GPU yet.**"
    head = ("batch", "ours, us", "beside cuDNN fp32", "beside FFT", "beside cuDNN tf32",
            "beside cuDNN fp16", "times the least time by count")  # fmt: skip
    table: list[tuple[str, ...]] = [head]
    for batch in sorted({row["batch"] for row in rows}):
        own = [row for row in rows if row["batch"] == batch]
        floors = [found for row in own if (found := _floor(result, row))]
        table.append((
            str(batch),
            between([row["chosen_us"] for row in own], "{:.0f}"),
            _ratios(row.get("ratio") for row in own),
            _ratios(row["FFT_us"] / row["chosen_us"] for row in own if row.get("FFT_us")),
            *(_ratios(_precise(result, row, p) for row in own) for p in ("tf32", "fp16")),
            between(floors, "{:.1f}") if floors else "–",
        ))  # fmt: skip
    text = (
        "**Does decomposed Winograd itself pay?** The split and the tile that a count of bytes and "
        "operations names, filters fixed, float32 on tensor cores; times as fast, over the four "
        "layers (tf32 and fp16: our quickest way in the same precision):"
    )
    words = f"{method_words(result)}{_errors(result)}{_method_why(result, rows)}"
    return f"{text}\n\n{markdown(table)}\n\n{words}"


def method_words(result: Row) -> str:
    """Return one or two sentences: whether decomposed Winograd pays in float32."""
    rows = [row for row in result.get("summary", ()) if row.get("ratio")]
    if not rows:
        return "Not measured on a GPU yet."
    ratios = [float(row["ratio"]) for row in rows]
    pays = "pays" if min(ratios) > 1 else "does not pay everywhere"
    text = (
        f"Decomposed Winograd {pays} beside cuDNN in float32 without TF32: {min(ratios):.1f} to "
        f"{max(ratios):.1f} times as fast."
    )
    gains: dict[int, list[float]] = {}
    for row in rows:
        if row.get("FFT_us"):
            gains.setdefault(row["batch"], []).append(row["FFT_us"] / row["chosen_us"])
    if gains:
        told = "; ".join(
            f"batch {batch}: {between(found, '{:.2f}')}" for batch, found in sorted(gains.items())
        )
        text += f" Beside FFT (cuFFT and cuBLAS, spectra of the filters taken before): {told}."
        lost = [str(batch) for batch, found in sorted(gains.items()) if max(found) < 1]
        if lost:
            text += f" At batch {', '.join(lost)} FFT is quicker on every layer."
    return text


def _method_why(result: Row, rows: Sequence[Row]) -> str:
    """Explain by multiplications and bytes of the layer with the most places."""
    most = max(rows, key=lambda row: (row["batch"], row["chosen_us"]))
    count = next(
        (c for c in result.get("counts", ())
         if c["chosen"] and (c["layer"], c["batch"]) == (most["layer"], most["batch"])), None,
    )  # fmt: skip
    if count is None:
        return ""
    products = next(step for step in count["steps"] if step["step"] == "products")
    between_bytes = sum(step["between_megabytes"] for step in count["steps"])
    plain = sum(step["megabytes"] for step in count["steps"])
    return (
        f" Why: {count['layer']} at batch {count['batch']} takes {products['gflop']:.0f} GFLOP "
        f"instead of {count['direct_gflop']:.0f}, but its three kernels write and read "
        f"{between_bytes:.0f} MB of transformed tiles beside {plain:.0f} MB of maps and filters; "
        f"at best that takes {count['floor_us']:.0f} us, it took {most['chosen_us']:.0f}."
    )


def _errors(result: Row) -> str:
    """Tell the errors of ours and of cuDNN in the short precisions."""
    said = []
    for precision in ("tf32", "fp16"):
        rows = [r for r in result["layers"] if r["precision"] == precision and r.get("error")]
        ours = [r["error"] for r in rows if "chosen" in r]
        theirs = [r["error"] for r in rows if r["way"] == "cuDNN"]
        if ours and theirs and max(ours) > max(theirs):
            told = (between(found, "{:.0e}") for found in (ours, theirs))
            said.append(f"{precision} {' against '.join(told)}")
    text = "; ".join(said)
    return f" Short operands cost more digits than cuDNN's (largest error: {text})." if said else ""


def _precise(result: Row, row: Row, precision: str) -> float | None:
    """Return cuDNN's time by our best in a precision."""
    here = [
        r
        for r in result["layers"]
        if (r["layer"], r["batch"], r["precision"]) == (row["layer"], row["batch"], precision)
        and r.get("us")
    ]
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


def _ratios(values: Iterable[float | None]) -> str:
    known = [float(value) for value in values if value]
    return between(known, "{:.2f}") if known else "–"
