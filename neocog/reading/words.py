"""Columns of a page: its words as a table."""

from bisect import bisect
from itertools import pairwise
from statistics import median

import numpy as np

from neocog.reading.records import Box, PageRecord
from neocog.vision.page import turned_back
from neocog.vision.strips import voted_slope

_WIDEST = 1.0  # heights between neighbours in one number: cells of forms are not as far apart


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
        own = [word.digits for word in line.words if word.digits]
        rows.append([lying(digit.box) for digit in reading.digits[own[0][0] : own[-1][1] + 1]])
    slope = voted_slope(np.array([box for row in rows for box in row], np.float64))

    def middle(box: Box) -> float:
        """Where the middle of a box lies in its row, with the page's skew taken out."""
        x, y, w, h = lying(box)
        return x + w / 2 + slope * (y + h / 2)

    numbers = list[list[tuple[float, float, bool]]]()
    for line in reading.lines:
        ruled = [word.ruled for word in line.words if word.digits]
        spans = [(middle(number.box), lying(number.box)[2] / 2) for number in line.numbers]
        numbers.append([(at - half, at + half, wall) for (at, half), wall in zip(spans, ruled, strict=True)])
    ends, table = _columns(rows, numbers), list[list[str]]()
    for line in reading.lines:
        texts: list[list[str]] = [[] for _ in range(len(ends) + 1)]
        for word in line.words:
            texts[bisect(ends, middle(word.box))].append(word.text)
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
