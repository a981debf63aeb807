"""What speaks for a mark being a digit, added up to log odds.

Two logistic regressions, one after the other (auto-context: Tu 2008,
doi:10.1109/CVPR.2008.4587436). The first weighs what the finder and the digit network say of a
mark, its contrast, its size and level beside its neighbours, and a sign that it may be. The second
weighs the answer of the first together with those for the other marks of the page: a letter stands
among letters, a grain of paper among grains. It is fitted to whole lines, see
`neocog.vision.chain`.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neocog.vision.finder import SURE, FinderSettings, Finding, overlaps, same_mark
from neocog.vision.settings import SearchSettings

Floats = NDArray[np.float64]

OWN = ("bias", "finder", "sign", "contrast", "taller", "lower", "above", "below", "company")
"""What the page says of a mark: 1; log odds of the finder's score; log odds of a sign's score at
the same place, above the digit's; logarithm of the contrast beside that of the page's sure marks,
if less; logarithm of the height over that of its neighbours, if more, if less; height of its middle
over and under that of its neighbours, in heights; scores of its two best neighbours."""

NETWORK = ("network", "digit", "agree")
"""What the digit network says, see `neocog.batch.policy.features`."""

AROUND = ("bias", "own", "page")
"""What the first regression says: 1; of the mark; of all marks of the page that do not overlap it,
as log odds beside those of the usual share of digits."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of evidence, fitted by ``experiments/reading/tune.py`` on the tuning sets.

    Attributes
    ----------
    own : tuple of float
        Of `OWN`.
    network : tuple of float
        Of `NETWORK`.
    around : tuple of float
        Of `AROUND`.
    link : tuple of float
        Of `neocog.vision.chain.LINK`.
    trust, guess : float
        Of the digit network's and the finder's log probabilities of the ten digits.
    share : float
        Of the finder's marks that are digits, usually.
    """

    own: tuple[float, ...] = (-0.15, 2.25, -0.3, 0.95, -0.43, -0.1, -0.56, -0.15, 0.49)
    network: tuple[float, ...] = (-0.03, 0.27, 0.25)
    around: tuple[float, ...] = (0.58, 0.87, 0.74)
    link: tuple[float, ...] = (1.0, -0.86)
    trust: float = 0.9
    guess: float = 0.7
    share: float = 0.539


def log_odds(p: float) -> float:
    """Return log(p / (1 - p))."""
    return math.log(p / (1 - p))


def probability(odds: Floats) -> Floats:
    """Return the probability of log odds."""
    return np.asarray(1 / (1 + np.exp(-np.clip(odds, -SURE, SURE))), np.float64)


def beside(
    boxes: NDArray[np.float32], places: NDArray[np.float32], settings: SearchSettings
) -> NDArray[np.bool_]:
    """Which places (M, 4) stand beside boxes (N, 4), at most a few times larger or smaller."""
    step = np.abs(_middles(places)[None] - _middles(boxes)[:, None])
    high = np.stack(np.broadcast_arrays(boxes[:, None, 3], places[None, :, 3]))
    tall = high.max(axis=0)
    near = (step[..., 0] < settings.beside * tall) & (step[..., 1] < settings.level * tall)
    near &= high.min(axis=0) > settings.like * tall
    return np.asarray(near & ~same_mark(boxes, places))


class Company:
    """The places of a page, and how marks stand among them.

    Parameters
    ----------
    places : Finding
        The best digit of each place.
    signs : Finding
    settings : SearchSettings
    """

    def __init__(self, places: Finding, signs: Finding, settings: SearchSettings) -> None:
        self._places, self._signs, self._settings = places, signs, settings
        self._strong: float | None = None

    def features(self, marks: Finding, contrast: Floats) -> Floats:
        """Return what the page says of marks, (N, len(OWN)).

        Parameters
        ----------
        marks : Finding
        contrast : ndarray, shape (N,)
            Logarithms.
        """
        score = marks.scores.astype(np.float64)
        if self._strong is None:
            self._strong = _median(contrast, score**2)
        near = beside(marks.boxes, self._places.boxes, self._settings)
        weight = near * self._places.scores.astype(np.float64) ** 2
        total = weight.sum(axis=1)
        weight /= np.maximum(total, 1e-9)[:, None]
        high = np.log(np.maximum(self._places.boxes[:, 3].astype(np.float64), 1))
        own_high = np.log(np.maximum(marks.boxes[:, 3].astype(np.float64), 1))
        alone = total == 0
        taller = np.where(alone, 0, own_high - weight @ high)
        level = _middles(marks.boxes)[:, 1] - weight @ _middles(self._places.boxes)[:, 1]
        sunk = np.where(alone, 0, level / np.exp(weight @ high))
        best = np.sort(np.where(near, self._places.scores, 0), axis=1)[:, -2:].sum(axis=1)
        return np.stack(
            [
                np.ones_like(score), np.log(score / (1 - score)), self._as_signs(marks),
                np.minimum(contrast - self._strong, 0), np.maximum(taller, 0),
                np.maximum(-taller, 0), np.maximum(-sunk, 0), np.maximum(sunk, 0), best,
            ],
            axis=1,
        )  # fmt: skip

    def _as_signs(self, marks: Finding) -> Floats:
        """How much surer the finder is of a sign at the same place."""
        if not len(self._signs):
            return np.zeros(len(marks))
        same = overlaps(marks.boxes, self._signs.boxes)[0] > FinderSettings().overlap
        score = marks.scores.astype(np.float64)
        best = np.maximum(np.where(same, self._signs.scores, 0).max(axis=1), score)
        return np.asarray(np.log(best / (1 - best)) - np.log(score / (1 - score)))

    def around(
        self, odds: Floats, boxes: NDArray[np.float32], of_places: Floats, share: float
    ) -> Floats:
        """Return what log odds of marks (N,) and those of the places (M,) say, (N, 3)."""
        others = ~same_mark(boxes, self._places.boxes)
        steady = self._settings.steady
        digits = others @ probability(of_places) + steady * share
        of_page = digits / (others.sum(axis=1) + steady)
        page = np.log(of_page / (1 - of_page)) - log_odds(share)
        return np.stack([np.ones_like(odds), odds, page], axis=1)


def _middles(boxes: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(boxes[:, :2] + boxes[:, 2:] / 2, np.float32)


def _median(values: Floats, weights: Floats) -> float:
    order = np.argsort(values)
    upto = np.cumsum(weights[order])
    return float(values[order[int(np.searchsorted(upto, upto[-1] / 2))]])
