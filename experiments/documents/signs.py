"""Chooses from which score of the finder a sign stands in the text: `neocog.reading.words.SURE`.

    python -m experiments.documents.signs -o experiments/documents/results/signs.json
        [--finder FILE] [--frozen FOLDER]

600 pages of dates, amounts, times and forms that `experiments.reading.freeze` drew, written with MNIST's
validation digits; no other figure is measured on them. A sign is
right if that sign stands there and was not read before. The score is the lowest from which at most
one in twenty is wrong, one counted more than were seen.
"""

from pathlib import Path

import numpy as np

from experiments.harness.arguments import arguments
from experiments.harness.record import write_results
from experiments.reading.freeze import DEFAULT
from experiments.reading.sets import frozen
from neocog.reading.reader import Reader
from neocog.vision.finder import SIGNS

RISK = 0.05
COLUMNS = {"sign": "sign", "read": "read", "wrong": "wrong", "least": "stands from"}


def told(reader: Reader, folder: Path) -> dict[str, list[tuple[float, bool]]]:
    """By kind, the score of every sign that is read and whether that sign stands there."""
    found: dict[str, list[tuple[float, bool]]] = {}
    for one in frozen(folder, "signs"):
        marks = one.marks
        assert marks is not None
        middles, free = marks[:, 1:3], marks[:, 0] >= 10
        for sign in sorted(reader.read(one.picture).signs, key=lambda sign: -sign.p):
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
    args = arguments(__doc__, output=None, finder=str, frozen=DEFAULT).parse_args()
    reader = Reader(device="cpu", finder=args.finder)
    rows = [
        {"sign": char, "read": len(found), "wrong": sum(not right for _, right in found),
         "least": least(found)}
        for char, found in told(reader, args.frozen).items()
    ]  # fmt: skip
    model, finder = reader.model.id, reader.finder.model.id
    write_results(args.output, rows, columns=COLUMNS, model=model, finder=finder)


if __name__ == "__main__":
    main()
