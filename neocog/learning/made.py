"""Made pages whose text is known: rows of numbers on the papers of the finder's teacher, photographed."""

import csv
import io
from collections.abc import Callable, Sequence
from itertools import islice, product
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from neocog.errors import InputError, UsageError
from neocog.files import atomic_write
from neocog.learning.datasets import fetched_mnist, open_digits
from neocog.learning.drawing.texts import any_text
from neocog.learning.formats import Digits, read_sklearn
from neocog.learning.strokes import trace
from neocog.learning.teacher.bank import Bank, packed
from neocog.learning.teacher.canvas import Canvas, Hand, any_hand
from neocog.learning.teacher.clutter import blots, clutter
from neocog.learning.teacher.layouts import write_line
from neocog.learning.teacher.page import ground, kept, photographed
from neocog.learning.teacher.pen import Pen, Rng, any_pen

CONDITIONS = (
    "plain", "rules", "through", "folds", "stains", "sheet", "bright", "surface", "clutter", "blots", "empty",
)  # fmt: skip
"""What a page has, as `neocog.learning.teacher.page.ground` names it; on an empty one nothing is written."""

_SIDE, _ROWS = 960, 6
_TRACED = 200  # digits of a set that write the pages


def make_page(bank: Bank, condition: str, rng: Rng) -> tuple[NDArray[np.uint8], str]:
    """Draw a page (960, 960), grey; return it and what is written, rows parted by line ends."""
    while True:  # until all that is written can be seen
        canvas = ground(bank, frozenset({condition}), rng, _SIDE)
        hand, pen, high = any_hand(bank, rng, held=False), any_pen(rng), rng.uniform(36, 90)
        text = "" if condition == "empty" else _write(canvas, hand, pen, high)
        if condition == "blots":
            blots(canvas, high)
        if condition == "clutter":
            clutter(canvas, hand, pen, high, 6)
        picture = photographed(canvas.image, rng, high)
        marks = kept(canvas.marks, picture)
        digits = [str(int(mark[0])) for mark in marks if 0 <= mark[0] < 10]
        if len(digits) == sum(map(str.isdigit, text)) and (marks[:, 0] >= 0).all():
            left = iter(digits)  # a bank without one of the digits wrote another
            return picture, "".join(next(left) if char.isdigit() else char for char in text)


def _write(canvas: Canvas, hand: Hand, pen: Pen, high: float) -> str:
    rng, gap = canvas.rng, canvas.rng.uniform(0.05, 0.4)
    angle, y, rows = rng.normal(0, 0.02), rng.uniform(1, 2) * high, list[str]()
    count = int(rng.integers(1, _ROWS))
    while not rows or (len(rows) < count and y < _SIDE - 1.5 * high):
        text = any_text(rng)
        spare = _SIDE - high * (0.95 + gap) * len(text) - 2 * high
        if spare > 0:
            write_line(canvas, text, (high + rng.uniform(0, spare), y), high, hand, pen, gap=gap, angle=angle)
            rows.append(text)
            y += high * rng.uniform(1.6, 2.6)
    return "\n".join(rows)


def bank_of(digits: Digits) -> Bank:
    """Trace some digits of a set to write pages with; InputError if none has strokes."""
    chosen = np.linspace(0, len(digits) - 1, min(len(digits), _TRACED)).astype(int).tolist()
    scans = [(digits.images[i], int(digits.labels[i]), False) for i in chosen]
    traced = [(trace(scan), label, 0, held) for scan, label, held in scans]
    if not any(lines for lines, *_ in traced):
        raise InputError(f"{digits.name}: no digit has strokes to write with; choose another set")
    return packed([one for one in traced if one[0]], [s for s, t in zip(scans, traced, strict=True) if t[0]])


def pen_digits(place: str | Path | None, tell: Callable[[str], None]) -> Digits:
    """Open the digits that pages are written with; None and "mnist" stand for MNIST as it was fetched.

    Of MNIST the last 5 000 training digits are taken, which no shipped model learned from; without it
    scikit-learn's digits, and ``tell`` is told. InputError or UsageError if they cannot be read.
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
    return list(names) or [name for name in CONDITIONS if name != "empty"]


def write_pages(folder: Path, digits: Digits, *, conditions: Sequence[str], count: int, seed: int) -> int:
    """Write PNG pages, conditions in turn, and ``labels.csv`` into a folder; return how many."""
    folder.mkdir(parents=True, exist_ok=True)
    bank, rounds = bank_of(digits), range(-(-count // len(conditions)))
    rows = [["file", "text", "digits", "condition"]]
    for number, condition in islice(product(rounds, conditions), count):
        picture, text = make_page(bank, condition, np.random.default_rng([seed, number, *condition.encode()]))
        name = f"{condition}_{number:03d}.png"
        with atomic_write(folder / name) as stream:
            stream.write(cv2.imencode(".png", picture)[1].tobytes())
        rows.append([name, text.replace("\n", "|"), "".join(filter(str.isdigit, text)), condition])
    table = io.StringIO(newline="")
    csv.writer(table).writerows(rows)
    with atomic_write(folder / "labels.csv") as stream:
        stream.write(table.getvalue().encode())
    return len(rows) - 1
