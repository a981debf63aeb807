"""What the place of a mark says about it: how likely it is no digit, before anyone looks.

The network learned with about one mark in six that is no digit. In a field cut out of a form
nearly all marks are digits, and an odd 2 is an odd 2. By Bayes' rule the odds of no digit against
a digit are multiplied by how much rarer marks that are none are here; as scores are logarithms of
odds (times the temperature), the score of no digit is shifted.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from neocog.network.decision import Answers, answers

if TYPE_CHECKING:
    from neocog.network.model import Model

_LEARNED = 0.15  # share of marks that are no digits among what the network learned from
_PAGE = 4.0  # marks that the expectation of a page counts as much as
_ROUNDS = 5
_LEAST = 1e-12  # odds of no digit below this are none


def all_scores(found: Answers, model: "Model") -> NDArray[np.float64]:
    """Return the scores of the ten digits and of no digit, (B, 11), as learned.

    A network that learned to lean towards digits is set upright.

    Answers hold the ten alone; the eleventh follows from the margin where it was the best, and
    from the probability where it was not.
    """
    score = found.score.astype(np.float64)
    best = score.max(axis=1, initial=0.0)
    odds = np.exp((score - best[:, None]) / model.temperature).sum(axis=1)
    with np.errstate(divide="ignore"):
        rest = np.maximum(1 / found.p.astype(np.float64) - odds, _LEAST)
    below = best + model.temperature * np.log(np.where(found.label < 0, 1.0, rest))
    none = np.where(found.label < 0, best + found.margin, below)
    none += model.temperature * leaning(model)
    return np.concatenate([score, none[:, None]], axis=1)


def leaning(model: "Model") -> float:
    """Return how much more than its own logit that of no digit was given while learning."""
    return float(model.card.get("finetuning", {}).get("lean", 0.0))


def expecting_digits(found: Answers, model: "Model", odds: float | NDArray[np.float64]) -> Answers:
    """Weigh answers anew where marks that are no digits are ``odds`` times as frequent.

    One figure for all, or one for each answer.

    Answers of a network that knows no such marks, and those without any response, stay.
    """
    if model.classes == found.score.shape[1] or not len(found):
        return found
    if np.all(odds == 1.0) and not leaning(model):
        return found
    score = all_scores(found, model)
    score[:, -1] += model.temperature * np.log(odds)
    weighed = answers(score, temperature=model.temperature)
    silent = (found.label < 0) & (found.margin <= 0)
    return Answers(*(_where(silent, found, weighed, name) for name in Answers.__slots__))


def _where(chosen: NDArray[np.bool_], a: Answers, b: Answers, name: str) -> Any:
    left, right = getattr(a, name), getattr(b, name)
    return np.where(chosen[:, None] if left.ndim > 1 else chosen, left, right).astype(left.dtype)


def odds_of_page(found: Answers, model: "Model", odds: float) -> float | NDArray[np.float64]:
    """Return how frequent marks that are no digits are on a page, for each mark by the others.

    Expectation and maximisation of the priors (Saerens, Latinne and Decaestecker 2002,
    doi:10.1162/089976602753284446); ``odds``, what is expected of a page, counts as much as
    four marks.
    """
    if model.classes == found.score.shape[1] or not len(found):
        return odds
    score = all_scores(found, model) / model.temperature
    digits = np.exp(np.clip(score[:, :-1] - score[:, -1:], -80, 80)).sum(axis=1)
    expected = _share(odds)
    for _ in range(_ROUNDS):
        none = odds / (odds + digits)
        odds = _odds((_PAGE * expected + none.sum()) / (_PAGE + len(found)))
    share: NDArray[np.float64] = (_PAGE * expected + none.sum() - none) / (_PAGE + len(found) - 1)
    apart: NDArray[np.float64] = _odds(share)
    return apart


def _odds(share: Any) -> Any:
    """Odds relative to what the network learned with, of shares of marks that are no digits."""
    return share / (1 - share) * (1 - _LEARNED) / _LEARNED


def _share(odds: float) -> float:
    """Share of marks that are no digits, of odds relative to what the network learned with."""
    none = odds * _LEARNED
    return none / (none + 1 - _LEARNED)


def digit_probability(found: Answers, model: "Model") -> NDArray[np.float32]:
    """Return the probability of the best digit, (B,): above 0 also where no digit is likelier."""
    if model.classes == found.score.shape[1] or not len(found):
        return found.p
    score = all_scores(found, model)
    digit = score[:, :-1]
    top = digit.max(axis=1, keepdims=True)
    odds = np.minimum((score - top) / model.temperature, 80)  # beyond that, 1 / exp is 0
    share = 1 / np.exp(odds).sum(axis=1)
    return np.where(digit.max(axis=1) > 0, share, 0).astype(np.float32)
