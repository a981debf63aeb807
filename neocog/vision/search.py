"""Which of the finder's boxes are digits: one search over the lines of a page.

The finder offers more boxes than there are digits: of other sizes, of parts and of pairs. Each is
cropped and recognised, and what speaks for it is weighed (`neocog.vision.weigh`). Where a doubt is
left, what overlaps it is tried as well. The boxes with the largest sum of log odds that do not
overlap are taken: a dynamic programme over each line.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neocog.vision.crop import cut_out
from neocog.vision.finder import SIGNS, FinderSettings, Finding, merged, overlaps
from neocog.vision.lines import into_lines
from neocog.vision.weigh import Company, Weights, beside, log_odds, probability

Grey = NDArray[np.uint8]
Known = Callable[[NDArray[np.uint8], NDArray[np.float32]], NDArray[np.floating]]
"""Given digits (N, 28, 28) and the finder's guesses (N, 10): what the digit network says of each,
(N, 3), see `neocog.vision.weigh.NETWORK`."""


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """How a page's boxes are searched.

    ``told``, ``upright`` and ``lying`` are chosen by ``experiments/reading/tune.py``. The others
    say which boxes are tried: a wider choice takes longer and seldom reads more.

    Attributes
    ----------
    least : float
        Score of the finder from which a box is looked at.
    told : float
        Probability from which a place is told, if perhaps as ``?``.
    sure : float
        Probability from which a place is not looked at again.
    wide : float
        Width over height from which a box may be two digits.
    shared : float
        Share of the smaller of two boxes from which they are not both digits.
    overlap : float
        What boxes that overlap wholly cost, in log odds.
    upright : float
        Mean worth of a page's digits from which it surely lies as it should.
    lying : float
        Mean worth of a page's digits from which no other turn is looked at.
    many : int
        Least digits of a page that is turned, if half as many are seen as it lies.
    most : int
        Boxes of a page that the digit network is asked for, but for those that the finder is sure
        of: a page of noise takes no longer.
    """

    least: float = 0.15
    told: float = 0.4
    sure: float = 0.95
    wide: float = 1.0
    shared: float = 0.5
    overlap: float = 2.0
    upright: float = 5.0
    lying: float = 5.6
    many: int = 12
    most: int = 128


@dataclass(slots=True, eq=False)
class Hypothesis:
    """A box that may be a digit or a sign.

    Attributes
    ----------
    box : ndarray of float32, shape (4,)
    score : float
        The finder's.
    kind : int
    guesses : ndarray of float32, shape (10,)
        As `neocog.vision.finder.Finding` has them.
    digit : ndarray of uint8, shape (28, 28), or None
        What the digit network is shown; None for a sign.
    features : ndarray of float64
        What the page and the network say of it, `neocog.vision.weigh.OWN` and `NETWORK`.
    odds : float
        Log odds that it is a digit.
    prior : float
        The same without what the digit network says of it.
    worth : float
        The same above those of being told at all.
    whole : float
        Probability that no digit beside it was left out.
    """

    box: NDArray[np.float32]
    score: float
    kind: int
    guesses: NDArray[np.float32]
    digit: NDArray[np.uint8] | None = None
    features: NDArray[np.float64] | None = None
    odds: float = 0.0
    prior: float = 0.0
    worth: float = 0.0
    whole: float = 1.0

    @property
    def is_digit(self) -> bool:
        """Whether it may be a digit."""
        return self.kind < 10

    @property
    def char(self) -> str:
        """The sign that it may be, or the digit by the finder's guess."""
        return ("0123456789" + SIGNS)[self.kind]


class Search:
    """The search over one page.

    Parameters
    ----------
    grey : ndarray of uint8, shape (H, W)
    found : Finding
        Of the finder, boxes that overlap among them.
    known : callable
        See `Known`.
    weights : Weights, optional
    settings : SearchSettings, optional
    """

    def __init__(
        self,
        grey: Grey,
        found: Finding,
        known: Known,
        weights: Weights | None = None,
        settings: SearchSettings | None = None,
    ) -> None:
        self._grey, self._known, self._weights = grey, known, weights or Weights()
        self.settings = settings = settings or SearchSettings()
        found = found[found.scores >= settings.least]
        self._found, signs = found[found.digits], found[~found.digits]
        self._places = merged(self._found, FinderSettings())
        self._signs = merged(signs[signs.scores >= FinderSettings().score], FinderSettings())
        self._company = Company(self._places, signs)
        self._of_places: NDArray[np.float64] | None = None
        self._all: list[Hypothesis] = []

    def lines(self, count: int | None = None) -> list[list[Hypothesis]]:
        """Return the digits and signs of each line in reading order.

        With a ``count``, lines have so many digits where that is possible without more doubt.
        """
        self.weigh_places()
        self._try_others([mark for mark in self._all if self._is_doubtful(mark)])
        lines = self._chosen()
        if count is not None:
            off = [line for line in lines if len(line) != count]
            self._try_others([mark for line in off for mark in line])
            lines = [self._counted(line, lines, count) if line in off else line for line in lines]
        self._doubt(lines)
        return self._with_signs([line for line in lines if line])

    def weigh_places(self) -> list[Hypothesis]:
        """Weigh the finder's best box of each place; return those that were looked at."""
        self._weigh(self._places)
        return list(self._all)

    def left_out(self, lines: Sequence[Sequence[Hypothesis]]) -> int:
        """Count the places that the finder takes for digits and that no line has."""
        told = [mark for line in lines for mark in line]
        return int((~self._clash(self._places.boxes, told).any(axis=1)).sum())

    def _weigh(self, found: Finding) -> None:
        """Crop boxes, ask the network, and work out how likely they are digits."""
        if not len(found):
            return
        sure = found.scores >= FinderSettings().score
        room = self.settings.most - len(self._all)
        found = found[sure | (np.cumsum(~sure) <= max(0, room - int(sure.sum())))]
        if not len(found):
            return
        crops, contrasts = zip(*(cut_out(self._grey, box) for box in found.boxes), strict=True)
        digits, weights = np.stack(crops), self._weights
        near = beside(found.boxes, self._places.boxes)
        own = self._company.features(found, np.log1p(np.array(contrasts)), near)
        said = np.asarray(self._known(digits, found.guesses), np.float64)
        by_network = said @ np.array(weights.network)
        odds = own @ np.array(weights.own) + by_network
        if self._of_places is None:
            unseen = np.full(len(self._places) - len(odds), -np.inf)
            self._of_places = np.concatenate([odds, unseen])
        around = self._company.around(odds, found.boxes, self._of_places, weights.share)
        odds = around @ np.array(weights.around)
        told = log_odds(self.settings.told)
        for k in range(len(found)):
            mark = Hypothesis(*found.row(k), digits[k])
            mark.features = np.concatenate([own[k], said[k], around[k, 2:]])
            mark.odds, mark.worth = float(odds[k]), float(odds[k]) - told
            mark.prior = float(odds[k] - by_network[k])
            self._all.append(mark)

    def _is_doubtful(self, mark: Hypothesis) -> bool:
        wide = bool(mark.box[2] > self.settings.wide * mark.box[3])
        return wide or mark.odds < log_odds(self.settings.sure)

    def _try_others(self, marks: Sequence[Hypothesis]) -> None:
        """Weigh what else may stand where some marks do."""
        if not marks:
            return
        near = self._clash(self._found.boxes, marks).any(axis=1)
        known = {mark.box.tobytes() for mark in self._all}
        new = [box.tobytes() not in known for box in self._found.boxes]
        self._weigh(self._found[near & np.array(new, np.bool_)])

    def _chosen(self) -> list[list[Hypothesis]]:
        """The best digits that exclude each other no more, line by line."""
        worth = sorted((mark for mark in self._all if mark.worth > 0), key=lambda m: -m.worth)
        clash = self._clash(_boxes(worth), worth)
        kept: list[int] = []
        for number in range(len(worth)):
            if not clash[number, kept].any():
                kept.append(number)
        groups = [[worth[kept[k]] for k in line] for line in into_lines(_boxes(worth)[kept])]
        told: list[Hypothesis] = []
        lines: list[list[Hypothesis]] = [[] for _ in groups]
        for k in np.argsort([-sum(mark.worth for mark in group) for group in groups]):
            lines[k] = self._best(self._candidates(groups[k], told), None)
            told += lines[k]
        return [line for line in lines if line]

    def _clash(self, boxes: NDArray[np.float32], marks: Sequence[Hypothesis]) -> NDArray[np.bool_]:
        """Which boxes and marks exclude each other, (len(boxes), len(marks))."""
        return np.asarray(overlaps(boxes, _boxes(marks))[1] > self.settings.shared)

    def _candidates(
        self, line: Sequence[Hypothesis], others: Sequence[Hypothesis]
    ) -> list[Hypothesis]:
        """What may stand where a line does: it overlaps one of its digits, and none of others."""
        boxes = _boxes(self._all)
        clash = self._clash(boxes, line).any(axis=1) & ~self._clash(boxes, others).any(axis=1)
        return [self._all[k] for k in np.flatnonzero(clash)]

    def _best(self, marks: list[Hypothesis], count: int | None) -> list[Hypothesis]:
        """The chain from left to right that is worth most, with ``count`` digits if given."""
        if count is None:
            marks = [mark for mark in marks if mark.worth > 0]
        if not marks:
            return []
        marks = sorted(marks, key=lambda mark: float(mark.box[0] + mark.box[2] / 2))
        boxes = _boxes(marks)
        share = overlaps(boxes, boxes)[1]
        layers, more = (0, 0) if count is None else (count, 1)
        best = np.full((len(marks), layers + 1), -np.inf)
        came = np.full(best.shape, -1)
        for i, mark in enumerate(marks):
            if more <= layers:
                best[i, more] = mark.worth
            free = np.flatnonzero(share[:i, i] <= self.settings.shared)
            if not len(free):
                continue
            before = best[free] - self.settings.overlap * share[free, i][:, None]
            top = before.argmax(axis=0)
            for n in range(layers + 1 - more):
                value = before[top[n], n] + mark.worth
                if value > best[i, n + more]:
                    best[i, n + more], came[i, n + more] = value, free[top[n]]
        at, n = int(best[:, layers].argmax()), layers
        chain: list[Hypothesis] = []
        if best[at, n] == -np.inf:
            return chain
        while at >= 0:
            chain.insert(0, marks[at])
            at, n = int(came[at, n]), n - more
        return chain

    def _counted(
        self, line: list[Hypothesis], lines: list[list[Hypothesis]], count: int
    ) -> list[Hypothesis]:
        """The best chain of so many digits, if it leaves no digit out and no more are in doubt."""
        others = [mark for one in lines if one is not line for mark in one]
        other = self._best(self._candidates(line, others), count)
        if not other or _doubts(other) > _doubts(line):
            return line
        return other if self._clash(_boxes(line), other).any(axis=1).all() else line

    def _doubt(self, lines: Sequence[Sequence[Hypothesis]]) -> None:
        """Have the digits beside a place that was left out know how likely it is one."""
        told = [mark for line in lines for mark in line]
        taken = [*_boxes(told), *self._signs.boxes]
        if not told:
            return
        places = np.array([mark.box for mark in self._all])
        free = (overlaps(places, np.array(taken))[1] <= self.settings.shared).all(axis=1)
        near = beside(places, _boxes(told))
        for k in np.flatnonzero(free & near.any(axis=1)):
            missing = float(probability(np.array(self._all[k].odds)))
            for i in np.flatnonzero(near[k]):
                told[i].whole = min(told[i].whole, 1 - missing)

    def _with_signs(self, lines: list[list[Hypothesis]]) -> list[list[Hypothesis]]:
        """Lines with the signs among their digits: what no digit has, in a line's rows."""
        signs = [Hypothesis(*self._signs.row(k)) for k in range(len(self._signs))]
        told = [mark for line in lines for mark in line]
        clash = self._clash(self._signs.boxes, told).any(axis=1)
        free = [signs[k] for k in np.flatnonzero(~clash)]
        out = []
        for line in lines:
            boxes = _boxes(line)
            low, high = boxes[:, 1].min(), (boxes[:, 1] + boxes[:, 3]).max()
            own = [sign for sign in free if low <= sign.box[1] + sign.box[3] / 2 <= high]
            free = [sign for sign in free if sign not in own]
            marks = [*line, *own]
            out.append(sorted(marks, key=lambda mark: float(mark.box[0] + mark.box[2] / 2)))
        return out


def _boxes(marks: Sequence[Hypothesis]) -> NDArray[np.float32]:
    return np.array([mark.box for mark in marks], np.float32).reshape(-1, 4)


def _doubts(line: Sequence[Hypothesis]) -> int:
    return sum(mark.worth < 0 for mark in line)
