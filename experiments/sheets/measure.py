"""Measures how drawn A4 sheets are read at 150 to 600 dpi: see README.md.

DATA holds mnist, lines/free and hands/free. ``--drawn`` keeps the sheets; ``--peers`` read them, too. With
``--times`` ten sheets each at 300 dpi with nothing but digits are timed instead, decoding included, OpenCV's
threads as they are.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from experiments.harness.record import arguments, totals, write_results
from experiments.lines.peers import RapidOCR, Tesseract
from experiments.reading.measure import faults
from neocog.learning.drawing.hands import Hand, Hands, load_hands
from neocog.learning.drawing.marks import inside
from neocog.reading.reader import Reader

DPI = (150, 200, 300, 600)
_HIGH = 56  # rows of a digit as a hand draws it
_WORDS = """
the of and a to in is was for that with his on be at by as he from had it an were are which her this
have or one she all not would been there has their more when who will out said we up its about into
them time street invoice number amount name first please write total received signature Department
Quality Zebra Budget
""".split()
COLUMNS = {
    "dpi": "dpi", "sheets": "sheets", "digits": "digits", "missed": "missed|.2%", "misread": "misread|.2%",
    "refused": "?|.2%", "extra": "extra", "false": "false digits", "warned": "warned", "ms": "median, ms",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sheet:
    """A drawn sheet: greys, its numbers with boxes (x, y, w, h), and boxes of printed digits."""

    dpi: int
    grey: np.ndarray
    numbers: list[tuple[str, tuple[int, int, int, int]]]
    print: list[tuple[int, int, int, int]]


def number(hands: Hands, rng: np.random.Generator, text: str, high: float) -> np.ndarray:
    """Ink (h, w), 0 .. 1, of digits as high as that, which do not touch."""
    hand, gap, x = Hand(hands, rng), rng.uniform(0.06, 0.4), 40.0
    field = np.zeros((3 * _HIGH, 40 + len(text) * 3 * _HIGH), np.float32)
    for char in text:
        cover, _, top, *_ = hand.character(char, _HIGH * rng.uniform(0.88, 1.0))
        columns = np.flatnonzero((cover > 0.3).any(axis=0))
        cover = cover[:, columns.min() : columns.max() + 1]
        y, x = 2 * _HIGH + top, x + _HIGH * gap
        place = field[y : y + len(cover), int(x) : int(x) + cover.shape[1]]
        np.maximum(place, cover[: len(place)], out=place)
        x += cover.shape[1]
    factor = high / _HIGH
    how = cv2.INTER_AREA if factor < 1 else cv2.INTER_CUBIC
    return np.clip(cv2.resize(inside(field), None, fx=factor, fy=factor, interpolation=how), 0, 1)


def sheet(hands: Hands, rng: np.random.Generator, dpi: int, lines: int) -> Sheet:
    """Draw a sheet with that many numbers, between and beside paragraphs in print."""
    mm, paper = dpi / 25.4, rng.uniform(225, 255)
    wide, high = round(210 * mm), round(297 * mm)
    image = Image.new("L", (wide, high), round(paper))
    pen, numbers, printed = ImageDraw.Draw(image), [], []
    size = rng.uniform(2.5, 4.5)  # mm, of the print
    font, y, ink = ImageFont.load_default(size * mm), rng.uniform(10, 40) * mm, int(rng.uniform(0, 90))
    places = list(rng.permutation([True] * lines + [False] * int(rng.integers(4, 14))))
    while places and y < high - 15 * mm:
        if not places.pop():  # a few lines of print
            for _ in range(int(rng.integers(1, 5))):
                x, right = 15 * mm, rng.uniform(60, 190) * mm
                while x < right and y < high - 10 * mm:
                    digits = rng.random() < 0.04
                    word = str(rng.integers(10**4)) if digits else str(rng.choice(_WORDS))
                    pen.text((x, y), word, ink, font)
                    box = pen.textbbox((x, y), word, font)
                    if digits:
                        printed.append((int(box[0]), int(box[1]), int(box[2] - box[0]), int(box[3] - box[1])))
                    x = box[2] + 0.35 * size * mm
                y += 1.4 * size * mm
            continue
        tall = rng.uniform(2.5, 8)
        text = "".join(rng.choice(list("0123456789"), int(rng.integers(3, 11))))
        cover, x = number(hands, rng, text, tall * mm), rng.uniform(15, 60) * mm
        if rng.random() < 0.5:
            label = str(rng.choice(_WORDS)) + ":"
            pen.text((x, y + 0.5 * (tall - size) * mm), label, ink, font)
            x = pen.textbbox((x, y), label, font)[2] + rng.uniform(4, 15) * mm
        left, top = int(x), int(y)
        cover = cover[:, : wide - left - int(5 * mm)]
        level = paper * (1 - cover * rng.uniform(0.45, 0.95))
        seen = np.asarray(image.crop((left, top, left + cover.shape[1], top + len(cover))))
        image.paste(Image.fromarray(np.minimum(seen, level).astype(np.uint8)), (left, top))
        numbers.append((text, (left, top, cover.shape[1], len(cover))))
        y += (tall + rng.uniform(2, 12)) * mm
    soft = np.asarray(cv2.GaussianBlur(np.asarray(image, np.float32), (0, 0), 0.4 + dpi / 600))
    grain = rng.normal(0, rng.uniform(0, 4), soft.shape)
    return Sheet(dpi, np.clip(soft + grain, 0, 255).astype(np.uint8), numbers, printed)


def sheets(hands: Hands, seed: int, count: int) -> Iterator[Sheet]:
    for k in range(count):
        rng = np.random.default_rng([seed, k])
        yield sheet(hands, rng, DPI[k % len(DPI)], 0 if k % 8 == 7 else int(rng.integers(1, 13)))


def within(box: Any, other: Any, room: float) -> bool:
    x, y = box[0] + box[2] / 2, box[1] + box[3] / 2
    left, top, wide, high = other
    return bool(left - room < x < left + wide + room and top - room < y < top + high + room)


def look(reader: Reader, one: Sheet) -> dict[str, Any]:
    start = perf_counter()
    page = reader.read(one.grey)
    row: dict[str, Any] = {"dpi": one.dpi, "sheets": 1, "ms": 1e3 * (perf_counter() - start)}
    row |= dict.fromkeys(("digits", "missed", "misread", "refused", "extra", "false"), 0)
    row["warned"] = int(bool(page.warnings))
    left = list(page.digits)
    for text, box in one.numbers:
        room = 0.3 * box[3]
        own = sorted((d for d in left if within(d.box, box, room)), key=lambda d: d.box[0])
        left = [d for d in left if d not in own]
        wrong = faults("".join(d.char for d in own), text)
        row["digits"] += len(text)
        for key in ("missed", "misread", "refused", "extra"):
            row[key] += wrong.get(key, 0)
    row["false"] = sum(d.char.isdigit() and not any(within(d.box, b, 2) for b in one.print) for d in left)
    return row


def beside(args: Any) -> None:
    """Read the sheets with other readers, too: numbers that are a whole one in a reader's text, and times."""
    own = Reader(device="cpu")
    readers: dict[str, Any] = {"neocog": lambda grey: own.read(grey).text}
    for name in args.peers.split(","):
        other: Any = {"rapidocr": RapidOCR, "tesseract": Tesseract}[name]()
        readers[other.version] = lambda grey, other=other: other.page(np.dstack([grey] * 3))
    drawn, table = list(sheets(load_hands(args.data, held=True), args.seed, args.count)), []
    for name, read in readers.items():
        row: dict[str, Any] = {"reader": name, "sheets": len(drawn), "numbers": 0, "exact": 0}
        times = []
        for one in drawn:
            start = perf_counter()
            found = Counter(re.findall("[0-9]+", read(one.grey)))
            times.append(1e3 * (perf_counter() - start))
            row["numbers"] += len(one.numbers)
            row["exact"] += (found & Counter(text for text, _ in one.numbers)).total()
        table.append({**row, "ms": round(float(np.median(times)))})
        print(table[-1], flush=True)
    names = {key: key for key in ("reader", "sheets", "numbers", "exact")}
    write_results(args.output, table, columns=names | {"ms": "median, ms"})


def times(args: Any) -> None:
    """Milliseconds of sheets with one line of eight digits and with 40 of five, each the better of two."""
    hands, rng = load_hands(args.data, held=True), np.random.default_rng(args.seed)
    reader, table, mm = Reader(device=args.device), list[dict[str, Any]](), 300 / 25.4
    for lines, digits in ((1, 8), (40, 5)):
        ms = list[float]()
        for _ in range(10):
            grey = np.full((round(297 * mm), round(210 * mm)), 245, np.uint8)
            for k in range(lines):
                cover = number(hands, rng, "".join(rng.choice(list("0123456789"), digits)), 4.5 * mm)
                top, left = int((12 + 6.8 * k) * mm), int(rng.uniform(15, 100) * mm)
                grey[top : top + len(cover), left : left + cover.shape[1]] = 245 - 190 * cover
            file = cv2.imencode(".jpg", grey)[1].tobytes()
            ms.append(min(sum((reader.read(file).ms or {}).values()) for _ in range(2)))
        figures = {"median_ms": round(float(np.median(ms)), 1), "worst_ms": round(max(ms), 1)}
        table.append({"lines": lines, "digits": digits, "sheets": len(ms), **figures})
        print(table[-1], flush=True)
    columns = {"lines": "lines", "digits": "digits each", "sheets": "sheets", "median_ms": "median, ms"}
    write_results(args.output, table, columns=columns | {"worst_ms": "worst, ms"}, device=args.device)


def main() -> None:
    usual = {"count": 200, "seed": 2, "drawn": Path, "peers": str, "times": False, "device": "cpu"}
    args = arguments(__doc__, "data", output=Path, **usual).parse_args()
    if args.times:
        return times(args)
    cv2.setNumThreads(1)
    if args.peers:
        return beside(args)
    reader, rows = Reader(device="cpu"), list[dict[str, Any]]()
    for k, one in enumerate(sheets(load_hands(args.data, held=True), args.seed, args.count)):
        rows.append(look(reader, one))
        if args.drawn:
            args.drawn.mkdir(exist_ok=True)
            Image.fromarray(one.grey).save(args.drawn / f"{k:03d}_{one.dpi}.png")
        print(k, rows[-1], flush=True)
    table = totals(rows, "dpi", DPI, ["missed", "misread", "refused"], "digits")
    write_results(args.output, table, columns=COLUMNS, read_by=reader)


if __name__ == "__main__":
    main()
