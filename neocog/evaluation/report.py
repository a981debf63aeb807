"""``neocog eval --report``: one model on every set at hand, as one JSON file and one page."""

import datetime
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from neocog.errors import InputError, UsageError
from neocog.evaluation import measures
from neocog.evaluation.confidence import Confidence
from neocog.evaluation.evaluate import PictureScore, Progress, answer_digits, evaluate_pictures
from neocog.evaluation.measures import MARKS, Facts
from neocog.files import atomic_write, check_output
from neocog.text import to_json

if TYPE_CHECKING:
    from neocog.learning.datasets import Digits, LabelledPictures
    from neocog.reading.reader import Reader

SCHEMA = 2
#: Where the folder of the sets is named if the command names none.
VARIABLE = "NEOCOG_DATA"

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
    reader: "Reader", sets: Sets, *, limit: int | None = None, told: Told = lambda name: None
) -> Report:
    """Read every set and count; ``limit``: only so many marks that are no digits."""
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
            facts["digits"][name] = measures.digit_facts(own, answers, sure[name], min_p=reader.policy.min_p)
    if sets.digits:
        base = next(iter(sets.digits.values()))
        facts["corruptions"] = measures.corruption_facts(reader, base, told("corruptions"))
        facts["marks"], passed = measures.mark_facts(reader, base, min(limit or MARKS, MARKS))
        if "validation" in sure and "mnist" in sure:
            fixed = sure["validation"]
            facts["fixed_on_validation"] = measures.transfer_facts(fixed, sure["mnist"], passed)
            facts["validation"] = {"n": len(fixed), "accuracy": round(float(fixed.right.mean()), 6)}
    else:
        facts["missing"] |= dict.fromkeys(("corruptions", "marks"), "no isolated digits to make them from")
    scores = {}
    for name, pictures in sets.pictures.items():
        scores[name] = evaluate_pictures(reader, pictures, progress=told(pictures.name))
        facts["pictures"][name] = measures.picture_facts(scores[name], pictures.name, pictures.left_out)
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
