"""The page's paragraphs on convolution with pooling: what was claimed, what was found, and why.

Every number comes from the result; a sentence that would be wrong with other numbers is chosen by
them.
"""

from collections.abc import Sequence
from typing import Any

from experiments.convpool.experiment import LABELS, PAPER, POOL
from experiments.harness.markdown import between, rest
from experiments.harness.markdown import table as markdown

Row = dict[str, Any]
MAIN = 512  # channels of the paper's headlines
_SHOWN = ("fused", "direct_gemm", "direct", "ours")
_NAIVE = ("naive", "winograd")
_GAIN = 1.02  # what counts as quicker
TITLE = "Convolution and average pooling in one (2019)"


def summary(result: Row, *, figures: str, full: str) -> str:
    """Return the part of ``docs/experiments.md`` on this paper.

    Parameters
    ----------
    result : dict
        What ``neocog bench convpool`` writes.
    figures : str
        Folder of the figures, as a link from the page.
    full : str
        The page of all tables, as a link.
    """
    paper = result["paper"]
    parts = [
        f"## {TITLE}",
        f"**Claimed** ({paper['machine']}; 32x32 places, 3x3 filters, 2x2 pooling, one picture, "
        f"{MAIN} channels): pooling before the convolution, the *direct sum*, as a matrix product "
        f"is {PAPER['fp32']} times as fast as naive cuDNN in fp32 (where cuDNN takes Winograd) and "
        f"{PAPER['fp16']} times in fp16 (tensor cores). Its times (Tables II and III): "
        f"{paper['tables II, III']}.",
    ]
    rows = [row for row in result.get("rows", ()) if row["channels"] == MAIN]
    if rows:
        parts += [_found(result, rows), _table(rows)]
        parts += [f"![times as fast as the naive form]({figures}/convpool-ratios.svg)"]
        parts += [_verdict(rows), _why(result, rows)]
    else:
        parts.append("**Not measured on a GPU yet.**")
    parts.append(rest(result, full))
    return "\n\n".join(part for part in parts if part) + "\n"


def naive(row: Row) -> float | None:
    """Return microseconds of the library's quicker naive form, with Winograd or without."""
    found = [us for name in _NAIVE if (us := time(row, name)) is not None]
    return min(found) if found else None


def gain(row: Row, name: str) -> float | None:
    """Return how many times as fast as the quicker naive form a system is."""
    base, us = naive(row), time(row, name)
    return base / us if base and us else None


def time(row: Row, name: str) -> float | None:
    """Return a system's microseconds, None where it was not timed."""
    us = row["systems"].get(name, {}).get("us")
    return float(us) if us is not None else None


def pays(rows: Sequence[Row], name: str, precision: str) -> str:
    """Return "yes", "no" or where: whether a system is quicker than the naive form."""
    gains = {r["batch"]: gain(r, name) for r in rows if r["precision"] == precision}
    found = {batch: g for batch, g in sorted(gains.items()) if g}
    losing = [str(batch) for batch, g in found.items() if g < _GAIN]
    if not found or len(losing) == len(found):
        return "no" if found else "not measured"
    span = between(list(found.values()), "{:.2f}")
    return (
        f"yes, {span} times" if not losing else f"not at batch {', '.join(losing)} ({span} times)"
    )


# -- parts -----------------------------------------------------------------------------------------
def _found(result: Row, rows: Sequence[Row]) -> str:
    batches = ", ".join(str(b) for b in sorted({row["batch"] for row in rows}))
    return (
        f"**Found** on an {result['machine']}, {MAIN} channels, batches of {batches}: times as "
        "fast as the quicker of cuDNN's naive forms (its usual choice, and Winograd)."
    )


def _table(rows: Sequence[Row]) -> str:
    names = [name for name in _SHOWN if any(name in row["systems"] for row in rows)]
    table = [("", "batch", "naive, us", *(LABELS[name] for name in names), "paper")]
    for precision in PAPER:
        own = [row for row in rows if row["precision"] == precision]
        for row in sorted(own, key=lambda row: int(row["batch"])):
            base = naive(row)
            gains = (gain(row, name) for name in names)
            told = f"{PAPER[precision]} (matrix product)" if row["batch"] == 1 else "–"
            table.append((precision, str(row["batch"]), f"{base:.1f}" if base else "–",
                          *(f"{g:.2f}" if g else "–" for g in gains), told))  # fmt: skip
    return markdown(table)


def _verdict(rows: Sequence[Row]) -> str:
    said = []
    for name, what in (("direct_gemm", "the paper's way"), ("ours", "Ours, in one kernel")):
        each = "; ".join(f"{p} {pays(rows, name, p)}" for p in PAPER)
        said.append(f"{what}: {each}")
    text = f"**Does it pay?** The direct sum, {'. '.join(said)}."
    return f"{text} {_quickest(rows)}".rstrip()


def _quickest(rows: Sequence[Row]) -> str:
    """Tell where another system than ours is the quickest."""
    lost: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for row in sorted(rows, key=lambda row: (str(row["precision"]), int(row["batch"]))):
        times = {name: us for name in row["systems"] if (us := time(row, name))}
        best, ours = min(times, key=lambda name: times[name], default=""), times.get("ours")
        if ours and ours > _GAIN * times[best]:
            by = 100 * (ours / times[best] - 1)
            lost.setdefault((row["precision"], best), []).append((row["batch"], by))
    if not lost:
        return "One kernel is the quickest of all everywhere, or within 2 % of it."
    told = "; ".join(
        f"{precision}, batch {', '.join(str(batch) for batch, _ in cases)}: {LABELS[best]} "
        f"(by {between([by for _, by in cases], '{:.0f}')} %)"
        for (precision, best), cases in lost.items()
    )
    return f"One kernel is not always the quickest; in front are {told}."


def _why(result: Row, rows: Sequence[Row]) -> str:
    """Explain by operations, rates and bytes."""
    counts = next(row for row in result["counts"] if row["channels"] == MAIN)
    saved = counts["naive"] / counts["direct"]
    lines = [
        "**Why.** The direct sum takes "
        f"{saved:.2f} times fewer operations ({1e-9 * counts['direct']:.2f} for "
        f"{1e-9 * counts['naive']:.2f} GFLOP a picture). Times as fast = that, times the rate at "
        "which operations are done:"
    ]
    for precision in PAPER:
        own = {row["batch"]: row for row in rows if row["precision"] == precision}
        ends = [own[b] for b in (min(own), 64) if b in own] if own else []
        told = [_rates(row, counts) for row in ends]
        if any(told):
            lines.append(f"- {precision}: {'; '.join(line for line in told if line)}.")
    more = (_cores(rows), _small(rows), _windows(rows), _compiled(rows))
    lines += [f"- {line}" for line in more if line]
    return "\n".join(lines)


def _rates(row: Row, counts: Row) -> str:
    ours, plain = (row["systems"].get(name, {}).get("tflops") for name in ("ours", "naive"))
    ratio = row["ratio"].get("ours")
    if not (ours and plain and ratio):
        return ""
    saved = counts["naive"] / counts["direct"]
    return (
        f"batch {row['batch']}, {saved:.2f} x {ours:.0f} / {plain:.0f} TFLOP/s = "
        f"{saved * ours / plain:.2f} times cuDNN's usual choice"
    )


def _cores(rows: Sequence[Row]) -> str:
    """Tell who computes fp32 on which cores."""
    row = next((r for r in rows if (r["precision"], r["batch"]) == ("fp32", 64)), None)
    plain, ours = (row["systems"].get(name, {}) for name in ("naive", "ours")) if row else ({}, {})
    kernels = " ".join(plain.get("kernels", ()))
    if "f32f32_f32f32" not in kernels or "wgmma" not in ours.get("how", ""):
        return ""
    text = (
        "In fp32 cuDNN's usual choice computes on CUDA cores, ours on tensor cores, three products "
        f"of TF32 for one: largest error {ours['error']:.0e}, cuDNN's {plain['error']:.0e}"
    )
    other = (row or {})["systems"].get("winograd", {})
    return text + (f", its Winograd's {other['error']:.0e}." if other.get("error") else ".")


def _small(rows: Sequence[Row]) -> str:
    """Tell why one picture gains less in halves."""
    own = {row["batch"]: row for row in rows if row["precision"] == "fp16"}
    if not {1, 64} <= set(own):
        return ""
    rates = {b: own[b]["systems"].get("ours", {}).get("tflops") for b in (1, 64)}
    if not all(rates.values()) or rates[1] > 0.5 * rates[64]:
        return ""
    return (
        f"One picture has {(32 // POOL) ** 2} places of {MAIN} channels, too few to fill the GPU: "
        f"in fp16 our kernel reaches {100 * rates[1] / rates[64]:.0f} % of its rate at batch 64, "
        f"and of {time(own[1], 'naive'):.0f} us not much can be saved."
    )


def _windows(rows: Sequence[Row]) -> str:
    """Tell what gathering windows costs."""
    row = next((r for r in rows if (r["precision"], r["batch"]) == ("fp16", 64)), None)
    if row is None:
        return ""
    gemm, ours = time(row, "direct_gemm"), time(row, "ours")
    if not (gemm and ours and gemm > ours):
        return ""
    places, item = row["batch"] * (32 // POOL) ** 2, 2
    gathered = places * 9 * MAIN * item / 1e6
    given = row["batch"] * 32**2 * MAIN * item / 1e6
    return (
        f"The matrix product reads windows that a kernel wrote before: {gathered:.0f} MB written "
        f"and read again at batch {row['batch']} for {given:.0f} MB of input. In one kernel they "
        f"never leave the chip: {ours:.0f} us instead of {gemm:.0f}."
    )


def _compiled(rows: Sequence[Row]) -> str:
    found = [
        (row, us) for row in rows if (us := time(row, "compiled")) and row["precision"] in PAPER
    ]
    if not found:
        return ""
    spans = between([us / ours for r, us in found if (ours := time(r, "ours"))], "{:.1f}")
    return f"torch.compile of the naive form takes {spans} times the time of our kernel."
