"""Digits of a set whose label is probably wrong: models that learned nothing from it contradict it.

    python -m experiments.accuracy.labels DATA/hands/measure/orand neocog neocog-small -o RESULT

A label is doubted where all models read the same other digit, each with at least --p.
"""

import numpy as np

from experiments.accuracy.hands import read
from experiments.harness.arguments import data_and_output
from experiments.harness.record import write_results
from neocog.learning.datasets import open_digits
from neocog.network.model import load_model

COLUMNS = {"set": "set", "digits": "digits", "doubted": "labels doubted", "labels": "of all|.2%"}


def main() -> None:
    parser = data_and_output(__doc__, p=0.99)
    parser.add_argument("models", nargs="+")
    args = parser.parse_args()
    digits = open_digits(args.data, split="test")
    answers = [read(load_model(name), digits.images, np) for name in args.models]
    said = np.stack([found.label for found in answers])
    sure = np.stack([found.p for found in answers]).min(axis=0) >= args.p
    doubted = np.flatnonzero(sure & (said == said[0]).all(axis=0) & (said[0] != digits.labels))
    listed = [[int(i), int(digits.labels[i]), int(said[0, i])] for i in doubted]
    row = {"set": args.data.name, "digits": len(digits), "doubted": len(listed),
           "labels": len(listed) / len(digits)}  # fmt: skip
    print(f"{row['set']}: {len(listed)} of {len(digits)} labels are doubted")
    write_results(args.output, [row], columns=COLUMNS, index_label_read=listed, p=args.p)


if __name__ == "__main__":
    main()
