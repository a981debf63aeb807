"""Columns of a page: its words as a table."""

from bisect import bisect
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

import numpy as np

from neocog.reading.records import Box, PageReading
from neocog.vision.page import turned_back
from neocog.vision.strips import voted_slope

_WIDEST = 1.0  # heights between neighbours in one number: cells of forms are not as far apart


def cells(reading: PageReading) -> list[list[str]]:
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
        spans = [word.digits for word in line.words if word.digits]
        rows.append([lying(digit.box) for digit in reading.digits[spans[0][0] : spans[-1][1] + 1]])
    numbers = [[lying(number.box) for number in line.numbers] for line in reading.lines]
    slope, parts_at = _columns(rows, numbers)
    table = []
    for line in reading.lines:
        texts: list[list[str]] = [[] for _ in range(len(parts_at) + 1)]
        for word in line.words:
            texts[bisect(parts_at, _middle(lying(word.box), slope))].append(word.text)
        table.append([" ".join(some) for some in texts])
    return table


def _columns(rows: list[list[Box]], numbers: list[list[Box]]) -> tuple[float, list[float]]:
    """The skew of a page, and where its columns end: in corridors in which no number stands.

    ``rows`` are the boxes of the digits in each line. A corridor parts a third of the lines or more, and of
    these one in ten may have a number in it. It is as wide as two usual gaps and an n-th of a digit, if it
    parts n lines: that of one line is a space (``python -m experiments.documents.measure --develop``).
    """
    boxes = np.array([box for row in rows for box in row], np.float64)
    slope = voted_slope(boxes)
    spans = [[(_middle(b, slope) - b[2] / 2, _middle(b, slope) + b[2] / 2) for b in row] for row in numbers]
    low = min(left for row in spans for left, _ in row)
    length = int(max(right for row in spans for _, right in row) - low) + 2
    parted, filled = np.zeros(length), np.zeros(length)
    for row in spans:
        parted[int(row[0][0] - low) : int(row[-1][1] - low) + 1] += 1
        for left, right in row:
            filled[int(left - low) : int(right - low) + 1] += 1
    free = (filled <= parted / 10) & (parted >= len(rows) / 3) & (parted > 0)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], free, [0]])))
    wide, apart = _usual(rows)
    high = float(np.median(boxes[:, 3]))
    ends = []
    for first, last in zip(edges[::2], edges[1::2], strict=True):
        if last - first > high * (2 * apart + wide / parted[first:last].max()):
            ends.append(low + (first + last) / 2)
    return slope, ends


def _usual(rows: list[list[Box]]) -> tuple[float, float]:
    """How wide a digit usually is, and how far from the next a quarter of them is at most, in heights."""
    widths, gaps = [0.0], [_WIDEST]
    for row in rows:
        high = median(box[3] for box in row)
        widths += [box[2] / high for box in row]
        gaps += [(b[0] - a[0] - a[2]) / high for a, b in pairwise(row)]
    # in a table half of the gaps may lie between columns
    return median(widths), min(max(float(np.quantile(gaps, 0.25)), 0.0), _WIDEST)


def around(boxes: Sequence[Box]) -> Box:
    x, y = min(box[0] for box in boxes), min(box[1] for box in boxes)
    right, bottom = max(box[0] + box[2] for box in boxes), max(box[1] + box[3] for box in boxes)
    return x, y, right - x, bottom - y


def _middle(box: Box, slope: float) -> float:
    """Where the middle of a box lies in its row, with the page's skew taken out."""
    x, y, w, h = box
    return x + w / 2 + slope * (y + h / 2)
