"""Plots of the S-layers' experiments."""

from experiments.harness.pages import Plot, Row
from experiments.slayer import paper
from experiments.slayer.cpu_tables import SHORT
from experiments.slayer.inputs import STAGES
from experiments.slayer.tables import SHOWN, rows_of, shown_size, systems_of


def plots(result: Row) -> dict[str, Plot]:
    found = {}
    tried = rows_of(result, "ladder", "trial")
    if tried:
        lines = {}
        for stage, name in SHORT.items():
            key = (shown_size(row["planes"] for row in tried), stage, "T4")
            own = [r for r in tried if (r["planes"], r["stage"], r["system"]) == key]
            if own:
                best = min(row["us"] for row in own)
                points = sorted((row["threads"], row["us"] / best) for row in own)
                lines[f"{name}, best {best:.0f} us"] = [p for p in points if p[1] <= 4]
        title = "Time of T4 by threads per block"
        found["threads"] = Plot(title, "threads per block", "time by the least", lines)
    rows = rows_of(result, "ladder", "rows")
    if rows:
        size = shown_size(row["planes"] for row in rows)
        systems = systems_of([row for row in rows if row["planes"] == size], "1")
        first = systems.get("T1", {})
        lines = {
            name: [(i, first[stage]["us"]["1"] / cells[stage]["us"]["1"])
                   for i, stage in enumerate(STAGES) if stage in cells and stage in first]
            for name, cells in systems.items() if name in SHOWN[1:]
        }  # fmt: skip
        theirs = zip(paper.GPU_US["T1"], paper.GPU_US["T5"], strict=True)
        lines["T5 on a GTX 280 (paper)"] = [(i, a / b) for i, (a, b) in enumerate(theirs)]
        title, ticks = f"The ladder on {size}, one character at a time", list(SHORT.values())
        y = "times as fast as T1"
        found["ladder"] = Plot(title, "layer", y, lines, ticks, log2=True)
    return found
