"""The S-layers' experiments as tables and a figure: what ``neocog bench report`` makes of them."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from neocog.bench import slayer_paper as paper
from neocog.bench.figures import Axis, Line, standalone
from neocog.bench.markdown import left
from neocog.bench.markdown import table as table_of
from neocog.bench.slayer_inputs import STAGES
from neocog.bench.slayer_tables import (
    NONE,
    SHORT,
    character,
    cpu,
    energy,
    future,
    number,
    rows_of,
    silence,
    skipping,
)

Row = dict[str, Any]
_FIGURE = "slayer-threads.svg"
_WANTED_GAIN = 2.0  # of T5 over T1


def section(result: Row, *, figures: str = "figures") -> str:
    """Return the section of ``docs/experiments.md``.

    Parameters
    ----------
    result : dict
        What ``neocog bench slayer -o`` writes.
    figures : str
        Folder of the figures, as a link from the page.
    """
    parts = ["## The neocognitron's S-layers (Ikeda et al. 2011)", _origin(result)]
    for make in (_ladder, _threads, cpu, silence, skipping, character, future, energy):
        parts += make(result, figures)
    parts += ["### Earlier systems (Table 1)", headline(result), left(result)]
    return "\n\n".join(part for part in parts if part) + "\n"


def lines(result: Row) -> list[str]:
    """Return the result as lines for a terminal."""
    return section(result).splitlines()


def write_figures(result: Row, folder: Path) -> list[Path]:
    """Draw Fig. 6 of what the result has; return the files."""
    tried = [row for row in rows_of(result, "ladder", "trial") if "us" in row]
    if not tried:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / _FIGURE
    path.write_text(threads_figure(tried), encoding="utf-8")
    return [path]


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
    y = Axis("time by the least", 0.9, 4.0, [(n, f"{n}") for n in (1, 1.5, 2, 2.5, 3, 3.5, 4)])
    return standalone(curves, x, y, title="Time of T5 by threads per block")


def verdict(result: Row) -> str:
    """Return in one or two sentences what came out."""
    sums = _sums(result)
    size = next((size for size, _ in sums), None)
    if size is None:
        return "Not measured on a GPU yet."
    t1, t5 = (sums.get((size, name)) for name in ("T1", "T5"))
    auto, skip = sums.get((size, "ours, auto, fp16")), sums.get((size, "skip"))
    text = (
        f"The paper's ladder still pays: T5 {t1 / t5:.1f} times as fast as T1" if t1 and t5 else ""
    )
    if t5 and t1 and t5 > t1:
        text = f"The paper's ladder does not pay any more: T5 takes {t5 / t1:.1f} times T1's time"
    if t5 and skip:
        text += f"; leaving out silent inputs {t5 / skip:.1f} times as fast as T5"
    if t5 and auto:
        text += f"; ours {t5 / auto:.1f} times"
    return text + "."


#: Columns of the table of all systems.
COLUMNS = ("year", "system", "on", "picture", "a character", "characters a second")


def headline(result: Row) -> str:
    """Return the table from 1990 to today, a line for each system, ours last."""
    return table_of([COLUMNS, *systems(result)])


def systems(result: Row) -> list[tuple[str, ...]]:
    """Return the rows of that table: the paper's Table 1, the paper itself, ours as measured."""
    rows: list[tuple[str, ...]] = [
        (str(year), who, where, picture, says, number(1 / seconds))
        for year, who, where, picture, says, seconds in paper.EARLIER
    ]
    year, machine, sections = result["date"][:4], result["machine"], result["sections"]

    def ours(what: str, where: str, us: float, each: float | None = None) -> None:
        time = f"{1e-3 * us:.2g} ms" if us >= 1000 else f"{us:.3g} us"
        rows.append((year, what, where, "65x65", time, number(each or 1e6 / us)))

    for row in sections.get("cpu_frame", ()):
        if row["threads"] == 1:
            ours("neocog", f"one core of {_cpu_name(result)}", 1e3 * row["ms_1"])
    for row in sections.get("character", ()):
        if row["batch"] == 1:
            ours("neocog, one at a time", machine, row["in_all_us"])
    for row in sections.get("devices", ()):
        where = machine if row["gpus"] == 1 else f"{row['gpus']} {machine}"
        us = 1e6 / row["per_second"]
        ours(f"neocog, batches of {row['batch']}", where, us, row["per_second"])
    return rows


# -- parts of the section --------------------------------------------------------------------------
def _origin(result: Row) -> str:
    names = ("machine", "driver", "cpu", "commit", "date")
    told = dict.fromkeys(str(result[name]) for name in names if result.get(name))
    about = ", ".join(told)
    return (
        f"`{result['command']}`: {about}. Digits: {result['digits']}. Every layer is fed with the "
        "maps of the layer before and held against float64 before it is timed. Paper: GTX 280, "
        "Core2 Duo at 2.33 GHz, 400 characters of Fukushima's."
    )


def _ladder(result: Row, figures: str) -> list[str]:
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
    for name, cells in _systems(rows, batch).items():
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


def _systems(rows: Iterable[Row], batch: str) -> dict[str, dict[str, Row]]:
    """Rows of right results by system and stage; ours by plan and precision."""
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


def _sums(result: Row) -> dict[tuple[str, str], float]:
    """Microseconds of the S-layers of one character, by network and system."""
    rows = [row for row in rows_of(result, "ladder", "rows") if "us" in row]
    sums = {}
    for size in dict.fromkeys(row["planes"] for row in rows):
        own = [row for row in rows if row["planes"] == size]
        for name, cells in _systems(own, "1").items():
            if len(cells) == len(STAGES):
                sums[size, name] = sum(row["us"]["1"] for row in cells.values())
    return sums


def _gain(rows: Sequence[Row]) -> str:
    systems = _systems(rows, "1")
    said = []
    for stage, name in SHORT.items():
        t1, t5 = (systems.get(system, {}).get(stage) for system in ("T1", "T5"))
        if t1 and t5:
            said.append((name, t1["us"]["1"] / t5["us"]["1"]))
    below = [name for name, gain in said if gain < _WANTED_GAIN]
    text = "T5 against T1: " + ", ".join(f"{name} {gain:.2f}" for name, gain in said) + "."
    if below:
        text += f" Less than {_WANTED_GAIN:.0f} at {', '.join(below)}: see the counters below."
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
    return ["Hardware counters of one launch (Nsight Compute):", table_of(table)]


def _threads(result: Row, figures: str) -> list[str]:
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
        f"![Time by threads per block]({figures}/{_FIGURE})",
        f"Every number of places a block that fits is tried. The paper's best: {theirs}; its "
        "plotted values are not in our copy.",
        table_of(table),
    ]


def _us(value: float | None) -> str:
    return NONE if value is None else f"{value:.1f}" if value >= 1 else f"{value:.3f}"


def _cpu_name(result: Row) -> str:
    return str(result.get("cpu", "")).partition(" of ")[2] or "a CPU"
