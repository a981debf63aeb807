"""Tables and plots of the S-layers' experiments."""

from collections.abc import Iterable, Sequence
from math import fsum
from typing import Any

from experiments.harness.pages import MEASURED, NONE, Column, Plot, Row, Table, measured, show, span, table
from experiments.slayer import paper
from experiments.slayer.inputs import STAGES
from experiments.slayer.paper import COLUMNS, PASSES, made_on, number, passes_of, systems

#: Stages as the paper calls them.
SHORT = {stage: f"S{stage[-1]}" for stage in STAGES}
MANY = "256"
SHOWN = ("T1", "T3", "T4", "T5", "T5, u > 0", "skip", "ours, auto, fp32", "ours, auto, fp16")
#: What the sections on a GPU measure, in words.
_ON_GPU = {
    "ladder": "the ladder", "compact": "silent cells left out on tensor cores",
    "character": "one whole character and a frame's eight on the GPU, from host to host",
    "in_flight": "characters in flight", "overlap": "transfers beside work",
}  # fmt: skip


def tables(result: Row) -> dict[str, Table]:
    """The sections counters, devices and energy are of earlier commits, whose code measured them."""
    sections = result["sections"]
    ladder, tried = (rows_of(result, "ladder", part) for part in ("rows", "trial"))
    cores, cpu = sections.get("cpu", ()), sections.get("cpu_frame", ())
    silence = sections.get("silence", ())
    absent = [words for name, words in _ON_GPU.items() if not sections.get(name)]
    return {
        "measured": _measured(result), **_ladders(ladder),
        "counters": _counters(sections.get("counters", ())), "threads": _threads(tried), **cpu_tables(cores),
        "accesses": accesses(sections.get("accesses", ())), "shares": shares(cores, cpu),
        "GPU beside CPU": gpu_beside_cpu(ladder, cores), "silence": _silence(silence),
        "blocks": table(_BLOCKS, [row for row in silence if "blocks" in row]),
        "skipping": _skipping(result, ladder), "character": _character(sections.get("character", ()), cpu),
        "in flight": table(_IN_FLIGHT, sections.get("in_flight", ())),
        "overlap": table(_OVERLAP, sections.get("overlap", ())),
        "devices": table(_DEVICES, sections.get("devices", ())),
        "energy": _energy(sections.get("energy", ()), cpu), "systems": [COLUMNS, *systems(result)],
        "missing": [(what, "not measured") for what in absent],
    }  # fmt: skip


def rows_of(result: Row, name: str, part: str) -> list[Row]:
    return [row for row in result["sections"].get(name, {}).get(part, []) if "us" in row]


def _rate(row: Row) -> str:
    return number(row["per_second"])


_BLOCKS: dict[str, Column] = {
    "model": "model", "layer": lambda row: SHORT[row["stage"]], "silent cells": "cells_silent|.1%",
    "blocks of 16 x 16 needed": "blocks|.1%", "silent cells left out first": "blocks_of_heard_cells|.1%",
}  # fmt: skip
_IN_FLIGHT: dict[str, Column] = {
    "characters in flight": "in_flight", "together, us": "together|.2f",
    "one by one, us": "one after another|.2f", "pipeline of four stages, us": "pipeline|.2f",
}  # fmt: skip
_OVERLAP: dict[str, Column] = {
    "lanes": "lanes", "batch": "batch", "us a character, host to host": "us|.3f",
    "the graph alone": "graph_alone_us|.3f",
}  # fmt: skip
_JOULES: dict[str, Column] = {"joules per 1000 characters": "joules_per_1000|.3g"}
_DEVICES: dict[str, Column] = {
    "GPUs": "gpus", "batch per GPU": "batch", "characters a second": _rate, "efficiency": "efficiency|.1%",
    "watts": "watts|.0f", **_JOULES,
}  # fmt: skip


def _measured(result: Row) -> Table:
    by: dict[str, Row] = {}
    for name in result["sections"]:
        facts = made_on(result, name)
        model = [f"whole passes of {passes_of(result, name)}"] if name in PASSES else []
        cpu = [facts["cpu"]] if facts.get("cpu") not in (None, facts.get("machine")) else []
        row = measured(facts, *cpu, *model)
        before = by.setdefault(str([row["command"], row["commit"], row["date"]]), row)
        before["what"] = name if before is row else f"{before['what']}, {name}"
        if model:  # some of its sections may have no passes
            before["with"] = row["with"]
    return table(MEASURED, by.values())


def slashed(values: Iterable[float | None], form: str = ".0f") -> str:
    known = [value for value in values if value is not None]
    return " / ".join(format(value, form) for value in known) or NONE


def each(rows: Iterable[Row], key: str) -> dict[Any, list[Row]]:
    found: dict[Any, list[Row]] = {}
    for row in rows:
        found.setdefault(row[key], []).append(row)
    return found


# -- one core of a CPU -----------------------------------------------------------------------------
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
            [100 * (one["ms"] / other["ms"] - 1) for one, other in zip(*both, strict=False)] for both in pairs
        ]
        blocking.append((size, *(span(values, "+.1f") for values in gains)))
    return {**found, "blocking": blocking if rows else []}


def accesses(rows: Sequence[Row]) -> Table:
    """Sections 5.2 and 5.3: what F and G read and write, in millions."""
    kinds = {"F reads u_S": "read us", "F writes u_S": "write us", "G reads u_S": "read us",
             "G writes u_S": "write us", "F reads v": "read v", "F writes v": "write v",
             "F reads u_C for v": "read u for v"}  # fmt: skip
    theirs = (*paper.SCATTER, *paper.GATHER, *paper.SCATTER_V)
    found: Table = [("planes", *kinds), ("paper", *(f"{value:g}" for value in theirs))]
    for size, own in each(rows, "planes").items():
        counts = (sum(row["counts"][kind] for row in own if row["system"] == f"CPU {head[0]}")
                  for head, kind in kinds.items())  # fmt: skip
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
                theirs = NONE
                if size == paper.SIZE and system == "T5":
                    times = zip(paper.CPU_MS.get(way, ()), paper.GPU_US["T5"], strict=False)
                    theirs = slashed(1e3 * ms / us for ms, us in times)
                elif size == paper.SIZE and way == "CPU F":
                    theirs = "{} to {}".format(*paper.B_OVER_F)
                found.append((size, f"{system} as {way}", *gains, theirs))
    return found


# -- the ladder ------------------------------------------------------------------------------------
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


def _sums(rows: Sequence[Row], batch: str) -> dict[str, float]:
    """Return microseconds of the S-layers of one character by system."""
    return {
        name: fsum(row["us"][batch] for row in cells.values())
        for name, cells in systems_of(rows, batch).items()
        if len(cells) == len(STAGES) and all(batch in row["us"] for row in cells.values())
    }


def _us(value: float | None) -> str:
    return NONE if value is None else f"{value:.1f}" if value >= 1 else f"{value:.3f}"


def _ratio(sums: dict[str, float], name: str) -> str:
    return f"{sums['T1'] / sums[name]:.2f}" if {"T1", name} <= sums.keys() else NONE


def shown_size(sizes: Iterable[str]) -> str:
    """Return the network that is shown first: the paper's own where it was measured."""
    known = list(sizes)
    return next((size for size in (paper.OWN, paper.SIZE) if size in known), known[0])


def _ladders(rows: Sequence[Row]) -> dict[str, Table]:
    """Table 5 by planes and batch, in short, and how much T5 gains."""
    sizes = each(rows, "planes")
    found: dict[str, Table] = {}
    if rows:
        found["ladder"] = _ladder_in_short(sizes[shown_size(sizes)])
    gains: Table = [("T1 / T5", *SHORT.values())]
    for size, own in sizes.items():
        for batch in own[0]["us"]:
            found[f"ladder {size} batch {batch}"] = _ladder(own, batch, size)
        by = systems_of(own, "1")
        us = [[by.get(name, {}).get(s, {}).get("us", {}).get("1") for name in ("T1", "T5")]
              for s in STAGES]  # fmt: skip
        gains.append((size, *(f"{a / b:.2f}" if a and b else NONE for a, b in us)))
    return {**found, "gains": gains}


def _ladder(rows: Sequence[Row], batch: str, size: str) -> Table:
    """Table 5: microseconds of a character."""
    head = ("system", *SHORT.values(), "all", "T1 / it", "largest error", "paper, S1 .. S4")
    sums, known = _sums(rows, batch), size in (paper.OWN, paper.SIZE) and batch == "1"
    return [head, *(
        (
            name,
            *(_us(cells[stage]["us"][batch]) if stage in cells else NONE for stage in STAGES),
            _us(sums.get(name)),
            _ratio(sums, name),
            f"{max(row['error'] for row in cells.values()):.0e}",
            slashed(paper.GPU_US.get(name, ()) if known else ()),
        )
        for name, cells in systems_of(rows, batch).items()
    )]  # fmt: skip


def _ladder_in_short(rows: Sequence[Row]) -> Table:
    """The ladder, silent inputs left out, and ours, beside the paper's gains."""
    one, many = _sums(rows, "1"), _sums(rows, MANY)
    found: Table = [("system", *(f"{s}, us" for s in SHORT.values()), "all", "T1 / it",
                     f"T1 / it, {MANY} at a time", "T1 / it in the paper, S1 .. S4")]  # fmt: skip
    for name, cells in systems_of(rows, "1").items():
        if name in SHOWN and name in one:
            theirs = zip(paper.GPU_US["T1"], paper.GPU_US.get(name, ()), strict=False)
            us = (f"{cells[stage]['us']['1']:.1f}" for stage in STAGES)
            gains = (_ratio(sums, name) for sums in (one, many))
            found.append((name, *us, f"{one[name]:.1f}", *gains,
                          slashed((a / b for a, b in theirs), ".1f")))  # fmt: skip
    return found


def _counters(rows: Sequence[Row]) -> Table:
    """The counters of each launch; the paper's (section 6.3) are of T5's four together."""

    def rate(row: Row) -> str:
        moved = row.get("kB of memory")
        return f"{moved / row['us']:.3g}" if moved else f"{paper.GB_S[0]} of {paper.GB_S[1]}"

    kinds = [name for name in (rows or [{}])[0] if name not in ("planes", "stage", "system")]
    columns: dict[str, Column] = {"stage": lambda row: SHORT.get(row["stage"], "all")}
    columns |= {"system": "system", **{kind: f"{kind}|.3g" for kind in kinds}}
    theirs = {"stage": "all", "system": "paper, T5", "% of issue slots": 100 * paper.ISSUED}
    return table(columns | {"GB/s of memory": rate}, [*rows, theirs] if rows else [])


def _threads(tried: Sequence[Row]) -> Table:
    """Fig. 6: the best block sizes."""
    found: Table = [("planes", "system", *(f"{name}, threads" for name in SHORT.values()))]
    for size, of_size in each(tried, "planes").items():
        for system, own in each(of_size, "system").items():
            by = each(own, "stage")
            best = (min(by[s], key=lambda row: float(row["us"])) if s in by else None
                    for s in STAGES)  # fmt: skip
            cells = (f"{row['threads']} of {len(by[row['stage']])} tried" if row else NONE
                     for row in best)  # fmt: skip
            found.append((size, system, *cells))
    return [*found, ("paper", "T4", *map(str, paper.BEST_THREADS))] if tried else found


# -- silence ---------------------------------------------------------------------------------------
def _silence(rows: Sequence[Row]) -> Table:
    """Table 8: the share of an S-layer's inputs that are not silent."""
    stages = ("all", *STAGES)
    found: Table = [("not silent", *(SHORT.get(stage, stage) for stage in stages))]
    if rows:
        found.append(("paper", *(f"{paper.HEARD[stage]:.1%}" for stage in stages)))
    for model, own in each(rows, "model").items():
        heard = {row["stage"]: row["heard"] for row in own}
        found.append((model, *(f"{heard[stage]:.1%}" for stage in stages)))
    return found


def _skipping(result: Row, gpu: Sequence[Row]) -> Table:
    """How many times as fast it is to leave out what is silent."""
    cpu = result["sections"].get("cpu", ())
    ways = (("CPU: S / F", cpu, ("CPU S", "CPU F")), ("GPU, CUDA cores: T5 / skip", gpu, ("T5", "skip")))
    gains: dict[tuple[str, str], dict[str, float]] = {}
    for size in dict.fromkeys(row["planes"] for row in (*cpu, *gpu)):
        for name, rows, pair in ways:
            own = {(r["system"], r["stage"]): r["ms"] if "ms" in r else r["us"]["1"]
                   for r in rows if r["planes"] == size}  # fmt: skip
            if all((system, stage) in own for system in pair for stage in STAGES):
                gains[size, name] = {s: own[pair[0], s] / own[pair[1], s] for s in STAGES}
    for row in result["sections"].get("compact", ()):
        if len(row.get("us", {})) == 2:
            name = f"GPU, tensor cores: all / heard cells, batch {row['batch']}"
            gain = row["us"]["all cells"] / row["us"]["silent cells left out"]
            gains.setdefault((row["planes"], name), {})[row["stage"]] = gain
    return [
        ("planes", "way", *SHORT.values()),
        *((*key, *(show(own.get(s), ".2f") for s in STAGES)) for key, own in gains.items()),
    ]


# -- whole characters ------------------------------------------------------------------------------
def _character(rows: Sequence[Row], cores: Sequence[Row]) -> Table:
    found: Table = [("", "one character", "eight", "eight, 30 times a second, take")]
    for row in cores:
        share = f"{row['share_of_cores']:.1%} of the time of {row['threads']} core(s)"
        name = f"CPU engine, {row['threads']} thread(s)"
        found.append((name, f"{row['ms_1']:.2f} ms", f"{row['ms_8']:.2f} ms", share))
    if rows:
        one, eight = rows[0], rows[-1]
        for name, key, share in (
            ("on the GPU", "pass_us", f"{eight['share_of_gpu']:.3%} of the GPU's time"),
            ("transfers, launch, waiting", "transfers_us", NONE),
            ("host to host", "in_all_us", f"{eight['share_of_time']:.3%} of the time"),
        ):
            found.append((name, f"{one[key]:.1f} us", f"{eight[key]:.1f} us", share))
    if rows or cores:
        ms = paper.CHARACTER_MS
        wanted = f"wanted: {ms['wanted']} ms a character"
        transfers = f"{ms['transfers']} ms of it transfers"
        found.append(("paper, CPU", f"{ms['CPU F']} ms", NONE, wanted))
        found.append(("paper, GPU", f"{ms['GPU T']} ms", NONE, transfers))
    return found


def _energy(rows: Sequence[Row], cores: Sequence[Row]) -> Table:
    cpu = next((row["ms_1"] for row in cores if row["threads"] == 1), None)
    columns: dict[str, Column] = {
        "": "what", "watts": "watts|.0f", "characters a second": _rate, **_JOULES,
        "CPU engine, one thread, seconds per 1000": lambda row: show(cpu, ".2f"),
    }  # fmt: skip
    return table(columns, rows)


# -- plots -----------------------------------------------------------------------------------------
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
