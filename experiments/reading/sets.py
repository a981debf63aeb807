"""The sets that reading is measured with: photographs, strings, made pages of seven kinds."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments.reading.made import CELLS, FORMATS, faces, make_amounts, make_form, make_letters
from neocog.batch.pictures import Picture
from neocog.learning.datasets import Digits, LabelledPictures, open_dataset, open_digits
from neocog.learning.pages.conditions import CONDITIONS, WITHOUT_DIGITS
from neocog.learning.pages.page import make_page
from neocog.reading.records import REJECTED

SEED = 31


@dataclass(frozen=True, slots=True)
class Task:
    """One picture to be read: set, kind within it, number within that."""

    set: str
    kind: str
    number: int


@dataclass(frozen=True, slots=True)
class Sample:
    """A picture and what is written on it; ``marks``: label, middle, width, height of each."""

    picture: Picture
    text: str
    marks: np.ndarray | None = None
    name: str = ""


@cache
def labelled(folder: Path) -> LabelledPictures:
    found = open_dataset(folder)
    assert isinstance(found, LabelledPictures)
    return found


@cache
def hands(data: Path, number: int) -> Digits:
    """MNIST's test digits, and for odd numbers those of other pens where there are any."""
    other = data / "hands" / "measure" / "crohme"
    if number % 2 and other.is_dir():
        return open_digits(other)
    return open_digits(data / "mnist", split="test")


def photo(task: Task, data: Path, rng: np.random.Generator) -> Sample:
    folder = "strings" if task.set == "strings" else task.kind
    step, start = (2, ["even", "odd"].index(task.kind)) if task.set == "strings" else (1, 0)
    known, at = labelled(data / folder), task.number * step + start
    return Sample(known.files[at], known.expected[at], name=known.files[at].name)


def written(task: Task, data: Path, rng: np.random.Generator) -> Sample:
    digits = hands(data, 0)
    picture, text = make_page(task.kind, digits.images, digits.labels, rng)
    return Sample(picture, text)


def boxed(make: Callable[..., Any], task: Task, data: Path, rng: np.random.Generator) -> Sample:
    digits = hands(data, task.number)
    grey, text, marks = make(task.kind, digits.images, digits.labels, rng)
    return Sample(grey, text, marks)


def lettered(task: Task, data: Path, rng: np.random.Generator) -> Sample:
    some = faces(data / "fonts")[task.kind]
    grey, text = make_letters(some[task.number % len(some)], rng)
    return Sample(grey, text)


def askew(task: Task, data: Path, rng: np.random.Generator) -> Sample:
    """A page of at least 12 digits, upright: conditions in turn, forms after each four."""
    digits, text = hands(data, task.number), ""
    names = [name for name in CONDITIONS if name not in WITHOUT_DIGITS and name != "one_digit"]
    tries = 0  # some conditions never have so many digits
    while sum(char.isdigit() for char in text) < 12:
        tries += 1
        if task.number % 5 == 4:
            layout = list(CELLS)[task.number // 5 % len(CELLS)]
            picture, text, _ = make_form(layout, digits.images, digits.labels, rng)
        else:
            condition = names[(task.number + tries - 1) % len(names)]
            picture, text = make_page(condition, digits.images, digits.labels, rng)
    return Sample(picture, text)


Make = Callable[[Task, Path, np.random.Generator], Sample]
SETS: dict[str, tuple[Make, Callable[[Path], dict[str, int]]]] = {
    "photos": (photo, lambda d: {"photos": len(labelled(d / "photos"))}),
    "photos_b": (photo, lambda d: {"photos_b": len(labelled(d / "photos_b"))}),
    "strings": (photo, lambda d: {"even": (len(labelled(d / "strings")) + 1) // 2,
                                  "odd": len(labelled(d / "strings")) // 2}),
    "conditions": (written, lambda d: {k: 20 for k in CONDITIONS if k not in WITHOUT_DIGITS}),
    "blank": (written, lambda d: dict.fromkeys(WITHOUT_DIGITS, 5)),
    "forms": (partial(boxed, make_form), lambda d: dict.fromkeys(CELLS, 17)),
    "amounts": (partial(boxed, make_amounts), lambda d: dict.fromkeys(FORMATS, 34)),
    "turned": (askew, lambda d: dict.fromkeys(("90", "180", "270"), 34)),
    "letters": (lettered, lambda d: dict.fromkeys(faces(d / "fonts"), 26)),
}  # fmt: skip
"""How a picture of each set is made, and the kinds of each with how many there are."""

NEEDS = {"photos": "photos", "photos_b": "photos_b", "strings": "strings", "letters": "fonts"}


def sample(task: Task, data: Path) -> Sample:
    """Make or open one picture; the same each time."""
    rng = np.random.default_rng([SEED, task.number, *task.kind.encode()])
    made = SETS[task.set][0](task, data, rng)
    name = made.name or f"{task.kind}_{task.number:03d}"
    text = made.text if task.set == "letters" else digits_of(made.text)
    return replace(made, name=name, text=text)


def digits_of(text: str) -> str:
    """Digits and question marks of a text, nothing between them."""
    return "".join(char for char in text if char.isdigit() or char == REJECTED)


def tasks(data: Path, sets: list[str], every: int = 1) -> Iterator[Task]:
    """All pictures of sets, ``name`` or ``name:kind``, but of conditions one of ``every``."""
    for name, _, only in (word.partition(":") for word in sets):
        if not (data / NEEDS.get(name, "mnist")).is_dir():
            print(f"{name}: DATA has no folder {NEEDS.get(name, 'mnist')}", file=sys.stderr)
            continue
        kinds = SETS[name][1](data).items()
        some = [Task(name, kind, number) for kind, count in kinds
                if only in ("", kind) for number in range(count)]  # fmt: skip
        yield from some[::every] if name == "conditions" else some
