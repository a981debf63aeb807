"""From a grey page to lines of normalised digits: the finder's boxes, cropped and put in order."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from neocog.vision.finder import FinderSettings, Finding, Network, find, merged
from neocog.vision.search import Known, Mark, Search
from neocog.vision.weigh import SearchSettings, Weights

TURNS = (0, 90, 180, 270)

Grey = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of writing: its digits and signs (such as / or -), each in reading order."""

    digits: tuple[Mark, ...]
    signs: tuple[Mark, ...] = ()


@dataclass(frozen=True, slots=True)
class Layout:
    """What stands on a page, and where; boxes count in pixels of the page as it was given."""

    lines: tuple[Line, ...] = ()  #: from top to bottom; each has a digit, and each digit its answer
    left_out: int = 0  #: places that the finder noticed and that no line has
    turn: int = 0  #: degrees, 0, 90, 180 or 270, by which the page is turned clockwise to be read
    ms: float = field(default=0.0, compare=False)  #: milliseconds that the digit network took

    @property
    def digits(self) -> list[Mark]:
        return [digit for line in self.lines for digit in line.digits]

    @property
    def worth(self) -> float:
        return sum(digit.worth for digit in self.digits)


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
    found: Finding | None = None,
) -> Layout:
    """Find the digits of a page (H, W), in reading order, with the answer of the digit network.

    ``network`` is the finder's, ``known`` asks the digit network, ``count`` are the digits expected in each
    line; ``turn``: None where it is to be found out; ``found``: what `look` returned.
    """
    settings = settings or SearchSettings()

    def searched(degrees: int, boxes: Finding | None = None) -> Layout:
        lying = turned(grey, degrees)
        boxes = look(lying, network) if boxes is None else boxes
        search = Search(lying, boxes, known, weights, settings)
        lines = search.lines(count)
        search.ask(lines)
        left_out = search.left_out(lines)
        laid = tuple(_line(line, degrees, grey.shape) for line in lines)
        return Layout(tuple(line for line in laid if line.digits), left_out, degrees, search.ms)

    best = searched(turn or 0, None if turn else found)
    many, digits = settings.many, len(best.digits)
    doubtful = digits + best.left_out >= many / 2 and best.worth <= settings.upright * digits
    if turn is None and doubtful:
        others = [(degrees, look(turned(grey, degrees), network)) for degrees in TURNS[1:]]
        other = searched(*max(others, key=lambda one: seen(one[1])))
        ms = best.ms + other.ms
        if len(other.digits) >= many and other.worth > settings.upright * len(other.digits):
            best = other
        best = replace(best, ms=ms)
    return best


def turned(grey: Grey, degrees: int) -> Grey:
    return np.ascontiguousarray(np.rot90(grey, -degrees // 90))


def seen(found: Finding) -> float:
    """Log odds of all that the finder takes for digits, together."""
    settings = FinderSettings()
    some = found[(found.kinds < 10) & (found.scores >= settings.score)]
    scores = merged(some, settings).scores.astype(np.float64).clip(1e-6, 1 - 1e-6)
    return float(np.log(scores / (1 - scores)).sum())


def _line(marks: Sequence[Mark], turn: int, shape: tuple[int, ...]) -> Line:
    high, wide = shape
    for mark in [*marks, *(mark.sign for mark in marks if mark.sign)]:
        mark.box = turned_back(mark.box, turn, wide, high)
    digits = tuple(mark for mark in marks if mark.is_digit)
    return Line(digits, tuple(mark for mark in marks if not mark.is_digit))


def turned_back(box: Sequence[float], turn: int, wide: int, high: int) -> tuple[int, int, int, int]:
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
