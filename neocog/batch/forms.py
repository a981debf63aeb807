"""The forms that records are written in: text, JSON lines, CSV, and a table for people."""

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from neocog.batch.records import REJECTED, PageReading
from neocog.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

Kind = Literal["text", "jsonl", "csv", "table"]
KINDS: tuple[Kind, ...] = get_args(Kind)

CSV_COLUMNS = ("source", "page", "text", "n_digits", "n_rejected", "min_p", "model", "error")
_SHOWN = ("source", "page", "text", "n_digits", "n_rejected", "min_p", "error")
_WIDE = 160  # columns of a table that goes into a file


@dataclass(frozen=True, slots=True)
class Form:
    """How a record is written.

    Attributes
    ----------
    kind : {"text", "jsonl", "csv", "table"}
        ``text`` leaves out pages that could not be read; rows of a ``table`` are gathered as CSV
        and laid out at the end.
    names : bool
        Whether text has the picture's name before the digits.
    timings : bool
        Whether JSON records carry ``ms``.
    settings : mapping, optional
        What JSON records tell of how they were read, as ``Reader.settings`` does.

    Raises
    ------
    UsageError
        If the kind is not known.
    """

    kind: str
    names: bool = True
    timings: bool = False
    settings: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(f"format '{self.kind}' is unknown: choose one of {', '.join(KINDS)}")

    @property
    def head(self) -> str:
        """What stands before the first record."""
        return _csv_line(CSV_COLUMNS) if self.kind == "csv" else ""

    def render(self, reading: PageReading) -> str:
        """One record, with its line end."""
        if self.kind == "jsonl":
            return reading.to_json(timings=self.timings, settings=self.settings) + "\n"
        if self.kind == "text":
            return self._text(reading)
        return _csv_line(_row(reading))

    def _text(self, reading: PageReading) -> str:
        if reading.error is not None:
            return ""
        if not self.names:
            between = "\n" if reading.page else ""
            return f"{between}{reading.text}\n"
        page = f" page {reading.page}" if reading.page else ""
        lines = reading.text.replace("\n", " | ")
        return f"{printable(reading.source)}{page}: {lines}\n"


def kind_of(path: str | None) -> Kind:
    """The form that a file's name asks for: text, unless it ends in .jsonl, .ndjson or .csv."""
    name = (path or "").lower()
    if name.endswith((".jsonl", ".ndjson")):
        return "jsonl"
    return "csv" if name.endswith(".csv") else "text"


def table_of(rows: str) -> "Table":
    """Lay rows, as `Form` writes them for a table, out for people."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD)
    for name in _SHOWN:
        right = name in ("page", "n_digits", "n_rejected", "min_p")
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in csv.DictReader(io.StringIO(rows, newline=""), CSV_COLUMNS):
        table.add_row(*(Text(row[name]) for name in _SHOWN))
    return table


def lay_out(rows: str, *, width: int | None = None) -> str:
    """The table of `table_of` as text, ``width`` columns wide, by default 160."""
    from rich.console import Console

    page = io.StringIO()
    Console(file=page, width=width or _WIDE).print(table_of(rows))
    return page.getvalue()


def printable(name: str) -> str:
    """A file name that any stream takes: bytes that are no UTF-8 and line ends are escaped."""
    escaped = name.encode("utf-8", "backslashreplace").decode("utf-8")
    return escaped.replace("\n", "\\n").replace("\r", "\\r")


def _row(reading: PageReading) -> tuple[str | int, ...]:
    lowest = min((digit.p for digit in reading.digits), default=None)
    return (
        printable(reading.source),
        reading.page,
        reading.text,
        len(reading.digits),
        sum(digit.char == REJECTED for digit in reading.digits),
        "" if lowest is None else f"{lowest:.4f}",
        reading.model,
        reading.error or "",
    )


def _csv_line(row: tuple[str | int, ...]) -> str:
    line = io.StringIO(newline="")
    csv.writer(line, lineterminator="\n").writerow(row)
    return line.getvalue()
