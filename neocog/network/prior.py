"""Prior correction: how often marks are no digits, and what follows for a network's answers.

A network whose planes reject learned with about one mark in six, or four, that is no digit. In a
field cut out of a form nearly all marks are digits, and an odd 2 is an odd 2. Scores are logarithms
of odds (times the temperature), so a prior shifts the score of no digit.
"""

import numpy as np
from numpy.typing import NDArray

from neocog.network.decision import Answers, answers
from neocog.network.model import Model

_LEAST = 1e-12  # odds of no digit below this are none
#: Odds of no digit above which a digit on its own is not answered: of 20, 50, 100, 300 and 1 000
#: the least at which none of the validation digits is refused.
_SURELY = 300.0


def all_scores(found: Answers, model: Model) -> NDArray[np.float64]:
    """Return the scores of the ten digits and of no digit, (B, 11), as learned.

    A network that learned to lean towards digits is set upright. Answers hold the ten scores; the
    eleventh follows from the margin where it was the best, and from the probability elsewhere.
    """
    score = found.score.astype(np.float64)
    best = score.max(axis=1, initial=0.0)
    odds = np.exp((score - best[:, None]) / model.temperature).sum(axis=1)
    with np.errstate(divide="ignore"):
        rest = np.maximum(1 / found.p.astype(np.float64) - odds, _LEAST)
    below = best + model.temperature * np.log(np.where(found.label < 0, 1.0, rest))
    none = np.where(found.label < 0, best + found.margin, below)
    none += model.temperature * float(model.card.get("finetuning", {}).get("lean", 0.0))
    return np.concatenate([score, none[:, None]], axis=1)


def of_lone_digits(found: Answers, model: Model) -> Answers:
    """Weigh answers to digits that nobody searched for, each in a picture of its own.

    "No digit" is the answer only where the network is sure of it (300 to 1); where it is in doubt,
    the best digit is, with the low probability that is left to it. Answers of a network that knows
    no such marks, and those without any response, stay.
    """
    if model.classes == found.score.shape[1] or not len(found):
        return found
    score = all_scores(found, model)
    weighed = answers(score, temperature=model.temperature, surely=_SURELY)
    silent = (found.label < 0) & (found.margin <= 0)
    for name in Answers.__slots__:
        getattr(weighed, name)[silent] = getattr(found, name)[silent]
    return weighed
