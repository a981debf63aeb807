"""Tables and plots of results, put into pages between ``<!-- table NAME -->`` and ``<!-- end -->``."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neocog.errors import UsageError

try:
    import pandas as pd
except ImportError:
    raise UsageError("pandas is not installed; install neocog[bench]") from None

NONE = "–"  # a cell that has no value
_PART = re.compile(r"(<!-- table ([^>]*?) -->\n).*?(<!-- end -->)", re.DOTALL)

Row = dict[str, Any]


def show(value: Any, form: str = "") -> str:
    return NONE if value is None or value != value else format(value, form)


def span(values: Iterable[Any], form: str) -> str:
    """Return the least and the largest value as "a to b", or one of them if they look alike."""
    known = [value for value in values if value is not None and value == value]
    if not known:
        return NONE
    low, high = format(min(known), form), format(max(known), form)
    return low if low == high else f"{low} to {high}"


def shown(rows: Any, columns: Mapping[str, str]) -> pd.DataFrame:
    """Return chosen columns of rows (a frame, or records) as text; ``columns``: "head|format" by key."""
    frame = pd.DataFrame(rows, columns=list(columns), dtype=object)
    heads = {key: head.partition("|") for key, head in columns.items()}
    cells = {key: [show(value, form) for value in frame[key]] for key, (_, _, form) in heads.items()}
    found = pd.DataFrame(cells, dtype=str)
    found.columns = pd.Index([head for head, _, _ in heads.values()])
    return found


def markdown(table: pd.DataFrame) -> str:
    """Return a table of text as Markdown, readable on a terminal as well."""
    lines = [list(table.columns), ["---"] * table.shape[1], *table.to_numpy().tolist()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def text(tables: Mapping[str, pd.DataFrame]) -> str:
    """Return all tables of an experiment, each below its name."""
    return "\n\n".join(f"{key}:\n\n{markdown(table)}" for key, table in tables.items())


def fill(page: str, made: Callable[[str], str]) -> str:
    """Return a page with its tables made anew; ``made`` returns one by its name."""
    return _PART.sub(lambda found: f"{found[1]}{made(found[2])}\n{found[3]}", page)


def measured(facts: Mapping[str, Any], **more: Any) -> pd.DataFrame:
    """Return the table ``measured``: what came from which command and machine."""
    keys = ("command", "machine", "driver", "CUDA", "cuDNN", "torch", "commit", "date")
    return shown([{**facts, **more}], {key: key for key in keys if {**facts, **more}.get(key)})


@dataclass(frozen=True, slots=True)
class Plot:
    """A line for each column of a frame, over its index: places side by side, or ``numbers`` to scale."""

    title: str
    x: str
    y: str
    lines: pd.DataFrame
    numbers: bool = False
    band: tuple[str, float, float] | None = None  #: name and ends of a shaded share of y
    log2: bool = False

    def draw(self, file: Path) -> None:
        """Draw it as SVG: the same file from the same numbers."""
        try:
            import matplotlib
            from matplotlib.figure import Figure
        except ImportError:
            raise UsageError("matplotlib is not installed; install neocog[bench]") from None

        with matplotlib.rc_context({"svg.hashsalt": file.name, "svg.fonttype": "none"}):
            figure = Figure(figsize=(6.4, 4.0), layout="constrained")
            axes = figure.add_subplot(title=self.title, xlabel=self.x, ylabel=self.y)
            places = range(len(self.lines))
            for name, line in self.lines.items():
                known = line.dropna() if self.numbers else line.set_axis(places)
                axes.plot(known.index, known, marker="o", markersize=3, label=name)
            if self.band is not None:
                name, low, high = self.band
                axes.axhspan(low, high, alpha=0.2, label=name)
            if not self.numbers:
                axes.set_xticks(places, list(map(str, self.lines.index)))
            if self.log2:
                axes.set_yscale("log", base=2)
                axes.yaxis.set_major_formatter("{x:g}")
            else:
                axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
            axes.grid(alpha=0.3)
            figure.legend(loc="outside lower center", ncols=2, fontsize="small")
            figure.savefig(file, metadata={"Date": None})
