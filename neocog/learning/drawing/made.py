"""Made pages whose text is known: rows of numbers on the papers of the finder's teacher, photographed."""

import csv
import io
from collections.abc import Callable, Sequence
from itertools import islice, product
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from neocog.errors import UsageError
from neocog.files import atomic_write
from neocog.learning.datasets import Digits, fetched_mnist, open_digits, read_sklearn
from neocog.learning.drawing.camera import photographed
from neocog.learning.drawing.canvas import Canvas
from neocog.learning.drawing.hand import Hand
from neocog.learning.drawing.hands import Hands, Rng, hands_of
from neocog.learning.drawing.layouts import clutter, write_number
from neocog.learning.drawing.page import faces_of, ground
from neocog.learning.drawing.paper import blots
from neocog.learning.drawing.texts import any_text

CONDITIONS = (
    "plain", "rules", "through", "folds", "stains", "sheet", "bright", "surface", "clutter", "blots", "empty",
)  # fmt: skip
"""What a page has, as `neocog.learning.drawing.page.ground` names it; on an empty one nothing is written."""

_SIDE, _ROWS = 960, 6


def make_page(hands: Hands, condition: str, rng: Rng) -> tuple[NDArray[np.uint8], str]:
    """Draw a page (960, 960), grey; return it and what is written, rows parted by line ends."""
    while True:  # until all that is written can be seen
        canvas = ground(hands, faces_of(), frozenset({condition}), rng, (_SIDE, _SIDE))
        hand, high = Hand(hands, rng), rng.uniform(36, 90)
        text = "" if condition == "empty" else _write(canvas, hand, high)
        if condition == "blots":
            blots(canvas, high)
        if condition == "clutter":
            clutter(canvas, hand, high, 6)
        picture = photographed(canvas.image, rng, high)
        marks = canvas.kept(picture)
        digits = [str(int(mark[0])) for mark in marks if 0 <= mark[0] < 10]
        if (marks[:, 0] >= 0).all() and digits == [char for char in text if char.isdigit()]:
            return picture, text


def _write(canvas: Canvas, hand: Hand, high: float) -> str:
    rng, y, rows = canvas.rng, canvas.rng.uniform(1, 2) * high, list[str]()
    count, known = int(rng.integers(1, _ROWS)), [str(digit) for digit, own in hand.own.items() if own]
    while not rows or (len(rows) < count and y < _SIDE - 1.5 * high):
        text, none = any_text(rng).replace("÷", "/"), {*"0123456789"} - {*known}
        text = "".join(str(rng.choice(known)) if char in none else char for char in text)
        spare = _SIDE - 1.6 * high * len(text) - 2 * high
        if spare <= 0:
            continue
        if write_number(canvas, hand, high, text, high + rng.uniform(0, spare), y + high) < _SIDE:
            rows.append(text)
            y += high * rng.uniform(1.6, 2.6)
    return "\n".join(rows)


def pen_digits(place: str | Path | None, tell: Callable[[str], None]) -> Digits:
    """Open the digits that pages are written with; None and "mnist" stand for MNIST as it was fetched, the
    last 5 000 training digits, which no shipped model learned from; without it scikit-learn's.
    """
    if place is not None and (str(place) == "sklearn" or Path(place).exists()):
        is_mnist = Path(place).is_dir() and any(Path(place).glob("train-images*"))
        return open_digits(place, split="validation" if is_mnist else None)
    if place in (None, "mnist") and fetched_mnist() is not None:
        return open_digits("mnist", split="validation")
    digits = read_sklearn()
    tell(f"{place or 'MNIST'} is not there: the pages are written with scikit-learn's 8x8 digits")
    return digits


def known_conditions(names: Sequence[str]) -> list[str]:
    for name in names:
        if name not in CONDITIONS:
            raise UsageError(f"condition '{name}' is unknown: choose from {', '.join(CONDITIONS)}")
    return list(names) or [name for name in CONDITIONS if name != "empty"]


def write_pages(folder: Path, digits: Digits, *, conditions: Sequence[str], count: int, seed: int) -> int:
    """Write PNG pages, conditions in turn, and ``labels.csv`` into a folder; return how many."""
    folder.mkdir(parents=True, exist_ok=True)
    hands, rounds = hands_of(digits), range(-(-count // len(conditions)))
    rows = [["file", "text", "digits", "condition"]]
    for number, condition in islice(product(rounds, conditions), count):
        rng = np.random.default_rng([seed, number, *condition.encode()])
        picture, text = make_page(hands, condition, rng)
        name = f"{condition}_{number:03d}.png"
        with atomic_write(folder / name) as stream:
            stream.write(cv2.imencode(".png", picture)[1].tobytes())
        rows.append([name, text.replace("\n", "|"), "".join(filter(str.isdigit, text)), condition])
    table = io.StringIO(newline="")
    csv.writer(table).writerows(rows)
    with atomic_write(folder / "labels.csv") as stream:
        stream.write(table.getvalue().encode())
    return len(rows) - 1
