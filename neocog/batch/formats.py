"""The formats that records are written in: text, JSON, CSV, TSV, hOCR, ALTO."""

import csv
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, get_args

from neocog.batch import markup
from neocog.batch.records import REJECTED, PageReading
from neocog.batch.sources import STDIN
from neocog.batch.words import cells
from neocog.errors import UsageError
from neocog.messages import printable

Kind = Literal["text", "jsonl", "json", "csv", "tsv", "hocr", "alto"]
KINDS: tuple[Kind, ...] = get_args(Kind)

CSV_COLUMNS = (
    "source", "page", "text", "n_digits", "n_rejected", "reasons", "least_p", "model", "error"
)  # fmt: skip
_WITH_PATTERN = ("fits",)  # more columns where a pattern was asked for
_FORMULA = re.compile(r"[=+\-@\t\r\n'＝＋－＠]")  # what begins with one of them
_NUMBER = re.compile(r"[+-]?\d+([.,]\d+)*")  # and is no number gets an apostrophe before it


@dataclass(frozen=True, slots=True)
class Format:
    """How a record is written.

    ``text``, ``tsv``, ``hocr`` and ``alto`` leave out pages that could not be read. UsageError for
    an unknown kind, times where they have no place, or several inputs in a document of one.
    """

    kind: str
    names: bool = True  # whether text and tsv have the picture's name before the digits
    timings: bool = False  # whether JSON records carry ``ms``
    settings: Mapping[str, Any] | None = None  # how they were read, for JSON records
    source: str = ""  # the one input, for alto

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            near = get_close_matches(self.kind, KINDS, 1)
            meant = f"did you mean '{near[0]}'? " if near else ""
            raise UsageError(f"format '{self.kind}' is unknown: {meant}choose one of {', '.join(KINDS)}")
        if self.timings and self.kind not in ("jsonl", "json"):
            raise UsageError(f"--timings needs --format jsonl or json, not {self.kind}")
        if self.kind == "alto" and self.names:
            raise UsageError("--format alto describes one file; use hocr for several")

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of CSV."""
        return CSV_COLUMNS + (_WITH_PATTERN if "pattern" in (self.settings or {}) else ())

    @property
    def head(self) -> str:
        """What stands before the first record."""
        if self.kind == "csv":
            return _csv_line(self.columns)
        if self.kind == "alto":
            return markup.alto_head(self.source)
        return {"json": "[", "hocr": markup.HOCR_HEAD}.get(self.kind, "")

    @property
    def tail(self) -> str:
        """What ends a document."""
        tails = {"json": "\n]\n", "hocr": markup.HOCR_TAIL, "alto": markup.ALTO_TAIL}
        return tails.get(self.kind, "")

    def render(self, reading: PageReading) -> str:
        """One record, with its line end."""
        if self.kind in ("jsonl", "json"):  # `Sink` puts commas between those of json
            return reading.to_json(timings=self.timings, settings=self.settings) + "\n"
        if self.kind == "text":
            return self._text(reading)
        if self.kind == "tsv":
            return self._tsv(reading)
        if self.kind in ("hocr", "alto"):
            page = markup.hocr_page if self.kind == "hocr" else markup.alto_page
            return page(reading) if reading.error is None else ""
        row = _row(reading)
        return _csv_line(inert(row[name]) for name in self.columns)

    def _text(self, reading: PageReading) -> str:
        if reading.error is not None:
            return ""
        if not self.names or reading.source == STDIN:
            between = "\n" if reading.page else ""
            return f"{between}{reading.text}\n"
        page = f" page {reading.page}" if reading.page else ""
        lines = reading.text.replace("\n", " | ")
        return f"{printable(reading.source)}{page}: {lines}\n"

    def _tsv(self, reading: PageReading) -> str:
        """A row for each line of writing; with names the input and the page stand before it."""
        named = (printable(reading.source), str(reading.page)) if self.names else ()
        rows = cells(reading) if reading.error is None else []
        between = "\n" if reading.page and not named and rows else ""
        lines = ("\t".join(str(inert(cell)) for cell in (*named, *row)) + "\n" for row in rows)
        return between + "".join(lines)


_SUFFIXES: dict[str, Kind] = {
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".csv": "csv", ".tsv": "tsv",
    ".hocr": "hocr", ".alto": "alto", ".xml": "alto",
}  # fmt: skip


def kind_of(path: str | None) -> Kind:
    """The format that a file's suffix asks for; text for any other."""
    return _SUFFIXES.get(Path(path or "").suffix.lower(), "text")


def _row(reading: PageReading) -> dict[str, str | int]:
    lowest = min((digit.p for digit in reading.digits), default=None)
    return {
        "source": printable(reading.source),
        "page": reading.page,
        "text": reading.text,
        "n_digits": len(reading.digits),
        "n_rejected": sum(digit.char == REJECTED for digit in reading.digits),
        "reasons": ", ".join(reading.reasons),
        "least_p": "" if lowest is None else f"{lowest:.4f}",
        "model": printable(reading.model),
        "error": printable(reading.error or ""),
        "fits": "" if reading.fits is None else str(reading.fits).lower(),
    }


def inert(cell: str | int) -> str | int:
    """A cell that no spreadsheet takes for a formula; without a first apostrophe it is as it was.

    >>> [inert(cell) for cell in ("=1+1", "-5", "-5+5", "'tis", "07946", 3)]
    ["'=1+1", '-5', "'-5+5", "''tis", '07946', 3]
    """
    words = str(cell)
    runs = _FORMULA.match(words) and not _NUMBER.fullmatch(words)
    return f"'{words}" if runs else cell


def _csv_line(row: Iterable[str | int]) -> str:
    line = io.StringIO(newline="")
    csv.writer(line, lineterminator="\n").writerow(row)
    return line.getvalue()
