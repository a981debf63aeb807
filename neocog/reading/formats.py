"""The formats that records are written in: text, JSON, CSV, TSV, hOCR, ALTO, PAGE, COCO, Label Studio.

hOCR 1.2: http://kba.github.io/hocr-spec/1.2/, ALTO 4: https://www.loc.gov/standards/alto/,
PAGE 2019-07-15: https://github.com/PRImA-Research-Lab/PAGE-XML, COCO: https://cocodataset.org/#format-data,
Label Studio: https://labelstud.io/guide/predictions.
"""

import csv
import io
import re
from bisect import bisect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np

from neocog.errors import UsageError
from neocog.network.lines import ALPHABET
from neocog.reading.forms import COLUMNS
from neocog.reading.pictures import STDIN, foreign
from neocog.reading.records import REJECTED, Box, PageRecord, SheetReading
from neocog.text import printable, to_json
from neocog.vision.page import turned_back
from neocog.vision.strips import voted_slope

KINDS = "text", "jsonl", "json", "csv", "tsv", "hocr", "alto", "page", "coco", "labelstudio", "pdf"
OF_PAGES = ("hocr", "alto", "page", "coco", "labelstudio", "pdf")  # formats of lines and their places

_SUFFIXES = {
    ".txt": "text", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".csv": "csv", ".tsv": "tsv",
    ".hocr": "hocr", ".alto": "alto", ".xml": "alto", ".pdf": "pdf",
}  # fmt: skip

CSV_COLUMNS = "source", "page", "text", "n_digits", "n_rejected", "reasons", "least_p", "model", "error"
_FORMULA = re.compile(r"[=+\-@\t\r\n'＝＋－＠]")  # what begins with one of them
_NUMBER = re.compile(r"[+-]? ?\d+([., ]\d+)*%?")  # and is no number gets an apostrophe before it

_HOCR_HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<html xmlns="http://www.w3.org/1999/xhtml"><head><title>neocog</title>
<meta charset="utf-8"/><meta name="ocr-system" content="neocog"/>
<meta name="ocr-capabilities" content="ocr_page ocr_line ocrx_word ocrx_cinfo"/></head><body>
"""
_DECLARED = '<?xml version="1.0" encoding="UTF-8"?>\n'
_ALTO = "http://www.loc.gov/standards/alto/ns-v4#"
_PAGE = "http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15"

_WIDEST = 1.0  # heights between neighbours in one number: cells of forms are not as far apart
_CATEGORIES = ("number", *ALPHABET.replace(" ", ""), REJECTED)  # of COCO, from 1
_TAILS = {
    "json": "\n]\n", "labelstudio": "\n]\n", "hocr": "</body></html>\n", "alto": "</Layout></alto>\n",
    "page": "</PcGts>\n", "coco": "\n]}\n",
}  # fmt: skip


def kind_of(path: str | None) -> str:
    """The format that a file's suffix asks for, text for none; UsageError for one that no format has."""
    suffix = Path(path or "").suffix.lower()
    if suffix and suffix not in _SUFFIXES and not foreign(path or ""):
        known = f"expected {', '.join(_SUFFIXES)}, or none for text"
        rename = f"rename it, or give --format {', '.join(KINDS[:-1])} or {KINDS[-1]}"
        rename += "; for a page of HTML --report FILE.html" * (suffix in (".html", ".htm"))
        raise UsageError(f"{path}: no format has the suffix {suffix}, {known}; {rename}")
    return _SUFFIXES.get(suffix, "text")


@dataclass(frozen=True, slots=True)
class Format:
    """How a record is written.

    All but JSON records, ``csv`` and ``page`` leave out pages that could not be read. UsageError for
    an unknown kind, times where they have no place, or several inputs in a document of one.
    """

    kind: str
    names: bool = True  # whether text and tsv have the picture's name before the digits
    timings: bool = False  # whether JSON records carry ``ms``
    settings: Mapping[str, Any] | None = None  # how they were read, for JSON records
    source: str = ""  # the one input, for alto
    fields: tuple[str, ...] | None = None  # of a form, of whose sheets records tell

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            near = get_close_matches(self.kind, KINDS, 1)
            meant = f"did you mean '{near[0]}'? " if near else ""
            raise UsageError(f"format '{self.kind}' is unknown: {meant}choose one of {', '.join(KINDS)}")
        if self.timings and self.kind not in ("jsonl", "json"):
            raise UsageError(f"--timings needs --format jsonl or json, not {self.kind}")
        if self.fields is not None and self.kind not in ("csv", "tsv", "jsonl", "json"):
            raise UsageError(f"--form gives a table, not --format {self.kind}; use csv, tsv, jsonl or json")
        if self.kind in ("alto", "page") and self.names:
            raise UsageError(f"--format {self.kind} describes one file; use hocr for several")

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of CSV, and of TSV of a form."""
        if self.fields is not None:
            return (*COLUMNS, *(f"{name}{part}" for name in self.fields for part in ("", ".p", ".why")))
        return CSV_COLUMNS + (("fits",) if "pattern" in (self.settings or {}) else ())

    @property
    def head(self) -> str:
        """What stands before the first record."""
        if self.kind == "csv" or (self.kind == "tsv" and self.fields is not None):
            return self._line(self.columns)
        if self.kind == "coco":
            categories = [{"id": n, "name": name} for n, name in enumerate(_CATEGORIES, 1)]
            begin = to_json({"info": {"description": "neocog"}, "licenses": [], "categories": categories})
            return begin[:-1] + ', "images": ['
        if self.kind == "page":
            now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}Z"
            told = (
                f"  <Creator>neocog</Creator>\n  <Created>{now}</Created>\n  <LastChange>{now}</LastChange>\n"
            )
            return f'{_DECLARED}<PcGts xmlns="{_PAGE}">\n<Metadata>\n{told}</Metadata>\n'
        if self.kind != "alto":
            return {"json": "[", "labelstudio": "[", "hocr": _HOCR_HEAD}.get(self.kind, "")
        description = ET.Element("Description")
        ET.SubElement(description, "MeasurementUnit").text = "pixel"
        image = ET.SubElement(description, "sourceImageInformation")
        ET.SubElement(image, "fileName").text = printable(self.source)
        return f'{_DECLARED}<alto xmlns="{_ALTO}">\n{_xml(description)}<Layout>\n'

    @property
    def tail(self) -> str:
        """What ends a document."""
        return _TAILS.get(self.kind, "")

    def render(self, reading: PageRecord | SheetReading) -> str:
        """One record, with its line end; what stands between those of json is not part of them.

        One of ``coco`` is a line of JSON: the image, and its annotations without numbers. UsageError if
        ``page``, which has one page, is to have another.
        """
        if self.kind in ("jsonl", "json"):
            return reading.to_json(timings=self.timings, settings=self.settings) + "\n"
        if isinstance(reading, SheetReading):
            return self._line(self.sheet_row(reading))
        if self.kind == "csv":
            return self._line(self._row(reading))
        if self.kind == "page":
            if reading.page:
                more = "has more than one page, PAGE XML holds one; use --format alto"
                raise UsageError(f"{printable(reading.source)}: {more}")
            return _xml(_page(reading))
        if reading.error is not None or self.kind == "pdf":
            return ""
        if self.kind in ("coco", "labelstudio"):
            return to_json(_coco(reading) if self.kind == "coco" else _task(reading)) + "\n"
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

    def sheet_row(self, reading: SheetReading) -> list[str | int]:
        """The cells of a sheet, for `columns`."""
        fits = (f"{min(reading.fit):.3f}", f"{max(reading.residual):.2f}") if reading.fit else ("", "")
        row: list[str | int] = [printable(reading.source), reading.page, reading.layout, *fits]
        row += [", ".join(reading.warnings), printable(reading.error or "")]
        row += [", ".join(name for name, cell in reading.fields.items() if REJECTED in cell.text)]
        for name in self.fields or ():
            cell = reading.fields.get(name)
            p = None if cell is None else cell.p
            row += [cell.text if cell else "", "" if p is None else f"{p:.4f}", cell.why if cell else ""]
        return row

    def _line(self, row: Iterable[str | int]) -> str:
        line = io.StringIO(newline="")
        between = "\t" if self.kind == "tsv" else ","
        csv.writer(line, delimiter=between, lineterminator="\n").writerow(map(inert, row))
        return line.getvalue()

    def _row(self, reading: PageRecord) -> list[str | int]:
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


def _hocr_page(reading: PageRecord) -> ET.Element:
    """A page as hOCR; ``textangle`` is what the page was turned by."""
    wide, high = reading.size or (0, 0)
    name = printable(reading.source).replace('"', "%22")
    title = f'image "{name}"; bbox 0 0 {wide} {high}; ppageno {reading.page}'
    page = ET.Element("div", {"class": "ocr_page", "title": title})
    for line in reading.lines:
        turn = f"; textangle {reading.turn}" if reading.turn else ""
        own = ET.SubElement(page, "span", {"class": "ocr_line", "title": _bbox(line.box) + turn})
        for word, box, p, chars in reading.words(line):
            title = f"{_bbox(box)}; x_wconf {round(100 * p)}"
            inside = ET.SubElement(own, "span", {"class": "ocrx_word", "title": title})
            inside.text = None if chars else word
            for c in chars:
                title = f"x_bboxes {_bbox(c.box).removeprefix('bbox ')}; x_conf {100 * c.p:.1f}"
                ET.SubElement(inside, "span", {"class": "ocrx_cinfo", "title": title}).text = c.char
    return page


def _alto_page(reading: PageRecord) -> ET.Element:
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
        for k, (word, box, p, chars) in enumerate(reading.words(line)):
            if k:
                ET.SubElement(own, "SP")
            name = f"p{number}_l{n}_w{k}"
            told = {"ID": name, "CONTENT": word, "WC": f"{p:.2f}", **_place(box)}
            inner = ET.SubElement(own, "String", told)
            for j, c in enumerate(chars):
                glyph = {"ID": f"{name}_g{j}", "CONTENT": c.char, "GC": f"{c.p:.2f}", **_place(c.box)}
                ET.SubElement(inner, "Glyph", glyph)
    return page


def _page(reading: PageRecord) -> ET.Element:
    """A page as PAGE; ``orientation`` is what it is to be turned by, ``custom`` why it could not be read."""

    def outlined(parent: ET.Element, tag: str, name: str, box: Box) -> ET.Element:
        own = ET.SubElement(parent, tag, {"id": name})
        x, y, right, below = max(0, box[0]), max(0, box[1]), box[0] + box[2], box[1] + box[3]
        ET.SubElement(own, "Coords", {"points": f"{x},{y} {right},{y} {right},{below} {x},{below}"})
        return own

    def say(parent: ET.Element, text: str, p: float | None = None) -> None:
        own = ET.SubElement(parent, "TextEquiv", {} if p is None else {"conf": f"{p:.4f}"})
        ET.SubElement(own, "Unicode").text = text

    wide, high = reading.size or (0, 0)
    size = {"imageWidth": str(wide), "imageHeight": str(high)}
    page = ET.Element("Page", {"imageFilename": printable(reading.source), **size})
    if reading.error is not None:
        page.set("custom", printable(f"error: {reading.error}"))
    if reading.turn:
        page.set("orientation", str((reading.turn + 179) % 360 - 179))
    if reading.lines:
        region = outlined(page, "TextRegion", "r0", (0, 0, wide, high))
        for n, line in enumerate(reading.lines):
            own = outlined(region, "TextLine", f"l{n}", line.box)
            for k, (word, box, p, chars) in enumerate(reading.words(line)):
                inner = outlined(own, "Word", f"l{n}_w{k}", box)
                for j, char in enumerate(chars):
                    say(outlined(inner, "Glyph", f"l{n}_w{k}_g{j}", char.box), char.char, char.p)
                say(inner, word, p)
            say(own, line.text)
        say(region, reading.text)
    return page


def _coco(reading: PageRecord) -> list[Any]:
    """The image of a page, and annotations: its numbers with ``text`` and ``score``, their characters."""
    wide, high = reading.size or (0, 0)
    image = {"file_name": reading.source, "width": wide, "height": high, "page": reading.page}
    marks = []
    for word, box, p, chars in (one for line in reading.lines for one in reading.words(line) if one[3]):
        several = ("number", word, p, box), *((c.char, c.char, c.p, c.box) for c in chars)
        for name, text, own, (x, y, w, h) in several:
            if name in _CATEGORIES:  # the text of a pattern is not
                marks.append({
                    "category_id": 1 + _CATEGORIES.index(name), "bbox": [x, y, w, h], "area": w * h,
                    "segmentation": [[x, y, x + w, y, x + w, y + h, x, y + h]], "iscrowd": 0, "text": text,
                    "score": round(own, 4),
                })  # fmt: skip
    return [image, marks]


def _task(reading: PageRecord) -> dict[str, Any]:
    """A page as a task of Label Studio, its numbers as predictions; boxes are in percent of the picture."""
    wide, high = reading.size or (0, 0)
    size = {"original_width": wide, "original_height": high, "image_rotation": 0}
    result, least = list[dict[str, Any]](), 1.0
    for n, line in enumerate(reading.lines):
        for k, (word, box, p, chars) in enumerate(reading.words(line)):
            if chars:
                x, y, w, h = (100 * side / (high if i % 2 else wide) for i, side in enumerate(box))
                there = {"x": x, "y": y, "width": w, "height": h, "rotation": 0}
                own = {"id": f"l{n}w{k}", "to_name": "image", "score": round(p, 4), **size}
                read, least = {**there, "text": [word]}, min(least, p)
                result.append({**own, "from_name": "bbox", "type": "rectangle", "value": there})
                result.append({**own, "from_name": "transcription", "type": "textarea", "value": read})
    told = {"model_version": reading.model, "score": round(least, 4), "result": result}
    return {"data": {"image": reading.source, "page": reading.page}, "predictions": [told]}


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


def cells(reading: PageRecord) -> list[list[str]]:
    """Return the words of a page as a table: a row for each line, words below others in a column.

    Two words of a line that stand in one column are one cell.
    """
    if not reading.lines or reading.size is None:
        return [[line] for line in reading.text.split("\n")] if reading.text else []
    size = reading.size[::-1] if reading.turn % 180 else reading.size

    def lying(box: Box) -> Box:
        return turned_back(box, -reading.turn % 360, *size)  # where it lies on the page as it was read

    rows = list[list[Box]]()
    for line in reading.lines:
        own = [digit for word in line.numbers for digit in word.digits or ()]
        rows.append([lying(digit.box) for digit in reading.digits[own[0] : own[-1] + 1]])
    slope = voted_slope(np.array([box for row in rows for box in row], np.float64))

    def middle(box: Box) -> float:
        """Where the middle of a box lies in its row, with the page's skew taken out."""
        x, y, w, h = lying(box)
        return x + w / 2 + slope * (y + h / 2)

    numbers = list[list[tuple[float, float, bool]]]()
    for line in reading.lines:
        spans = [(middle(own.box), lying(own.box)[2] / 2, own.ruled) for own in line.numbers]
        numbers.append([(at - half, at + half, wall) for at, half, wall in spans])
    ends, table = _columns(rows, numbers), list[list[str]]()
    for line in reading.lines:
        texts: list[list[str]] = [[] for _ in range(len(ends) + 1)]
        for word in line.words:
            texts[bisect(ends, middle(word.box))].append(word.shown)
        table.append([" ".join(some) for some in texts])
    return table


def _columns(rows: list[list[Box]], numbers: list[list[tuple[float, float, bool]]]) -> list[float]:
    """Where the columns of a page end: in corridors in which no number stands.

    ``rows`` are the boxes of the digits in each line, ``numbers`` from where to where numbers lie and whether
    a rule is before them. A corridor parts a third of the lines or more, and of these one in ten may have a
    number in it. It is as wide as two usual gaps and an n-th of a digit if it parts n lines: that of one line
    is a space (``python -m experiments.documents.measure --develop``). Where half of the lines have a rule it
    is of any width, and one line in four may have a number in it.
    """
    low = min(left for row in numbers for left, _, _ in row)
    length = int(max(right for row in numbers for _, right, _ in row) - low) + 2
    parted, filled, walled = np.zeros((3, length))
    for row in numbers:
        parted[int(row[0][0] - low) : int(row[-1][1] - low) + 1] += 1
        for left, right, _ in row:
            filled[int(left - low) : int(right - low) + 1] += 1
        for (_, left, _), (right, _, wall) in pairwise(row):
            walled[int(left - low) : int(right - low) + 1] += wall
    ruled = 2 * walled >= parted
    free = (filled <= np.where(ruled, parted / 4, parted / 10)) & (parted >= len(rows) / 3) & (parted > 0)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], free, [0]])))
    widths, gaps = [0.0], [_WIDEST]  # of digits, and from each to the next, in heights
    for digits in rows:
        high = median(box[3] for box in digits)
        widths += [box[2] / high for box in digits]
        gaps += [(b[0] - a[0] - a[2]) / high for a, b in pairwise(digits)]
    apart = min(max(float(np.quantile(gaps, 0.25)), 0.0), _WIDEST)  # half may lie between columns of a table
    wide, high, ends = median(widths), float(np.median([box[3] for row in rows for box in row])), []
    for first, last in zip(edges[::2], edges[1::2], strict=True):
        most = parted[first:last].max()
        if last - first > high * (2 * apart + wide / most) or ruled[first:last].any():
            ends.append(low + (first + last) / 2)
    return ends
