"""The GPU paper's ladder as tables: every rung by stage, counters, block sizes; and Fig. 6."""

from collections.abc import Iterable, Sequence
from typing import Any

from experiments.harness.markdown import table as table_of
from experiments.slayer import paper
from experiments.slayer.inputs import STAGES
from experiments.slayer.tables import NONE, SHORT, rows_of
from neocog.evaluation.figures import Axis, Line, standalone

Row = dict[str, Any]
FIGURE = "slayer-threads.svg"
WANTED_GAIN = 2.0  # of T5 over T1


def threads_figure(tried: Sequence[Row]) -> str:
    """Return Fig. 6: time of T5 by threads per block, beside the quickest, the first network."""
    size = tried[0]["planes"]
    curves = []
    for stage in STAGES:
        own = [r for r in tried if (r["planes"], r["stage"], r["system"]) == (size, stage, "T5")]
        if own:
            best = min(row["us"] for row in own)
            points = [(row["threads"], row["us"] / best) for row in own]
            name = f"{SHORT[stage]}, best {best:.0f} us"
            curves.append(Line(name, sorted(points), dots=True))
    x = Axis("threads per block", 0, 1024, [(n, str(n)) for n in range(0, 1025, 128)])
    top = min(4.0, max(y for curve in curves for _, y in curve.points) + 0.2)
    ticks = [(n / 4, f"{n / 4:g}") for n in range(4, int(4 * top) + 1)]
    y = Axis("time by the least", 0.9, top, ticks)
    return standalone(curves, x, y, title="Time of T5 by threads per block")


def ladder(result: Row, figures: str) -> list[str]:
    """Return Table 5: the ladder, and its counters."""
    rows = [row for row in rows_of(result, "ladder", "rows") if "us" in row]
    if not rows:
        return []
    parts = ["### The ladder (Table 5)"]
    for size in dict.fromkeys(row["planes"] for row in rows):
        own = [row for row in rows if row["planes"] == size]
        for batch in own[0]["us"]:
            parts += [_ladder_title(size, batch), _ladder_table(own, batch, size)]
        parts.append(_gain(own))
    return [*parts, *_counters(result)]


def _ladder_title(size: str, batch: str) -> str:
    which = "One character at a time" if batch == "1" else f"{batch} characters at a time"
    return f"{which}, {size} planes, microseconds of a character:"


def _ladder_table(rows: Sequence[Row], batch: str, size: str) -> str:
    table = [("system", *SHORT.values(), "all", "T1 / it", "largest error", "paper, S1 .. S4")]
    whole: float | None = None
    for name, cells in systems_of(rows, batch).items():
        us = [cells.get(stage) for stage in STAGES]
        total = sum(row["us"][batch] for row in us if row) if all(us) else None
        whole = total if name == "T1" else whole
        worst = max(row["error"] for row in us if row)
        theirs = paper.GPU_US.get(name) if (size, batch) == (paper.SIZE, "1") else None
        table.append(
            (
                name,
                *(_us(row["us"][batch]) if row else NONE for row in us),
                _us(total),
                f"{whole / total:.2f}" if whole and total else NONE,
                f"{worst:.0e}",
                " / ".join(map(str, theirs)) if theirs else NONE,
            )
        )
    return table_of(table)


def systems_of(rows: Iterable[Row], batch: str) -> dict[str, dict[str, Row]]:
    """Return rows of right results by system and stage; ours by plan and precision."""
    found: dict[str, dict[str, Row]] = {}
    for row in rows:
        if not row["passed"]:
            continue
        names = [row["system"]]
        if row["system"].startswith("ours"):
            plans = row.get("plans", {}).get(batch, ())
            names = [f"ours, {plan}, {row['precision']}" for plan in plans]
        for name in names:
            found.setdefault(name, {})[row["stage"]] = row
    return found


def sums(result: Row, batch: str = "1") -> dict[tuple[str, str], float]:
    """Return microseconds of the S-layers of one character, by network and system."""
    rows = [row for row in rows_of(result, "ladder", "rows") if "us" in row]
    found = {}
    for size in dict.fromkeys(row["planes"] for row in rows):
        own = [row for row in rows if row["planes"] == size]
        for name, cells in systems_of(own, batch).items():
            if len(cells) == len(STAGES) and all(batch in row["us"] for row in cells.values()):
                found[size, name] = sum(row["us"][batch] for row in cells.values())
    return found


def gains(rows: Sequence[Row], batch: str = "1") -> dict[str, float]:
    """Return how many times as fast as T1 T5 is, by stage as the paper calls it."""
    systems = systems_of(rows, batch)
    found = {}
    for stage, name in SHORT.items():
        t1, t5 = (systems.get(system, {}).get(stage) for system in ("T1", "T5"))
        if t1 and t5:
            found[name] = t1["us"][batch] / t5["us"][batch]
    return found


def _gain(rows: Sequence[Row]) -> str:
    said = gains(rows)
    below = [name for name, gain in said.items() if gain < WANTED_GAIN]
    text = "T5 against T1: " + ", ".join(f"{name} {gain:.2f}" for name, gain in said.items()) + "."
    if below:
        text += f" Less than {WANTED_GAIN:.0f} at {', '.join(below)}: see the counters below."
    return text


def _counters(result: Row) -> list[str]:
    rows = result["sections"].get("counters", ())
    if not rows:
        return []
    names = [name for name in rows[0] if name not in ("planes", "stage", "system")]
    table = [("stage", "system", *names)]
    for row in rows:
        cells = (f"{row[name]:.3g}" if name in row else NONE for name in names)
        table.append((SHORT[row["stage"]], row["system"], *cells))
    return [
        "Hardware counters of one launch (Nsight Compute, which empties the caches before; T1's "
        "inhibition, a launch of its own, left out):",
        table_of(table),
    ]


def threads(result: Row, figures: str) -> list[str]:
    """Return Fig. 6: block sizes."""
    tried = [row for row in rows_of(result, "ladder", "trial") if "us" in row]
    if not tried:
        return []
    table = [("planes", "system", *(f"{name}, threads" for name in SHORT.values()))]
    for size in dict.fromkeys(row["planes"] for row in tried):
        for system in dict.fromkeys(row["system"] for row in tried):
            cells = []
            for stage in STAGES:
                own = [
                    r
                    for r in tried
                    if (r["planes"], r["system"], r["stage"]) == (size, system, stage)
                ]
                best = min(own, key=lambda row: row["us"], default=None)
                cells.append(f"{best['threads']} of {len(own)} tried" if best else NONE)
            table.append((size, system, *cells))
    theirs = ", ".join(map(str, paper.BEST_THREADS))
    return [
        "### Threads per block (Fig. 6)",
        f"![Time by threads per block]({figures}/{FIGURE})",
        f"Every number of places a block that fits is tried. The paper's best: {theirs}; its "
        "plotted values are not in our copy.",
        table_of(table),
    ]


def _us(value: float | None) -> str:
    return NONE if value is None else f"{value:.1f}" if value >= 1 else f"{value:.3f}"
