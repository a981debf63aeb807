"""Which of the finder's boxes are digits: one search over the lines of a page.

The finder offers more boxes than there are digits: of other sizes, of parts and of pairs. What
speaks for each is weighed (`neocog.vision.weigh`); the digit network is asked only where that is in
doubt. Where a doubt is left, what overlaps is tried as well. Of each line the chain of boxes that
is worth most is taken (`neocog.vision.chain`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neocog.vision.chain import best_chain, links, posterior
from neocog.vision.crop import cut_out
from neocog.vision.finder import SIGNS, FinderSettings, Finding, merged, same_mark
from neocog.vision.lines import into_lines
from neocog.vision.settings import SearchSettings
from neocog.vision.weigh import NETWORK, Company, Weights, beside, log_odds

Grey = NDArray[np.uint8]
Known = Callable[[NDArray[np.uint8], NDArray[np.float32]], NDArray[np.floating]]
"""Given digits (N, 28, 28) and the finder's guesses (N, 10): what the digit network says of each,
(N, 3), see `neocog.vision.weigh.NETWORK`."""


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
    worth : float
        The same above those of being told at all.
    p : float
        Probability that it is a digit of its line.
    asked : bool
        Whether the digit network was asked.
    """

    box: NDArray[np.float32]
    score: float
    kind: int
    guesses: NDArray[np.float32]
    digit: NDArray[np.uint8] | None = None
    features: NDArray[np.float64] | None = None
    odds: float = 0.0
    worth: float = 0.0
    p: float = 0.0
    asked: bool = True

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
        self._company = Company(self._places, signs, settings)
        self._of_places: NDArray[np.float64] | None = None
        self._all: list[Hypothesis] = []

    def lines(self, count: int | None = None) -> list[list[Hypothesis]]:
        """Return the digits and signs of each line in reading order.

        With a ``count``, lines have so many digits where that is possible without more doubt.
        """
        self.weigh_places()
        doubtful = log_odds(self.settings.sure)
        self._try_others([mark for mark in self._all if mark.odds < doubtful])
        told = [(marks, self._chain(marks)) for marks in self.candidates()]
        if count is not None:
            off = [k for k, (_, line) in enumerate(told) if len(line) != count]
            self._try_others([mark for k in off for mark in told[k][1]])
            again = self.candidates()
            for k in off if len(again) == len(told) else ():
                told[k] = again[k], self._counted(told[k][1], again[k], count)
        for marks, line in told:
            self._tell(marks, line)
        return self._with_signs([line for _, line in told if line])

    def weigh_places(self) -> list[Hypothesis]:
        """Weigh the finder's best box of each place; return those that were looked at."""
        self._weigh(self._places)
        return list(self._all)

    def ask(self, lines: Sequence[Sequence[Hypothesis]]) -> None:
        """Ask the digit network about all digits of lines, for what they are worth."""
        marks = [mark for line in lines for mark in line if not mark.asked]
        digits = [mark.digit for mark in marks if mark.digit is not None]
        if digits:
            said = self._known(np.stack(digits), np.stack([mark.guesses for mark in marks]))
            more = self._weights.around[1] * (said @ np.array(self._weights.network))
            for mark, worth in zip(marks, more.tolist(), strict=True):
                mark.worth += worth

    def left_out(self, lines: Sequence[Sequence[Hypothesis]]) -> int:
        """Count the places that the finder takes for digits and that no line has."""
        told = [mark for line in lines for mark in line]
        return int((~same_mark(self._places.boxes, _boxes(told)).any(axis=1)).sum())

    def _weigh(self, found: Finding) -> None:
        """Crop boxes, ask the network about the doubtful, and weigh how likely they are digits."""
        if not len(found):
            return
        sure = found.scores >= FinderSettings().score
        room = self.settings.most - len(self._all)
        found = found[sure | (np.cumsum(~sure) <= max(0, room - int(sure.sum())))]
        if not len(found):
            return
        crops, contrasts = zip(
            *(cut_out(self._grey, box, self.settings) for box in found.boxes), strict=True
        )
        digits, weights = np.stack(crops), self._weights
        own = self._company.features(found, np.log1p(np.array(contrasts)))
        odds = own @ np.array(weights.own)
        least, most = self.settings.asked
        asked = np.flatnonzero((odds > least) & (odds < most))
        said = np.zeros((len(found), len(NETWORK)))
        if len(asked):
            said[asked] = self._known(digits[asked], found.guesses[asked])
        odds += said @ np.array(weights.network)
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
            mark.asked = k in asked
            self._all.append(mark)

    def _try_others(self, marks: Sequence[Hypothesis]) -> None:
        """Weigh what else may stand where some marks do."""
        near = same_mark(self._found.boxes, _boxes(marks)).any(axis=1)
        known = {mark.box.tobytes() for mark in self._all}
        new = [box.tobytes() not in known for box in self._found.boxes]
        self._weigh(self._found[near & np.array(new, np.bool_)])

    def candidates(self) -> list[list[Hypothesis]]:
        """What may stand on each line, from left to right.

        The best digits that exclude each other make the lines; what stands in the place of one of
        a line's digits, or beside it and in no other line's place, is a candidate.
        """
        worth = sorted((mark for mark in self._all if mark.worth > 0), key=lambda m: -m.worth)
        same = same_mark(_boxes(worth), _boxes(worth))
        kept: list[int] = []
        for number in range(len(worth)):
            if not same[number, kept].any():
                kept.append(number)
        best, everything = _boxes(worth)[kept], _boxes(self._all)
        groups = into_lines(best, self.settings)
        same, near = same_mark(everything, best), beside(everything, best, self.settings)
        left = np.ones(len(everything), np.bool_)
        middle = everything[:, 0] + everything[:, 2] / 2
        out: list[list[Hypothesis]] = [[] for _ in groups]
        for k in np.argsort([-sum(worth[kept[i]].worth for i in line) for line in groups]):
            own, free = same[:, groups[k]].any(axis=1), ~same.any(axis=1)
            here = left & (own | (near[:, groups[k]].any(axis=1) & free))
            left &= ~here
            out[k] = [self._all[i] for i in np.flatnonzero(here)[np.argsort(middle[here])]]
        return out

    def _chain(self, marks: list[Hypothesis], count: int | None = None) -> list[Hypothesis]:
        """The chain that is worth most, with ``count`` digits if given."""
        worth = np.array([mark.worth for mark in marks])
        return [marks[k] for k in best_chain(worth, self._links(marks), count)]

    def _links(self, marks: Sequence[Hypothesis]) -> NDArray[np.float64]:
        return links(_boxes(marks), self._weights.link)

    def _tell(self, marks: Sequence[Hypothesis], line: Sequence[Hypothesis]) -> None:
        """Have digits know how likely they are, and that none beside them was left out."""
        boxes, told = _boxes(marks), _boxes(line)
        p = posterior(np.array([mark.odds for mark in marks]), self._links(marks))
        same, near = same_mark(told, boxes), beside(told, boxes, self.settings)
        missing = np.where(same.any(axis=0), 0, p)
        for k, mark in enumerate(line):
            mark.p = float(min(p[same[k]].sum(), 1 - missing[near[k]].max(initial=0)))

    def _counted(
        self, line: list[Hypothesis], marks: list[Hypothesis], count: int
    ) -> list[Hypothesis]:
        """The best chain of so many digits, if it leaves no digit out and no more are in doubt."""
        other = self._chain(marks, count)
        if not other or _doubts(other) > _doubts(line):
            return line
        return other if same_mark(_boxes(line), _boxes(other)).any(axis=1).all() else line

    def _with_signs(self, lines: list[list[Hypothesis]]) -> list[list[Hypothesis]]:
        """Lines with the signs among their digits: what no digit has, in a line's rows."""
        told = [mark for line in lines for mark in line]
        clash = same_mark(self._signs.boxes, _boxes(told)).any(axis=1)
        free = [Hypothesis(*self._signs.row(k)) for k in np.flatnonzero(~clash).tolist()]
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
