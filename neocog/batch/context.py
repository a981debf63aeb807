"""What the place of a mark says about it: how likely it is no digit, before anyone looks.

How a network's answers are weighed by it stands in :mod:`neocog.network.odds`. A mark alone hardly
tells an o from a 0, or an l from a 1; its company does. Marks that stand close together are a
number, digits among signs, or a word, of which nothing is a digit. Letters that look like digits
look so less surely, so what the network says for a digit counts less in a word.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from neocog.network.odds import all_scores, learned_share

if TYPE_CHECKING:
    from neocog.network.decision import Answers
    from neocog.network.model import Model
    from neocog.vision.page import Line

_PAGE = 4.0  # marks that the expectation of a page counts as much as
_ROUNDS = 6
_KINDS = (0.99, 0.005, 0.005)  # shares of numbers, of digits among signs, and of words
_RUNS = 0.5  # runs that these count as much as
_SIGNS = 0.5  # share of marks that are no digits, among signs
_LETTERS = 0.6  # share of the letters of a word that look like no digit
_ALIKE, _LESS = 300.0, 0.45  # n for a digit counts as 300 (n / 300)^0.45 for a letter like one
_LEAST = 1e-12  # odds below this are none
_GAP = 0.85  # heights between the marks of two runs
_CLEAN, _DIGITS = 0.9, 2  # probability of each digit of a clean number, and how many it has


def runs_of(lines: "Sequence[Line]") -> NDArray[np.int64]:
    """Number the runs of marks that stand close together on a line: one number for each mark."""
    runs, run = [], -1
    for line in lines:
        end, tall = -np.inf, 0
        for place in line.digits:
            left, _, wide, high = place.box
            run += left - end > _GAP * max(high, tall)
            end, tall = left + wide, high
            runs.append(run)
    return np.array(runs, np.int64)


def odds_of_page(
    found: "Answers", model: "Model", odds: float, runs: NDArray[np.int64]
) -> float | NDArray[np.float64]:
    """Return how frequent marks that are no digits are on a page, for each mark by the others.

    Each run is a number, digits among signs, or a word; how frequent these are on the page, and
    how frequent marks that are no digits are in its numbers, is found by expectation and
    maximisation of the priors (Saerens, Latinne and Decaestecker 2002,
    doi:10.1162/089976602753284446), each run and each mark by all others.

    Parameters
    ----------
    found : Answers
        Of the network, for B marks.
    model : Model
    odds : float
        What is expected of a number on a page; it counts as much as four marks.
    runs : ndarray of int, shape (B,)
        Which run each mark belongs to, as `runs_of` numbers them.

    Returns
    -------
    float or ndarray of float64, shape (B,)
        Odds relative to what the network learned with; ``odds`` for one that knows no such marks.
    """
    if model.classes == found.score.shape[1] or not len(found):
        return odds
    score = all_scores(found, model) / model.temperature
    digits = np.exp(np.clip(score[:, :-1] - score[:, -1:], -80, 80)).sum(axis=1)
    learned = learned_share(model)
    likelier = digits * learned / (1 - learned)
    seen = np.stack([likelier, likelier, _ALIKE ** (1 - _LESS) * likelier**_LESS], axis=1)
    expected = _share(odds, learned)
    usual = np.array(_KINDS)
    kinds = np.tile(usual, (runs[-1] + 1, 1))
    share = np.full((len(found), 3), (expected, _SIGNS, _LETTERS))
    for _ in range(_ROUNDS):
        kind = _kind_of_runs(share, seen, kinds, runs)
        kinds = (_RUNS * usual + kind.sum(axis=0) - kind) / (_RUNS + len(kind) - 1)
        number = kind[runs, 0]
        none = number * _no_digit(share[:, 0], likelier)
        rest = _PAGE + number.sum() - number
        share[:, 0] = (_PAGE * expected + none.sum() - none) / rest
    kind = _kind_of_runs(share, seen, kinds, runs)[runs]
    rejected = _no_digit(share, likelier[:, None])
    rejected[:, 2] = 1.0  # whatever it looks like
    p = np.clip((kind * rejected).sum(axis=1), _LEAST, 1 - _LEAST)
    apart: NDArray[np.float64] = digits * p / (1 - p)
    return apart


def _kind_of_runs(
    share: NDArray[np.float64],
    seen: NDArray[np.float64],
    kinds: NDArray[np.float64],
    runs: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Probability that each run is of each kind, (R, 3).

    ``share`` (B, 3) of marks that look like no digit in a run of each kind, how many times likelier
    what was ``seen`` (B, 3) is of those that look like one, and the shares of the ``kinds`` (R, 3).
    """
    log = np.log(kinds)
    np.add.at(log, runs, np.log(share + (1 - share) * seen))
    odds = np.exp(log - log.max(axis=1, keepdims=True))
    shares: NDArray[np.float64] = odds / odds.sum(axis=1, keepdims=True)
    return shares


def _no_digit(share: NDArray[np.float64], likelier: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probability that marks look like no digit, where a share of them does."""
    none: NDArray[np.float64] = share / (share + (1 - share) * likelier)
    return none


def _share(odds: float, learned: float) -> float:
    """Share of marks that are no digits, of odds relative to what the network learned with."""
    none = odds * learned
    return none / (none + 1 - learned)


def in_clean_numbers(found: "Answers", runs: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each mark, (B,), is in a run of two or more of which all are rather sure digits."""
    sure = (found.label >= 0) & (found.p >= _CLEAN)
    count = np.bincount(runs)
    clean = (np.bincount(runs, sure) == count) & (count >= _DIGITS)
    return np.asarray(clean[runs], np.bool_)
