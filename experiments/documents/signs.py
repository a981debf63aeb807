"""Chooses from which score of the finder a sign stands in the text: `neocog.reading.words.SURE`.

    python -m experiments.documents.signs DATA -o experiments/documents/results/signs.json
        [--finder FILE] [--pages N]

Made pages of dates, amounts, times and forms, written with MNIST's validation digits. A sign is
right if that sign stands there and was not read before. The score is the lowest from which at most
one in twenty is wrong, one counted more than were seen.
"""

from pathlib import Path
from typing import Any

import numpy as np

from experiments.harness.arguments import data_and_output
from experiments.harness.record import write_results
from experiments.reading.made import CELLS, FORMATS, make_amounts, make_form
from neocog.learning.datasets import open_digits
from neocog.reading.reader import Reader
from neocog.vision.finder import SIGNS

RISK = 0.05
SEED = 77
"""Other pages than those of `experiments.reading.measure`."""
COLUMNS = {"sign": "sign", "read": "read", "wrong": "wrong", "least": "stands from"}


def told(reader: Reader, data: Path, pages: int) -> dict[str, list[tuple[float, bool]]]:
    """By kind, the score of every sign that is read and whether that sign stands there."""
    digits = open_digits(data / "mnist", split="train")[-5000:]
    found: dict[str, list[tuple[float, bool]]] = {}
    for number in range(pages):
        rng = np.random.default_rng([SEED, number])
        make: Any = (make_amounts, make_form)[number % 2]
        kinds = list((FORMATS, CELLS)[number % 2])
        grey, _, marks = make(kinds[number // 2 % len(kinds)], digits.images, digits.labels, rng)
        middles, free = marks[:, 1:3], marks[:, 0] >= 10
        for sign in sorted(reader.read(grey).signs, key=lambda sign: -sign.p):
            size = np.array(sign.box[2:])
            off = np.abs(middles - np.array(sign.box[:2]) - size / 2)
            near = (off < np.maximum(marks[:, 3:], size) / 2 + 2).all(axis=1) & free
            right = near & (marks[:, 0] == 10 + SIGNS.index(sign.char))
            free[right.argmax()] &= not right.any()
            found.setdefault(sign.char, []).append((sign.p, bool(right.any())))
    return found


def least(found: list[tuple[float, bool]]) -> float | None:
    """The lowest score, in hundredths, from which few enough are wrong."""
    for score in range(50, 100):
        some = [right for p, right in found if p >= score / 100]
        if some.count(False) + 1 <= RISK * (len(some) + 1):
            return score / 100
    return None


def main() -> None:
    args = data_and_output(__doc__, finder=str, pages=600).parse_args()
    reader = Reader(device="cpu", finder=args.finder)
    rows = [
        {"sign": char, "read": len(found), "wrong": sum(not right for _, right in found),
         "least": least(found)}
        for char, found in told(reader, args.data, args.pages).items()
    ]  # fmt: skip
    model, finder = reader.model.id, reader.finder.model.id
    write_results(args.output, rows, columns=COLUMNS, model=model, finder=finder, pages=args.pages)


if __name__ == "__main__":
    main()
