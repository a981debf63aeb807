"""Measures rejection: errors against coverage, and how many marks that are no digits get one.

    python -m experiments.accuracy.reject DATA [MODEL ...] -o RESULT [--gpu]

DATA holds mnist/. Thresholds come from the table in a model's card, that is from the validation
digits alone: the highest one that answers 99 % of them, and the highest one that answers 99.65 %.
Errors and question marks are counted on MNIST's test digits, marks among 2 000 of kinds and fonts
that nothing was learned from (``neocog/learning/negatives.py``; matplotlib's fonts are wanted),
made with pieces of validation digits. --quick reads a tenth.
"""

from functools import partial
from typing import Any

import numpy as np

from experiments.accuracy.hands import read
from experiments.harness.arguments import data_and_output
from experiments.harness.processes import spread
from experiments.harness.record import write_results
from neocog.errors import UsageError
from neocog.learning.calibrate import RiskRow, risk_row
from neocog.learning.datasets import Digits, open_digits
from neocog.learning.negatives import font_files, negatives
from neocog.network.arrays import module_of_device
from neocog.network.model import Model, load_model
from neocog.network.parallel import cores

MARKS = 2000
SEED = 31
SURE = 0.99  # coverage at which errors are counted
MOST = 0.9965  # coverage at which marks are counted: with it at most 0.5 % of digits may go

COLUMNS = {
    "model": "model",
    "p": "threshold that answers 99 % of validation digits|.5f",
    "coverage": "test digits answered|.2%",
    "errors": "wrong",
    "risk": "wrong, of those answered|.3%",
    "p_marks": "threshold that answers 99.65 %|.5f",
    "refused": "test digits rejected|.2%",
    "accuracy": "correct, of all test digits|.2%",
    "passed": "marks read as digits|.1%",
    "passed_open": "marks except clouds|.1%",
}


def threshold(model: Model, coverage: float) -> float:
    """The highest threshold of a card's table that answers so many validation digits."""
    rows = tuple(RiskRow(**row) for row in model.card.get("rejection", {}).get("table", []))
    if not rows:
        raise UsageError(
            f"{model.id}: no table of thresholds; make it with python -m experiments.learning.ship"
        )
    return max((row.p for row in rows if row.coverage >= coverage), default=0.0)


def measure(name: str, *, digits: Digits, marks: np.ndarray, kinds: np.ndarray, gpu: bool) -> Any:
    """One row of the table, and the share of each kind that passes."""
    model, xp = load_model(name), module_of_device("cuda" if gpu else "cpu")
    found, other = read(model, digits.images, xp), read(model, marks, xp)
    labels = digits.labels.astype(np.int64)
    sure: RiskRow = risk_row(threshold(model, SURE), found, labels)
    most = risk_row(threshold(model, MOST), found, labels, other)
    passed = (other.label >= 0) & (other.p >= most.p)
    row = {
        "model": model.id, "p": sure.p, "coverage": sure.coverage, "errors": sure.errors,
        "risk": sure.errors / max(sure.answered, 1), "p_marks": most.p,
        "refused": 1 - most.coverage, "accuracy": (most.answered - most.errors) / len(labels),
        "passed": float(passed.mean()), "passed_open": float(passed[kinds != "cloud"].mean()),
    }  # fmt: skip
    return row, {str(kind): float(passed[kinds == kind].mean()) for kind in np.unique(kinds)}


def main() -> None:
    jobs = (cores(), "models at a time, on a CPU")
    parser = data_and_output(__doc__, gpu=False, quick=False, jobs=jobs)
    parser.add_argument("models", nargs="*", default=["neocog", "neocog-small"])
    args = parser.parse_args()
    if not font_files():
        raise SystemExit("matplotlib's fonts are held back to measure with: install matplotlib")
    digits = open_digits(args.data / "mnist", split="test")
    kept = open_digits(args.data / "mnist", split="validation")
    count = MARKS // 10 if args.quick else MARKS
    digits = digits[:: 10 if args.quick else 1]
    marks, kind, names = negatives(count, kept.images, kept.labels.astype(np.int64), seed=SEED, held=True)
    work = partial(measure, digits=digits, marks=marks, kinds=np.array(names)[kind], gpu=args.gpu)
    rows, by_kind = [], []
    for row, kinds in spread(work, args.models, 1 if args.gpu else args.jobs):
        rows.append(row)
        by_kind.append({"model": row["model"], **kinds})
        print(row, kinds, flush=True)
    write_results(args.output, rows, columns=COLUMNS, kinds=by_kind, marks=count)


if __name__ == "__main__":
    main()
