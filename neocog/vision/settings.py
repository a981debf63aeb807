"""Every number that the search for digits was set to, in one place."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """How a page's boxes are searched, chosen by ``experiments/reading/tune.py``.

    It chooses ``told``, ``asked`` and ``upright``, and lists what comes of the others
    when they are a fifth smaller or larger.

    Attributes
    ----------
    least : float
        Score of the finder from which a box is looked at.
    alike : float
        Share of the union of two boxes from which they are one and the same hypothesis.
    told : float
        Probability from which a place is told, if perhaps as ``?``.
    sure : float
        Probability from which a place is not looked at again.
    asked : tuple of float
        Log odds without the digit network between which it is asked.
    beside, level : float
        Most between the middles of neighbours, to the side and up or down, in heights.
    like : float
        Least height of a neighbour, of the higher one's.
    steady : float
        Marks of the usual share of digits that a page's own marks are counted with.
    apart : float
        Heights from which a box stands on another line.
    latest : int
        Boxes of a line whose mean level the next one is compared with.
    margin : float
        What is cut out around a box, of its longer side.
    paper, ink : float
        Of full contrast: what is no ink yet, what is full ink.
    extreme : float
        Share of a box's pixels that are darker than its ink counts.
    part : float
        Amount of ink from which pixels hang together.
    slack : float
        How far ink may stand out of its box, of the longer side.
    speck : float
        Least area of a part of a digit, of the largest one's.
    upright : float
        Mean worth of a page's digits from which it surely lies as it should, and no other turn is
        looked at.
    many : int
        Least digits of a page that is turned, if half as many are seen as it lies.
    most : int
        Boxes of a page that are looked at, but for those that the finder is sure of: a page of
        noise takes no longer.
    """

    least: float = 0.15
    alike: float = 0.8
    told: float = 0.6
    sure: float = 0.95
    asked: tuple[float, float] = (-2.1, 3.8)
    beside: float = 1.6
    level: float = 0.6
    like: float = 0.35
    steady: float = 2.0
    apart: float = 0.55
    latest: int = 3
    margin: float = 0.2
    paper: float = 0.18
    ink: float = 0.72
    extreme: float = 0.03
    part: float = 0.35
    slack: float = 0.06
    speck: float = 0.04
    upright: float = 5.3
    many: int = 12
    most: int = 128
