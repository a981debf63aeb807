"""What finder and digit network say together about the places of a page."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from neocog.network.decision import Answers
from neocog.network.model import Model
from neocog.network.odds import all_scores

if TYPE_CHECKING:
    from neocog.vision.search import Weights

_MOST = 40.0  # log odds beyond this are certainty in float64


def log_odds(
    found: Answers,
    model: Model,
    prior: NDArray[np.float64],
    kinds: NDArray[np.int64],
    weights: "Weights",
) -> NDArray[np.float64]:
    """Return the log odds of each place being the digit that the network takes it for.

    Parameters
    ----------
    found : Answers
        Of the network, for B places.
    model : Model
    prior : ndarray of float64, shape (B,)
        Log odds of each being a digit, before the network was asked.
    kinds : ndarray of int64, shape (B,)
        The finder's guesses.
    weights : Weights

    Returns
    -------
    ndarray of float64, shape (B,)
    """
    score = all_scores(found, model) / model.temperature
    first, second = np.sort(score[:, :-1], axis=1)[:, :-3:-1].T
    any_digit = np.log(np.exp(np.maximum(score[:, :-1] - first[:, None], -_MOST)).sum(axis=1))
    most = weights.likeliest
    return np.asarray(
        prior
        + weights.network * np.minimum(first - second, most)
        + weights.digit * np.clip(first + any_digit - score[:, -1], -most, most)
        + weights.agree * (score[:, :-1].argmax(axis=1) == kinds)
    )


def weighed(
    found: Answers,
    model: Model,
    prior: NDArray[np.float64],
    kinds: NDArray[np.int64],
    weights: "Weights",
) -> Answers:
    """Return answers whose probability counts what the finder and the page say.

    Parameters are those of `log_odds`. The label is that of the best digit, also where the network
    alone would have said that it is none; a place without any response stays without an answer.
    """
    odds = log_odds(found, model, prior, kinds, weights)
    top = found.score.astype(np.float64) / model.temperature
    top -= top.max(axis=1, keepdims=True, initial=0.0)
    best = 1 / np.exp(np.maximum(top, -_MOST)).sum(axis=1)
    silent = (found.label < 0) & (found.margin <= 0)
    p = best / (1 + np.exp(-np.clip(odds, -_MOST, _MOST)))
    return Answers(
        np.where(silent, -1, found.score.argmax(axis=1)).astype(np.int64),
        found.score,
        found.margin,
        np.where(silent, 0.0, p).astype(np.float32),
    )
