"""The section of ``docs/experiments.md`` on convolution with pooling, and its figures."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from experiments.convpool.experiment import LABELS, PAPER, SYSTEMS
from experiments.convpool.summary import MAIN, gain, pays, summary
from experiments.convpool.summary import time as _us
from experiments.harness.markdown import left
from experiments.harness.markdown import table as markdown
from neocog.evaluation.figures import Axis, Line, standalone

__all__ = ["lines", "section", "summary", "verdict", "write_figures"]

Row = dict[str, Any]
_MAIN = MAIN
_MANY = 64


def section(result: Row, *, figures: str = "figures") -> str:
    """Return the section in Markdown.

    Parameters
    ----------
    result : dict
        What ``neocog bench convpool`` writes.
    figures : str
        Folder of the figures, as a link from the page.
    """
    parts = ["## Convolution with average pooling: fused filter and direct sum", _origin(result)]
    if result.get("rows"):
        parts += [verdict(result), f"![Times as fast as naive]({figures}/convpool-ratios.svg)"]
        parts += [f"![The same by channels, fp16]({figures}/convpool-times.svg)"]
        parts += [_promises(result)]
        parts += _tables(result["rows"])
        parts += [_chosen(result["rows"])]
    parts += [_counts(result["counts"]), _missing(result)]
    return "\n\n".join(part for part in parts if part) + "\n"


def verdict(result: Row) -> str:
    """Return one or two sentences: whether the method pays on this device."""
    rows = [row for row in result.get("rows", ()) if row["channels"] == _MAIN]
    if not rows:
        return "Not measured on a GPU yet."
    said = []
    for name, what in (("ours", "In one kernel"), ("direct_gemm", "As the paper's matrix product")):
        told = (f"{p} {pays(rows, name, p)}" for p in PAPER)
        said.append(f"{what}: {'; '.join(told)}.")
    paper = ", ".join(f"{precision} {ratio}" for precision, ratio in PAPER.items())
    text = (
        "Does the direct sum pay beside the quicker of cuDNN's naive forms, "
        f"{_MAIN} channels (the paper on a V100, one picture: {paper})? {' '.join(said)}"
    )
    row = next(iter(r for r in _at(rows, "fp16", _MAIN) if r["batch"] == _MANY), None)
    ours, fused = (_us(row, name) for name in ("ours", "fused")) if row else (None, None)
    if ours and fused:
        text += (
            f" Beside cuDNN with the fused filter, fp16, batch {_MANY}: "
            f"{fused / ours:.2f} times as fast."
        )
    return text


def write_figures(result: Row, folder: Path) -> list[Path]:
    """Draw the figures that the result has rows for, as SVG; returns their files."""
    rows = result.get("rows", ())
    if not rows:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {"convpool-ratios": _ratios(rows), "convpool-times": _times(rows)}
    paths = []
    for name, text in drawn.items():
        paths.append(folder / f"{name}.svg")
        paths[-1].write_text(text, encoding="utf-8")
    return paths


def lines(result: Row) -> Iterator[str]:
    """Yield the result as text for a terminal."""
    yield section(result)


# -- figures ---------------------------------------------------------------------------------------
def _ratios(rows: Sequence[Row]) -> str:
    """Times as fast as the quicker naive form, by batch, at the most channels."""
    channels = max(row["channels"] for row in rows)
    batches = sorted({row["batch"] for row in rows})
    labels = {"direct_gemm": "direct sum, matrix product", "fused": "fused filter, library",
              "ours": "ours, one kernel"}  # fmt: skip
    drawn = []
    for name, label in labels.items():
        for precision in PAPER:
            points = [
                (batches.index(row["batch"]), ratio)
                for row in sorted(_at(rows, precision, channels), key=lambda row: row["batch"])
                if (ratio := gain(row, name))
            ]
            if points:
                drawn.append(Line(f"{precision}: {label}", points, dots=True))
    top = max((y for line in drawn for _, y in line.points), default=1.0)
    x = Axis("batch", -0.2, len(batches) - 0.8, [(i, str(b)) for i, b in enumerate(batches)])
    title = f"times as fast as naive, {channels} channels"
    return standalone(drawn, x, _axis("times as fast as cuDNN's naive form", top), title=title)


def _times(rows: Sequence[Row]) -> str:
    """Times as fast as naive, by channels, fp16 at the batch of the targets."""
    batch = _MANY if any(row["batch"] == _MANY for row in rows) else rows[0]["batch"]
    own = [row for row in rows if row["batch"] == batch and row["precision"] == "fp16"]
    channels = sorted({row["channels"] for row in own})
    drawn = []
    for name in ("fused", "fused_gemm", "direct", "direct_gemm", "ours", "ours_two"):
        points = [
            (channels.index(row["channels"]), row["ratio"][name])
            for row in sorted(own, key=lambda row: row["channels"])
            if row["ratio"].get(name)
        ]
        if points:
            drawn.append(Line(name.replace("_", ", "), points, dots=True))
    top = max((y for line in drawn for _, y in line.points), default=1.0)
    x = Axis("channels", -0.2, len(channels) - 0.8, [(i, str(c)) for i, c in enumerate(channels)])
    title = f"times as fast as naive, fp16, batch {batch}"
    return standalone(drawn, x, _axis("times as fast as naive", top), title=title)


def _axis(title: str, top: float) -> Axis:
    step = 1 if top < 8 else 2 if top < 16 else 5
    ticks = [(float(v), str(v)) for v in range(0, int(top) + step + 1, step)]
    return Axis(title, 0, ticks[-1][0], ticks)


# -- parts of the section --------------------------------------------------------------------------
def _origin(result: Row) -> str:
    told = {**result, **(result.get("facts") or {})}
    names = ("machine", "driver", "CUDA", "cuDNN", "torch", "commit", "date")
    about = ", ".join(f"{name} {told[name]}" for name in names if told.get(name))
    sizes = result["sizes"]
    if not result.get("rows"):
        return f"`{result['command']}`: {about}. Not measured on a GPU yet."
    return (
        f"`{result['command']}`: {about}. {sizes['size']}x{sizes['size']} places, "
        f"{sizes['kernel']}x{sizes['kernel']} filter, {sizes['pool']}x{sizes['pool']} pooling, as "
        "many channels out as in, operands packed beforehand. Every system is held against float64 "
        "before it is timed; medians of CUDA graphs. Where all data fits the L2 cache it is "
        "emptied before each run (rows marked *)."
    )


def _promises(result: Row) -> str:
    """What each rewrite saves by counting, and what of it arrives."""
    counted = next(row for row in result["counts"] if row["channels"] == _MAIN)
    found = {
        precision: next(
            (r for r in _at(result["rows"], precision, _MAIN) if r["batch"] == _MANY), None
        )
        for precision in dict.fromkeys(row["precision"] for row in result["rows"])
    }
    there = {precision: row for precision, row in found.items() if row is not None}
    table = [("system", "operations, naive by it", *(f"{p}, naive by it" for p in there))]
    for system in SYSTEMS:
        ratios = [row["ratio"].get(system.name) for row in there.values()]
        if any(ratios):
            saved = counted["naive"] / counted[system.counted]
            cells = (f"{ratio:.2f}" if ratio else "-" for ratio in ratios)
            table.append((system.label, f"{saved:.2f}", *cells))
    if len(table) == 1:
        return ""
    return (
        f"What is saved by counting and by the clock, {_MAIN} channels, batch {_MANY} (one below "
        "its count is bound by something else than operations, or the library's naive form is not "
        f"as quick as it might be):\n\n{markdown(table)}"
    )


def _tables(rows: Sequence[Row]) -> Iterator[str]:
    names = [s.name for s in SYSTEMS if any(s.name in row["systems"] for row in rows)]
    for precision in dict.fromkeys(row["precision"] for row in rows):
        table = [("batch", "channels", *names, "ours by naive", "paper (V100)", "TFLOP/s of ours")]
        own = [row for row in rows if row["precision"] == precision]
        for row in sorted(own, key=lambda row: (row["channels"], row["batch"])):
            ratio, paper = row["ratio"].get("ours"), PAPER.get(precision)
            headline = row["channels"] == _MAIN and row["batch"] == 1 and paper is not None
            rate = row["systems"].get("ours", {}).get("tflops")
            table.append(
                (
                    f"{row['batch']}{'*' * row['flushed']}",
                    str(row["channels"]),
                    *(_cell(row["systems"].get(name)) for name in names),
                    f"{ratio:.2f}" if ratio else "-",
                    f"{paper}" if headline else "-",
                    f"{rate:.0f}" if rate else "-",
                )
            )
        yield f"{precision}, us:\n\n{markdown(table)}"
    told = "; ".join(f"{name}: {LABELS[name]}" for name in names)
    yield f"Systems: {told}."


def _cell(entry: Row | None) -> str:
    if entry is None:
        return ""
    return f"{entry['us']:.1f}" if entry.get("us") is not None else "-"


def _chosen(rows: Sequence[Row]) -> str:
    """What the library and we chose, and what could not be run, at the paper's largest size."""
    table = [("case", "system", "how", "kernel", "error")]
    reasons: dict[str, str] = {}
    for row in rows:
        for name, entry in row["systems"].items():
            if "why" in entry:
                reasons.setdefault(f"{LABELS[name]}: {entry['why']}", row["precision"])
            elif row["channels"] == _MAIN and row["batch"] in (1, _MANY):
                kernel = (entry.get("kernels") or ["-"])[0]
                case = f"{row['precision']}, batch {row['batch']}"
                error = f"{entry['error']:.1e}"
                table.append((case, name, entry["how"], f"`{kernel[:70]}`", error))
    text = f"What was chosen at {_MAIN} channels:\n\n{markdown(table)}" if len(table) > 1 else ""
    if reasons:
        told = "\n".join(f"- {reason} (first at {at})" for reason, at in reasons.items())
        text += f"\n\nNot run:\n\n{told}"
    return text


def _counts(rows: Sequence[Row]) -> str:
    table: list[tuple[str, ...]] = [
        ("channels", "naive", "naive, Winograd", "fused filter", "direct sum")
    ]
    for row in rows:
        found = (row[name] for name in ("naive", "winograd", "fused", "direct"))
        table.append((str(row["channels"]), *map(str, found)))
    return f"Operations of one picture (Table I of the paper):\n\n{markdown(table)}"


def _missing(result: Row) -> str:
    text = f"The paper's Tables II and III (times): {result['paper']['tables II, III']}."
    return f"{text} {left(result)}".rstrip()


def _at(rows: Sequence[Row], precision: str, channels: int) -> list[Row]:
    return [row for row in rows if row["precision"] == precision and row["channels"] == channels]
