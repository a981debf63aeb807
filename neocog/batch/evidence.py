"""What finder and digit network say together about the places of a page."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from neocog.network.decision import Answers, all_scores
from neocog.network.model import Model
from neocog.vision.finder import SURE

if TYPE_CHECKING:
    from neocog.vision.search import Mark
    from neocog.vision.weigh import Weights


def features(found: Answers, model: Model, guesses: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return what the digit network says of places, see `neocog.vision.weigh.NETWORK`.

    Parameters
    ----------
    found : Answers
        Of the network, for B places.
    model : Model
    guesses : ndarray, shape (B, 10)
        Log probabilities of the digits by the finder.

    Returns
    -------
    ndarray of float64, shape (B, 3)
        Log odds of the best digit and the second, of any digit and none, and the logarithm of how
        probably finder and network take it for the same digit.
    """
    score = all_scores(found, model) / model.temperature
    digits, none = score[:, :-1], score[:, -1]
    first, second = np.sort(digits, axis=1)[:, :-3:-1].T
    any_digit = np.logaddexp.reduce(digits, axis=1)
    same = np.logaddexp.reduce(digits - any_digit[:, None] + guesses, axis=1)
    return np.stack([
        np.minimum(first - second, SURE),
        np.clip(any_digit - none, -SURE, SURE),
        np.maximum(same, -SURE),
    ], axis=1)  # fmt: skip


def weighed(found: Answers, model: Model, places: "Sequence[Mark]", weights: "Weights") -> Answers:
    """Return answers whose label and probability count what the finder and the page say.

    Also where the network alone would have said that it is none, the label is that of the likeliest
    digit, with a margin of 0; a place without any response stays without an answer. The probability
    is that the place holds this digit and that none beside it was left out.

    Parameters
    ----------
    found, model
        As `features` takes them.
    places : sequence of Mark, length B
    weights : Weights
    """
    guesses = np.stack([place.guesses for place in places])
    score = combined(found, model, guesses, weights)
    best = 1 / np.exp(score - score.max(axis=1, keepdims=True)).sum(axis=1)
    silent = (found.label < 0) & (found.margin <= 0)
    p = best * np.array([place.p for place in places])
    return Answers(
        np.where(silent, -1, score.argmax(axis=1)).astype(np.int64),
        found.score,
        np.where((found.label < 0) & ~silent, 0, found.margin).astype(found.margin.dtype),
        np.where(silent, 0.0, p).astype(np.float32),
    )


def combined(
    found: Answers, model: Model, guesses: NDArray[np.floating], weights: "Weights"
) -> NDArray[np.float64]:
    """Return log probabilities of the digits by network and finder, but for a constant, (B, 10)."""
    score = weights.trust * found.score.astype(np.float64) / model.temperature
    return np.asarray(score + weights.guess * guesses)
