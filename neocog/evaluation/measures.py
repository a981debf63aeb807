"""What a report says of each set, as plain values: digits, corruptions, marks, pictures."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from neocog.edit_distance import edit_distance
from neocog.evaluation.confidence import Confidence
from neocog.evaluation.corruptions import CORRUPTIONS, STRENGTHS, corrupt
from neocog.evaluation.evaluate import PictureScore, Progress, answer_digits, confusion_of

if TYPE_CHECKING:
    from neocog.learning.datasets import Digits
    from neocog.network.decision import Answers
    from neocog.reading.reader import Reader
    from neocog.reading.records import PageReading

Facts = dict[str, Any]

#: Shares of digits that are taken, and shares of wrong ones among them, that tables stand at.
COVERAGES = (1.0, 0.999, 0.995, 0.99, 0.98, 0.95, 0.9)
RISKS = (0.0005, 0.001, 0.002, 0.005, 0.01)
#: Digits, at most, that corruptions are measured on: evenly spread over the set.
CORRUPTED = 2000
#: Marks that are no digits.
MARKS = 2000
_MARKS_SEED = 20
_WORST = 40
_STRICTER = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)


# --- isolated digits ------------------------------------------------------------------------------


def digit_facts(digits: "Digits", answers: "Answers", sure: Confidence, *, min_p: float) -> Facts:
    """Return what a report says of a set of isolated digits and of the answers to it.

    ``min_p`` is the probability below which a reader prints ``?``.
    """
    confusion = confusion_of(digits.labels, answers.label)
    # the digit whose own score is the best of the ten, also where no digit is answered
    forced = (answers.score.argmax(axis=1) == digits.labels) & (answers.score.max(axis=1) > 0)
    return {
        "name": digits.name,
        "n": len(digits),
        "accuracy": round(float(sure.right.mean()), 6) if len(digits) else 0.0,
        "forced": round(float(forced.mean()) if len(digits) else 0.0, 6),
        "wrong": int((answers.label >= 0).sum() - sure.right.sum()),
        "no_answer": int((answers.label < 0).sum()),
        "as_read": sure.at(min_p),
        "ece": sure.ece(),
        "aurc": sure.aurc(),
        "error_at_coverage": _at_coverages(sure),
        "coverage_at_error": _rows(sure, RISKS, sure.threshold_of_risk),
        "per_digit": [_one_digit(confusion, digit) for digit in range(10)],
        "confusion": confusion.tolist(),
        "reliability": sure.reliability(),
        "risk_coverage": sure.points(),
        "worst": _worst(digits, answers, sure),
    }


def _at_coverages(sure: Confidence) -> list[Facts]:
    rows = []
    if (sure.p > 0).any():  # every answer there is, also where some digits have none
        rows.append({"wanted": COVERAGES[0], **sure.at(float(sure.p[sure.p > 0].min()))})
    return rows + _rows(sure, COVERAGES[1:], sure.threshold_of_coverage)


def _rows(
    sure: Confidence, wanted: Sequence[float], threshold_of: Callable[[float], float | None]
) -> list[Facts]:
    found = [(value, threshold_of(value)) for value in wanted]
    return [{"wanted": value, **sure.at(t)} for value, t in found if t is not None]


def _one_digit(confusion: NDArray[np.int64], digit: int) -> Facts:
    """How many of a digit were read right (recall), and how many read as it are (precision)."""
    right, written = int(confusion[digit, digit]), int(confusion[digit].sum())
    read = int(confusion[:, digit].sum())
    return {
        "digit": digit,
        "n": written,
        "right": right,
        "no_answer": int(confusion[digit, -1]),
        "recall": right / written if written else None,
        "precision": right / read if read else None,
    }


def _worst(digits: "Digits", answers: "Answers", sure: Confidence) -> list[Facts]:
    """Wrong answers, the surest first; those without an answer last."""
    wrong = np.flatnonzero(~sure.right)
    order = wrong[np.argsort(-sure.p[wrong], kind="stable")][:_WORST]
    return [
        {"index": int(i), "digit": int(digits.labels[i]), "read": int(answers.label[i]),
         "p": float(sure.p[i])}
        for i in order
    ]  # fmt: skip


def transfer_facts(validation: Confidence, test: Confidence, marks: Confidence) -> list[Facts]:
    """Return what thresholds fixed on validation digits do to the test set and to marks.

    ``marks`` is the share of marks that are no digits which are read as one.
    """
    wanted = [("coverage", c, validation.threshold_of_coverage(c)) for c in COVERAGES[1:]]
    wanted += [("risk", r, validation.threshold_of_risk(r)) for r in RISKS]
    return [
        {
            "fixed_at": kind,
            "wanted": value,
            "threshold": threshold,
            "validation": validation.at(threshold),
            "test": test.at(threshold),
            "marks": marks.at(threshold)["coverage"],
        }
        for kind, value, threshold in wanted
        if threshold is not None
    ]


# --- corruptions, marks ---------------------------------------------------------------------------


def corruption_facts(reader: "Reader", digits: "Digits", progress: Progress | None) -> Facts:
    """Return accuracies under each corruption at each strength, and their mean."""
    chosen = spread(digits, CORRUPTED)
    total = len(CORRUPTIONS) * len(STRENGTHS) * len(chosen)
    kinds: dict[str, list[float]] = {name: [] for name in CORRUPTIONS}
    done = 0
    for name, found in kinds.items():
        for strength in STRENGTHS:
            images = corrupt(chosen.images, name, strength)
            label = answer_digits(reader.engine, images, batch=reader.batch).label
            found.append(round(float((label == chosen.labels).mean()), 6))
            done += len(chosen)
            if progress:
                progress(done, total)
    means = {name: float(np.mean(values)) for name, values in kinds.items()}
    return {
        "name": digits.name,
        "n": len(chosen),
        "mean": float(np.mean(list(means.values()))),
        "means": means,
        "accuracy": kinds,
    }


def spread(digits: "Digits", most: int) -> "Digits":
    """Return at most so many digits, evenly spread over the set."""
    if len(digits) <= most:
        return digits
    return digits[np.linspace(0, len(digits), most, endpoint=False).astype(int)]


def mark_facts(reader: "Reader", digits: "Digits", count: int) -> tuple[Facts, Confidence]:
    """Return how many marks that are no digits are read as one, by kind; and how surely.

    The marks are of kinds and fonts that nothing is learned from; pieces and rows of digits among
    them are made of ``digits``.
    """
    from neocog.learning.negatives import negatives

    marks, kind, names = negatives(count, digits.images, digits.labels, seed=_MARKS_SEED, held=True)
    answers = answer_digits(reader.engine, marks, batch=reader.batch)
    sure = Confidence.of(answers.label, answers.p, np.full(count, -1))
    taken = (sure.p > 0) & (sure.p >= reader.policy.min_p)
    facts: Facts = {
        "n": count,
        "min_p": reader.policy.min_p,
        "read_as_digits": float(taken.mean()),
        "kinds": {
            name: {"n": int((kind == k).sum()), "read_as_digits": float(taken[kind == k].mean())}
            for k, name in enumerate(names)
            if (kind == k).any()
        },
    }
    return facts, sure


# --- pictures -------------------------------------------------------------------------------------


def picture_facts(score: PictureScore, name: str, left_out: Sequence[str]) -> Facts:
    """Return what a report says of whole pictures; no digit stands in those ``left_out``."""
    wrong = [
        {"picture": Path(reading.source).name, "written": expected,
         "read": reading.text.replace("\n", " "), "edits": edits, "error": reading.error}
        for reading, expected, edits in score.mistakes
        if edits
    ]  # fmt: skip
    return {
        "name": name,
        **score.to_dict(),
        "failed": len(score.failures),
        "left_out": list(left_out),
        "stricter": _stricter(score),
        "risk_coverage": _whole_pictures(score).points(),
        "wrong": wrong,
    }


def _stricter(score: PictureScore) -> list[Facts]:
    """Return error rates with ``?`` for every digit below a probability.

    ``cer`` counts a ``?`` as an error, ``cer_beside`` does not.
    """
    digits = sum(map(len, score.expected))
    rows = []
    for threshold in _STRICTER if digits else ():
        texts = [
            "".join("?" if digit.p < threshold else digit.char for digit in reading.digits)
            for reading in score.readings
        ]
        pairs = list(zip(texts, score.expected, strict=True))
        rows.append(
            {
                "threshold": threshold,
                "unknown": sum(text.count("?") for text in texts) / digits,
                "cer": sum(edit_distance(*pair) for pair in pairs) / digits,
                "cer_beside": sum(edit_distance(*pair, unknown="?") for pair in pairs) / digits,
            }
        )
    return rows


def _whole_pictures(score: PictureScore) -> Confidence:
    """Whole pictures by their least sure digit; with ``?`` or without digits they are not taken."""
    sure = [_least(reading) for reading in score.readings]
    right = [p > 0 and not d for p, d in zip(sure, score.distances, strict=True)]
    return Confidence(np.array(sure, dtype=np.float64), np.array(right, dtype=bool))


def _least(reading: "PageReading") -> float:
    if reading.error is not None or "?" in reading.text:
        return 0.0
    return min((digit.p for digit in reading.digits), default=0.0)
