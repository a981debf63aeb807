"""From the responses of US4 to an answer: UC4, probability, margin.

UC4 is the strongest plane of each label, anywhere in the 5 x 5 places (Fukushima 2003). No response at all is
no answer, label -1. Ties go to the lower label. Where planes that respond to what is no digit (label 10,
``REJECT``) have a score above those of all digits, the answer is label -1 as well.

Prior correction: such a network learned with about one mark in six, or four, that is no digit. In a field cut
out of a form nearly all marks are digits, and an odd 2 is an odd 2. Scores are logarithms of odds (times the
temperature), so a prior shifts the score of no digit.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocog.network.arrays import to_numpy
from neocog.network.model import Model
from neocog.network.spec import LABELS, REJECT

Array = Any

_LEAST = 1e-12  # odds of no digit below this are none
#: Odds of no digit above which a digit on its own is not answered: of 20, 50, 100, 300 and 1 000 the least at
#: which none of the validation digits is refused.
_SURELY = 300.0


@dataclass(frozen=True, slots=True)
class Answers:
    """What the network answers for B digits."""

    label: NDArray[np.int64]  #: 0 .. 9, or -1 where no cell of UC4 responded or that of no digit most, (B,)
    score: NDArray[np.float32]  #: response of each digit, (B, 10)
    margin: NDArray[np.float32]  #: strongest score minus the second, that of no digit among them, (B,)
    p: NDArray[np.float32]  #: probability of ``label``, no digit being one of the choices; 0 where none, (B,)

    def __len__(self) -> int:
        return len(self.label)

    def __getitem__(self, rows: slice | NDArray[Any]) -> "Answers":
        return Answers(*(getattr(self, name)[rows] for name in self.__slots__))

    @classmethod
    def none(cls) -> "Answers":
        return answers(np.zeros((0, LABELS), dtype=np.float32), temperature=1.0)

    @classmethod
    def join(cls, parts: list["Answers"]) -> "Answers":
        parts = parts or [cls.none()]
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
    """A model's decision for maps of US4, which lie where ``xp`` (numpy or cupy) says."""

    def __init__(self, model: Model, xp: Any = np) -> None:
        self.temperature = model.temperature
        self._index, self._present = map(xp.asarray, planes_of_labels(model))

    def scores(self, us4: Array) -> Array:
        """UC4, (B, 10), or (B, 11) with planes that reject, from responses (B, 5, 5, K4)."""
        return (us4.max(axis=(1, 2))[:, self._index] * self._present).max(axis=2)

    def __call__(self, us4: Array) -> Answers:
        return answers(to_numpy(self.scores(us4)), temperature=self.temperature)


def labels_of(score: NDArray[np.floating[Any]]) -> NDArray[np.int64]:
    """Return labels of scores, (B, 10) or (B, 11); -1 where none is above 0, or that of no digit is best."""
    label = score.argmax(axis=1)
    return np.where((score.max(axis=1) > 0) & (label != REJECT), label, -1).astype(np.int64)


def answers(score: NDArray[np.floating[Any]], *, temperature: float, surely: float = 1.0) -> Answers:
    """Turn scores into labels, margins and probabilities (softmax of score/temperature).

    Scores are (B, 10), or (B, 11) with that of no digit, which is the answer where its odds against the best
    digit are above ``surely``. The margin of a digit that is answered although no digit is likelier is below
    0.
    """
    label, ordered = labels_of(score), np.sort(score, axis=1)
    best, second = ordered[:, -1], ordered[:, -2]
    digit = score[:, :LABELS].max(axis=1)
    doubtful = (label < 0) & (digit > 0) & (best <= digit + temperature * np.log(surely))
    label = np.where(doubtful, score[:, :LABELS].argmax(axis=1), label)
    best, second = np.where(doubtful, digit, best), np.where(doubtful, best, second)
    # in the order of the labels: `sum` adds in one that depends on how a batch lies in memory
    p = 1 / sum(np.exp((score - best[:, None]) / temperature).T)
    return Answers(
        label=label,
        score=score[:, :LABELS].astype(np.float32),
        margin=(best - second).astype(np.float32),
        p=np.where(label < 0, 0, p).astype(np.float32),
    )


def all_scores(found: Answers, model: Model) -> NDArray[np.float64]:
    """Return the scores of the ten digits and of no digit, (B, 11), as learned.

    A network that learned to lean towards digits is set upright. Answers hold the ten scores; the eleventh
    follows from the margin where it was the best, and from the probability elsewhere.
    """
    score = found.score.astype(np.float64)
    best = score.max(axis=1, initial=0.0)
    odds = sum(np.exp((score - best[:, None]) / model.temperature).T)
    with np.errstate(divide="ignore"):
        rest = np.maximum(1 / found.p.astype(np.float64) - odds, _LEAST)
    below = best + model.temperature * np.log(np.where(found.label < 0, 1.0, rest))
    none = np.where(found.label < 0, best + found.margin, below)
    none += model.temperature * float(model.card.get("finetuning", {}).get("lean", 0.0))
    return np.concatenate([score, none[:, None]], axis=1)


def of_lone_digits(found: Answers, model: Model) -> Answers:
    """Weigh answers to digits that nobody searched for, each in a picture of its own.

    "No digit" is the answer only where the network is sure of it (300 to 1); where it is in doubt, the best
    digit is, with the low probability that is left to it. Answers of a network that knows no such marks, and
    those without any response, stay.
    """
    if model.classes == found.score.shape[1] or not len(found):
        return found
    weighed = answers(all_scores(found, model), temperature=model.temperature, surely=_SURELY)
    silent = (found.label < 0) & (found.margin <= 0)
    for name in Answers.__slots__:
        getattr(weighed, name)[silent] = getattr(found, name)[silent]
    return weighed
