"""Measures what becomes of letters: pages of words, of words and numbers, of digits among signs.

    python benchmarks/words.py DATA -o benchmarks/results/words.json [MODEL ...] [--pages N]

DATA holds mnist. Letters, those shaped like digits among them, are written in the stroke fonts that
the network learned from; digits are of the last 5 000 of MNIST's training set. Among signs digits
stand at random, none, half, 80 or 95 % of the marks of a page, all gaps alike.
"""

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import cv2
import numpy as np

from benchmarks.reading import kept_apart, reader_of
from benchmarks.record import write_results
from benchmarks.spread import spread
from neocog.batch.records import DigitReading
from neocog.learning.marks import glyphs, strokes
from neocog.learning.marks.source import Source, by_hand
from neocog.learning.pages.pen import write_digit
from neocog.network.engine import cores

WORDS = (
    "we went down by the river last week and saw six old boats lying on its bank zebra glass "
    "bottle quiz jazz sofa moss pebble garlic basil olives sugar milk bread cheese eggs soap "
    "candles rubber goggles ozone lilies sizes meeting at noon call doctor room floor parcel "
    "weight total balance size colour kg litre metre days"
).split()
FONTS = ("SIMPLEX", "PLAIN", "DUPLEX", "COMPLEX", "COMPLEX_SMALL")
SHAPE = (720, 1000)
LOW, DEEP = "acemnorsuvwxz", "gpqyj"  # letters without an ascender, and with a descender
SHARES = (0.0, 0.5, 0.8, 0.95)
NO_DIGITS = (glyphs.letter,) * 6 + (glyphs.sign,) * 3 + (
    strokes.cross, strokes.tick, strokes.arrow, strokes.scribble, strokes.polygon, strokes.figure,
)  # fmt: skip
SEED = 31
COLUMNS = {
    "model": "model", "pages_of": "pages of", "pages": "pages", "any": "with any digit",
    "marks": "marks that are no digits", "printed": "printed as a digit", "share": "share",
    "digits": "digits", "right": "right", "refused": "?", "wrong": "wrong",
}  # fmt: skip

Mark = tuple[np.ndarray, str]
"""Ink of one mark, 0 to 1, and the digit that it is; "" for none."""


class Sheet:
    """Paper that marks are laid on from left to right; remembers where each stands."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.ink = np.zeros(SHAPE, np.float32)
        self.rng, self.x = rng, 0.0
        self.boxes: list[tuple[int, int, int, int, str]] = []

    def lay(self, mark: Mark, y: float, gap: float) -> bool:
        """Lay a mark down; False where the line is full."""
        ink, written = mark
        (high, wide), top, left = ink.shape, max(0, int(y)), int(self.x)
        if left + wide > SHAPE[1] - 20 or top + high > SHAPE[0]:
            return False
        place = self.ink[top : top + high, left : left + wide]
        np.maximum(place, ink, out=place)
        self.boxes.append((left, top, wide, high, written))
        self.x += wide + gap
        return True

    def grey(self) -> np.ndarray:
        """The page as it is photographed."""
        soft = cv2.GaussianBlur(self.ink, (0, 0), 0.8)
        noise = self.rng.normal(0, 3, SHAPE)
        return np.clip(215 - 150 * soft + noise, 0, 255).astype(np.uint8)


def words(sheet: Sheet, source: Source, number: int, *, numbers: float) -> None:
    """Lines of words, a share of ``numbers`` among them."""
    rng, tall = sheet.rng, float(sheet.rng.integers(34, 70))
    font = getattr(cv2, f"FONT_HERSHEY_{FONTS[rng.integers(len(FONTS))]}")
    pen, gap, space = rng.uniform(0.06, 0.12), rng.uniform(0.08, 0.3), rng.uniform(0.7, 1.3)
    hand = float(rng.choice([0.3, 1.0]))
    for row in range(int(rng.integers(1, 6))):
        sheet.x, y = rng.uniform(30, 120), 40 + 1.9 * tall * row
        for _ in range(int(rng.integers(1, 5))):
            if rng.random() < numbers:
                for _ in range(int(rng.integers(1, 7))):
                    ink, written = digit(source, rng, tall * rng.uniform(0.85, 1.05), pen)
                    at = y + tall - len(ink) + rng.normal(0, 0.03) * tall
                    if not sheet.lay((ink, written), at, rng.uniform(0.15, 0.5) * tall):
                        break
            else:
                for letter in WORDS[rng.integers(len(WORDS))]:
                    high = (0.62 if letter in LOW else 0.95) * tall
                    thick = max(2, round(pen * 55 * tall / high))
                    drawn = by_hand(glyphs.from_strokes(letter, font, thick), rng, hand)
                    ink = scaled(drawn, high, by=0)
                    drop = 0.25 * tall * (letter in DEEP) + rng.normal(0, 0.03) * tall
                    if not sheet.lay((ink, ""), y + tall - len(ink) + drop, gap * tall):
                        break
            sheet.x += space * tall


def signs(sheet: Sheet, source: Source, number: int) -> None:
    """Lines of digits among letters and signs, at random."""
    rng, tall, share = sheet.rng, float(sheet.rng.integers(45, 80)), SHARES[number % len(SHARES)]
    pen, y = rng.uniform(0.06, 0.12), 50.0
    while y + tall + 30 < SHAPE[0]:
        sheet.x, room = 40.0, True
        while room:
            if rng.random() < share:
                mark = digit(source, rng, tall, pen)
            else:
                drawn = NO_DIGITS[rng.integers(len(NO_DIGITS))](rng, source)
                mark = scaled(drawn, tall, by=None), ""
            at = y + (tall - len(mark[0])) / 2 + rng.integers(-4, 5)
            room = sheet.lay(mark, at, rng.uniform(0.2, 0.6) * tall)
        y += 1.7 * tall


KINDS = {
    "words": partial(words, numbers=0.0),
    "words and numbers": partial(words, numbers=0.4),
    "digits among signs": signs,
}


def digit(source: Source, rng: np.random.Generator, high: float, pen: float) -> Mark:
    """A digit, written with a pen."""
    pick = int(rng.integers(len(source.digits)))
    return cropped(write_digit(source.digits[pick], high, pen)), str(source.labels[pick])


def scaled(ink: np.ndarray, size: float, *, by: int | None) -> np.ndarray:
    """Ink without its margin at another size: of one side, or of the longer one."""
    ink = cropped(ink)
    times = size / (max(ink.shape) if by is None else ink.shape[by])
    shape = [max(2, round(side * times)) for side in ink.shape[::-1]]
    return cv2.resize(ink.astype(np.float32), shape, interpolation=cv2.INTER_AREA)


def cropped(ink: np.ndarray) -> np.ndarray:
    """Ink without its margin."""
    rows, columns = (np.flatnonzero(ink.max(axis=axis) > 0.3) for axis in (1, 0))
    if not rows.size:
        return ink
    return ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def count(part: tuple[str, str, int], data: Path) -> tuple[str, str, Counter[str]]:
    """Read one page of a kind with a model, and count what became of its marks."""
    model, kind, number = part
    apart, rng = kept_apart(data), np.random.default_rng([SEED, number, *kind.encode()])
    sheet = Sheet(rng)
    KINDS[kind](sheet, Source(apart.images, apart.labels.astype(np.int64)), number)
    reader = reader_of(model)
    read = reader.read(sheet.grey()).digits
    total = Counter(pages=1, any=any(mark.char.isdigit() for mark in read))
    for *box, written in sheet.boxes:
        char = next(found(box, read), "")
        total["digits" if written else "marks"] += 1
        if not written:
            total["printed"] += char.isdigit()
        else:
            total["right"] += char == written
            total["refused"] += char == "?"
            total["wrong"] += char.isdigit() and char != written
    return reader.model.id, kind, total


def found(box: list[int], read: tuple[DigitReading, ...]) -> Iterator[str]:
    """What was read at a place: of marks that share 0.4 of it, and 0.3 of themselves."""
    x, y, wide, high = box
    for mark in read:
        left, top, w, h = mark.box or (0, 0, 0, 0)
        across = max(0, min(x + wide, left + w) - max(x, left))
        shared = across * max(0, min(y + high, top + h) - max(y, top))
        if shared > 0.4 * wide * high and shared > 0.3 * w * h:
            yield mark.char


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("models", nargs="*", default=["neocog", "neocog-small"])
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--pages", type=int, default=24, help="pages of each kind")
    parser.add_argument("--jobs", type=int, default=cores(), help="processes that read")
    args = parser.parse_args()
    parts = [(model, kind, number) for model in args.models for kind in KINDS
             for number in range(args.pages)]  # fmt: skip
    sums: dict[tuple[str, str], Counter[str]] = {}
    for model, kind, total in spread(partial(count, data=args.data), parts, args.jobs):
        sums.setdefault((model, kind), Counter()).update(total)
    rows: list[dict[str, Any]] = []
    for (model, kind), total in sums.items():
        share = total["printed"] / max(total["marks"], 1)
        rows.append({"model": model, "pages_of": kind, **total, "share": share})
        print(rows[-1])
    write_results(args.output, rows, columns=COLUMNS, formats={"share": ".1%"})


if __name__ == "__main__":
    main()
