"""What speaks for a mark being a digit, added up to log odds.

Two logistic regressions, one after the other (auto-context: Tu 2008, doi:10.1109/CVPR.2008.4587436). The
first weighs what the finder and the digit network say of a mark, its contrast, its size and level beside its
neighbours, and a sign that it may be. The second weighs the answer of the first together with those for the
other marks of the page: a letter stands among letters, a grain of paper among grains.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neocog.vision.finder import SIGNS, SURE, FinderSettings, Finding, of_smaller, of_union

Floats = NDArray[np.float64]
Boxes = NDArray[np.float32]

OWN = ("bias", "finder", "stroke", "first", "sign", "contrast", "taller", "lower", "above",
       "below", "company", "size")  # fmt: skip
"""What the page says of a mark. Log odds of a score count beside those of the finder's score.

bias: 1. finder: log odds of the finder's score. stroke: log odds of the score of a stroke that may be a 1
(`STROKES`) at the same place, if higher. first: log odds of the mark being a digit or a slash, if a digit
stands beside it to the right and nothing to the left: few numbers begin with a slash. sign: log odds of the
score of any other sign at the same place, if higher. contrast: logarithm of the contrast beside that of the
page's sure marks, if less. taller, lower: logarithm of the height over that of its neighbours, if more; and
if less. above, below: height of its middle over and under that of its neighbours, in heights. company: scores
of its two best neighbours. size: logarithm of its longer side over that of the page.
"""

SLASH_KIND = 10 + SIGNS.index("/")
STROKES = np.isin(np.arange(10 + len(SIGNS)), [10 + SIGNS.index(sign) for sign in "/()"])
"""Which kinds are signs that look like a 1."""

NETWORK = ("network", "digit", "agree")
"""What the digit network says, see `neocog.reading.policy.features`."""

AROUND = ("bias", "own", "page")
"""What the first regression says: 1; of the mark; of all marks of the page that do not overlap it,
as log odds beside those of the usual share of digits."""


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """How a page's boxes are searched, and how digits are cut out of it.

    ``experiments/reading/tune.py`` chooses ``told``, ``asked`` and ``upright``; with ``--vary`` it
    lists what comes of the others, but for ``most``, when they are a fifth smaller or larger.
    """

    least: float = 0.15  #: score of the finder from which a box is looked at
    alike: float = 0.8  #: share of the union of two boxes from which they are one hypothesis
    narrow: float = 0.4  #: share of its height that a box counts as wide at least: boxes of a 1 differ
    told: float = 0.6  #: probability from which a place is told, if perhaps as ``?``
    sure: float = 0.95  #: probability from which a place is not looked at again
    asked: tuple[float, float] = (-2.6, 3.3)  #: log odds without the network between which it is asked
    beside: float = 1.6  #: most between the middles of neighbours, to the side, in heights
    level: float = 0.6  #: and up or down
    like: float = 0.35  #: least height of a neighbour, of the higher one's
    steady: float = 2.0  #: marks of the usual share of digits that a page's own are counted with
    apart: float = 0.55  #: heights from which a box stands on another line
    latest: int = 3  #: boxes of a line whose mean level the next one is compared with
    reduced: int = 72  #: pixels that a larger box is reduced to before its ink is told
    margin: float = 0.2  #: what is cut out around a box, of its longer side
    rim: float = 0.12  #: share of a box's sides where its contrast is not told: a cell's outline is there
    paper: float = 0.18  #: of full contrast: what is no ink yet
    ink: float = 0.72  #: and what is full ink
    extreme: float = 0.03  #: share of a box's pixels that are darker than its ink counts
    part: float = 0.35  #: amount of ink from which pixels hang together
    slack: float = 0.06  #: how far ink may stand out of its box, of the longer side
    #: how much longer than a box a line is that is no part of a digit, of the longer side; at most
    #: twice ``margin``, beyond which nothing is seen
    line: float = 0.3
    speck: float = 0.04  #: least area of a part of a digit, of the largest one's
    thin: float = 1.7  #: stroke width below which strokes are widened, in pixels of the 28 x 28 field
    widened: float = 2.3  #: and to what width
    thick: float = 3.4  #: stroke width above which strokes are thinned
    thinned: float = 3.0  #: and to what width
    upright: float = 5.6  #: mean worth of a page's digits from which no turn of it is looked at
    many: int = 12  #: least digits of a page that is turned, if half as many are seen as it lies
    most: int = 128  #: boxes that are looked at, but for sure ones: noise takes no longer


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of evidence, fitted by ``experiments/reading/tune.py`` on the tuning sets."""

    #: of `OWN`
    own: tuple[float, ...] = (0.18, 2.47, 0.3, 0.82, -0.39, 0.62, -0.34, 0.15, -0.42, 0.08, 0.73, 0.31)
    network: tuple[float, ...] = (0.03, 0.23, 0.14)  #: of `NETWORK`
    around: tuple[float, ...] = (0.4, 0.94, 0.71)  #: of `AROUND`
    link: tuple[float, ...] = (1.52, -1.41)  #: of `neocog.vision.lines.LINK`
    trust: float = 0.5  #: of the digit network's log probabilities of the ten digits
    guess: float = 0.6  #: of the finder's
    share: float = 0.52  #: of the finder's marks that are digits, usually


def log_odds(p: float) -> float:
    return math.log(p / (1 - p))


def middles(boxes: Boxes) -> Boxes:
    return np.asarray(boxes[:, :2] + boxes[:, 2:] / 2, np.float32)


def median(values: NDArray[np.floating], weights: NDArray[np.floating]) -> float:
    order = np.argsort(values)
    upto = np.cumsum(weights[order])
    return float(values[order[int(np.searchsorted(upto, upto[-1] / 2))]])


def same_mark(a: Boxes, b: Boxes, settings: SearchSettings) -> NDArray[np.bool_]:
    """Which boxes (N, 4) and (M, 4) share half of the smaller one and are no two marks, (N, M)."""
    wide = []
    for boxes in (a,) if a is b else (a, b):
        wide.append(boxes.copy())
        wide[-1][:, 2] = np.maximum(boxes[:, 2], settings.narrow * boxes[:, 3])
        wide[-1][:, 0] -= (wide[-1][:, 2] - boxes[:, 2]) / 2
    return np.asarray(of_smaller(wide[0], wide[-1]) > 0.5)


def beside(
    boxes: Boxes, places: Boxes, settings: SearchSettings, same: NDArray[np.bool_] | None = None
) -> NDArray[np.bool_]:
    """Which places (M, 4) stand beside boxes (N, 4), at most a few times larger or smaller."""
    step = np.abs(middles(places)[None] - middles(boxes)[:, None])
    tall = np.maximum(boxes[:, None, 3], places[:, 3])
    near = (step[..., 0] < settings.beside * tall) & (step[..., 1] < settings.level * tall)
    near &= np.minimum(boxes[:, None, 3], places[:, 3]) > settings.like * tall
    same = same_mark(boxes, places, settings) if same is None else same
    return np.asarray(near & ~same)


def own_features(
    marks: Finding,
    contrast: Floats,
    places: Finding,
    signs: Finding,
    settings: SearchSettings,
    *,
    long_side: int,
) -> Floats:
    """Return what the page says of marks, (N, len(OWN)).

    ``contrast`` (N,) are logarithms, beside the contrast of the page's sure marks; ``places`` the
    best digit of each place of the page, whose long side has ``long_side`` pixels.
    """
    score = marks.scores.astype(np.float64)
    near = beside(marks.boxes, places.boxes, settings)
    weight = near * places.scores.astype(np.float64) ** 2
    total = weight.sum(axis=1)
    weight /= np.maximum(total, 1e-9)[:, None]
    high = np.log(np.maximum(places.boxes[:, 3].astype(np.float64), 1))
    own_high = np.log(np.maximum(marks.boxes[:, 3].astype(np.float64), 1))
    alone = total == 0
    taller = np.where(alone, 0, own_high - weight @ high)
    level = middles(marks.boxes)[:, 1] - weight @ middles(places.boxes)[:, 1]
    sunk = np.where(alone, 0, level / np.exp(weight @ high))
    best = np.sort(np.where(near, places.scores, 0), axis=1)[:, -2:].sum(axis=1)
    same, strokes = same_mark(marks.boxes, signs.boxes, settings), STROKES[signs.kinds]
    alike = of_union(marks.boxes, signs.boxes) > settings.alike
    begins = _first(marks, places, signs, near, same, settings)[:, None]
    stroke, sign, slash = (
        np.where(those, signs.scores, 0).max(axis=1, initial=0).astype(np.float64)
        for those in (same & strokes, same & ~strokes, begins & alike & (signs.kinds == SLASH_KIND))
    )
    either = 1 - (1 - score) * (1 - slash)
    parts = (score, np.maximum(stroke, score), np.maximum(sign, score), either)
    odds, of_stroke, of_sign, of_either = (np.log(p / (1 - p)) for p in parts)
    return np.stack(
        [
            np.ones_like(score), odds, of_stroke - odds, of_either - odds, of_sign - odds,
            np.minimum(contrast, 0), np.maximum(taller, 0), np.maximum(-taller, 0),
            np.maximum(-sunk, 0), np.maximum(sunk, 0), best,
            np.log(marks.boxes[:, 2:].max(axis=1) / long_side),
        ],
        axis=1,
    )  # fmt: skip


def _first(
    marks: Finding, places: Finding, signs: Finding, near: NDArray[np.bool_],
    same: NDArray[np.bool_], settings: SearchSettings
) -> NDArray[np.bool_]:  # fmt: skip
    """Which marks begin a number: a digit beside them to the right, nothing to the left."""
    at, sure = middles(marks.boxes)[:, :1], FinderSettings().score
    digits = near & (places.scores > sure)
    others = beside(marks.boxes, signs.boxes, settings, same) & (signs.scores > sure)
    after, sign_after = (middles(some.boxes)[:, 0] > at for some in (places, signs))
    before = (digits & ~after).any(axis=1) | (others & ~sign_after).any(axis=1)
    return np.asarray((digits & after).any(axis=1) & ~before)


def around_features(
    odds: Floats, others: NDArray[np.bool_], of_places: Floats, share: float, steady: float
) -> Floats:
    """Return features of marks from their log odds (N,) and those of other places (M,), (N, 3)."""
    p = 1 / (1 + np.exp(-np.clip(of_places, -SURE, SURE)))
    of_page = (others @ p + steady * share) / (others.sum(axis=1) + steady)
    page = np.log(of_page / (1 - of_page)) - log_odds(share)
    return np.stack([np.ones_like(odds), odds, page], axis=1)
