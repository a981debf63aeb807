"""Measures strokes through numbers, and small digits in columns on large pages: see README.md.

DATA as for `experiments.sheets.measure`. Strokes: 40 numbers of one hand each, of 30 to 70 pixels. Columns:
ten pages of 4 000 x 3 000 pixels with eight numbers of five digits, some with one of 200 pixels.
"""

from typing import Any

import cv2
import numpy as np

from experiments.harness.record import arguments, write_results
from experiments.sheets.measure import number, within
from neocog.learning.drawing.hands import Hands, load_hands
from neocog.reading.numbers import STRUCK
from neocog.reading.reader import Reader

STROKES = (
    "none",
    "one digit",
    "one digit, slanting",
    "first digits",
    "all",
    "all, wavy",
    "underlined",
    "on a rule",
)
HIGH = 10, 12, 16  # pixels of small digits
Grey = np.ndarray[Any, Any]


def stroked(hands: Hands, rng: np.random.Generator, kind: str) -> Grey:
    """A page with a number and a stroke through some of it, through all, below, or a rule of the paper."""
    tall = rng.uniform(30, 70)
    count = int(rng.integers(3, 9))
    cover = number(hands, rng, "".join(rng.choice(list("0123456789"), count)), tall)
    (high, wide), each = cover.shape, cover.shape[1] / count
    ink = np.pad(cover, ((80, 80), (150, 150)))
    left, middle, spare = 150.0, 80 + high / 2, tall * rng.uniform(0.1, 0.6)
    along, thick = np.linspace(left - spare, left + wide + spare, 60), tall * rng.uniform(0.06, 0.11)
    down = np.full(60, middle) + (along - along.mean()) * rng.uniform(-0.08, 0.08)
    if kind.startswith("one"):
        angle = np.deg2rad(
            rng.uniform(-12, 12) if kind == "one digit" else rng.choice([-1, 1]) * rng.uniform(25, 55)
        )
        off = tall * rng.uniform(0.6, 0.8) * np.linspace(-1, 1, 60)
        along = left + (int(rng.integers(count)) + 0.5) * each + off * np.cos(angle)
        down = middle + off * np.sin(angle)
    elif kind == "first digits":
        along = np.linspace(left - spare, left + int(rng.integers(1, count)) * each, 60)
    elif kind == "all, wavy":
        down = middle + 0.06 * tall * np.sin(along / tall * rng.uniform(1, 2))
    elif kind == "underlined":
        down = np.full(60, 80 + high + 0.06 * tall)
    elif kind == "on a rule":
        along, down, thick = np.linspace(0, ink.shape[1], 60), np.full(60, middle + 0.3 * tall), 2.0
    if kind != "none":
        places = np.round(16 * np.stack([along, down], axis=1)).astype(np.int32)
        cv2.polylines(ink, [places], False, 1.0, max(2, round(thick)), cv2.LINE_AA, 4)
    return seen(cv2.GaussianBlur(ink, (0, 0), 0.8), rng)


def seen(ink: Grey, rng: np.random.Generator) -> Grey:
    page = rng.uniform(200, 250) - ink * rng.uniform(100, 180) + rng.normal(0, 2, ink.shape)
    return np.asarray(page.clip(0, 255).astype(np.uint8))


def main() -> None:
    args = arguments(__doc__, "data", seed=3, count=40, pages=10).parse_args()
    reader, hands, rows = Reader(device="cpu"), load_hands(args.data, held=True), list[dict[str, Any]]()
    for n, kind in enumerate(STROKES):
        rng = np.random.default_rng([args.seed, n])
        read = [reader.read(stroked(hands, rng, kind)).digits for _ in range(args.count)]
        marked = sum(any(digit.reason == STRUCK for digit in digits) for digits in read)
        rows.append({"what": f"stroke: {kind}", "of": args.count, "count": marked})
        print(rows[-1], flush=True)
    for high in HIGH:
        found = 0
        for page in range(args.pages):
            rng = np.random.default_rng([args.seed, high, page])
            ink, boxes = np.zeros((3000, 4000), np.float32), list[tuple[int, int, int, int]]()
            places = [(1500 + 150 * (k // 2), 600 + 1800 * (k % 2), high, 5) for k in range(8)]
            for y, x, tall, count in [*places, *[(300, 400, 200, 4)] * (page % 2)]:
                cover = number(hands, rng, "".join(rng.choice(list("0123456789"), count)), tall)
                ink[y : y + len(cover), x : x + cover.shape[1]] = cover
                boxes += [(x, y, cover.shape[1], len(cover))] * (tall == high)
            digits = reader.read(seen(ink, rng)).digits
            found += sum(min(5, sum(within(digit.box, box, 5) for digit in digits)) for box in boxes)
        rows.append({"what": f"small digits: {high} pixels", "of": 40 * args.pages, "count": found})
        print(rows[-1], flush=True)
    columns = {"what": "what", "of": "of", "count": "numbers marked, digits found"}
    write_results(args.output, rows, columns=columns, read_by=reader)


if __name__ == "__main__":
    main()
