"""What a report says of each set, as plain values: digits, corruptions, marks, pictures."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from neocog.evaluation.confidence import Confidence
from neocog.evaluation.corruptions import CORRUPTIONS, STRENGTHS, corrupt
from neocog.evaluation.evaluate import PictureScore, Progress, answer_digits, confusion_of
from neocog.text import edit_distance

if TYPE_CHECKING:
    from neocog.learning.datasets import Digits
    from neocog.network.decision import Answers
    from neocog.reading.reader import Reader

Facts = dict[str, Any]

#: Shares of digits that are taken, and shares of wrong ones among them, that tables stand at.
COVERAGES = (1.0, 0.999, 0.995, 0.99, 0.98, 0.95, 0.9)
RISKS = (0.0005, 0.001, 0.002, 0.005, 0.01)
#: Digits, at most, that corruptions are measured on, evenly spread over the set; and marks.
CORRUPTED = MARKS = 2000
_MARKS_SEED = 20
_WORST = 40
_STRICTER = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)


def digit_facts(digits: "Digits", answers: "Answers", sure: Confidence, *, min_p: float) -> Facts:
    """What a report says of isolated digits; a reader prints ``?`` for probabilities below ``min_p``."""
    # the digit whose own score is the best of the ten, also where no digit is answered
    forced = (answers.score.argmax(axis=1) == digits.labels) & (answers.score.max(axis=1) > 0)
    taken = [(c, sure.threshold_of_coverage(c)) for c in COVERAGES[1:]]
    if (sure.p > 0).any():  # every answer there is, also where some digits have none
        taken.insert(0, (COVERAGES[0], float(sure.p[sure.p > 0].min())))
    risks = [(r, sure.threshold_of_risk(r)) for r in RISKS]
    wrong = np.flatnonzero(~sure.right)  # the surest first, those without an answer last
    worst = wrong[np.argsort(-sure.p[wrong], kind="stable")][:_WORST]
    return {
        "name": digits.name,
        "n": len(digits),
        "accuracy": round(float(sure.right.mean()), 6) if len(digits) else 0.0,
        "forced": round(float(forced.mean()), 6) if len(digits) else 0.0,
        "wrong": int((answers.label >= 0).sum() - sure.right.sum()),
        "no_answer": int((answers.label < 0).sum()),
        "as_read": sure.at(min_p),
        "ece": sure.ece(),
        "aurc": sure.aurc(),
        "error_at_coverage": [{"wanted": c, **sure.at(t)} for c, t in taken if t is not None],
        "coverage_at_error": [{"wanted": r, **sure.at(t)} for r, t in risks if t is not None],
        "confusion": confusion_of(digits.labels, answers.label).tolist(),
        "reliability": sure.reliability(),
        "risk_coverage": sure.points(),
        "worst": [
            {"index": int(i), "digit": int(digits.labels[i]), "read": int(answers.label[i]), "p": sure.p[i]}
            for i in worst
        ],
    }


def transfer_facts(validation: Confidence, test: Confidence, marks: Confidence) -> list[Facts]:
    """What thresholds fixed on validation digits do to the test set, and to marks that are no digits."""
    wanted = [("coverage", c, validation.threshold_of_coverage(c)) for c in COVERAGES[1:]]
    wanted += [("risk", r, validation.threshold_of_risk(r)) for r in RISKS]
    return [
        {"fixed_at": kind, "wanted": value, "threshold": threshold, "validation": validation.at(threshold),
         "test": test.at(threshold), "marks": marks.at(threshold)["coverage"]}
        for kind, value, threshold in wanted
        if threshold is not None
    ]  # fmt: skip


def corruption_facts(reader: "Reader", digits: "Digits", progress: Progress | None) -> Facts:
    """Accuracies under each corruption at each strength, and their mean."""
    chosen = spread(digits, CORRUPTED)
    total = len(CORRUPTIONS) * len(STRENGTHS) * len(chosen)
    kinds: dict[str, list[float]] = {name: [] for name in CORRUPTIONS}
    for name, found in kinds.items():
        for strength in STRENGTHS:
            images = corrupt(chosen.images, name, strength)
            right = answer_digits(reader.engine, images, batch=reader.batch).label == chosen.labels
            found.append(round(float(right.mean()), 6))
            if progress:
                progress(sum(map(len, kinds.values())) * len(chosen), total)
    means = {name: float(np.mean(values)) for name, values in kinds.items()}
    mean = float(np.mean(list(means.values())))
    return {"name": digits.name, "n": len(chosen), "mean": mean, "means": means, "accuracy": kinds}


def spread(digits: "Digits", most: int) -> "Digits":
    """Return at most so many digits, evenly spread over the set."""
    if len(digits) <= most:
        return digits
    return digits[np.linspace(0, len(digits), most, endpoint=False).astype(int)]


def mark_facts(reader: "Reader", digits: "Digits", count: int) -> tuple[Facts, Confidence]:
    """How many marks of held-out kinds and fonts are read as digits, by kind; and how surely."""
    from neocog.learning.negatives import negatives

    marks, kind, names = negatives(count, digits.images, digits.labels, seed=_MARKS_SEED, held=True)
    answers = answer_digits(reader.engine, marks, batch=reader.batch)
    sure = Confidence.of(answers.label, answers.p, np.full(count, -1))
    taken = (sure.p > 0) & (sure.p >= reader.policy.min_p)
    of_kind = ((name, taken[kind == k]) for k, name in enumerate(names))
    kinds = {name: {"n": len(own), "read_as_digits": float(own.mean())} for name, own in of_kind if len(own)}
    read = float(taken.mean())
    return {"n": count, "min_p": reader.policy.min_p, "read_as_digits": read, "kinds": kinds}, sure


def picture_facts(score: PictureScore, name: str, left_out: Sequence[str]) -> Facts:
    """What a report says of whole pictures; no digit stands in those ``left_out``."""
    sure = [  # a picture is as sure as its least sure digit; with ? or without digits it is not taken
        0.0 if r.error is not None or "?" in r.text else min((digit.p for digit in r.digits), default=0.0)
        for r in score.readings
    ]
    right = [p > 0 and not edits for p, edits in zip(sure, score.distances, strict=True)]
    return {
        "name": name,
        **score.to_dict(),
        "failed": len(score.failures),
        "left_out": list(left_out),
        "stricter": _stricter(score),
        "risk_coverage": Confidence(np.array(sure, float), np.array(right, bool)).points(),
        "wrong": [
            {"picture": Path(reading.source).name, "written": expected,
             "read": reading.text.replace("\n", " "), "edits": edits, "error": reading.error}
            for reading, expected, edits in score.mistakes
            if edits
        ],
    }  # fmt: skip


def _stricter(score: PictureScore) -> list[Facts]:
    """Error rates with ``?`` below a probability; ``cer`` counts it as an error, ``cer_beside`` does not."""
    digits = sum(map(len, score.expected))
    rows = []
    for threshold in _STRICTER if digits else ():
        pairs = [
            ("".join("?" if digit.p < threshold else digit.char for digit in reading.digits), expected)
            for reading, expected in zip(score.readings, score.expected, strict=True)
        ]
        rows.append({
            "threshold": threshold,
            "unknown": sum(text.count("?") for text, _ in pairs) / digits,
            "cer": sum(edit_distance(*pair) for pair in pairs) / digits,
            "cer_beside": sum(edit_distance(*pair, unknown="?") for pair in pairs) / digits,
        })  # fmt: skip
    return rows
