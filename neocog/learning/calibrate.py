"""Scores to probabilities: one temperature, set on digits that nothing else was learned from."""

import numpy as np
from numpy.typing import NDArray

#: Temperatures tried, from sharp to soft.
_TRIED = np.geomspace(0.002, 1.0, 120)


def best_temperature(scores: NDArray[np.floating], labels: NDArray[np.integer]) -> float:
    """Return the temperature T for which softmax(score / T) is the likeliest.

    Parameters
    ----------
    scores : ndarray, shape (N, 10)
        Scores of UC4.
    labels : ndarray of int, shape (N,)
        The digits shown.
    """
    s = scores.astype(np.float64)
    s = s - s.max(axis=1, keepdims=True)
    own = s[np.arange(len(labels)), labels]
    loss = [np.mean(np.log(np.exp(s / t).sum(axis=1)) - own / t) for t in _TRIED]
    return round(float(_TRIED[int(np.argmin(loss))]), 5)
