"""Measures how much a shift of the digit costs: models, and LeNets of similar size beside them.

    python -m experiments.accuracy.shift DATA -o RESULT [--models neocog]
        [--shifts 4 8] [--limit 1000] [--lenet-device cuda] [--no-lenet]

DATA holds mnist/. The picture is shifted in the plane of U0, 65 x 65, in eight directions; what
leaves the plane is lost, paper comes in. Everyone sees the same shifted picture, the LeNets at half
its resolution (32 x 32, LeNet-5's own field). The LeNets learn from MNIST's first 55 000 training
digits: once as they are, once with the changes that fine-tuning uses (shifts of up to 8 pixels
among them). They need PyTorch; a GPU takes a minute for each.
"""

import os
from collections.abc import Callable
from functools import partial
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import numpy as np

from experiments.harness.arguments import data_and_output
from experiments.harness.record import write_results
from neocog.learning.datasets import Digits, open_digits
from neocog.network.decision import Decision
from neocog.network.engine import AnyEngine
from neocog.network.model import Model, load_model
from neocog.network.u0 import u0_from_digits
from neocog.reading.device import open_engine

#: rows and columns of each direction
DIRECTIONS = {
    "up": (-1, 0), "up right": (-1, 1), "right": (0, 1), "down right": (1, 1),
    "down": (1, 0), "down left": (1, -1), "left": (0, -1), "up left": (-1, -1),
}  # fmt: skip
COLUMNS = {
    "network": "network", "parameters": "parameters|,", "changed": "learned from digits",
    "shift": "shift, pixels of 65", "unshifted": "not shifted|.2%",
    "mean": "mean of 8 directions|.2%", "worst": "worst|.2%", "direction": "to",
    "drop": "worst drop, points|.2f",
}  # fmt: skip
_AT_ONCE = 256  # pictures that an engine takes at a time

Reading = Callable[[np.ndarray, int, int], np.ndarray]
"""Labels of digits (N, 28, 28) that are shifted by so many rows and columns of U0."""


def parameters(model: Model) -> int:
    """Numbers that a neocognitron has learned or was given."""
    arrays = [array for layer in model.s for array in (layer.reference, layer.c)]
    return sum(array.size for array in (*arrays, *model.blurs))


def shifted(pictures: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Pictures (N, H, W) moved down and right by whole pixels; 0 comes in."""
    high, wide = pictures.shape[1:]
    around = ((0, 0), (max(rows, 0), max(-rows, 0)), (max(columns, 0), max(-columns, 0)))
    top, left = max(-rows, 0), max(-columns, 0)
    return np.pad(pictures, around)[:, top : top + high, left : left + wide]


def of_engine(engine: AnyEngine) -> Reading:
    """What a model reads on its engine."""
    decide = Decision(engine.model)

    def labels(u0: np.ndarray) -> np.ndarray:
        us4 = engine.maps(u0)["US4"].transpose(0, 2, 3, 1)
        return decide(np.ascontiguousarray(us4)).label

    return partial(reading, labels)


def reading(
    labels: Callable[[np.ndarray], np.ndarray], digits: np.ndarray, rows: int, columns: int
) -> np.ndarray:
    """What shifted digits are read as, by what reads pictures U0."""
    parts = (digits[at : at + _AT_ONCE] for at in range(0, len(digits), _AT_ONCE))
    return np.concatenate([labels(shifted(u0_from_digits(part), rows, columns)) for part in parts])


def measure(read: Reading, digits: Digits, shifts: list[int]) -> list[dict[str, Any]]:
    """One row for each shift: accuracy by direction, mean, worst."""
    right = float((read(digits.images, 0, 0) == digits.labels).mean())
    rows = []
    for shift in shifts:
        by = {name: float((read(digits.images, shift * r, shift * c) == digits.labels).mean())
              for name, (r, c) in DIRECTIONS.items()}  # fmt: skip
        worst = min(by, key=by.__getitem__)
        rows.append({"shift": shift, "unshifted": right, "mean": float(np.mean(list(by.values()))),
                     "worst": by[worst], "direction": worst, "drop": 100 * (right - by[worst]),
                     "by_direction": by})  # fmt: skip
    return rows


def lost(digits: Digits, shift: int) -> dict[str, float]:
    """Share of digits that lose more than a hundredth of their ink beyond U0, by direction."""
    u0 = u0_from_digits(digits.images)
    ink = u0.sum(axis=(1, 2))
    return {name: float((shifted(u0, shift * r, shift * c).sum(axis=(1, 2)) < 0.99 * ink).mean())
            for name, (r, c) in DIRECTIONS.items()}  # fmt: skip


def main() -> None:
    parser = data_and_output(
        __doc__, models=["neocog"], device=("cpu", "of the models"), no_lenet=False,
        lenet_device=(str, "cpu or cuda [default: cuda if it is there]"), shifts=[4, 8],
        limit=(int, "test digits, evenly spread [default: all]"), epochs=40.0,
        seconds=(100.0, "at most for each LeNet"), changes=["none", "scans"],
    )  # fmt: skip
    args = parser.parse_args()
    digits = open_digits(args.data / "mnist", split="test")
    if args.limit:
        from neocog.evaluation.report import spread

        digits = spread(digits, args.limit)
    table: list[dict[str, Any]] = []

    def keep(about: dict[str, Any], read: Reading) -> None:
        for row in measure(read, digits, args.shifts):
            table.append(about | row)
            print({k: v for k, v in table[-1].items() if k != "by_direction"}, flush=True)

    sizes: dict[str, int] = {}
    for name in args.models:
        model = load_model(name)
        sizes[name] = parameters(model)
        learned = model.card.get("finetuning")
        about = {"network": model.id, "parameters": sizes[name],
                 "changed": "changed" if learned else "as they are"}  # fmt: skip
        keep(about, of_engine(open_engine(model, device=args.device)))
    if not args.no_lenet:
        import torch

        from experiments.accuracy.lenet import as_large_as, labels_of, learn

        device = args.lenet_device or ("cuda" if torch.cuda.is_available() else "cpu")
        learning = open_digits(args.data / "mnist", split="learning")
        for size in dict.fromkeys(sizes.values()):
            for how in args.changes:
                network = as_large_as(size)
                spent = learn(network, learning.images, learning.labels, how=how,
                              epochs=args.epochs, seconds=args.seconds, device=device)  # fmt: skip
                about = {"network": "LeNet", "parameters": network.parameters_held, **spent,
                         "changed": "as they are" if how == "none" else "changed"}  # fmt: skip
                keep(about, partial(reading, partial(labels_of, network, device=device)))
    write_results(args.output, table, columns=COLUMNS,
                  gpu=args.device.startswith("cuda"), digits=len(digits),
                  lost={str(s): lost(digits, s) for s in args.shifts})  # fmt: skip


if __name__ == "__main__":
    main()
