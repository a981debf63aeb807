"""Pairs the digits of a line with those of the same line a frame later.

A line is matched as a whole: a sheet moves with all its digits. For each likely shift the two rows
are aligned by dynamic programming: a pair costs the distance that the shift leaves between its
places, and more for different characters; a digit without a partner costs as well. The cheapest
shift wins. Costs are in heights of a digit.
"""

from collections.abc import Sequence
from math import hypot, inf
from statistics import fmean, median

from neocog.batch.records import REJECTED, DigitReading

_ALONE = 0.6  # cost of a digit without a partner
_OTHER = 0.45  # cost of a pair with different characters
_UNKNOWN = 0.15  # cost of a pair of which one was not recognised
_FAR = 0.9  # no pair is further apart than so many heights
_MOVED = 0.08  # cost of each height that the line has moved
_SIZE = 1.7  # digits of one line grow or shrink at most so much from frame to frame

Row = Sequence[DigitReading]
Shift = tuple[float, float]  # columns and rows

Pairs = tuple[tuple[int | None, int | None], ...]
"""Numbers in the old and in the new row, in reading order; None where a partner is missing."""


def align(old: Row, new: Row, *, expected: Shift = (0.0, 0.0)) -> tuple[Pairs, float]:
    """Pair the digits of two rows, neither of them empty.

    Parameters
    ----------
    old, new : sequence of DigitReading
        From left to right.
    expected : tuple of float
        Columns and rows by which the line is thought to have moved.

    Returns
    -------
    pairs : tuple of pair
    cost : float
        Per digit of the longer row: near 0 for the same line, above 0.6 for another.
    """
    tall = median([p.box[3] for p in old])
    grown = median([p.box[3] for p in new]) / max(tall, 1)
    strangers = (*((i, None) for i in range(len(old))), *((None, j) for j in range(len(new))))
    best: tuple[Pairs, float] = strangers, 2 * _ALONE
    if not 1 / _SIZE < grown < _SIZE:
        return best
    tall, longer = max(tall, 1.0), max(len(old), len(new))
    for dx, dy in _likely_shifts(old, new, expected):
        pairs, cost = _cheapest(old, new, (dx, dy), tall)
        surprise = hypot(dx - expected[0], dy - expected[1])
        cost = cost / longer + _MOVED * surprise / tall
        if cost < best[1]:
            best = pairs, cost
        if cost < 0.1:
            break
    return best


def moved(old: Row, new: Row, pairs: Pairs) -> Shift:
    """Return the columns and rows by which paired digits have moved; (0, 0) without any."""
    steps = [_step(old[i], new[j]) for i, j in pairs if i is not None and j is not None]
    if not steps:
        return 0.0, 0.0
    return median([dx for dx, _ in steps]), median([dy for _, dy in steps])


def _likely_shifts(old: Row, new: Row, expected: Shift) -> list[Shift]:
    """The expected shift, none, and those that lay the ends or the middles upon each other."""
    (x0, y0), (x1, y1) = _middle(old), _middle(new)
    ends = _step(old[0], new[0]), _step(old[-1], new[-1])
    return [expected, (0.0, 0.0), *ends, (x1 - x0, y1 - y0)]


def _step(a: DigitReading, b: DigitReading) -> Shift:
    """Columns and rows from the middle of one digit to the middle of the other."""
    (x0, y0, w0, h0), (x1, y1, w1, h1) = a.box, b.box
    return x1 - x0 + (w1 - w0) / 2, y1 - y0 + (h1 - h0) / 2


def _middle(row: Row) -> tuple[float, float]:
    boxes = [digit.box for digit in row]
    return fmean(b[0] + b[2] / 2 for b in boxes), fmean(b[1] + b[3] / 2 for b in boxes)


def _cheapest(old: Row, new: Row, shift: Shift, tall: float) -> tuple[Pairs, float]:
    """Align two rows for one shift; return the pairs and their whole cost."""
    best: list[list[tuple[float, int, int]]] = []  # cost so far, and the step that led there
    for i in range(len(old) + 1):
        best.append([])
        for j in range(len(new) + 1):
            ways = [(0.0, 0, 0)] if i == j == 0 else []
            if i and j:
                pair = _pair_cost(old[i - 1], new[j - 1], shift, tall)
                ways.append((best[i - 1][j - 1][0] + pair, 1, 1))
            if i:
                ways.append((best[i - 1][j][0] + _ALONE, 1, 0))
            if j:
                ways.append((best[i][j - 1][0] + _ALONE, 0, 1))
            best[i].append(min(ways))
    pairs: list[tuple[int | None, int | None]] = []
    i, j = len(old), len(new)
    while i or j:
        _, up, left = best[i][j]
        i, j = i - up, j - left
        pairs.append((i if up else None, j if left else None))
    return tuple(reversed(pairs)), best[-1][-1][0]


def _pair_cost(a: DigitReading, b: DigitReading, shift: Shift, tall: float) -> float:
    x, y = _step(a, b)
    apart = hypot(x - shift[0], y - shift[1]) / tall
    if apart > _FAR:
        return inf
    if a.char == b.char:
        return apart
    return apart + (_UNKNOWN if REJECTED in (a.char, b.char) else _OTHER)
