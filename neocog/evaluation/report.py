"""``neocog eval --report``: one model on every set at hand, as one JSON file and one page."""

import datetime
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from neocog.errors import InputError, UsageError
from neocog.evaluation.evaluate import PictureScore
from neocog.evaluation.measures import (
    MARKS,
    Facts,
    Told,
    answered,
    corruption_facts,
    digit_facts,
    mark_facts,
    picture_facts,
    quiet,
    transfer_facts,
)
from neocog.files import atomic_write, check_output
from neocog.jsontext import to_json

if TYPE_CHECKING:
    from neocog.batch.reader import Reader
    from neocog.learning.datasets import Digits, LabelledPictures

SCHEMA = 1
#: Where the folder of the sets is named if the command names none.
VARIABLE = "NEOCOG_DATA"
#: Folders of that folder with pictures.
PICTURE_SETS = ("photos", "strings")


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
    from neocog.learning.datasets import LabelledPictures, open_dataset, open_digits

    named = place if place is not None else os.environ.get(VARIABLE) or None
    folder = _folder(Path(named)) if named is not None else None
    missing: dict[str, str] = {}

    def there(name: str) -> Path | None:
        found = folder / name if folder is not None else None
        if found is not None and _holds_files(found):
            return found
        where = str(folder) if folder is not None else f"a folder named by PATH or {VARIABLE}"
        missing[name] = f"not in {where}"
        return None

    digits: dict[str, Digits] = {}
    validation = None
    mnist = there("mnist") if folder is not None else _fetched(missing)
    if mnist is not None:
        digits["mnist"] = open_digits(mnist, split="test")
        try:
            validation = open_digits(mnist, split="validation")[:limit]
        except InputError as error:
            missing["validation"] = str(error)
    usps = there("usps")
    if usps is not None:
        digits["usps"] = open_digits(usps, split="train")
    try:
        digits["sklearn"] = open_digits("sklearn")
    except (InputError, UsageError) as error:
        missing["sklearn"] = str(error)
    pictures: dict[str, LabelledPictures] = {}
    for name in PICTURE_SETS:
        found = there(name)
        if found is not None:
            labelled = open_dataset(found)
            if not isinstance(labelled, LabelledPictures):
                raise InputError(
                    f"{found}: no labels.csv, which says what is written in each picture"
                )
            pictures[name] = labelled[:limit]
    return Sets({k: d[:limit] for k, d in digits.items()}, validation, pictures, missing)


def _folder(folder: Path) -> Path:
    from neocog.learning.datasets import SETS

    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder, expected one that holds {', '.join(SETS)}")
    if not any(_holds_files(folder / name) for name in SETS):
        raise InputError(
            f"{folder}: holds none of the folders {', '.join(SETS)}, which a report is made from"
        )
    return folder


def _holds_files(folder: Path) -> bool:
    """Whether it is a folder with more in it than a transfer that broke off leaves."""
    return folder.is_dir() and any(entry.suffix != ".part" for entry in folder.iterdir())


def _fetched(missing: dict[str, str]) -> Path | None:
    """MNIST where ``neocog data fetch`` put it."""
    from neocog.learning.datasets import fetched_mnist

    folder = fetched_mnist()
    if folder is not None:
        return folder
    missing["mnist"] = (
        "not downloaded; run 'neocog data fetch mnist', or name a folder that holds it"
    )
    return None


@dataclass(frozen=True, slots=True)
class Report:
    """A model on every set at hand."""

    facts: Facts  # what ``report.json`` holds; see docs/evaluation.md
    sets: Sets
    scores: dict[str, PictureScore] = field(default_factory=dict)  # of each set of pictures

    @property
    def failures(self) -> list[str]:
        """One line for each picture that could not be read."""
        readings = [reading for score in self.scores.values() for reading in score.readings]
        return [f"{r.source}: {r.error}" for r in readings if r.error is not None]

    def summary(self) -> Facts:
        """What ``neocog eval --report --json`` prints."""
        facts = self.facts
        sets = {
            name: {"n": s["n"], "accuracy": s["accuracy"]} for name, s in facts["digits"].items()
        }
        for name, found in facts["pictures"].items():
            sets[name] = {key: found[key] for key in ("n", "n_digits", "cer", "exact")}
        if facts["corruptions"]:
            corrupted = facts["corruptions"]
            sets["corruptions"] = {"n": corrupted["n"], "accuracy": round(corrupted["mean"], 6)}
        about = {key: facts[key] for key in ("seconds", "model", "device")}
        return {"sets": sets, "missing": facts["missing"], **about}


def measure(
    reader: "Reader", sets: Sets, *, limit: int | None = None, told: Told = quiet
) -> Report:
    """Read every set and count; ``limit``: only so many marks that are no digits.

    ``told``, given the name of a part, makes what is told how far it is.
    """
    start = time.perf_counter()
    seconds: dict[str, float] = {}
    missing = dict(sets.missing)

    @contextmanager
    def timed(name: str) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        seconds[name] = round(time.perf_counter() - begun, 3)

    min_p = reader.policy.min_p
    digits: dict[str, Facts] = {}
    sure = {}
    for name, own in sets.digits.items():
        with timed(name):
            answers, sure[name] = answered(reader, own, told=told)
        digits[name] = digit_facts(own, answers, sure[name], min_p=min_p)
    transfer: list[Facts] = []
    corruptions = marks = validation = None
    base = next(iter(sets.digits.values()), None)
    if base is None:
        missing["corruptions"] = missing["marks"] = "no isolated digits to make them from"
    else:
        with timed("corruptions"):
            corruptions = corruption_facts(reader, base, told=told)
        with timed("marks"):
            marks, passed = mark_facts(reader, base, count=min(limit or MARKS, MARKS))
        if sets.validation is not None and "mnist" in sure:
            with timed("validation"):
                _, fixed = answered(reader, sets.validation, told=told)
            transfer = transfer_facts(fixed, sure["mnist"], passed)
            validation = {"n": len(fixed), "accuracy": round(float(fixed.right.mean()), 6)}
    pictures: dict[str, Facts] = {}
    scores: dict[str, PictureScore] = {}
    for name, labelled in sets.pictures.items():
        with timed(name):
            pictures[name], scores[name] = picture_facts(reader, labelled, told=told)
    facts: Facts = {
        "schema": SCHEMA,
        **about(reader),
        "seconds": round(time.perf_counter() - start, 3),
        "seconds_of": seconds,
        "missing": missing,
        "digits": digits,
        "validation": validation,
        "fixed_on_validation": transfer,
        "corruptions": corruptions,
        "marks": marks,
        "pictures": pictures,
    }
    return Report(facts, sets, scores)


def about(reader: "Reader") -> Facts:
    """What was measured, where and when."""
    from neocog import __version__

    model, engine = reader.model, reader.engine
    k2, k3, k4 = model.planes
    return {
        "model": model.id,
        "planes": [len(model.s[0].reference), k2, k3, k4],
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
