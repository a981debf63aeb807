"""What finder and digit network say together about the places of a page."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from neocog.network.decision import Answers
from neocog.network.model import Model
from neocog.network.prior import all_scores

if TYPE_CHECKING:
    from neocog.vision.search import Weights

_MOST = 40.0  # log odds beyond this are certainty in float64


def features(
    found: Answers, model: Model, kinds: NDArray[np.int64], *, likeliest: float
) -> NDArray[np.float64]:
    """Return what the digit network says of places, for `Weights.of_network`.

    Parameters
    ----------
    found : Answers
        Of the network, for B places.
    model : Model
    kinds : ndarray of int64, shape (B,)
        The finder's guesses.
    likeliest : float
        Log odds beyond this count no more.

    Returns
    -------
    ndarray of float64, shape (B, 3)
        Log odds of the best digit and the second, of any digit and none, and whether the best
        digit is the finder's.
    """
    score = all_scores(found, model) / model.temperature
    digits, none = score[:, :-1], score[:, -1]
    first, second = np.sort(digits, axis=1)[:, :-3:-1].T
    rest = np.log(np.exp(np.maximum(digits - first[:, None], -_MOST)).sum(axis=1))
    apart = np.minimum(first - second, likeliest)
    any_digit = np.clip(first + rest - none, -likeliest, likeliest)
    return np.stack([apart, any_digit, digits.argmax(axis=1) == kinds], axis=1)


def weighed(
    found: Answers, model: Model, prior: NDArray[np.float64], kinds: NDArray[np.int64],
    weights: "Weights",
) -> Answers:  # fmt: skip
    """Return answers whose probability counts what the finder and the page say.

    The label is that of the best digit, also where the network alone would have said that it is
    none; a place without any response stays without an answer.

    Parameters
    ----------
    found, model, kinds
        As `features` takes them.
    prior : ndarray of float64, shape (B,)
        Log odds of each being a digit, before the network was asked.
    weights : Weights
    """
    odds = prior + features(found, model, kinds, likeliest=weights.likeliest) @ weights.of_network
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
