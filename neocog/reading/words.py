"""Words, lines and columns of a page: what a wide gap parts, and which signs stand in the text."""

from bisect import bisect
from collections.abc import Sequence
from itertools import count, pairwise
from statistics import median

import numpy as np

from neocog.reading.records import Box, DigitReading, LineReading, PageReading, SignReading, WordReading
from neocog.vision.lines import skew_and_lines
from neocog.vision.search import SLASH

SURE = {"-": 0.57, "+": 0.5, ":": 0.5, "/": SLASH, ",": 0.5}
"""Score from which each sign stands in the text: at most one in twenty is then wrong. Chosen by
``python -m experiments.documents.signs``; a sign that is not named is never so sure."""

Mark = tuple[Box, Box, str, int | None]
"""A digit or sign: its box as the text is read, its box in the picture, what it is, its number."""

_WIDEST = 1.0  # heights between neighbours in one number: cells of forms are not as far apart


def stands(char: str, p: float) -> bool:
    return p >= SURE.get(char, np.inf)


def upright(box: Box, turn: int, size: tuple[int, int]) -> Box:
    """Return a box of a picture (width, height) where it lies once the page is turned."""
    x, y, w, h = box
    wide, high = size
    if turn == 90:
        return high - y - h, x, h, w
    if turn == 180:
        return wide - x - w, high - y - h, w, h
    return (y, wide - x - w, h, w) if turn == 270 else box


def one_each(signs: Sequence[SignReading], turn: int, size: tuple[int, int]) -> list[SignReading]:
    """Return the signs of a line, the surest of those over one another; two dots are a colon."""
    kept: list[SignReading] = []
    for sign in sorted(signs, key=lambda sign: -sign.p):
        x, y, w, h = upright(sign.box, turn, size)
        for n, other in enumerate(kept):
            left, top, wide, high = upright(other.box, turn, size)
            if 2 * (min(x + w, left + wide) - max(x, left)) > min(w, wide):
                if sign.char == other.char == "." and (y + h <= top or top + high <= y):
                    kept[n] = SignReading(":", sign.p, around([sign.box, other.box]))
                break
        else:
            kept.append(sign)
    return sorted(kept, key=lambda sign: upright(sign.box, turn, size)[0])


def into_words(
    lines: Sequence[tuple[Sequence[DigitReading], Sequence[SignReading]]],
    *,
    turn: int,
    size: tuple[int, int],
    digits_only: bool = False,
) -> tuple[LineReading, ...]:
    """Part the lines of a page, digits and signs with their boxes in the picture, into words.

    A gap parts two words if one more digit would fit in, as far from both neighbours as digits of
    the page usually are, or if columns end there. ``digits_only`` leaves signs and spaces out.
    """
    rows: list[list[Mark]] = []
    number = count()
    for digits, signs in lines:
        row: list[Mark] = [(upright(d.box, turn, size), d.box, d.char, next(number)) for d in digits]
        for sign in signs:
            if stands(sign.char, sign.p) and not digits_only:
                row.append((upright(sign.box, turn, size), sign.box, sign.char, None))
        rows.append(sorted(row, key=lambda mark: 2 * mark[0][0] + mark[0][2]))
    slope, parts_at = _columns(rows)
    wide, apart = _usual(rows, 0.5)
    between = "" if digits_only else " "
    read = []
    for row in rows:
        least = _height(row) * (wide + 2 * apart)
        words = [[row[0]]]
        for before, mark in pairwise(row):
            gap = mark[0][0] - before[0][0] - before[0][2]
            columns = [bisect(parts_at, _middle(one[0], slope)) for one in (before, mark)]
            if gap > least or columns[0] != columns[1]:
                words.append([])
            words[-1].append(mark)
        parts = []
        for marks in words:
            numbers = [number for *_, number in marks if number is not None]
            span = (numbers[0], numbers[-1]) if numbers else None
            text = "".join(mark[2] for mark in marks)
            parts.append(WordReading(text, around([mark[1] for mark in marks]), span))
        text = between.join(part.text for part in parts)
        read.append(LineReading(text, around([mark[1] for mark in row]), tuple(parts)))
    return tuple(read)


def cells(reading: PageReading) -> list[list[str]]:
    """Return the words of a page as a table: a row for each line, words below others in a column.

    Two words of a line that stand in one column are one cell.
    """
    size = reading.size
    if not reading.lines or size is None:
        return [[line] for line in reading.text.split("\n")] if reading.text else []
    rows: list[list[Mark]] = []
    for line in reading.lines:
        spans = [word.digits for word in line.words if word.digits]
        own = reading.digits[spans[0][0] : spans[-1][1] + 1]
        rows.append([(upright(d.box, reading.turn, size), d.box, d.char, 0) for d in own])
    wholes = [[upright(n.box, reading.turn, size) for n in line.numbers or ()] for line in reading.lines]
    slope, parts_at = _columns(rows, wholes if all(wholes) else None)
    table = []
    for line in reading.lines:
        texts: list[list[str]] = [[] for _ in range(len(parts_at) + 1)]
        for word in line.words:
            middle = _middle(upright(word.box, reading.turn, size), slope)
            texts[bisect(parts_at, middle)].append(word.text)
        table.append([" ".join(some) for some in texts])
    return table


def _columns(rows: list[list[Mark]], wholes: list[list[Box]] | None = None) -> tuple[float, list[float]]:
    """The skew of a page, and where its columns end: in corridors that no digit, or whole number, stands in.

    A corridor parts a third of the lines or more, and of these one in ten may have a digit in it.
    It is as wide as two usual gaps and an n-th of a digit, if it parts n lines: that of one line is
    a space. Chosen by ``python -m experiments.documents.measure --develop``.
    """
    boxes = [[mark[0] for mark in row if mark[3] is not None] for row in rows]
    all_boxes = np.array([box for row in boxes for box in row], np.float64)
    if not len(all_boxes):
        return 0.0, []
    slope = skew_and_lines(all_boxes)[0]
    boxes = wholes or boxes
    spans = [[(_middle(b, slope) - b[2] / 2, _middle(b, slope) + b[2] / 2) for b in row] for row in boxes]
    low = min(left for row in spans for left, _ in row)
    length = int(max(right for row in spans for _, right in row) - low) + 2
    parted, filled = np.zeros(length), np.zeros(length)
    for row in spans:
        parted[int(row[0][0] - low) : int(row[-1][1] - low) + 1] += 1
        for left, right in row:
            filled[int(left - low) : int(right - low) + 1] += 1
    free = (filled <= parted / 10) & (parted >= len(rows) / 3) & (parted > 0)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], free, [0]])))
    wide, apart = _usual(rows, 0.25)  # in a table half of the gaps may lie between columns
    high = float(np.median(all_boxes[:, 3]))
    ends = []
    for first, last in zip(edges[::2], edges[1::2], strict=True):
        if last - first > high * (2 * apart + wide / parted[first:last].max()):
            ends.append(low + (first + last) / 2)
    return slope, ends


def _usual(rows: list[list[Mark]], share: float) -> tuple[float, float]:
    """How wide a digit usually is and how far from the next a share of them is, in heights."""
    widths, gaps = [0.0], [_WIDEST]
    for row in rows:
        high = _height(row)
        widths += [mark[0][2] / high for mark in row if mark[3] is not None]
        gaps += [(b[0][0] - a[0][0] - a[0][2]) / high for a, b in pairwise(row)]
    return median(widths), min(max(float(np.quantile(gaps, share)), 0.0), _WIDEST)


def _height(row: list[Mark]) -> float:
    return median(mark[0][3] for mark in row if mark[3] is not None)


def around(boxes: Sequence[Box]) -> Box:
    x, y = min(box[0] for box in boxes), min(box[1] for box in boxes)
    right, bottom = max(box[0] + box[2] for box in boxes), max(box[1] + box[3] for box in boxes)
    return x, y, right - x, bottom - y


def _middle(box: Box, slope: float) -> float:
    """Where the middle of a box lies in its row, with the page's skew taken out."""
    x, y, w, h = box
    return x + w / 2 + slope * (y + h / 2)
