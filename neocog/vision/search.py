"""Which of the finder's boxes are digits: one search over the lines of a page.

The finder offers more boxes than there are digits: of other sizes, of parts and of pairs. Each is
cropped and recognised; what the finder, the digit network and the other marks of the page say adds
up to its log odds of being a digit. Where a doubt is left, what overlaps it is tried as well. The
boxes with the largest sum of log odds that do not overlap are taken: a dynamic programme over each
line.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neocog.vision.crop import cut_out
from neocog.vision.finder import SIGNS, FinderSettings, Finding, merged, shares
from neocog.vision.lines import into_lines

Grey = NDArray[np.uint8]
Known = Callable[[NDArray[np.uint8], NDArray[np.float64], NDArray[np.int64]], NDArray[np.floating]]
"""Given digits (N, 28, 28), their prior log odds and the finder's guesses (N,): the log odds (N,)
of each being the digit that the network takes it for."""

_ROUNDS = 30  # of expectation and maximisation
_MOST = 9.0  # log odds beyond this are certainty
_BESIDE, _LIKE = 1.6, 0.55  # heights between the middles of neighbours, ratio of their heights


@dataclass(frozen=True, slots=True)
class Weights:
    """What speaks for a digit, in log odds: a logistic regression.

    The weights are fitted by ``experiments/reading/tune.py`` on the tuning sets.

    Attributes
    ----------
    bias : float
    finder : float
        Of the log odds of the finder's score.
    network : float
        Of the log odds of the network's best digit and the second, at most `likeliest`.
    digit : float
        Of the network's log odds of any digit and of none, at most `likeliest` either way.
    agree : float
        Of finder and network taking it for the same digit.
    contrast : float
        Of the logarithm of its contrast beside that of the page's sure marks, if less.
    company : float
        Of the scores of the two best marks of its size that stand beside it.
    likeliest : float
    share : float
        Of the finder's marks that are digits, usually.
    """

    bias: float = -1.6
    finder: float = 1.91
    network: float = 0.17
    digit: float = 0.25
    agree: float = 1.05
    contrast: float = 1.46
    company: float = 0.05
    likeliest: float = 12.0
    share: float = 0.61

    @property
    def of_page(self) -> NDArray[np.float64]:
        """Those of `Hypothesis.features`."""
        return np.array([self.bias, self.finder, self.contrast, self.company])

    @property
    def of_network(self) -> NDArray[np.float64]:
        """Those of `neocog.batch.evidence.features`."""
        return np.array([self.network, self.digit, self.agree])


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """How a page's boxes are searched; chosen by ``experiments/reading/tune.py``.

    Attributes
    ----------
    least : float
        Score of the finder from which a box is looked at.
    told : float
        Probability from which a place is told, if perhaps as ``?``.
    steady : float
        Marks of the usual share of digits that a page's own marks are counted with.
    sure : float
        Probability from which a place is not looked at again.
    wide : float
        Width over height from which a box may be two digits.
    shared : float
        Share of the smaller of two boxes from which they are not both digits.
    overlap : float
        What boxes that overlap wholly cost, in log odds.
    upright : float
        Mean worth of a page's digits from which no other turn is tried.
    many : int
        Least digits of a page that is turned, if half as many are seen as it lies.
    clearer : float
        How many times more worth the digits of a page must be that is turned.
    most : int
        Boxes of a page that the digit network is asked for, but for those that the finder is sure
        of: a page of noise takes no longer.
    """

    least: float = 0.15
    told: float = 0.5
    steady: float = 8.0
    sure: float = 0.95
    wide: float = 1.0
    shared: float = 0.5
    overlap: float = 2.0
    upright: float = 4.2
    many: int = 12
    clearer: float = 1.2
    most: int = 128


@dataclass(slots=True)
class Hypothesis:
    """A box that may be a digit or a sign.

    Attributes
    ----------
    box : ndarray of float32, shape (4,)
    score : float
        The finder's.
    kind : int
        As `neocog.vision.finder.Finding` has it.
    digit : ndarray of uint8, shape (28, 28), or None
        What the digit network is shown; None for a sign.
    features : ndarray of float64, shape (4,)
        1, the log odds of the finder's score, the logarithm of its contrast beside that of the
        page's sure marks, the scores of marks beside it.
    prior : float
        Log odds that it is a digit, before the network was asked.
    worth : float
        Log odds that it is what it seems to be, above those of being told at all.
    """

    box: NDArray[np.float32]
    score: float
    kind: int
    digit: NDArray[np.uint8] | None = None
    features: NDArray[np.float64] | None = None
    prior: float = 0.0
    worth: float = 0.0

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
        self._found = found[found.scores >= settings.least]
        self._best_boxes = merged(self._found, FinderSettings())
        self._all: list[Hypothesis] = []
        self._strong: float | None = None
        self._shift = 0.0  # log odds by which this page's marks are digits more often than usual

    def lines(self, count: int | None = None) -> list[list[Hypothesis]]:
        """Return the digits and signs of each line in reading order.

        With a ``count``, lines have so many digits where that is possible without more doubt.
        """
        seeds = self.seeds()
        self._try_others([seed for seed in seeds if self._is_doubtful(seed)])
        lines = self._chosen()
        if count is None:
            return lines
        off = [line for line in lines if sum(mark.is_digit for mark in line) != count]
        self._try_others([mark for line in off for mark in line])
        return [self._counted(line, count) if line in off else line for line in lines]

    def seeds(self) -> list[Hypothesis]:
        """Return the finder's best boxes of each place, weighed."""
        seeds = _of(self._best_boxes)
        self._weigh(seeds)
        digits = [seed for seed in seeds if seed.digit is not None]
        if digits:
            self._shift = self._prior_of_page([seed.worth for seed in digits])
            for seed in digits:
                seed.prior += self._shift
                seed.worth += self._shift
        return seeds

    def _prior_of_page(self, worth: Sequence[float]) -> float:
        """How much likelier marks are digits on this page than usual, in log odds.

        On a page of texture the finder sees many marks that may be digits, and none is. The share
        of digits is estimated from all marks together by expectation and maximisation (Saerens,
        Latinne, Decaestecker 2002, eq. 2.5), beside ``steady`` marks of the usual share.
        """
        usual, steady = self._weights.share, self.settings.steady
        odds = np.array(worth) + _log_odds(self.settings.told) - _log_odds(usual)
        share = usual
        for _ in range(_ROUNDS):
            p = 1 / (1 + np.exp(-odds - _log_odds(share)))
            share = (steady * usual + float(p.sum())) / (steady + len(odds))
        return _log_odds(share) - _log_odds(usual)

    def left_out(self, lines: Sequence[Sequence[Hypothesis]]) -> int:
        """Count the places that the finder takes for digits and that no line has."""
        told = np.array([mark.box for line in lines for mark in line], np.float32).reshape(-1, 4)
        digits = self._best_boxes[self._best_boxes.digits]
        if not len(told):
            return len(digits)
        return int((shares(digits.boxes, told).max(axis=1) <= self.settings.shared).sum())

    def _weigh(self, marks: Sequence[Hypothesis]) -> None:
        """Crop boxes and have the network say how likely they are digits."""
        sure = FinderSettings().score
        digits = [mark for mark in marks if mark.is_digit and mark.score >= sure]
        room = max(0, self.settings.most - sum(mark.is_digit for mark in self._all))
        doubtful = [mark for mark in marks if mark.is_digit and mark.score < sure]
        digits += doubtful[: max(0, room - len(digits))]
        if digits:
            contrast = []
            for mark in digits:
                mark.digit, strength = cut_out(self._grey, mark.box)
                contrast.append(strength)
            self._set_priors(digits, np.log1p(contrast))
            for mark in digits:
                mark.prior += self._shift
            worth = self._known(
                np.stack([mark.digit for mark in digits if mark.digit is not None]),
                np.array([mark.prior for mark in digits]),
                np.array([mark.kind for mark in digits]),
            )
            for mark, value in zip(digits, np.asarray(worth).tolist(), strict=True):
                mark.worth = value
        signs = [mark for mark in marks if not mark.is_digit]
        for mark in signs:
            odds = _log_odds(mark.score) - _log_odds(FinderSettings().score)
            mark.worth = self._weights.finder * odds
        for mark in (*digits, *signs):
            limited = min(_MOST, max(-_MOST, mark.worth))
            mark.worth = limited - _log_odds(self.settings.told)
            self._all.append(mark)

    def _set_priors(self, digits: Sequence[Hypothesis], contrast: NDArray[np.float64]) -> None:
        """Log odds by the finder's score, and by the contrast and company on the page."""
        score = np.array([mark.score for mark in digits])
        if self._strong is None:
            self._strong = _median(contrast, score**2)
        odds, fainter = np.log(score / (1 - score)), np.minimum(contrast - self._strong, 0)
        beside = self._company(np.stack([mark.box for mark in digits]))
        features = np.stack([np.ones_like(score), odds, fainter, beside], axis=1)
        for mark, row in zip(digits, features, strict=True):
            mark.features, mark.prior = row, float(row @ self._weights.of_page)

    def _company(self, boxes: NDArray[np.float32]) -> NDArray[np.float64]:
        """Sum of the scores of the two best marks of like size that stand beside each box."""
        others = self._best_boxes[self._best_boxes.digits]
        step = np.abs(_middles(others.boxes)[None] - _middles(boxes)[:, None])
        high = np.stack(np.broadcast_arrays(boxes[:, None, 3], others.boxes[None, :, 3]))
        tall = high.max(axis=0)
        near = (step[..., 0] < _BESIDE * tall) & (step[..., 1] < tall / 2)
        near &= high.min(axis=0) > _LIKE * tall
        near &= shares(boxes, others.boxes) < self.settings.shared
        best = np.sort(np.where(near, others.scores, 0), axis=1)[:, -2:]
        return np.asarray(best.sum(axis=1), np.float64)

    def _is_doubtful(self, mark: Hypothesis) -> bool:
        worth = _log_odds(self.settings.sure) - _log_odds(self.settings.told)
        return mark.worth < worth or bool(mark.box[2] > self.settings.wide * mark.box[3])

    def _try_others(self, marks: Sequence[Hypothesis]) -> None:
        """Weigh what else may stand where some marks do."""
        if not marks:
            return
        boxes = np.stack([mark.box for mark in marks])
        near = shares(self._found.boxes, boxes).max(axis=1) > self.settings.shared
        known = {(*mark.box.tolist(), mark.is_digit) for mark in self._all}
        others = [
            mark
            for mark in _of(self._found[near])
            if (*mark.box.tolist(), mark.is_digit) not in known
        ]
        self._weigh(others)

    def _chosen(self) -> list[list[Hypothesis]]:
        """The best marks that exclude each other no more, line by line."""
        worth = [mark for mark in self._all if mark.worth > 0]
        worth.sort(key=lambda mark: -mark.worth)
        clash = self._clash(worth, worth)
        kept: list[int] = []
        for number in range(len(worth)):
            if not clash[number, kept].any():
                kept.append(number)
        digits = [worth[number] for number in kept if worth[number].is_digit]
        if not digits:
            return []
        boxes = np.stack([mark.box for mark in digits])
        groups = [[digits[k] for k in line] for line in into_lines(boxes)]
        return [self._best(self._candidates(group), None) for group in groups]

    def _clash(self, a: Sequence[Hypothesis], b: Sequence[Hypothesis]) -> NDArray[np.bool_]:
        """Which marks exclude each other, (len(a), len(b))."""
        one, other = (np.array([mark.box for mark in x]).reshape(-1, 4) for x in (a, b))
        return np.asarray(shares(one, other) > self.settings.shared)

    def _candidates(self, line: Sequence[Hypothesis]) -> list[Hypothesis]:
        """What may stand where a line does: it overlaps one of its digits, or is a sign beside."""
        boxes = np.stack([mark.box for mark in line])
        low, high = boxes[:, 1].min(), (boxes[:, 1] + boxes[:, 3]).max()
        clash = [bool(row.any()) for row in self._clash(self._all, line)]
        out = []
        for mark, clashes in zip(self._all, clash, strict=True):
            middle = mark.box[1] + mark.box[3] / 2
            if clashes or (not mark.is_digit and mark.worth > 0 and low <= middle <= high):
                out.append(mark)
        return out

    def _best(self, marks: list[Hypothesis], count: int | None) -> list[Hypothesis]:
        """The chain from left to right that is worth most, with ``count`` digits if given."""
        if count is None:
            marks = [mark for mark in marks if mark.worth > 0]
        if not marks:
            return []
        marks = sorted(marks, key=lambda mark: float(mark.box[0] + mark.box[2] / 2))
        boxes = np.stack([mark.box for mark in marks])
        share = shares(boxes, boxes)
        layers = 0 if count is None else count
        best = np.full((len(marks), layers + 1), -np.inf)
        came = np.full(best.shape, -1)
        for i, mark in enumerate(marks):
            more = int(mark.is_digit and count is not None)
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
            at, n = int(came[at, n]), n - int(marks[at].is_digit and count is not None)
        return chain

    def _counted(self, line: list[Hypothesis], count: int) -> list[Hypothesis]:
        """The best chain of so many digits, if it leaves no digit out and no more are in doubt."""
        other = self._best(self._candidates(line), count)
        if not other or _doubts(other) > _doubts(line):
            return line
        digits = [mark for mark in line if mark.is_digit]
        return other if self._clash(digits, other).any(axis=1).all() else line


def _of(found: Finding) -> list[Hypothesis]:
    return [
        Hypothesis(box, score, kind)
        for box, score, kind in zip(
            found.boxes, found.scores.tolist(), found.kinds.tolist(), strict=True
        )
    ]


def _log_odds(p: float) -> float:
    return math.log(p / (1 - p))


def _middles(boxes: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(boxes[:, :2] + boxes[:, 2:] / 2, np.float32)


def _median(values: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    order = np.argsort(values)
    upto = np.cumsum(weights[order])
    return float(values[order[int(np.searchsorted(upto, upto[-1] / 2))]])


def _doubts(line: Sequence[Hypothesis]) -> int:
    return sum(mark.worth < 0 for mark in line)
