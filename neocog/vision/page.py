"""From a grey page to lines of normalised digits: the finder's boxes, cropped and put in order."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neocog.vision.crop import digit_of_box
from neocog.vision.finder import SIGNS, FinderSettings, Finding, Network, find
from neocog.vision.lines import into_lines

LONG_SIDE = 1600
"""Pages are searched at this long side, in pixels; larger ones are reduced to it."""

Box = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Place:
    """One place that may hold a digit.

    Attributes
    ----------
    box : tuple of int
        Left, top, width and height in pixels of the given page.
    digit : ndarray of uint8, shape (28, 28)
        The ink in MNIST's form, 255 on 0.
    score : float
        How surely the finder takes it for a digit, 0 .. 1.
    kind : int
        Which digit the finder takes it for: a guess.
    """

    box: Box
    digit: NDArray[np.uint8]
    score: float
    kind: int


@dataclass(frozen=True, slots=True)
class Sign:
    """A sign between digits, such as / or -: a mark that is not a digit.

    Attributes
    ----------
    box : tuple of int
        Left, top, width and height in pixels of the given page.
    char : str
        One of `neocog.vision.finder.SIGNS`.
    score : float
        How surely it is a sign, 0 .. 1.
    """

    box: Box
    char: str
    score: float


@dataclass(frozen=True, slots=True)
class Line:
    """One line of writing.

    Attributes
    ----------
    digits : tuple of Place
        In reading order.
    signs : tuple of Sign
        In reading order.
    """

    digits: tuple[Place, ...]
    signs: tuple[Sign, ...] = ()


@dataclass(frozen=True, slots=True)
class Layout:
    """What stands on a page, and where.

    Attributes
    ----------
    lines : tuple of Line
        From top to bottom; each has a digit.
    left_out : int
        Places that the finder noticed and that are not among the lines' digits or signs.
    turn : int
        Degrees, 0, 90, 180 or 270, by which the page is turned clockwise to be read.
    """

    lines: tuple[Line, ...] = ()
    left_out: int = 0
    turn: int = 0


def lay_out(
    grey: NDArray[np.uint8], network: Network, settings: FinderSettings | None = None
) -> Layout:
    """Find the digits of a page, in reading order.

    Parameters
    ----------
    grey : ndarray of uint8, shape (H, W)
        The page.
    network : callable
        The finder's, see `neocog.vision.finder.Network`.
    settings : FinderSettings, optional
    """
    settings = settings or FinderSettings()
    found = find(grey, network, settings)
    sure = found[found.scores >= settings.score]
    lines = [_line(grey, sure[np.array(line)]) for line in into_lines(sure.boxes)]
    left_out = int(found.digits.sum() - sure.digits.sum())
    return Layout(tuple(line for line in lines if line.digits), left_out)


def _line(grey: NDArray[np.uint8], marks: Finding) -> Line:
    digits, signs = [], []
    for box, score, kind in zip(marks.boxes, marks.scores.tolist(), marks.kinds, strict=True):
        if kind < 10:
            digits.append(Place(whole(box), digit_of_box(grey, box), score, int(kind)))
        else:
            signs.append(Sign(whole(box), SIGNS[kind - 10], score))
    return Line(tuple(digits), tuple(signs))


def whole(box: NDArray[np.float32]) -> Box:
    """Return a box in whole pixels."""
    x, y, wide, high = (round(float(value)) for value in box)
    return x, y, max(1, wide), max(1, high)
