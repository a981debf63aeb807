"""The S-layers' experiments as tables and a figure: what ``neocog bench report`` makes of them."""

from pathlib import Path
from typing import Any

from experiments.harness.markdown import left
from experiments.harness.markdown import table as table_of
from experiments.slayer import paper
from experiments.slayer.ladder import FIGURE, ladder, sums, threads, threads_figure
from experiments.slayer.summary import FIGURE as LADDER_FIGURE
from experiments.slayer.summary import MANY, ladder_figure, summary
from experiments.slayer.tables import (
    character,
    cpu,
    energy,
    future,
    made_on,
    missing,
    number,
    passes_of,
    rows_of,
    silence,
    skipping,
)

__all__ = ["headline", "lines", "section", "summary", "systems", "verdict", "write_figures"]

Row = dict[str, Any]


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
    for make in (ladder, threads, cpu, silence, skipping, character, future, energy):
        parts += make(result, figures)
    parts += ["### Earlier systems (Table 1)", headline(result), missing(result), left(result)]
    return "\n\n".join(part for part in parts if part) + "\n"


def lines(result: Row) -> list[str]:
    """Return the result as lines for a terminal."""
    return section(result).splitlines()


def write_figures(result: Row, folder: Path) -> list[Path]:
    """Draw the ladder, and Fig. 6, of what the result has; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    tried = [row for row in rows_of(result, "ladder", "trial") if "us" in row]
    drawn = {FIGURE: threads_figure(tried)} if tried else {}
    if rows_of(result, "ladder", "rows"):
        drawn[f"{LADDER_FIGURE}.svg"] = ladder_figure(result)
    for name, text in drawn.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in drawn]


def verdict(result: Row) -> str:
    """Return in one or two sentences what came out."""
    found = sums(result)
    size = next((size for size, _ in found), None)
    if size is None:
        return "Not measured on a GPU yet."
    t1, t5 = (found.get((size, name)) for name in ("T1", "T5"))
    auto, skip = found.get((size, "ours, auto, fp16")), found.get((size, "skip"))
    text = "One character at a time"
    if t1 and t5:
        pays = "pays" if t1 > t5 else "does not pay"
        text += f" the paper's ladder {pays}: T5 is {t1 / t5:.2f} times as fast as T1"
    if t5 and skip:
        text += f"; leaving out silent inputs is {t5 / skip:.1f} times as fast as T5"
    if t5 and auto:
        text += f"; ours in fp16 {t5 / auto:.1f} times"
    many = sums(result, MANY)
    t1, t5 = (many.get((size, name)) for name in ("T1", "T5"))
    if t1 and t5:
        pays = "pays" if t1 > t5 else "does not pay"
        text += f". {MANY} at a time the ladder {pays}: {t1 / t5:.2f} times"
    return f"{text}."


#: Columns of the table of all systems.
COLUMNS = ("year", "system", "on", "picture", "a character", "characters a second")
#: Sections that its rows of ours come from, ...
OURS = ("cpu_frame", "character", "devices")
#: ... and all those that time whole passes of a model.
_PASSES = (*OURS, "in_flight", "overlap", "energy")


def headline(result: Row) -> str:
    """Return the table from 1990 to today, a line for each system, ours last."""
    return table_of([COLUMNS, *systems(result)])


def systems(result: Row) -> list[tuple[str, ...]]:
    """Return the rows of that table: the paper's Table 1, the paper itself, ours as measured."""
    rows: list[tuple[str, ...]] = [
        (str(year), who, where, picture, says, number(1 / seconds))
        for year, who, where, picture, says, seconds in paper.EARLIER
    ]
    year, sections = result["date"][:4], result["sections"]

    def ours(what: str, where: str, us: float, each: float | None = None) -> None:
        time = f"{1e-3 * us:.2g} ms" if us >= 1000 else f"{us:.3g} us"
        rows.append((year, what, where, "65x65", time, number(each or 1e6 / us)))

    for row in sections.get("cpu_frame", ()):
        if row["threads"] == 1:
            where = str(made_on(result, "cpu_frame").get("cpu") or "").partition(" of ")[2]
            ours(
                passes_of(result, "cpu_frame"), f"one core of {where or 'a CPU'}", 1e3 * row["ms_1"]
            )
    for row in sections.get("character", ()):
        if row["batch"] == 1:
            machine = made_on(result, "character").get("machine")
            what = f"{passes_of(result, 'character')}, one at a time"
            ours(what, str(machine), row["in_all_us"])
    for row in sections.get("devices", ()):
        machine = made_on(result, "devices").get("machine")
        where = str(machine) if row["gpus"] == 1 else f"{row['gpus']} {machine}"
        what = f"{passes_of(result, 'devices')}, batches of {row['batch']}"
        ours(what, where, 1e6 / row["per_second"], row["per_second"])
    return rows


# -- parts of the section --------------------------------------------------------------------------
def _origin(result: Row) -> str:
    """Tell which command measured what, where."""
    by: dict[tuple[str, ...], list[str]] = {}
    for name in result["sections"]:
        made = made_on(result, name)
        told = [str(made[key]) for key in ("machine", "cpu", "commit", "date") if made.get(key)]
        by.setdefault((str(made.get("command")), *dict.fromkeys(told)), []).append(name)
    lines = []
    for (command, *about), names in by.items():
        models = dict.fromkeys(passes_of(result, name) for name in names if name in _PASSES)
        about += [f"whole passes of {model}" for model in models]
        lines.append(f"- {', '.join(names)}: `{command}`, {', '.join(about)}")
    driver = f" Driver {result['driver']}." if result.get("driver") else ""
    return (
        f"Digits: {result['digits']}. Every layer is fed with the maps of the layer before and "
        f"held against float64 before it is timed.{driver} Paper: GTX 280, Core2 Duo at 2.33 GHz, "
        "400 characters of Fukushima's.\n\n" + "\n".join(lines)
    )
