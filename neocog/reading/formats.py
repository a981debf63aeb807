"""The formats that records are written in: text, JSON, CSV, TSV, hOCR 1.2, ALTO 4.

hOCR: http://kba.github.io/hocr-spec/1.2/, ALTO: https://www.loc.gov/standards/alto/.
"""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, get_args
from xml.etree import ElementTree as ET

from neocog.errors import UsageError
from neocog.reading.pictures import STDIN, foreign
from neocog.reading.records import REJECTED, Box, DigitReading, LineReading, PageReading, WordReading
from neocog.reading.words import cells
from neocog.text import printable

Kind = Literal["text", "jsonl", "json", "csv", "tsv", "hocr", "alto"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_SUFFIXES: dict[str, Kind] = {
    ".txt": "text", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".csv": "csv", ".tsv": "tsv",
    ".hocr": "hocr", ".alto": "alto", ".xml": "alto",
}  # fmt: skip

CSV_COLUMNS = (
    "source", "page", "text", "n_digits", "n_rejected", "reasons", "least_p", "model", "error"
)  # fmt: skip
_FORMULA = re.compile(r"[=+\-@\t\r\n'＝＋－＠]")  # what begins with one of them
_NUMBER = re.compile(r"[+-]? ?\d+([., ]\d+)*%?")  # and is no number gets an apostrophe before it

_HOCR_HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<html xmlns="http://www.w3.org/1999/xhtml"><head><title>neocog</title>
<meta charset="utf-8"/><meta name="ocr-system" content="neocog"/>
<meta name="ocr-capabilities" content="ocr_page ocr_line ocrx_word ocrx_cinfo"/></head><body>
"""


def kind_of(path: str | None) -> Kind:
    """The format that a file's suffix asks for, text for none; UsageError for one that no format has."""
    suffix = Path(path or "").suffix.lower()
    if suffix and suffix not in _SUFFIXES and not foreign(path or ""):
        known = f"expected {', '.join(_SUFFIXES)}, or none for text"
        raise UsageError(f"{path}: no format has the suffix {suffix}, {known}; rename it, or give --format")
    return _SUFFIXES.get(suffix, "text")


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
        return CSV_COLUMNS + (("fits",) if "pattern" in (self.settings or {}) else ())

    @property
    def head(self) -> str:
        """What stands before the first record."""
        if self.kind == "csv":
            return _csv_line(self.columns)
        if self.kind != "alto":
            return {"json": "[", "hocr": _HOCR_HEAD}.get(self.kind, "")
        description = ET.Element("Description")
        ET.SubElement(description, "MeasurementUnit").text = "pixel"
        image = ET.SubElement(description, "sourceImageInformation")
        ET.SubElement(image, "fileName").text = printable(self.source)
        head = '<?xml version="1.0" encoding="UTF-8"?>\n<alto xmlns='
        return f'{head}"http://www.loc.gov/standards/alto/ns-v4#">\n{_xml(description)}<Layout>\n'

    @property
    def tail(self) -> str:
        """What ends a document."""
        return {"json": "\n]\n", "hocr": "</body></html>\n", "alto": "</Layout></alto>\n"}.get(self.kind, "")

    def render(self, reading: PageReading) -> str:
        """One record, with its line end; what stands between those of json is not part of them."""
        if self.kind in ("jsonl", "json"):
            return reading.to_json(timings=self.timings, settings=self.settings) + "\n"
        if self.kind == "csv":
            return _csv_line(inert(cell) for cell in self._row(reading))
        if reading.error is not None:
            return ""
        if self.kind in ("hocr", "alto"):
            return _xml(_hocr_page(reading) if self.kind == "hocr" else _alto_page(reading))
        if self.kind == "tsv":  # a row for each line of writing
            named = (printable(reading.source), str(reading.page)) if self.names else ()
            rows = cells(reading)
            between = "\n" if reading.page and not named and rows else ""
            return between + "".join("\t".join(str(inert(c)) for c in (*named, *row)) + "\n" for row in rows)
        if not self.names or reading.source == STDIN:
            return "\n" * bool(reading.page) + f"{reading.text}\n"
        page = f" page {reading.page + 1}" if reading.page else ""
        lines = reading.text.replace("\n", " | ")
        return f"{printable(reading.source)}{page}: {lines}\n"

    def _row(self, reading: PageReading) -> list[str | int]:
        numbers = [number for line in reading.lines for number in line.numbers]
        lowest = min((own.p for own in numbers or reading.digits), default=None)
        rejected = sum(digit.char == REJECTED for digit in reading.digits)
        row: list[str | int] = [
            printable(reading.source), reading.page, reading.text, len(reading.digits), rejected,
            ", ".join(reading.reasons), "" if lowest is None else f"{lowest:.4f}", printable(reading.model),
            printable(reading.error or ""), "" if reading.fits is None else str(reading.fits).lower(),
        ]  # fmt: skip
        return row[: len(self.columns)]


def inert(cell: str | int) -> str | int:
    """A cell that no spreadsheet takes for a formula; without a first apostrophe it is as it was.

    >>> [inert(cell) for cell in ("=1+1", "-5", "- 1 250.30", "-5+5", "'tis", "07946", 3)]
    ["'=1+1", '-5', '- 1 250.30', "'-5+5", "''tis", '07946', 3]
    """
    words = str(cell)
    runs = _FORMULA.match(words) and not _NUMBER.fullmatch(words)
    return f"'{words}" if runs else cell


def _csv_line(row: Iterable[str | int]) -> str:
    line = io.StringIO(newline="")
    csv.writer(line, lineterminator="\n").writerow(row)
    return line.getvalue()


def _hocr_page(reading: PageReading) -> ET.Element:
    """A page as hOCR; ``textangle`` is what the page was turned by."""
    wide, high = reading.size or (0, 0)
    name = printable(reading.source).replace('"', "%22")
    title = f'image "{name}"; bbox 0 0 {wide} {high}; ppageno {reading.page}'
    page = ET.Element("div", {"class": "ocr_page", "title": title})
    for line in reading.lines:
        turn = f"; textangle {reading.turn}" if reading.turn else ""
        own = ET.SubElement(page, "span", {"class": "ocr_line", "title": _bbox(line.box) + turn})
        for word, p, chars in _words(line, reading):
            title = f"{_bbox(word.box)}; x_wconf {round(100 * p)}"
            inside = ET.SubElement(own, "span", {"class": "ocrx_word", "title": title})
            inside.text = None if chars else word.text
            for c in chars:
                title = f"x_bboxes {_bbox(c.box).removeprefix('bbox ')}; x_conf {100 * c.p:.1f}"
                ET.SubElement(inside, "span", {"class": "ocrx_cinfo", "title": title}).text = c.char
    return page


def _alto_page(reading: PageReading) -> ET.Element:
    """A page as ALTO; ``ROTATION`` is what it was turned by."""
    number, (wide, high) = reading.page, reading.size or (0, 0)
    size = {"HEIGHT": str(high), "WIDTH": str(wide)}
    page = ET.Element("Page", {"ID": f"p{number}", "PHYSICAL_IMG_NR": str(number + 1), **size})
    space = ET.SubElement(page, "PrintSpace", _place((0, 0, wide, high)))
    inside = ET.SubElement(space, "TextBlock", {"ID": f"p{number}_b0", **space.attrib})
    if reading.turn:
        inside.set("ROTATION", str(reading.turn))
    for n, line in enumerate(reading.lines):
        own = ET.SubElement(inside, "TextLine", {"ID": f"p{number}_l{n}", **_place(line.box)})
        for k, (word, p, chars) in enumerate(_words(line, reading)):
            if k:
                ET.SubElement(own, "SP")
            name = f"p{number}_l{n}_w{k}"
            told = {"ID": name, "CONTENT": word.text, "WC": f"{p:.2f}", **_place(word.box)}
            inner = ET.SubElement(own, "String", told)
            for j, c in enumerate(chars):
                glyph = {"ID": f"{name}_g{j}", "CONTENT": c.char, "GC": f"{c.p:.2f}", **_place(c.box)}
                ET.SubElement(inner, "Glyph", glyph)
    return page


def _words(
    line: LineReading, reading: PageReading
) -> Iterator[tuple[WordReading, float, tuple[DigitReading, ...]]]:
    """Words of a line, how probably each is right, 0 for signs alone, and the characters of a number."""
    numbers = iter(line.numbers)
    for word in line.words:
        if word.digits is None:
            yield word, 0.0, ()
            continue
        number, (first, last) = next(numbers), word.digits
        yield word, number.p, number.chars if number.text == word.text else reading.digits[first : last + 1]


def _bbox(box: Box) -> str:
    x, y, w, h = box
    return f"bbox {x} {y} {x + w} {y + h}"


def _place(box: Box) -> dict[str, str]:
    return dict(zip(("HPOS", "VPOS", "WIDTH", "HEIGHT"), map(str, box), strict=True))


def _xml(element: ET.Element) -> str:
    ET.indent(element)
    for word in element.iterfind(".//span[@class='ocrx_word'][span]"):
        word.text = None  # no space stands between its characters
        for char in word:
            char.tail = None
    return ET.tostring(element, encoding="unicode") + "\n"
