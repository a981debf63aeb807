"""``neocog eval --report``: one model on every set at hand, as one JSON file and one page."""

import datetime
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from neocog.errors import InputError, UsageError
from neocog.evaluation import measures
from neocog.evaluation.confidence import Confidence
from neocog.evaluation.evaluate import PictureScore, Progress, answer_digits, evaluate_pictures
from neocog.evaluation.measures import MARKS, Facts
from neocog.files import atomic_write, check_output
from neocog.jsontext import to_json

if TYPE_CHECKING:
    from neocog.learning.datasets import Digits, LabelledPictures
    from neocog.network.decision import Answers
    from neocog.reading.reader import Reader

SCHEMA = 1
#: Where the folder of the sets is named if the command names none.
VARIABLE = "NEOCOG_DATA"

Told = Callable[[str], Progress | None]
"""Makes what is told how far a part of the report is, given the part's name."""


@dataclass(frozen=True, slots=True)
class Sets:
    """The sets that are at hand, by name."""

    digits: "dict[str, Digits]"  # "mnist" (test), "usps" (training), "sklearn"
    validation: "Digits | None"  # MNIST's
    pictures: "dict[str, LabelledPictures]"  # "photos" and "strings"
    missing: dict[str, str]  # why a set is not there


def find_sets(place: str | Path | None = None, *, limit: int | None = None) -> Sets:
    """Open the sets of a folder, and those that need none; ``limit``: so many of each.

    The folder holds ``mnist``, ``usps``, ``photos``, ``strings``, or some of them; by default it is
    what the variable NEOCOG_DATA names, else only what ``neocog data fetch`` fetched is taken.
    scikit-learn's digits are taken where scikit-learn is installed. InputError if the folder is not
    there or holds none of them, or a set is malformed.
    """
    from neocog.learning.datasets import LabelledPictures, fetched_mnist, open_dataset, open_digits

    named = place if place is not None else os.environ.get(VARIABLE) or None
    folder = _folder(Path(named)) if named is not None else None
    found = Sets({}, None, {}, {})
    digits, missing, validation = found.digits, found.missing, None

    def there(name: str) -> Path | None:
        if folder is not None and _holds_files(folder / name):
            return folder / name
        missing[name] = f"not in {folder or f'a folder named by PATH or {VARIABLE}'}"
        return None

    if folder is not None:
        mnist = there("mnist")
    elif (mnist := fetched_mnist()) is None:
        missing["mnist"] = "not downloaded; run 'neocog data fetch mnist', or name a folder that holds it"
    if mnist is not None:
        digits["mnist"] = open_digits(mnist, split="test")[:limit]
        try:
            validation = open_digits(mnist, split="validation")[:limit]
        except InputError as error:
            missing["validation"] = str(error)
    if (usps := there("usps")) is not None:
        digits["usps"] = open_digits(usps, split="train")[:limit]
    try:
        digits["sklearn"] = open_digits("sklearn")[:limit]
    except (InputError, UsageError) as error:
        missing["sklearn"] = str(error)
    for name in ("photos", "strings"):
        if (own := there(name)) is not None:
            labelled = open_dataset(own)
            if not isinstance(labelled, LabelledPictures):
                raise InputError(f"{own}: no labels.csv, which says what is written in each picture")
            found.pictures[name] = labelled[:limit]
    return Sets(digits, validation, found.pictures, missing)


def _folder(folder: Path) -> Path:
    from neocog.learning.datasets import SETS

    sets = ", ".join(SETS)
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder, expected one that holds {sets}")
    if not any(_holds_files(folder / name) for name in SETS):
        raise InputError(f"{folder}: contains none of these folders: {sets}")
    return folder


def _holds_files(folder: Path) -> bool:
    """Whether it is a folder with more in it than a transfer that broke off leaves."""
    return folder.is_dir() and any(entry.suffix != ".part" for entry in folder.iterdir())


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
        if facts["corruptions"]:
            corrupted = facts["corruptions"]
            sets["corruptions"] = {"n": corrupted["n"], "accuracy": round(corrupted["mean"], 6)}
        about = {key: facts[key] for key in ("seconds", "model", "device")}
        return {"sets": sets, "missing": facts["missing"], **about}


def measure(
    reader: "Reader", sets: Sets, *, limit: int | None = None, told: Told = lambda name: None
) -> Report:
    """Read every set and count; ``limit``: only so many marks that are no digits.

    ``told``, given the name of a part, makes what is told how far it is.
    """
    start = time.perf_counter()
    facts: Facts = {"schema": SCHEMA, **_about(reader), "seconds": 0.0, "seconds_of": {}}
    facts |= {"missing": dict(sets.missing), "digits": {}, "validation": None}
    facts |= {"fixed_on_validation": [], "corruptions": None, "marks": None, "pictures": {}}
    sure: dict[str, Confidence] = {}
    for name, own in sets.digits.items():
        answers, sure[name] = _answered(reader, own, name, facts, told)
        facts["digits"][name] = measures.digit_facts(own, answers, sure[name], min_p=reader.policy.min_p)
    base = next(iter(sets.digits.values()), None)
    if base is None:
        none = "no isolated digits to make them from"
        facts["missing"] |= {"corruptions": none, "marks": none}
    else:
        with _timed(facts, "corruptions"):
            facts["corruptions"] = measures.corruption_facts(reader, base, told("corruptions"))
        with _timed(facts, "marks"):
            count = min(limit or MARKS, MARKS)
            facts["marks"], passed = measures.mark_facts(reader, base, count)
        if sets.validation is not None and "mnist" in sure:
            _, fixed = _answered(reader, sets.validation, "validation", facts, told)
            facts["fixed_on_validation"] = measures.transfer_facts(fixed, sure["mnist"], passed)
            accuracy = round(float(fixed.right.mean()), 6)
            facts["validation"] = {"n": len(fixed), "accuracy": accuracy}
    scores = {}
    for name, pictures in sets.pictures.items():
        with _timed(facts, name):
            scores[name] = evaluate_pictures(reader, pictures, progress=told(pictures.name))
        facts["pictures"][name] = measures.picture_facts(scores[name], pictures.name, pictures.left_out)
    facts["seconds"] = round(time.perf_counter() - start, 3)
    return Report(facts, sets, scores)


@contextmanager
def _timed(facts: Facts, name: str) -> Iterator[None]:
    begun = time.perf_counter()
    yield
    facts["seconds_of"][name] = round(time.perf_counter() - begun, 3)


def _answered(
    reader: "Reader", digits: "Digits", name: str, facts: Facts, told: Told
) -> "tuple[Answers, Confidence]":
    """The answers to a set, and how sure and how right they are."""
    with _timed(facts, name):
        found = answer_digits(reader.engine, digits.images, batch=reader.batch, progress=told(digits.name))
    return found, Confidence.of(found.label, found.p, digits.labels)


def _about(reader: "Reader") -> Facts:
    """What was measured, where and when."""
    from neocog import __version__

    model, engine = reader.model, reader.engine
    return {
        "model": model.id,
        "planes": [len(model.s[0].reference), *model.planes],
        "device": engine.device,
        "where": engine.where,
        "precision": engine.precision,
        "min_p": reader.policy.min_p,
        "neocog": __version__,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def write(report: Report, folder: str | Path) -> tuple[Path, Path]:
    """Write ``report.json`` and ``report.html`` into a folder and return their places."""
    from neocog.evaluation.page import page

    path = Path(folder)
    check_output(path, "--report", folder=True, make=True)
    data, shown = path / "report.json", path / "report.html"
    with atomic_write(data) as stream:
        stream.write((to_json(report.facts, indent=1) + "\n").encode())
    with atomic_write(shown) as stream:
        stream.write(page(report).encode())
    return data, shown
