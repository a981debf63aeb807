"""Pages of results: tables put into a page between its markers, and plots.

A table stands in a page between ``<!-- table NAME -->`` and ``<!-- end -->``.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.harness.run import Result, of
from neocog.errors import UsageError

FOLDER = Path(__file__).resolve().parents[1]
NONE = "–"  # a cell that has no value
_PART = re.compile(r"(<!-- table ([^>]*?) -->\n).*?(<!-- end -->)", re.DOTALL)

Row = dict[str, Any]
#: The head, then a row of cells each.
Table = list[Sequence[str]]
#: How a cell is made of a record: "key", "key|format", or by a function; None is no value.
Column = str | Callable[[Any], Any]


def table(columns: Mapping[str, Column], records: Iterable[Any]) -> Table:
    return [list(columns), *([_cell(c, record) for c in columns.values()] for record in records)]


def _cell(column: Column, record: Any) -> str:
    if callable(column):
        return show(column(record))
    key, _, form = column.partition("|")
    return show(record.get(key), form)


def show(value: Any, form: str = "") -> str:
    return NONE if value is None else format(value, form)


def span(values: Iterable[float | None], form: str) -> str:
    """Return the least and the largest value as "a to b", or one of them if they look alike."""
    known = [value for value in values if value is not None]
    if not known:
        return NONE
    low, high = format(min(known), form), format(max(known), form)
    return low if low == high else f"{low} to {high}"


def markdown(rows: Table) -> str:
    """Return a table as Markdown, readable on a terminal as well."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]])


#: What a broken result raises, or one of older code.
_BROKEN = (KeyError, TypeError, AttributeError, IndexError)


def tables_of(name: str, result: Result) -> dict[str, Table]:
    """Return an experiment's tables; of a broken result or one of older code only what it lacks."""
    head = ("what", "why")
    if "failed" in result:
        return {"missing": [head, (name, result["failed"])]}
    left = [(what, "no time was left") for what in result.get("not_run", ())]
    left += [(f"section {what}", why) for what, why in (result.get("failures") or {}).items()]
    try:
        found: dict[str, Table] = of(name).tables(result)
    except _BROKEN as failure:
        why = f"this result cannot be shown ({type(failure).__name__}: {failure})"
        return {"missing": [head, (name, why)]}
    found["missing"] = [head, *left, *found.get("missing", [])]
    return {key: rows for key, rows in found.items() if len(rows) > 1}


def measured(facts: Mapping[str, Any], *names: str, what: str = "all") -> Row:
    """Return a record of the table ``measured``: what came from which command and machine."""
    usual = ("driver", "CUDA", "cuDNN", "torch")
    about = [f"{name} {facts[name]}" for name in usual if facts.get(name)]
    return {"what": what, "command": f"`{facts.get('command')}`", "machine": facts.get("machine"),
            "with": ", ".join([*about, *names]) or None,
            "commit": facts.get("commit"), "date": facts.get("date")}  # fmt: skip


MEASURED: dict[str, Column] = {key: key for key in measured({})}


def text(name: str, result: Result) -> str:
    """Return all tables of an experiment, each below its name."""
    found = tables_of(name, result)
    return "\n\n".join(f"{key}:\n\n{markdown(rows)}" for key, rows in found.items())


def fill(page: str, made: Callable[[str], str]) -> str:
    """Return a page with its tables made anew; ``made`` returns one by its name."""
    return _PART.sub(lambda found: f"{found[1]}{made(found[2])}\n{found[3]}", page)


def page_of(name: str, result: Result) -> str:
    tables = tables_of(name, result)
    page = (FOLDER / name / "README.md").read_text(encoding="utf-8")
    return fill(page, lambda key: markdown(tables[key]) if key in tables else "Nothing.")


def write_pages(results: Mapping[str, Result], path: Path) -> list[Path]:
    """Write the overview, each experiment's page beside it, and the plots; return the files."""
    pages = {path: (FOLDER / "README.md").read_text(encoding="utf-8")}
    pages |= {path.parent / name / "README.md": page_of(name, r) for name, r in results.items()}
    for file, page in pages.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(page, encoding="utf-8")
    plots = (draw(name, r, path.parent / name / "figures") for name, r in results.items())
    return [*pages, *(file for files in plots for file in files)]


@dataclass(frozen=True, slots=True)
class Plot:
    """Lines over numbers, or over places that ``ticks`` name; ``band``: a shaded share of y.

    With ``log2`` y goes by powers of 2.
    """

    title: str
    x: str
    y: str
    lines: Mapping[str, Sequence[tuple[float, float]]]
    ticks: Sequence[Any] = ()
    band: tuple[str, float, float] | None = None
    log2: bool = False


def draw(name: str, result: Result, folder: Path) -> list[Path]:
    """Draw an experiment's plots as SVG; return the files."""
    try:
        plots = {} if "failed" in result else of(name).plots(result)
    except _BROKEN:  # the page says so
        return []
    files = [folder / f"{name}-{key}.svg" for key in plots]
    for file, plot in zip(files, plots.values(), strict=True):
        folder.mkdir(parents=True, exist_ok=True)
        _draw(plot, file)
    return files


def _draw(plot: Plot, file: Path) -> None:
    try:
        import matplotlib
    except ImportError:
        raise UsageError("matplotlib is not installed; install neocog[bench]") from None
    from matplotlib.figure import Figure

    # the same file from the same numbers
    with matplotlib.rc_context({"svg.hashsalt": file.name, "svg.fonttype": "none"}):
        figure = Figure(figsize=(6.4, 4.0), layout="constrained")
        axes = figure.add_subplot(title=plot.title, xlabel=plot.x, ylabel=plot.y)
        for name, points in plot.lines.items():
            if points:
                axes.plot(*zip(*points, strict=True), marker="o", markersize=3, label=name)
        if plot.band is not None:
            name, low, high = plot.band
            axes.axhspan(low, high, alpha=0.2, label=name)
        if plot.ticks:
            axes.set_xticks(range(len(plot.ticks)), list(map(str, plot.ticks)))
        if plot.log2:
            axes.set_yscale("log", base=2)
            axes.yaxis.set_major_formatter("{x:g}")
        else:
            axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
        axes.grid(alpha=0.3)
        figure.legend(loc="outside lower center", ncols=2, fontsize="small")
        figure.savefig(file, metadata={"Date": None})
