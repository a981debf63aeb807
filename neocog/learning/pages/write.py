"""Made pages written to a folder as PNG files with their labels."""

import csv
import io
from collections.abc import Callable, Sequence
from itertools import islice, product
from pathlib import Path

import cv2
import numpy as np

from neocog.errors import UsageError
from neocog.files import atomic_write
from neocog.learning.datasets import fetched_mnist, open_digits
from neocog.learning.formats import Digits, read_sklearn
from neocog.learning.pages.conditions import CONDITIONS, WITHOUT_DIGITS
from neocog.learning.pages.page import make_page


def pen_digits(place: str | Path | None, tell: Callable[[str], None]) -> Digits:
    """Open the digits that pages are written with, a set of isolated digits.

    None and "mnist" stand for MNIST as it was fetched. Of MNIST the last 5 000 training digits are
    taken, which no shipped model learned from. Where it is not there, ``tell`` is told in one line
    that scikit-learn's digits stand in for it. InputError if the set is there and cannot be read;
    UsageError if nothing is there and scikit-learn is not installed.
    """
    if place is not None and (str(place) == "sklearn" or Path(place).exists()):
        is_mnist = Path(place).is_dir() and any(Path(place).glob("train-images*"))
        return open_digits(place, split="validation" if is_mnist else None)
    if place in (None, "mnist") and fetched_mnist() is not None:
        return open_digits("mnist", split="validation")
    tell(f"{place or 'MNIST'} is not there: the pages are written with scikit-learn's 8x8 digits")
    return read_sklearn()


def known_conditions(names: Sequence[str]) -> list[str]:
    """Check the names of conditions (UsageError); without any, all of them that carry digits."""
    for name in names:
        if name not in CONDITIONS:
            raise UsageError(f"condition '{name}' is unknown: choose from {', '.join(CONDITIONS)}")
    return list(names) or [name for name in CONDITIONS if name not in WITHOUT_DIGITS]


def write_pages(
    folder: Path, digits: Digits, *, conditions: Sequence[str], count: int, seed: int
) -> int:
    """Write ``count`` pages as PNG files, and ``labels.csv`` (file, text, digits, condition).

    The folder is made if it is not there; files of the same names are replaced. The conditions
    take turns. The same seed gives the same pages, whatever else is written. Returns the number
    of pages written. OSError if the folder cannot be written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rounds = range(-(-count // len(conditions)))
    rows = [["file", "text", "digits", "condition"]]
    for number, condition in islice(product(rounds, conditions), count):
        rng = np.random.default_rng([seed, number, *condition.encode()])
        picture, text = make_page(condition, digits.images, digits.labels, rng)
        name = f"{condition}_{number:03d}.png"
        _, file = cv2.imencode(".png", cv2.cvtColor(picture, cv2.COLOR_RGB2BGR))
        with atomic_write(folder / name) as stream:
            stream.write(file.tobytes())
        rows.append([name, text.replace("\n", "|"), text.replace("\n", ""), condition])
    table = io.StringIO(newline="")
    csv.writer(table).writerows(rows)
    with atomic_write(folder / "labels.csv") as stream:
        stream.write(table.getvalue().encode())
    return len(rows) - 1
