"""``neocog eval --report``: one model on every set at hand, as one JSON file and one page."""

import datetime
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from neocog.errors import InputError, UsageError
from neocog.evaluation.confidence import Confidence
from neocog.evaluation.corruptions import CORRUPTIONS, STRENGTHS, corrupt
from neocog.evaluation.evaluate import PictureScore, Progress, answer_digits, confusion_of, evaluate_pictures
from neocog.files import atomic_write, check_output
from neocog.text import to_json

if TYPE_CHECKING:
    from neocog.learning.datasets import Digits, LabelledPictures
    from neocog.network.decision import Answers
    from neocog.reading.reader import Reader

SCHEMA = 2
#: Where the folder of the sets is named if the command names none.
VARIABLE = "NEOCOG_DATA"
#: Shares of digits that are taken, and shares of wrong ones among them, that tables stand at.
COVERAGES = (1.0, 0.999, 0.995, 0.99, 0.98, 0.95, 0.9)
RISKS = (0.0005, 0.001, 0.002, 0.005, 0.01)
#: Digits, at most, that corruptions are measured on, evenly spread over the set; and marks.
CORRUPTED = MARKS = 2000
_MARKS_SEED = 20
_WORST = 40
_STRICTER = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)

Facts = dict[str, Any]
Told = Callable[[str], Progress | None]  # makes a progress callback, given the name of a part


@dataclass(frozen=True, slots=True)
class Sets:
    """The sets that are at hand, by name."""

    digits: "dict[str, Digits]"  # "mnist" (test), "usps" (training), "sklearn"
    validation: "Digits | None"  # MNIST's
    pictures: "dict[str, LabelledPictures]"  # "photos" and "strings"
    missing: dict[str, str]  # why a set is not there


def find_sets(place: str | Path | None = None, *, limit: int | None = None) -> Sets:
    """Open the sets of a folder, and those that need none; ``limit``: so many of each.

    The folder holds some of ``mnist``, ``usps``, ``photos``, ``strings``; by default it is what NEOCOG_DATA
    names, else only what was fetched is taken. InputError if it is missing or holds none of them, or a set is
    malformed.
    """
    from neocog.learning.datasets import SETS, LabelledPictures, fetched_mnist, open_dataset, open_digits

    named = place if place is not None else os.environ.get(VARIABLE) or None
    if named is not None:
        folder = Path(named)
        if not folder.is_dir():
            raise InputError(f"{folder}: no such folder, expected one that holds {', '.join(SETS)}")
        there = {  # with more in it than a transfer that broke off leaves
            name: folder / name for name in SETS
            if (folder / name).is_dir() and any(e.suffix != ".part" for e in (folder / name).iterdir())
        }  # fmt: skip
        if not there:
            raise InputError(f"{folder}: contains none of these folders: {', '.join(SETS)}")
        missing = dict.fromkeys(SETS, f"not in {folder}")
    else:
        mnist = fetched_mnist()
        there = {} if mnist is None else {"mnist": mnist}
        missing = dict.fromkeys(SETS, f"not in a folder named by PATH or {VARIABLE}")
        missing["mnist"] = "not downloaded; run 'neocog data fetch mnist', or name a folder that holds it"
    missing = {name: why for name, why in missing.items() if name not in there}
    parts = {"mnist": "test", "usps": "train"}
    digits = {name: open_digits(there[name], split=parts[name])[:limit] for name in parts if name in there}
    validation = None
    try:
        digits["sklearn"] = open_digits("sklearn")[:limit]
    except (InputError, UsageError) as error:
        missing["sklearn"] = str(error)
    try:
        if "mnist" in there:
            validation = open_digits(there["mnist"], split="validation")[:limit]
    except InputError as error:
        missing["validation"] = str(error)
    pictures = {}
    for name in there.keys() - parts.keys():
        labelled = open_dataset(there[name])
        if not isinstance(labelled, LabelledPictures):
            raise InputError(f"{there[name]}: no labels.csv, which says what is written in each picture")
        pictures[name] = labelled[:limit]
    return Sets(digits, validation, dict(sorted(pictures.items())), missing)


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
    from neocog.learning.drawing.marks import negatives

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
    return {
        "name": name,
        **score.to_dict(),
        "failed": len(score.failures),
        "left_out": list(left_out),
        "stricter": [score.numbers.at(threshold) for threshold in _STRICTER],
        "risk_coverage": score.numbers.points(),
        "wrong": [
            {"picture": Path(reading.source).name, "written": expected,
             "read": reading.text.replace("\n", " "), "edits": edits, "error": reading.error}
            for reading, expected, edits in score.mistakes
            if edits
        ],
    }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Report:
    """A model on every set at hand."""

    facts: Facts  # what ``report.json`` holds; see docs/evaluation.md
    sets: Sets
    scores: dict[str, PictureScore] = field(default_factory=dict)  # of each set of pictures

    @property
    def failures(self) -> list[str]:
        """One line for each picture that could not be read."""
        return [line for score in self.scores.values() for line in score.failures]

    def summary(self) -> Facts:
        """What ``neocog eval --report --json`` prints."""
        facts = self.facts
        sets = {name: {"n": s["n"], "accuracy": s["accuracy"]} for name, s in facts["digits"].items()}
        for name, found in facts["pictures"].items():
            sets[name] = {key: found[key] for key in ("n", "n_digits", "cer", "exact")}
        if corrupted := facts["corruptions"]:
            sets["corruptions"] = {"n": corrupted["n"], "accuracy": round(corrupted["mean"], 6)}
        return {"sets": sets} | {key: facts[key] for key in ("missing", "seconds", "model", "device")}


def measure(
    reader: "Reader", sets: Sets, *, pages: "Reader | None" = None, limit: int | None = None,
    told: Told = lambda name: None,
) -> Report:  # fmt: skip
    """Read every set and count: digits by a reader of digits, pictures by that of ``pages`` if it is given.

    ``limit``: only so many marks that are no digits.
    """
    from neocog import __version__

    start = time.perf_counter()
    model, engine = reader.model, reader.engine
    facts: Facts = {"schema": SCHEMA, "model": model.id, "planes": [len(model.s[0].reference), *model.planes]}
    facts |= {"device": engine.device, "where": engine.where, "precision": engine.precision}
    facts |= {"min_p": reader.policy.min_p, "neocog": __version__}
    facts |= {"date": datetime.datetime.now(datetime.UTC).date().isoformat()}
    facts |= {"seconds": 0.0, "missing": dict(sets.missing)}
    facts |= {"digits": {}, "validation": None, "fixed_on_validation": []}
    facts |= {"corruptions": None, "marks": None, "pictures": {}}

    sure: dict[str, Confidence] = {}
    known = sets.digits if sets.validation is None else sets.digits | {"validation": sets.validation}
    for name, own in known.items():
        answers = answer_digits(engine, own.images, batch=reader.batch, progress=told(own.name))
        sure[name] = Confidence.of(answers.label, answers.p, own.labels)
        if name != "validation":
            facts["digits"][name] = digit_facts(own, answers, sure[name], min_p=reader.policy.min_p)
    if sets.digits:
        base = next(iter(sets.digits.values()))
        facts["corruptions"] = corruption_facts(reader, base, told("corruptions"))
        facts["marks"], passed = mark_facts(reader, base, min(limit or MARKS, MARKS))
        if "validation" in sure and "mnist" in sure:
            fixed = sure["validation"]
            facts["fixed_on_validation"] = transfer_facts(fixed, sure["mnist"], passed)
            facts["validation"] = {"n": len(fixed), "accuracy": round(float(fixed.right.mean()), 6)}
    else:
        facts["missing"] |= dict.fromkeys(("corruptions", "marks"), "no isolated digits to make them from")
    scores = {}
    for name, pictures in sets.pictures.items():
        scores[name] = evaluate_pictures(pages or reader, pictures, progress=told(pictures.name))
        found = picture_facts(scores[name], pictures.name, pictures.left_out)
        facts["pictures"][name] = found | {"model": (pages or reader).model.id}
    facts["seconds"] = round(time.perf_counter() - start, 3)
    return Report(facts, sets, scores)


def check_report(folder: str | Path) -> None:
    """Raise UsageError, before anything is measured, if `write` could not write there or draw."""
    from neocog.evaluation.page import load_matplotlib

    check_output(Path(folder), "--report", folder=True, make=True)
    load_matplotlib()


def write(report: Report, folder: str | Path) -> tuple[Path, Path]:
    """Write ``report.json`` and ``report.html`` into a folder and return their places."""
    from neocog.evaluation.page import page

    check_report(folder)
    data, shown = Path(folder) / "report.json", Path(folder) / "report.html"
    for path, text in ((data, to_json(report.facts, indent=1) + "\n"), (shown, page(report))):
        with atomic_write(path) as stream:
            stream.write(text.encode())
    return data, shown
