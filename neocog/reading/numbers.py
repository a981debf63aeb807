"""Lines as wholes: a page's strips, what the ten layers say along them, text with its signs."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from neocog.network import ctc
from neocog.network.lines import ALPHABET
from neocog.reading.records import (
    REJECTED, Box, DigitReading, LineReading, NumberReading, PageReading, SignReading, WordReading,
)  # fmt: skip
from neocog.reading.words import around
from neocog.vision.finder import FinderSettings, Finding, merged
from neocog.vision.page import TURNS, seen, turned, turned_back
from neocog.vision.strips import Strip, StripSettings, strips

if TYPE_CHECKING:
    from neocog.reading.reader import Reader
    from neocog.vision.decode import Page

Logs = NDArray[np.float32]
Place = tuple[Strip, int]
"""A column of an answer: its strip, and its number there."""

SPACE, BLANK = ALPHABET.index(" "), len(ALPHABET)
FAR = 12.0
"""Log likelihood by which a text that is allowed may be below the best: beyond, it is not what stands there."""

_STEP, _BEFORE = 4, 24  # column t of an answer looks at column 4 t - 24 of its strip, and around it
_REACH = 20  # columns of a strip on each side of a character's middle that may be its own
_INK = 0.35
_GAP = np.full((1, BLANK + 1), -30.0, np.float32)  # between strips of a line, which a wide gap parts:
_GAP[0, [SPACE, BLANK]] = np.log([0.98, 0.02])  # a space, unless a pattern has none there
_UPRIGHT = 0.7  # share of characters in right numbers, as expected, from which no turn of a page is looked at
_LONG = 3  # characters of numbers that say how a page lies: an upright 0 is one on its side too
_BETTER = 1.5  # times as many in right numbers, as expected, as it lies, before a page is turned


@dataclass(frozen=True, slots=True)
class TextLine:
    """A line as it was read, boxes in pixels of the page; words without a digit are among its words."""

    words: tuple[NumberReading, ...]
    fits: bool | None = None  #: whether it is what a pattern or a list allows
    margin: float | None = None  #: see `LineReading`

    @property
    def chars(self) -> tuple[DigitReading, ...]:
        """All of it but spaces."""
        return tuple(char for word in self.words for char in word.chars)


def read_lines(
    reader: "Reader", grey: NDArray[np.uint8], found: Finding
) -> tuple[list[TextLine], int]:
    """Read the lines of a page (H, W) around marks that were found; and count the digits in none of them."""
    marks = merged(found[found.scores >= StripSettings().least], FinderSettings())
    cut = strips(grey, marks)
    engine: Any = reader.engine
    answers = engine.likelihoods([strip.ink for strip in cut]) if cut else []
    lines, read = [], set[int]()
    for _, some in groupby(zip(cut, answers, strict=True), key=lambda pair: pair[0].line):
        parts = list(some)
        if (line := _line(reader, parts, marks.boxes)) is not None:
            lines.append(line)
            read.update(*(strip.marks for strip, _ in parts))
    digits = np.flatnonzero((marks.kinds < 10) & (marks.scores >= StripSettings().score))
    return lines, len(set(digits.tolist()) - read)


def _line(
    reader: "Reader", parts: Sequence[tuple[Strip, Logs]], marks: NDArray[np.float32]
) -> TextLine | None:
    """What the strips of a line say together; None if no digit is among it."""
    logs, places = list[Logs](), list[Place]()
    for strip, own in parts:
        logs += [own, _GAP]
        places += [(strip, t) for t in range(len(own) + 1)]
    logp = np.concatenate(logs[:-1])
    number, fits = _number(logp, reader)
    if not any(char.isdigit() for char in number.text):
        return None
    boxes = _boxes([(char.first, char.last) for char in number.chars], places, marks)
    chars = [_char(*pair, logp) for pair in zip(number.chars, boxes, strict=True)]
    spaces = [-1, *(k for k, char in enumerate(chars) if char.char == " "), len(chars)]
    spans = [(before + 1, after) for before, after in pairwise(spaces) if before + 1 < after]
    words = []
    for first, last in spans:
        p = number.p
        if len(spans) > 1 and not fits:  # the columns between the spaces say this word, if these are there
            edges = [number.chars[k] for k in (first - 1, last) if 0 <= k < len(chars)]
            begin = number.chars[first - 1].last + 1 if first else 0
            end = number.chars[last].first if last < len(chars) else len(logp)
            text = "".join(char.char for char in number.chars[first:last])
            p = float(np.exp(ctc.total(logp[begin:end], text))) * prod(edge.p for edge in edges)
        words.append(_word(tuple(chars[first:last]), p))
    return TextLine(tuple(words), fits, number.margin if fits else None)


def _number(logp: Logs, reader: "Reader") -> tuple[ctc.Number, bool | None]:
    """What is written: a text that may occur, if it is likely enough; and whether it is one."""
    bound = reader.policy.min_p
    if reader.automaton is not None:
        number = ctc.number(logp, bound=bound, automaton=reader.automaton)
        if number.text and number.beside < FAR:
            return number, True
    return ctc.number(logp, bound=bound), None if reader.automaton is None else False


def _word(chars: tuple[DigitReading, ...], p: float) -> NumberReading:
    return NumberReading("".join(c.char for c in chars), p, around([c.box for c in chars]), chars)


def _char(char: ctc.Char, box: Box, logp: Logs) -> DigitReading:
    """A character that was read, or ``?`` if it is doubtful or was perhaps left out."""
    p = np.exp(logp[char.first : char.last + 1])
    second, first = np.sort(p[:, :BLANK].max(axis=0))[-2:].tolist()
    read = REJECTED if char.reason else char.char
    return DigitReading(read, char.p, first - second, box, char.reason, 1 - float(p[:, BLANK].min()))


def _boxes(
    spans: Sequence[tuple[int, int]], places: Sequence[Place], marks: NDArray[np.float32]
) -> list[Box]:
    """The box of each character: of the mark in whose middle it alone is, else of the ink around it."""
    strips_ = [places[first][0] for first, _ in spans]
    at = [_STEP * (places[first][1] + (last - first) / 2) - _BEFORE for first, last in spans]
    x = [float(strip.to_page(k, 24)[0]) for strip, k in zip(strips_, at, strict=True)]
    own = []
    for strip, middle in zip(strips_, x, strict=True):
        inside = [k for k in strip.marks if 0 <= middle - marks[k, 0] <= marks[k, 2]]
        own.append(min(inside, key=lambda k: abs(middle - marks[k, 0] - marks[k, 2] / 2), default=None))
    count, out = Counter(own), list[Box]()
    for k, (strip, mark) in enumerate(zip(strips_, own, strict=True)):
        if mark is not None and count[mark] == 1:
            left, top, wide, high = marks[mark].tolist()
        else:
            first, last = at[k] - _REACH, at[k] + _REACH
            if k and strips_[k - 1] is strip:
                first = max(first, (at[k - 1] + at[k]) / 2)
            if k + 1 < len(at) and strips_[k + 1] is strip:
                last = min(last, (at[k] + at[k + 1]) / 2)
            low, columns = max(0, int(first)), strip.ink[:, max(0, int(first)) : max(1, int(last) + 1)]
            inked = np.flatnonzero(columns.max(axis=0, initial=0) > _INK)
            ends = (low + inked[0], low + inked[-1]) if len(inked) else (int(first), int(last))
            left, top, wide, high = strip.box(*map(int, ends))
        out.append((round(left), round(top), max(1, round(wide)), max(1, round(high))))
    return out


def read_page(reader: "Reader", source: str, page: "Page", began: float) -> PageReading:
    """Read a page; ``began``: when its decoding did."""
    start, looked = time.perf_counter(), 0.0

    def look(turn: int) -> tuple[NDArray[np.uint8], Finding]:
        nonlocal looked
        begin, grey = time.perf_counter(), turned(page.grey, turn)
        found = reader.look(grey)
        looked += time.perf_counter() - begin
        return grey, found

    turn = reader.rotate or 0
    lines, left_out = read_lines(reader, *look(turn))
    count, right = _worth(lines)
    some = sum(len(line.chars) for line in lines) + left_out
    if reader.rotate is None and some > 1 and right <= _UPRIGHT * count:
        others = {degrees: look(degrees) for degrees in TURNS[1:]}
        best = max(others, key=lambda degrees: seen(others[degrees][1]))
        other, out = read_lines(reader, *others[best])
        more, better = _worth(other)
        if more >= count and better > max(_BETTER * right, _UPRIGHT * more):
            turn, lines, left_out = best, other, out
    high, wide = page.grey.shape
    size = round(wide / page.scale), round(high / page.scale)
    digits, signs, told = list[DigitReading](), list[SignReading](), list[LineReading]()
    for line in lines:
        words, numbers = list[WordReading](), list[NumberReading]()
        for word in line.words:
            first = len(digits)
            chars = tuple(
                replace(char, box=_scaled(turned_back(char.box, turn, wide, high), page.scale))
                for char in word.chars
            )
            word = _word(chars, word.p)
            digits += [char for char in chars if _is_digit(char)]
            signs += [SignReading(char.char, char.p, char.box) for char in chars if not _is_digit(char)]
            if len(digits) > first:
                numbers.append(word)
            text = "".join(char.char for char in chars if _is_digit(char) or not reader.digits_only)
            span = (first, len(digits) - 1) if len(digits) > first else None
            words.append(WordReading(text, word.box, span))
        text = ("" if reader.digits_only else " ").join(word.text for word in words)
        box = around([word.box for word in words])
        told.append(LineReading(text, box, tuple(words), tuple(numbers), line.margin))
    ms = 1e3 * (time.perf_counter() - start)
    return PageReading(
        source=source, page=page.index, text="\n".join(line.text for line in told), digits=tuple(digits),
        model=reader.model.id,
        ms={"decode": 1e3 * (start - began), "find": 1e3 * looked, "recognise": ms - 1e3 * looked},
        signs=tuple(signs), left_out=left_out, turn=turn, finder=reader.finder.model.id,
        fits=None if reader.automaton is None else bool(lines) and all(line.fits for line in lines),
        size=size, lines=tuple(told), reader="lines",
    )  # fmt: skip


def _worth(lines: Sequence[TextLine]) -> tuple[int, float]:
    """How many characters long numbers have, and how many of these are expected to be in right ones."""
    words = [word for line in lines for word in line.words if len(word.chars) >= _LONG]
    return sum(len(word.chars) for word in words), sum(word.p * len(word.chars) for word in words)


def _is_digit(char: DigitReading) -> bool:
    return char.char == REJECTED or char.char.isdigit()


def _scaled(box: Box, scale: float) -> Box:
    x, y, width, height = (round(value / scale) for value in box)
    return x, y, width, height
