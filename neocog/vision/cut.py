"""Touching digits cut apart, broken ones joined: one dynamic programme over the whole line.

Marks that are too wide for a digit, or that the network does not know, are offered cuts (paths
from top to bottom that cross little ink) and neighbours to be joined with. Every stretch of the
line between two cuts or gaps is a digit perhaps; the network scores them all in one batch, and the
cheapest way through the line wins. A stretch costs -log p and by its shape, a cut by the ink that
it crosses, a join by its gap, so that a mark which is known as it is stays whole. Where a number
of digits is wanted, the cheapest way with so many wins, if it knows no less.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import inf, log

import numpy as np
from numpy.typing import NDArray

from neocog.vision.binarise import Marks
from neocog.vision.components import Component
from neocog.vision.seams import Piece, between, joined, seams, whole

Score = Callable[[NDArray[np.uint8]], NDArray[np.floating]]
"""Given digits (N, 28, 28), the probability (N,) that the network knows each for a digit."""

_TRIALS = 40  # marks of a page that may be cut or joined
_COMPANY = 2  # so many other marks tell what stands in a line
_KNOWN = 0.5  # a stretch of a lower probability is not known


@dataclass(frozen=True, slots=True)
class Costs:
    """What a way through a line costs, in units of -log p; lengths in heights of the line's digits.

    Attributes
    ----------
    sure : float
        A mark that the network knows with this probability is one digit ...
    flattest : float
        ... unless it is wider than so many of its heights.
    narrowest, among : float
        A mark narrower than this is offered no cuts; and where all others are digits.
    unknown : float
        A stretch that is not known at all counts as known so much.
    cut, crossed : float
        Of any cut, and of each stroke width of ink that it crosses beyond the first.
    join, gap, near, one : float
        Of any join, and of a gap of one height; the widest gap, and the widest whole, of a join.
    widest, broad : float
        Width over height of a wide digit, and what 1 more costs.
    shortest, low : float
        Height of a digit that is low in its line, and what 1 less costs.
    wide, lowest, thin : float
        Bounds of a stretch of a mark: its width, its height, its least width.
    shared, lent : float
        Ink beyond a cut, in strokes, that both sides may share; how far p counts then.
    scrap, drop, ink : float
        A stretch with less ink than this (in heights times strokes) may be left out; what that
        costs, and what 1 more ink costs.
    sign, skip : float
        A mark lower than this may be a sign, and what leaving it out costs.
    """

    sure: float = 0.9
    flattest: float = 1.5
    narrowest: float = 0.6
    among: float = 0.6
    unknown: float = 1e-4
    cut: float = 1.0
    crossed: float = 0.5
    join: float = 0.5
    gap: float = 6.0
    near: float = 0.3
    one: float = 1.2
    widest: float = 0.95
    broad: float = 3.0
    shortest: float = 0.75
    low: float = 4.0
    wide: float = 1.4
    lowest: float = 0.4
    thin: float = 0.08
    shared: float = 1.2
    lent: float = 0.8
    scrap: float = 0.35
    drop: float = 0.5
    ink: float = 4.0
    sign: float = 0.6
    skip: float = 2.5


#: In a strip, where nearly all marks are digits.
STRIP = Costs(crossed=1.0, widest=1.05)
#: On a page: letters, which are cut into digits as easily, are as broad as one digit; what a cut
#: leaves should look like a digit without its neighbour's ink.
PAGE = Costs(narrowest=1.2, shared=0.0)


def cut_lines(
    lines: Sequence[Sequence[Component]],
    marks: Marks,
    score: Score | None,
    *,
    count: int | None = None,
    costs: Costs = PAGE,
) -> list[list[Piece]]:
    """Cut the marks of each line into pieces of one digit each, and join what one digit is.

    Parameters
    ----------
    lines : sequence of sequence of Component
        From left to right.
    marks : Marks
        What the components refer to.
    score : callable or None
        Without it every component is one piece.
    count : int, optional
        Digits that each line is expected to have.
    costs : Costs, optional

    Returns
    -------
    list of list of Piece
    """
    pieces = [[whole(component, marks) for component in line] for line in lines]
    if score is None or not any(pieces):
        return pieces
    rows = [_Row(line, costs) for line in pieces if line]
    _score(((row, row.wholes()) for row in rows), marks, score)
    doubtful = [row.doubtful() for row in rows]
    if sum(map(len, doubtful)) <= _TRIALS:  # more doubt is no touching digits
        offers = [(row, row.offers(which)) for row, which in zip(rows, doubtful, strict=True)]
        _score(offers, marks, score)
    ways = [row.cheapest() for row in rows]
    if count is not None:
        ways = _counted(rows, ways, count, marks, score)
    found = [[stretch.piece for stretch in way] for way in ways]
    return [line for line in found if line]


@dataclass(slots=True)
class _Stretch:
    """A part of a line between two edges that may be one digit."""

    first: int
    last: int
    piece: Piece
    cost: float
    lent: float = 1.0
    known: float = 0.0


@dataclass(slots=True)
class _Row:
    """A line: its marks, the edges between marks and at cuts, and what lies between edges.

    Edges are numbered from left to right; mark k begins at edge ``begin[k]``.
    """

    pieces: list[Piece]
    costs: Costs
    tall: float = 0.0
    known: list[float] = field(default_factory=list)
    begin: list[int] = field(default_factory=list)
    passing: list[float] = field(default_factory=list)
    stretches: list[_Stretch] = field(default_factory=list)
    bare: list[tuple[int, int, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tall = float(np.median([piece.box[3] for piece in self.pieces]))

    def wholes(self) -> list[_Stretch]:
        """Offer every mark as it is."""
        self.begin = list(range(len(self.pieces) + 1))
        self.passing = [0.0] * len(self.begin)
        self.stretches, self.bare = [], []
        for number in range(len(self.pieces)):
            self._offer_whole(number)
        return self.stretches

    def doubtful(self) -> set[int]:
        """Marks that are not known for one digit."""
        return {
            number
            for number, (piece, stretch) in enumerate(zip(self.pieces, self.stretches, strict=True))
            if stretch.known < self.costs.sure or piece.box[2] > self.costs.flattest * piece.box[3]
        }

    def offers(self, doubtful: set[int]) -> list[_Stretch]:
        """Offer cuts of doubtful marks and joins with their neighbours; return what is new."""
        if not doubtful:
            return []
        wholes, self.stretches, self.bare = self.stretches, [], []
        self.known = [stretch.known for stretch in wholes]
        self.begin, self.passing = [0], [0.0]
        cuts = []
        for number, piece in enumerate(self.pieces):
            paths: list[NDArray[np.intp]] = []
            if number in doubtful and piece.box[2] >= self._narrowest(number) * self.tall:
                paths, crossed = seams(piece, self.tall)
                self.passing += [self._cut_cost(ink / piece.stroke) for ink in crossed]
            self.passing.append(0.0)
            cuts.append(paths)
            self.begin.append(self.begin[-1] + len(paths) + 1)
        for number, stretch in enumerate(wholes):
            self._offer_whole(number)
            self.stretches[-1].known = stretch.known
        old = len(self.stretches)
        for number, paths in enumerate(cuts):
            if paths:
                self._offer_parts(number, paths)
        for left in sorted({n - 1 for n in doubtful} | doubtful):
            self._offer_join(left)
        return self.stretches[old:]

    def cheapest(self, count: int | None = None) -> list[_Stretch]:
        """Return the cheapest way through the line, with ``count`` digits if that is given.

        Empty where there is none.
        """
        last = len(self.passing) - 1
        steps: list[tuple[int, int, float, _Stretch | None]] = [
            (s.last, s.first, self._price(s) + self.passing[s.last], s) for s in self.stretches
        ]
        steps += [(j, i, price + self.passing[j], None) for i, j, price in self.bare]
        steps.sort(key=lambda step: step[:2])
        layers = 0 if count is None else count
        best = np.full((last + 1, layers + 1), inf)
        best[0, 0] = 0.0
        came: dict[tuple[int, int], tuple[int, int, _Stretch | None]] = {}
        for j, i, price, stretch in steps:
            more = int(stretch is not None and count is not None)
            for n in range(layers + 1 - more):
                if best[i, n] + price < best[j, n + more]:
                    best[j, n + more] = best[i, n] + price
                    came[j, n + more] = i, n, stretch
        way: list[_Stretch] = []
        at = last, layers
        if best[at] == inf:
            return way
        while at[0]:
            i, n, stretch = came[at]
            if stretch is not None:
                way.insert(0, stretch)
            at = i, n
        return way

    def _narrowest(self, number: int) -> float:
        """Least width of a mark that is cut: less where all others of its line are digits."""
        others = self.known[:number] + self.known[number + 1 :]
        among = len(others) >= _COMPANY and min(others) >= _KNOWN
        return self.costs.among if among else self.costs.narrowest

    def _price(self, stretch: _Stretch) -> float:
        return stretch.cost - log(max(stretch.lent * stretch.known, self.costs.unknown))

    def _cut_cost(self, strokes: float) -> float:
        return self.costs.cut + self.costs.crossed * max(0.0, strokes - 1.0)

    def _shape_cost(self, piece: Piece) -> float:
        _, _, wide, high = piece.box
        ratio = wide / max(high, 0.8 * self.tall)
        return self.costs.broad * max(0.0, ratio - self.costs.widest) + self.costs.low * max(
            0.0, self.costs.shortest - high / self.tall
        )

    def _offer(self, first: int, last: int, piece: Piece, cost: float, lent: float = 1.0) -> None:
        cost += self._shape_cost(piece)
        self.stretches.append(_Stretch(first, last, piece, cost, lent))

    def _offer_whole(self, number: int) -> None:
        piece = self.pieces[number]
        _, _, wide, high = piece.box
        first, last = self.begin[number], self.begin[number + 1]
        self._offer(first, last, piece, 0.0)
        if high < self.costs.sign * self.tall and wide < 1.2 * high:
            self.bare.append((first, last, self.costs.skip))

    def _offer_parts(self, number: int, paths: list[NDArray[np.intp]]) -> None:
        piece, costs = self.pieces[number], self.costs
        height, width = piece.own.shape
        edges = [np.full(height, -1), *paths, np.full(height, width - 1)]
        end, more = len(edges) - 1, round(costs.shared * piece.stroke)
        for i, j in combinations(range(end + 1), 2):
            if (i, j) == (0, end):
                continue
            first, last = self.begin[number] + i, self.begin[number] + j
            part = between(piece, edges[i], edges[j])
            ink = int(part.own.sum()) / (self.tall * piece.stroke) if part else 0.0
            if ink < costs.scrap:
                self.bare.append((first, last, (costs.drop + costs.ink * ink) * (ink > 0)))
            if part is None or not self._fits(part):
                continue
            self._offer(first, last, part, 0.0)
            shared = between(piece, edges[i] - more * (i > 0), edges[j] + more * (j < end))
            if more and shared is not None and self._fits(shared):
                self._offer(first, last, shared, 0.0, costs.lent)

    def _fits(self, part: Piece) -> bool:
        """Whether a stretch of a mark may be a digit by its size."""
        _, _, wide, high = part.box
        costs, tall = self.costs, self.tall
        return costs.thin * tall <= wide <= costs.wide * tall and high >= costs.lowest * tall

    def _offer_join(self, left: int) -> None:
        """Offer a mark and the next one as one digit."""
        if left < 0 or left + 1 >= len(self.pieces):
            return
        a, b = self.pieces[left : left + 2]
        gap = max(0, b.box[0] - a.right) / self.tall
        wide = max(a.right, b.right) - min(a.box[0], b.box[0])
        if gap <= self.costs.near and wide <= self.costs.one * self.tall:
            cost = self.costs.join + self.costs.gap * gap
            self._offer(self.begin[left], self.begin[left + 2], joined([a, b]), cost)


def _score(offers: Iterable[tuple[_Row, list[_Stretch]]], marks: Marks, score: Score) -> None:
    """Let the network say, in one batch, how well it knows some stretches."""
    new = [stretch for _, stretches in offers for stretch in stretches]
    if new:
        known = score(np.stack([stretch.piece.digit(marks) for stretch in new]))
        for stretch, p in zip(new, np.asarray(known).tolist(), strict=True):
            stretch.known = p


def _counted(
    rows: list[_Row], ways: list[list[_Stretch]], count: int, marks: Marks, score: Score
) -> list[list[_Stretch]]:
    """Return ways of ``count`` digits where there are any that know no less.

    A mark that the network knows as one digit stays one, whatever is expected.
    """
    off = [row for row, way in zip(rows, ways, strict=True) if len(way) != count]
    if not off or sum(len(row.pieces) for row in off) > _TRIALS:
        return ways
    for row in off:
        row.wholes()
    _score(((row, row.stretches) for row in off), marks, score)
    _score([(row, row.offers(row.doubtful())) for row in off], marks, score)
    better = []
    for row, way in zip(rows, ways, strict=True):
        other = row.cheapest(count) if len(way) != count else []
        better.append(other if other and _unknown(other) <= _unknown(way) else way)
    return better


def _unknown(way: list[_Stretch]) -> int:
    return sum(stretch.known < _KNOWN for stretch in way)
