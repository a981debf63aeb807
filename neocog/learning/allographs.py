"""Digits in styles that the sets hardly have: the strokes by which other schools write them.

A 9 whose loop stands to the right of its stem, like a P; a 2 with a loop at its top or its foot; a
5 like an S, or with a bar that hooks far to the right; ones with an up-stroke, a foot, or one long
leaning stroke; barred sevens; open and closed fours. The strokes were set down by hand after what
the world's schools teach, not traced from any picture.
"""

from functools import cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from neocog.learning.strokes import rounded

Line = NDArray[np.float32]

_STYLES = (
    # column and row of each point, rows from 0 (top) to 6 (foot) or 7; strokes are parted by
    # spaces, styles by bars
    "20-01-04-26-45-42-20 | 30-11-03-15-26-45-42-30-10 | 30-11-03-15-36-44-41"
    " | 31-11-03-15-36-44-42-30-12-23 | 20-01-04-26-45-42-20-32-50 | 20-01-04-26-45-42-20 50-06",
    "40-06 | 30-26 | 04-30-26 | 03-20-26 | 06-30-36 | 02-20-26 06-46 | 12-30-24-26-36",
    "23-12-01-20-41-43-15-06-05-15-36-46 | 33-13-01-20-41-44-26-06-05-25-46"
    " | 33-12-01-20-41-43-25-06-15-46 | 14-02-10-30-42-34-15-05-14-26-46"
    " | 34-14-02-10-30-42-44-26-06-15-46 | 24-03-01-10-30-42-34-16-05-14-25-46"
    " | 01-10-30-41-43-15-06-04-15-36-46 | 01-20-41-42-05-06-46 | 10-40-24-06-46"
    " | 22-11-20-41-33-06-46-47",
    "00-40-22-43-45-26-05 | 01-20-41-32-12-22-33-45-26-05 | 01-10-30-41-22-43-46-27-07"
    " | 10-40-13-33-44-36-16",
    "10-03-43 40-46 | 30-04-44 30-36 | 20-03-43 42-27 | 00-02-13-33-42 40-47"
    " | 10-02-03-33-43 31-37 | 10-04-44 21-37",
    "40-10-03-12-33-45-26-05 | 10-03-12-33-45-26-05 10-50 | 10-12-32-44-36-06 10-40-60"
    " | 50-20-13-23-34-36-16 | 10-13-33-45-26-05 11-30-60",
    "30-12-04-16-36-44-33-14 | 10-04-16-36-44-33-04 | 40-20-03-15-26-45-33-13-15 | 20-02-05-26-44-33-14-06",
    "00-40-16 13-43 | 00-40-16 | 02-00-40-33-26 | 02-00-20-40-23-17 03-43 | 01-10-30-50-16 | 00-30-41-42-26",
    "41-20-01-12-33-45-26-05-14-32-41 | 20-01-22-41-20 22-04-26-44-22"
    " | 50-20-01-12-33-45-26-05-14-40 | 22-11-20-31-22-04-26-44-22 | 30-10-11-34-26-15-14-31-30",
    "16-12-10-30-41-33-13 | 16-13-11-20-40-42-33-12 | 17-12-20-41-32-12"
    " | 17-13-11-20-40-42-33-23"
    " | 41-30-10-02-13-33-41-45-36-16-05 | 41-20-01-02-13-33-41-46"
    " | 31-10-01-13-32-30-26 | 30-10-02-13-32-41-30-36-47",
)
"""Styles of each digit, 0 to 9; the first of a 9 are like a P."""

_RARE = (
    "30-10-02-04-16-36-44-42-30-41-60 | 10-02-04-16-36-44-42-31",
    "50-06 | 06-20-16 | 05-20-17 | 15-31-36 | 06-14-30-16 | 07-30-27 | 05-13-21-30-25 | 06-25-30-20-26"
    " | 05-14-30-27-17-37 | 04-12-20-06",
    "02-10-30-31-06-05-16-36 | 12-10-30-31-15-04-05-16-56 | 01-20-41-16-06-15-46",
    "01-20-41-32-23-33-44-36-06-16",
    "00-03-43 40-46 | 20-04-54 33-36 | 10-03-14-34-42 31-37 | 00-04-14-33 32-37",
    "12-04-16-30-60 | 02-04-16-30-50 | 10-12-22-33-26-15 10-40 | 41-20-02-23-44-26-05",
    "10-04-06-36-44-33-13-04 | 40-12-05-16-35-34-14",
    "00-50 50-26 13-43 | 02-01-40-16 23-43 | 01-10-40-50-23-16",
    "40-10-01-32-44-36-16-04-32-40 | 31-20-11-12-34-45-36-15-14-31-41",
    "07-20-30-31-22-12 | 30-11-13-32-30-33-16-05 | 32-12-10-30-32-45-26",
)
"""Styles that only lines are drawn with: what is a digit among digits is hardly one alone."""

_SHAKE = 0.24
"""Standard deviation of a point, in columns and rows."""
_ROUND = 3  # times that corners are cut


@cache
def _styles() -> list[list[tuple[Line, list[int]]]]:
    """Points of each style of each digit, and where its strokes begin."""
    found: list[list[tuple[Line, list[int]]]] = [[] for _ in _STYLES]
    for digit, (usual, rare) in enumerate(zip(_STYLES, _RARE, strict=True)):
        for style in [*usual.split(" | "), *rare.split(" | ")]:
            strokes = [[(int(at[0]), int(at[1])) for at in stroke.split("-")] for stroke in style.split()]
            cuts = [0, *np.cumsum([len(stroke) for stroke in strokes]).tolist()]
            found[digit].append((np.array([at for stroke in strokes for at in stroke], np.float32), cuts))
    return found


def styles_of(digit: int, *, rare: bool = False) -> int:
    """How many styles a digit has; rare ones come after the others."""
    return len(_styles()[digit]) if rare else len(_STYLES[digit].split(" | "))


def any_allograph(rng: np.random.Generator) -> tuple[int, int]:
    """Choose a digit and one of its styles; all styles are as likely."""
    counts = np.array([styles_of(digit) for digit in range(10)])
    digit = int(rng.choice(10, p=counts / counts.sum()))
    return digit, int(rng.integers(counts[digit]))


def allograph(digit: int, style: int, rng: np.random.Generator) -> list[Line]:
    """Draw a digit in a style: its strokes, each (n, 2) float32, (x, y), y down, the digit about 6 high."""
    points, cuts = _styles()[digit][style]
    points = points + rng.normal(0, _SHAKE, points.shape).astype(np.float32)
    return [rounded(points[a:b], _ROUND) for a, b in pairwise(cuts)]
