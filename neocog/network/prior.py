"""How often marks are no digits, and what follows for a network's answers.

A network whose planes reject learned with about one mark in six, or four, that is no digit. In a
field cut out of a form nearly all marks are digits, and an odd 2 is an odd 2. By Bayes' rule the
odds of no digit against a digit are multiplied by how much rarer marks that are none are there; as
scores are logarithms of odds (times the temperature), the score of no digit is shifted.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocog.network.decision import Answers, answers
from neocog.network.model import Model

_LEARNED = 0.15  # share of marks that are no digits in a step, where a card does not tell
_LEAST = 1e-12  # odds of no digit below this are none
#: Odds of no digit above which a digit on its own is not answered: of 20, 50, 100, 300 and 1 000
#: the least at which none of the validation digits is refused.
_SURELY = 300.0


def learned_share(model: Model) -> float:
    """Return the share of marks that are no digits among what a network learned from.

    Planes that reject and saw none at first count as having seen the usual share.
    """
    share = float(model.card.get("finetuning", {}).get("marks", _LEARNED))
    return share if 0 < share < 1 else _LEARNED


def all_scores(found: Answers, model: Model) -> NDArray[np.float64]:
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


def leaning(model: Model) -> float:
    """Return how much more than its own logit that of no digit was given while learning."""
    return float(model.card.get("finetuning", {}).get("lean", 0.0))


def expecting_digits(
    found: Answers, model: Model, odds: float | NDArray[np.float64], *, surely: float = 1.0
) -> Answers:
    """Weigh answers anew where marks that are no digits are ``odds`` times as frequent.

    One figure for all, or one for each answer. A digit is answered, if with little probability, up
    to odds of no digit of ``surely``.

    Answers of a network that knows no such marks, and those without any response, stay.
    """
    if model.classes == found.score.shape[1] or not len(found):
        return found
    if np.all(odds == 1.0) and surely == 1.0 and not leaning(model):
        return found
    score = all_scores(found, model)
    score[:, -1] += model.temperature * np.log(odds)
    weighed = answers(score, temperature=model.temperature, surely=surely)
    silent = (found.label < 0) & (found.margin <= 0)
    return Answers(*(_where(silent, found, weighed, name) for name in Answers.__slots__))


def of_lone_digits(found: Answers, model: Model) -> Answers:
    """Weigh answers to digits that nobody searched for, each in a picture of its own.

    "No digit" is the answer only where the network is sure of it (300 to 1); where it is in doubt,
    the best digit is, with the low probability that is left to it.
    """
    return expecting_digits(found, model, 1.0, surely=_SURELY)


def _where(chosen: NDArray[np.bool_], a: Answers, b: Answers, name: str) -> Any:
    left, right = getattr(a, name), getattr(b, name)
    return np.where(chosen[:, None] if left.ndim > 1 else chosen, left, right).astype(left.dtype)


def digit_probability(found: Answers, model: Model) -> NDArray[np.float32]:
    """Return the probability of the best digit, (B,): above 0 also where no digit is likelier."""
    if model.classes == found.score.shape[1] or not len(found):
        return found.p
    score = all_scores(found, model)
    digit = score[:, :-1]
    top = digit.max(axis=1, keepdims=True)
    odds = np.minimum((score - top) / model.temperature, 80)  # beyond that, 1 / exp is 0
    share = 1 / np.exp(odds).sum(axis=1)
    return np.where(digit.max(axis=1) > 0, share, 0).astype(np.float32)
