"""Tables of the S-layers' experiments on one CPU core."""

from collections.abc import Iterable, Sequence
from math import fsum
from typing import Any

from experiments.harness.pages import NONE, Row, Table, span
from experiments.slayer import paper
from experiments.slayer.inputs import STAGES

#: Stages as the paper calls them.
SHORT = {stage: f"S{stage[-1]}" for stage in STAGES}


def slashed(values: Iterable[float | None], form: str = ".0f") -> str:
    known = [value for value in values if value is not None]
    return " / ".join(format(value, form) for value in known) or NONE


def each(rows: Iterable[Row], key: str) -> dict[Any, list[Row]]:
    found: dict[Any, list[Row]] = {}
    for row in rows:
        found.setdefault(row[key], []).append(row)
    return found


def cpu_tables(rows: Sequence[Row]) -> dict[str, Table]:
    """Tables 6 and 7: one CPU core; and what cache blocking gives."""
    found: dict[str, Table] = {}
    ways = tuple(paper.BLOCKING)
    blocking: Table = [("planes", *(f"{way} blocked, % quicker" for way in ways))]
    blocking.append(("paper", *("{:+} to {:+}".format(*paper.BLOCKING[way]) for way in ways)))
    for size, of_size in each(rows, "planes").items():
        own = each(of_size, "system")
        head = (f"{size} planes", *SHORT.values(), "all", "MB/s", "MFLOPS", "paper, ms",
                "paper, MB/s", "paper, MFLOPS")  # fmt: skip
        found[f"CPU {size}"] = [head, *(_core(name, cells, size) for name, cells in own.items())]
        pairs = [(own.get(way, ()), own.get(f"{way} blocked", ())) for way in ways]
        gains = [
            [100 * (one["ms"] / other["ms"] - 1) for one, other in zip(*both, strict=False)]
            for both in pairs
        ]
        blocking.append((size, *(span(values, "+.1f") for values in gains)))
    return {**found, "blocking": blocking if rows else []}


def accesses(rows: Sequence[Row]) -> Table:
    """Sections 5.2 and 5.3: what F and G read and write, in millions."""
    kinds = [("CPU F", "read us"), ("CPU F", "write us"), ("CPU G", "read us"),
             ("CPU G", "write us"), ("CPU F", "read v"), ("CPU F", "write v"),
             ("CPU F", "read u for v")]  # fmt: skip
    found: Table = [("planes", "F reads u_S", "F writes u_S", "G reads u_S", "G writes u_S",
                     "F reads v", "F writes v", "F reads u_C for v")]  # fmt: skip
    theirs = (*paper.SCATTER, *paper.GATHER, *paper.SCATTER_V)
    found.append(("paper", *(f"{value:g}" for value in theirs)))
    for size, own in each(rows, "planes").items():
        counts = (sum(row["counts"][kind] for row in own if row["system"] == way)
                  for way, kind in kinds)  # fmt: skip
        found.append((size, *(f"{1e-6 * count:.3g}" for count in counts)))
    return found if rows else []


def shares(cores: Sequence[Row], frames: Sequence[Row]) -> Table:
    """Section 3.4: how much of a character's time on one core the S-layers take."""
    ms = paper.CHARACTER_MS["CPU F"]
    found = [("paper, CPU F", fsum(paper.CPU_MS["CPU F"]), ms)]
    own = each((row for row in cores if row["planes"] == paper.SIZE), "system")
    spent = {name: fsum(row["ms"] for row in rows) for name, rows in own.items()}
    whole = next((row["ms_1"] for row in frames if row["threads"] == 1), None)
    if whole is None or "our CPU engine" not in spent:
        return []
    for name in ("CPU F", "our CPU engine"):
        found.append((name, spent[name], whole - spent["our CPU engine"] + spent[name]))
    return [
        ("", "S-layers, ms", "one character, ms", "share"),
        *((name, f"{part:.2f}", f"{all_:.2f}", f"{part / all_:.0%}") for name, part, all_ in found),
    ]


def _core(name: str, cells: Sequence[Row], size: str) -> tuple[str, ...]:
    theirs = [known.get(name, ()) if size == paper.SIZE else ()
              for known in (paper.CPU_MS, paper.CPU_MB_S, paper.CPU_MFLOPS)]  # fmt: skip
    return (
        name,
        *(f"{row['ms']:.2f}" for row in cells),
        f"{sum(row['ms'] for row in cells):.2f}",
        *(slashed(row.get(key) for row in cells) for key in ("mb_s", "mflops")),
        *(slashed(values, ".3g") for values in theirs),
    )


def gpu_beside_cpu(rows: Sequence[Row], cores: Sequence[Row]) -> Table:
    """Table 7: how many times as fast as each CPU way T5 and B are."""
    gpu = {(row["planes"], row["system"], row["stage"]): row["us"]["1"] for row in rows}
    found: Table = [("planes", "times as fast", *SHORT.values(), "paper")]
    for size, own in each(cores, "planes").items():
        for system in ("T5", "B"):
            if not all((size, system, stage) in gpu for stage in STAGES):
                continue
            for way, cells in each(own, "system").items():
                us = {row["stage"]: 1e3 * row["ms"] for row in cells}
                gains = (f"{us[s] / gpu[size, system, s]:.0f}" for s in STAGES)
                theirs = _paper_gain(system, way) if size == paper.SIZE else NONE
                found.append((size, f"{system} as {way}", *gains, theirs))
    return found


def _paper_gain(system: str, way: str) -> str:
    if system == "B":
        return "{} to {}".format(*paper.B_OVER_F) if way == "CPU F" else NONE
    times = zip(paper.CPU_MS.get(way, ()), paper.GPU_US[system], strict=False)
    return slashed(1e3 * ms / us for ms, us in times)
