"""What was read: one `PageReading` per page, whether it could be read or not."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from neocog.jsontext import to_json

if TYPE_CHECKING:
    from pathlib import Path

    import pandas
    from matplotlib.axes import Axes

SCHEMA = 1
REJECTED = "?"

Box = tuple[int, int, int, int]
"""x, y, width, height in pixels of the upright picture."""


@dataclass(frozen=True, slots=True)
class DigitReading:
    """One place where a digit stands.

    Attributes
    ----------
    char : str
        ``"0"`` to ``"9"``, or ``"?"`` where the answer was rejected.
    p : float
        Probability of the best answer, 0 where there was none.
    margin : float
        Best response minus the second.
    box : tuple of int
        x, y, width, height in pixels of the upright picture.
    reason : str or None
        Why the place was rejected: ``no response``, ``two answers``, ``not a digit``;
        see :mod:`neocog.batch.policy`.
    """

    char: str
    p: float
    margin: float
    box: Box
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class SignReading:
    """A sign between digits: it is told, and no part of the text.

    Attributes
    ----------
    char : str
        One of `neocog.vision.finder.SIGNS`, such as ``/``.
    p : float
        How surely it is a sign, 0 to 1.
    box : tuple of int
        x, y, width, height in pixels of the upright picture.
    """

    char: str
    p: float
    box: Box


@dataclass(frozen=True, slots=True)
class WordReading:
    """Digits and signs of one line with no wide gap between them.

    Attributes
    ----------
    text : str
    box : tuple of int
        x, y, width, height in pixels of the upright picture.
    digits : tuple of int, or None
        Numbers of its first and last digit among those of the page; None for signs alone.
    """

    text: str
    box: Box
    digits: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class LineReading:
    """One line of a page: its text, its box and its words, in reading order."""

    text: str
    box: Box
    words: tuple[WordReading, ...]


@dataclass(frozen=True, slots=True)
class PageReading:
    r"""What stands on one page, or why that is not known.

    Attributes
    ----------
    source : str
        The picture as it was named.
    page : int
        From 0; more than one in a TIFF.
    text : str
        Digits, ``"?"`` where an answer was rejected, signs where they are sure, spaces for wide
        gaps; lines joined by ``"\n"``.
    digits : tuple of DigitReading
        In the order of ``text``.
    model : str
        Name and version of the model.
    error : str or None
        Why the page could not be read.
    ms : dict or None
        Milliseconds that each stage took.
    fits : bool or None
        Whether there are lines, and all have the pattern that was asked for; None where none was.
    signs : tuple of SignReading
        Signs among the digits.
    left_out : int
        Places that were noticed and are not in the text: too unlike a digit.
    turn : int
        Degrees clockwise, 0, 90, 180 or 270, by which the page was turned to be read.
    size : tuple of int, or None
        Width and height of the upright picture; None where nothing was searched for.
    lines : tuple of LineReading
        What ``text`` is made of.
    finder : str
        Name and version of what found the digits; empty where nothing was searched for.
    picture : Picture or None
        What `Reader.read` was given, for `plot` and `save`.
    """

    source: str
    page: int = 0
    text: str = ""
    digits: tuple[DigitReading, ...] = ()
    model: str = ""
    error: str | None = None
    ms: dict[str, float] | None = None
    fits: bool | None = None
    signs: tuple[SignReading, ...] = ()
    left_out: int = 0
    turn: int = 0
    finder: str = ""
    size: tuple[int, int] | None = None
    lines: tuple[LineReading, ...] = ()
    picture: Any = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        """The text beside the picture, for notebooks."""
        from neocog.batch.results import as_html

        return as_html(self)

    def to_pandas(self) -> "pandas.DataFrame":
        """A row per digit: line, word, char, p, margin, x, y, width, height, reason."""
        from neocog.batch.results import as_frame

        return as_frame(self)

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the picture with what was read over it, by matplotlib, and return the axes."""
        from neocog.batch.results import plot

        return plot(self, ax)

    def save(self, path: "str | Path") -> None:
        """Write a .json, .jsonl, .csv, .tsv, .hocr, .xml (ALTO) or text file, or a picture.

        A .png or .jpg is the picture with boxes and digits drawn over it.
        """
        from neocog.batch.results import save

        save(self, path)

    @property
    def plain(self) -> str:
        """The text without signs and spaces: digits, ``?`` and line ends."""
        return "".join(char for char in self.text if char.isdigit() or char in "?\n")

    @property
    def reasons(self) -> list[str]:
        """Why places were rejected, each reason once."""
        return sorted({digit.reason for digit in self.digits if digit.reason})

    def to_dict(
        self, *, timings: bool = False, settings: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The record as plain values; with ``timings`` also ``ms``, and ``settings`` if given."""
        record: dict[str, Any] = {
            "schema": SCHEMA,
            "source": self.source,
            "page": self.page,
            "text": self.text,
            "digits": [_digit(digit) for digit in self.digits],
            "model": self.model,
            "error": self.error,
        }
        if self.finder:
            record |= {
                "finder": self.finder,
                "signs": [
                    {"char": s.char, "p": round(s.p, 4), "box": list(s.box)} for s in self.signs
                ],
                "left_out": self.left_out,
                "turn": self.turn,
            }
        if self.size is not None:
            record |= {"size": list(self.size), "lines": [_line(line) for line in self.lines]}
        if self.fits is not None:
            record["fits"] = self.fits
        if settings is not None:
            record["settings"] = dict(settings)
        if timings:
            record["ms"] = {name: round(value, 3) for name, value in (self.ms or {}).items()}
        return record

    def to_json(self, *, timings: bool = False, settings: Mapping[str, Any] | None = None) -> str:
        """The record as one line of JSON.

        >>> print(PageReading("a.png", text="7").to_json())
        {"schema":1,"source":"a.png","page":0,"text":"7","digits":[],"model":"","error":null}
        """
        return to_json(
            self.to_dict(timings=timings, settings=settings),
            ensure_ascii=False,
            separators=(",", ":"),
        ).translate(_ESCAPED)


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


def _digit(digit: DigitReading) -> dict[str, Any]:
    return {
        "char": digit.char,
        "p": round(digit.p, 4),
        "margin": round(digit.margin, 4),
        "box": list(digit.box),
        "reason": digit.reason,
    }


def _line(line: LineReading) -> dict[str, Any]:
    words = [
        {"text": word.text, "box": list(word.box), "digits": list(word.digits or ())}
        for word in line.words
    ]
    return {"text": line.text, "box": list(line.box), "words": words}
