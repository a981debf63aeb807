"""From a grey page to lines of normalised digits: the finder's boxes, cropped and put in order."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from neocog.vision.finder import FinderSettings, Finding, Network, find, merged
from neocog.vision.search import Hypothesis, Known, Search
from neocog.vision.settings import SearchSettings
from neocog.vision.weigh import Weights

TURNS = (0, 90, 180, 270)

Box = tuple[int, int, int, int]
Grey = NDArray[np.uint8]


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
    guesses : ndarray of float32, shape (10,)
        Log probabilities of the digits, by the finder.
    p : float
        Probability that it is a digit of its line and that none beside it was left out.
    """

    box: Box
    digit: NDArray[np.uint8]
    score: float
    guesses: NDArray[np.float32]
    p: float = 1.0


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


def look(grey: Grey, network: Network, settings: FinderSettings | None = None) -> Finding:
    """Return all boxes that may be digits or signs, also those that overlap."""
    alike = SearchSettings().alike
    settings = replace(settings or FinderSettings(), overlap=alike, inside=np.inf, apart=True)
    return find(grey, network, settings)


def lay_out(
    grey: Grey,
    network: Network,
    known: Known,
    *,
    count: int | None = None,
    turn: int | None = 0,
    weights: Weights | None = None,
    settings: SearchSettings | None = None,
    finder: FinderSettings | None = None,
    found: Finding | None = None,
) -> Layout:
    """Find the digits of a page, in reading order.

    Parameters
    ----------
    grey : ndarray of uint8, shape (H, W)
        The page.
    network : callable
        The finder's, see `neocog.vision.finder.Network`.
    known : callable
        The digit network's word, see `neocog.vision.search.Known`.
    count : int, optional
        Digits that each line is expected to have.
    turn : int or None
        Degrees clockwise by which the page is turned to be read; None: to be found out.
    weights : Weights, optional
    settings : SearchSettings, optional
    finder : FinderSettings, optional
    found : Finding, optional
        What `look` returned for the page as it lies.
    """

    def turned(degrees: int) -> tuple[Grey, Finding]:
        lying = np.ascontiguousarray(np.rot90(grey, -degrees // 90))
        known = found is not None and not degrees
        return lying, cast(Finding, found) if known else look(lying, network, finder)

    def searched(degrees: int, lying: Grey, boxes: Finding) -> Reading:
        search = Search(lying, boxes, known, weights, settings)
        lines = search.lines(count)
        if turn is None:
            search.ask(lines)
        return Reading(lines, search.left_out(lines), degrees)

    settings = settings or SearchSettings()
    best = searched(turn or 0, *turned(turn or 0))
    if turn is None and best.may_be_turned(settings):
        others = [(degrees, *turned(degrees)) for degrees in TURNS[1:]]
        many = settings.many
        other = searched(*max(others, key=lambda one: seen(one[2], many)))
        if other.is_surely_upright(settings):
            best = other
    high, wide = grey.shape
    lines = [_line(line, best.turn, wide, high) for line in best.lines]
    return Layout(tuple(line for line in lines if line.digits), best.left_out, best.turn)


def seen(found: Finding, many: int) -> float:
    """How surely the finder sees at least so many digits, on average; 0 if it does not."""
    settings = FinderSettings()
    sure = merged(found[found.digits & (found.scores >= settings.score)], settings).scores
    return float(sure.mean()) if len(sure) >= many else 0.0


@dataclass(frozen=True, slots=True)
class Reading:
    """What a search found on a page that was turned."""

    lines: list[list[Hypothesis]]
    left_out: int
    turn: int

    @property
    def digits(self) -> list[Hypothesis]:
        """All digits of the page."""
        return [mark for line in self.lines for mark in line if mark.is_digit]

    @property
    def worth(self) -> float:
        """What the digits are worth together."""
        return sum(mark.worth for mark in self.digits)

    def may_be_turned(self, settings: SearchSettings) -> bool:
        """Whether so much is seen, and is so doubtful, that the page may lie on its side."""
        digits = self.digits
        seen = len(digits) + self.left_out
        return seen >= settings.many / 2 and self.worth <= settings.upright * len(digits)

    def is_surely_upright(self, settings: SearchSettings) -> bool:
        """Whether enough digits are read, and as surely as only an upright page's are."""
        many = len(self.digits)
        return many >= settings.many and self.worth > settings.upright * many


def _line(marks: Sequence[Hypothesis], turn: int, wide: int, high: int) -> Line:
    digits, signs = [], []
    for mark in marks:
        box = _turned_back(mark.box.tolist(), turn, wide, high)
        if mark.digit is not None:
            digits.append(Place(box, mark.digit, mark.score, mark.guesses, mark.p))
        elif not mark.is_digit:
            signs.append(Sign(box, mark.char, mark.score))
    return Line(tuple(digits), tuple(signs))


def _turned_back(box: Sequence[float], turn: int, wide: int, high: int) -> Box:
    """A box of the turned page in whole pixels of the given one, which is ``wide`` x ``high``."""
    x, y, w, h = box
    if turn == 90:
        x, y, w, h = y, high - x - w, h, w
    elif turn == 180:
        x, y = wide - x - w, high - y - h
    elif turn == 270:
        x, y, w, h = wide - y - h, x, h, w
    left, top = min(max(round(x), 0), wide - 1), min(max(round(y), 0), high - 1)
    right, bottom = min(round(x + w), wide), min(round(y + h), high)
    return left, top, max(1, right - left), max(1, bottom - top)
