"""What was read: one `PageRecord` per page, whether it could be read or not."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from neocog.text import to_json

SCHEMA = 1
REJECTED = "?"

Box = tuple[int, int, int, int]
"""x, y, width, height in pixels of the upright picture."""


@dataclass(frozen=True, slots=True)
class DigitReading:
    """One place where a digit stands, or a sign between digits."""

    char: str  #: ``"0"`` to ``"9"``, a sign such as ``/``, or ``"?"`` where the answer was rejected
    p: float  #: probability of the best answer, 0 where there was none
    margin: float  #: best response minus the second
    box: Box
    #: why it was rejected, or is in doubt: ``no response``, ``two answers``; see `neocog.reading.policy`
    reason: str | None = None
    #: probability that a digit stands there at all and none beside it was left out; in no file
    place: float = 1.0


@dataclass(frozen=True, slots=True)
class NumberReading:
    """A word: digits and signs with no wide gap between them. Without a digit it is no number."""

    text: str
    p: float  #: probability that all of it is right
    box: Box
    chars: tuple[DigitReading, ...]  #: its digits, signs and ``?``
    ruled: bool = False  #: whether a rule parts it from the word before it; in no file
    digits: tuple[int, int] | None = None  #: its first and last among those of the page; None: signs alone
    shown: str = ""  #: what of it is in the text of the page, which may leave out signs

    def to_dict(self) -> dict[str, Any]:
        chars = [{"char": c.char, "p": round(c.p, 4), "box": list(c.box)} for c in self.chars]
        p, box = round(self.p, 4), list(self.box)
        return {"text": self.text, "p": p, "box": box, "chars": chars, "field": None}


@dataclass(frozen=True, slots=True)
class LineReading:
    """One line of a page: its text, its box and its words, in reading order."""

    text: str
    box: Box
    words: tuple[NumberReading, ...]
    #: log likelihood above that of the next text that a pattern or a list allows; infinite if there is none
    margin: float | None = None

    @property
    def numbers(self) -> tuple[NumberReading, ...]:
        """Its words that hold digits."""
        return tuple(word for word in self.words if word.digits is not None)

    def to_dict(self) -> dict[str, Any]:
        words = [{"text": w.shown, "box": list(w.box), "digits": list(w.digits or ())} for w in self.words]
        numbers = [number.to_dict() for number in self.numbers]
        record = {"text": self.text, "box": list(self.box), "words": words, "numbers": numbers}
        return record if self.margin is None else record | {"margin": round(self.margin, 4)}


class _Record:
    """What `PageRecord` and `SheetReading` have in common."""

    __slots__ = ()

    def to_dict(self, *, timings: bool = False, settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The record as plain values; with ``timings`` also ``ms``, and ``settings`` if given."""
        own: Any = self
        record: dict[str, Any] = {"schema": SCHEMA, "source": own.source, "page": own.page} | own._facts()
        if settings is not None:
            record["settings"] = dict(settings)
        if timings:
            record["ms"] = {name: round(value, 3) for name, value in (own.ms or {}).items()}
        return record

    def to_json(self, *, timings: bool = False, settings: Mapping[str, Any] | None = None) -> str:
        """The record as one line of JSON.

        >>> print(PageRecord("a.png", text="7").to_json())
        {"schema":1,"source":"a.png","page":0,"text":"7","digits":[],"model":"","error":null}
        """
        record = self.to_dict(timings=timings, settings=settings)
        return to_json(record, ensure_ascii=False, separators=(",", ":")).translate(_ESCAPED)


@dataclass(frozen=True, slots=True)
class PageRecord(_Record):
    """What stands on one page, or why that is not known; a `neocog.reading.results.PageReading` is one."""

    source: str  #: the picture as it was named
    page: int = 0  #: from 0; more than one in a TIFF or PDF
    #: digits, ``"?"`` where an answer was rejected, signs where they are sure, spaces for wide gaps
    text: str = ""
    digits: tuple[DigitReading, ...] = ()  #: in the order of ``text``
    model: str = ""  #: name and version of the model
    error: str | None = None  #: why the page could not be read
    ms: dict[str, float] | None = None  #: milliseconds that each stage took
    #: whether there are lines, and all have the pattern that was asked for; None where none was
    fits: bool | None = None
    signs: tuple[DigitReading, ...] = ()  #: signs among the digits
    left_out: int = 0  #: places that were noticed and are not in the text: too unlike a digit
    scale: float | None = None  #: pixels of the page as it was read per pixel of the upright picture
    #: ``small-digits-likely``: some are too small for the scale; ``turns-tie``: another turn is as likely
    warnings: tuple[str, ...] = ()
    mirror: bool = False  #: whether the page was mirrored left to right to be read
    turn: int = 0  #: degrees clockwise, 0, 90, 180 or 270, by which the page was turned to be read
    finder: str = ""  #: name and version of what found the digits; empty where nothing was searched for
    size: tuple[int, int] | None = None  #: of the upright picture; None where nothing was searched for
    lines: tuple[LineReading, ...] = ()  #: what ``text`` is made of
    reader: str = "digits"  #: what read it: a model of ``digits``, one at a time, or of whole ``lines``
    picture: Any = field(default=None, repr=False, compare=False)  #: what `Reader.read` was given

    @property
    def plain(self) -> str:
        """The text without signs and spaces: digits, ``?`` and line ends."""
        return "".join(char for char in self.text if char.isdigit() or char in "?\n")

    @property
    def reasons(self) -> list[str]:
        """Why places are rejected or in doubt, each reason once."""
        return sorted({digit.reason for digit in self.digits if digit.reason})

    def words(self, line: LineReading) -> Iterator[tuple[str, Box, float, tuple[DigitReading, ...]]]:
        """Words of a line, their boxes, how probably each is right, characters; 0 and none of signs alone."""
        for word in line.words:
            first, last = word.digits or (0, -1)
            chars = word.chars if word.digits and word.shown == word.text else self.digits[first : last + 1]
            yield word.shown, word.box, word.p if word.digits else 0.0, chars

    def _facts(self) -> dict[str, Any]:
        digits = [
            {"char": d.char, "p": round(d.p, 4), "margin": round(d.margin, 4), "box": list(d.box),
             "reason": d.reason}
            for d in self.digits
        ]  # fmt: skip
        facts: dict[str, Any] = {"text": self.text, "digits": digits, "model": self.model}
        facts["error"] = self.error
        if self.finder:
            signs = [{"char": s.char, "p": round(s.p, 4), "box": list(s.box)} for s in self.signs]
            facts |= {
                "finder": self.finder, "signs": signs, "left_out": self.left_out, "turn": self.turn,
                "reader": self.reader, "scale": round(self.scale or 1.0, 4), "warnings": list(self.warnings),
                "mirror": self.mirror,
            }  # fmt: skip
        if self.size is not None:
            facts |= {"size": list(self.size), "lines": [line.to_dict() for line in self.lines]}
        return facts if self.fits is None else facts | {"fits": self.fits}


@dataclass(frozen=True, slots=True)
class CellReading:
    """What stands in one field of a form."""

    text: str  #: ``""`` if it is empty, with ``?`` where it is in doubt
    p: float | None = None  #: probability that ``read`` is right; None if nothing was read
    why: str = ""  #: what speaks against it, or besides for it
    read: str = ""  #: the likeliest text, whatever its doubt
    corners: tuple[tuple[int, int], ...] = ()  #: of the field, in pixels of the upright page
    page: int | None = None  #: of the file
    texts: Mapping[str, float] = field(default_factory=dict, compare=False)  #: likely ones; in no file
    hard: bool = False  #: whether other ink speaks against ``read``, so that a rule alone can confirm it

    def to_dict(self) -> dict[str, Any]:
        out = {"text": self.text, "p": self.p and round(self.p, 4), "why": self.why, "read": self.read}
        return out | {"corners": [list(corner) for corner in self.corners], "page": self.page}


@dataclass(frozen=True, slots=True)
class SheetReading(_Record):
    """What stands on one sheet of a form, or why that is not known."""

    source: str
    page: int = 0  #: of its first page in the file, from 0
    layout: str = ""
    pages: tuple[int | None, ...] = ()  #: of the file, for each of the layout; None if it is missing
    residual: tuple[float, ...] = ()  #: of each page: median distance of matched places, pixels of the file
    fit: tuple[float, ...] = ()  #: of each page: share of the blank's print that was found
    fields: Mapping[str, CellReading] = field(default_factory=dict)
    before: Mapping[str, CellReading] = field(default_factory=dict)  #: its rules, if it has some; in no file
    model: str = ""
    error: str | None = None
    warnings: tuple[str, ...] = ()  #: ``blank-is-written``
    ms: Mapping[str, float] | None = None

    @property
    def text(self) -> str:
        """The texts of its fields, one a line."""
        return "\n".join(cell.text for cell in self.fields.values())

    def _facts(self) -> dict[str, Any]:
        return {
            "layout": self.layout, "pages": list(self.pages), "model": self.model, "error": self.error,
            "residual": [round(r, 2) for r in self.residual], "fit": [round(f, 3) for f in self.fit],
            "warnings": list(self.warnings),
            "fields": {name: cell.to_dict() for name, cell in self.fields.items()},
        }  # fmt: skip


# a file name may hold bytes that are no UTF-8: Python keeps them as lone surrogates, which
# cannot be printed but can be escaped; so can what a terminal would obey (C1, direction marks)
_ESCAPED = {
    code: f"\\u{code:04x}"
    for begin, end in (
        (0x7F, 0xA0), (0xAD, 0xAE), (0x61C, 0x61D), (0x200B, 0x2010), (0x2028, 0x202F),
        (0x2060, 0x2070), (0xD800, 0xE000), (0xFEFF, 0xFF00), (0xFFF9, 0xFFFC),
    )
    for code in range(begin, end)
}  # fmt: skip
