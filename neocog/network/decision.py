"""From the responses of US4 to an answer: UC4, interpolating vectors, probability, margin.

Rules
-----
``strongest``
    UC4: the strongest plane of each label, anywhere in the 5x5 places (Fukushima 2003).
``pairs``, ``triples``
    Interpolating vectors (Fukushima 2013): at the place where the label's strongest plane
    responds, the input is compared with the segments (or triangles) between the reference vectors
    of that label, not with the vectors alone. With s the cosines to two vectors and g the cosine
    between them, the nearest point of the segment has cosine
    sqrt((s1^2 + s2^2 - 2 g s1 s2) / (1 - g^2)) where s1 > g s2 and s2 > g s1; otherwise the
    nearer vector itself is the nearest point. Planes below their threshold take no part.
``linear``
    Each plane adds its response at the middle place, weighed by its gain, to its label (a
    delta-rule top: learned there, and elsewhere a sum of signed terms says little).

No response at all is no answer, label -1. Ties go to the lower label.

A model may have planes that respond to what is no digit (label 10, ``REJECT``). They are read by
the same rule; where their score is above those of all digits, the answer is label -1 as well.

Prior correction: such a network learned with about one mark in six, or four, that is no digit. In a
field cut out of a form nearly all marks are digits, and an odd 2 is an odd 2. Scores are logarithms
of odds (times the temperature), so a prior shifts the score of no digit.
"""

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocog.network.arrays import array_module, to_numpy
from neocog.network.model import Model
from neocog.network.spec import LABELS, REJECT

Array = Any

#: Pairs are sought among this many strongest planes of a label, triples among fewer.
PAIR_PLANES = 32
TRIPLE_PLANES = 12
#: Vectors with 1 - g below this are one vector: float32 responses cannot tell between them.
_SAME = 1e-6
#: Three vectors whose Gram determinant (float64) is below this lie on one line.
_FLAT = 1e-12
_LEAST = 1e-12  # odds of no digit below this are none
#: Odds of no digit above which a digit on its own is not answered: of 20, 50, 100, 300 and 1 000
#: the least at which none of the validation digits is refused.
_SURELY = 300.0


@dataclass(frozen=True, slots=True)
class Answers:
    """What the network answers for B digits."""

    #: 0 .. 9, or -1 where no cell of UC4 responded or that of no digit most, (B,)
    label: NDArray[np.int64]
    score: NDArray[np.float32]  #: response of each digit, (B, 10)
    #: strongest score minus the second, that of no digit among them, (B,)
    margin: NDArray[np.float32]
    #: probability of ``label``, no digit being one of the choices; 0 where there is none, (B,)
    p: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.label)

    def __getitem__(self, rows: slice | NDArray[Any]) -> "Answers":
        """Return some of the answers."""
        return Answers(*(getattr(self, name)[rows] for name in self.__slots__))

    @classmethod
    def none(cls) -> "Answers":
        """Return the answers for no digits."""
        return answers(np.zeros((0, LABELS), dtype=np.float32), temperature=1.0)

    @classmethod
    def join(cls, parts: list["Answers"]) -> "Answers":
        """Return the answers of several batches as one."""
        return cls(*(np.concatenate([getattr(a, name) for a in parts]) for name in cls.__slots__))


def planes_of_labels(model: Model) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the planes of US4 of each label, filled up with 0, and where there is one, (C, M)."""
    counts = np.bincount(model.labels, minlength=model.classes)
    index = np.zeros((model.classes, counts.max()), np.int64)
    present = np.zeros(index.shape, np.float32)
    for label, count in enumerate(counts):
        index[label, :count], present[label, :count] = np.flatnonzero(model.labels == label), 1
    return index, present


class Decision:
    """A model's decision rule for maps of US4, which lie where ``xp`` (numpy or cupy) says."""

    def __init__(self, model: Model, xp: Any = np) -> None:
        self.rule, self.temperature = model.rule, model.temperature
        self._theta = np.float32(model.s[3].threshold)
        self._classes = model.classes
        index, present = planes_of_labels(model)
        self._planes = index.shape[1]
        self._index, self._present = xp.asarray(index), xp.asarray(present)
        if model.gains is not None:
            self._gains = xp.asarray(model.gains[index] * present)
        if self.rule in ("pairs", "triples"):
            self._apart = self._distances(model, index, xp)

    def _distances(self, model: Model, index: NDArray[np.int64], xp: Any) -> Array:
        """1 - g of each two reference vectors of a label, g their cosine, (C, M, M) float64."""
        layer = model.s[3]
        weight = xp.asarray(np.sqrt(layer.c))
        apart = xp.ones((self._classes, self._planes, self._planes), dtype=np.float64)
        for label in range(self._classes):
            x = xp.asarray(layer.reference[index[label]]) * weight
            x = x.reshape(self._planes, -1).astype(np.float64)
            x /= xp.maximum(xp.sqrt((x * x).sum(axis=1, keepdims=True)), 1e-20)
            apart[label] -= x @ x.T
        return apart

    def strongest(self, us4: Array) -> Array:
        """Return UC4, (B, 10), from responses (B, 5, 5, K4): each label's strongest plane.

        With planes that reject, here and in :meth:`scores`, an eleventh column is theirs.
        """
        return (us4.max(axis=(1, 2))[:, self._index] * self._present).max(axis=2)

    def scores(self, us4: Array) -> Array:
        """Return the score of each label by the model's rule, (B, 10), from (B, 5, 5, K4)."""
        xp = array_module(us4)
        if self.rule == "strongest":
            return self.strongest(us4)
        flat = us4.reshape(len(us4), -1, us4.shape[3])
        if self.rule == "linear":
            middle = flat[:, flat.shape[1] // 2]
            return xp.maximum((middle[:, self._index] * self._gains).sum(axis=2), 0)
        responses = self._at_best_place(flat)
        cosine = xp.where(responses > 0, responses * (1 - self._theta) + self._theta, 0)
        apart = self._apart[None]
        limit = PAIR_PLANES if self.rule == "pairs" else TRIPLE_PLANES
        if self._planes > limit:
            top = xp.argsort(-cosine, axis=2)[:, :, :limit]
            cosine = xp.take_along_axis(cosine, top, axis=2)
            label = xp.arange(self._classes)[None, :, None, None]
            apart = self._apart[label, top[:, :, :, None], top[:, :, None, :]]
        best = _best_on_segments(cosine, apart.astype(np.float32))
        if self.rule == "triples":
            inside = _best_on_triangles(cosine.astype(np.float64), 1 - apart)
            best = xp.maximum(best, inside.astype(np.float32))
        return xp.maximum(best - self._theta, 0) / (1 - self._theta)

    def _at_best_place(self, flat: Array) -> Array:
        """Responses (B, 10, M) of each label's planes at the place of its strongest one."""
        xp = array_module(flat)
        strongest = (flat[:, :, self._index] * self._present).max(axis=3)
        place = strongest.argmax(axis=1)
        batch = xp.arange(len(flat))[:, None, None]
        return flat[batch, place[:, :, None], self._index[None]] * self._present

    def __call__(self, us4: Array) -> Answers:
        """Answer for maps of US4, (B, 5, 5, K4)."""
        return answers(to_numpy(self.scores(us4)), temperature=self.temperature)


def labels_of(score: NDArray[np.floating[Any]]) -> NDArray[np.int64]:
    """Return the label of each row of scores, (B, 10) or (B, 11) with that of no digit.

    -1 where no score is above 0, and where that of no digit is above all others.
    """
    label = score.argmax(axis=1)
    return np.where((score.max(axis=1) > 0) & (label != REJECT), label, -1).astype(np.int64)


def answers(score: NDArray[np.floating[Any]], *, temperature: float, surely: float = 1.0) -> Answers:
    """Turn scores into labels, margins and probabilities (softmax of score/temperature).

    Scores are (B, 10), or (B, 11) with that of no digit, which is the answer where its odds
    against the best digit are above ``surely``. The margin of a digit that is answered although no
    digit is likelier is below 0.
    """
    label = labels_of(score)
    ordered = np.sort(score, axis=1)
    best, second = ordered[:, -1], ordered[:, -2]
    digit = score[:, :LABELS].max(axis=1)
    doubtful = (label < 0) & (digit > 0) & (best <= digit + temperature * np.log(surely))
    label = np.where(doubtful, score[:, :LABELS].argmax(axis=1), label)
    best, second = np.where(doubtful, digit, best), np.where(doubtful, best, second)
    p = 1 / np.exp((score - best[:, None]) / temperature).sum(axis=1)
    return Answers(
        label=label,
        score=score[:, :LABELS].astype(np.float32),
        margin=(best - second).astype(np.float32),
        p=np.where(label < 0, 0, p).astype(np.float32),
    )


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


def _best_on_segments(s: Array, apart: Array) -> Array:
    """Largest cosine to any segment between two of M vectors: s (B, 10, M) -> (B, 10).

    Written with h = 1 - g instead of g, since near vectors differ in h alone:
    s1^2 + s2^2 - 2 g s1 s2 = (s1 - s2)^2 + 2 h s1 s2 and 1 - g^2 = h (2 - h).
    """
    xp = array_module(s)
    a, b = s[..., :, None], s[..., None, :]
    difference = a - b
    inside = (difference + apart * b > 0) & (apart * a - difference > 0) & (apart > _SAME)
    h = xp.maximum(apart, _SAME)
    square = (difference**2 + 2 * h * a * b) / (h * (2 - h))
    return xp.sqrt(xp.where(inside, square, a * a).max(axis=(2, 3)))


def _best_on_triangles(s: Array, gram: Array) -> Array:
    """Largest cosine to the inside of any triangle of three of M vectors; 0 if in none."""
    xp = array_module(s)
    m = s.shape[2]
    if m < 3:
        return xp.zeros(s.shape[:2], dtype=np.float32)
    i, j, k = (xp.asarray(t) for t in np.array(list(combinations(range(m), 3))).T)
    a, b, c = s[..., i], s[..., j], s[..., k]
    ab, bc, ca = gram[..., i, j], gram[..., j, k], gram[..., k, i]
    # p = adj(G) s / det(G): how much of each vector the nearest point holds
    det = 1 + 2 * ab * bc * ca - ab**2 - bc**2 - ca**2
    p = a * (1 - bc**2) + b * (bc * ca - ab) + c * (ab * bc - ca)
    q = a * (bc * ca - ab) + b * (1 - ca**2) + c * (ca * ab - bc)
    r = a * (ab * bc - ca) + b * (ca * ab - bc) + c * (1 - ab**2)
    inside = (p > 0) & (q > 0) & (r > 0) & (det > _FLAT)
    square = xp.where(inside, (p * a + q * b + r * c) / xp.maximum(det, _FLAT), 0)
    return xp.sqrt(square.max(axis=2))
