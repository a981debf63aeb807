"""What each way of learning reaches on MNIST, from 400 to 55 000 digits, without gradients.

    python -m experiments.learning.curve DATA -o RESULT [--gpu] [--parts a,b]

DATA holds mnist/ and usps/. Learning uses the first 55 000 training digits; the last 5 000 set
the temperatures and decide between settings (part ``sizes``, which never sees the test set).
"""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments.harness.arguments import data_and_output
from experiments.harness.record import write_results
from neocog.learning.calibrate import calibrated
from neocog.learning.datasets import open_digits
from neocog.learning.mix import Hand, Mix
from neocog.learning.recipes import RECIPES, LayerByLayer, Recipe, score
from neocog.network.arrays import module_of_device
from neocog.network.decision import labels_of
from neocog.network.parallel import one_blas_thread

SIZES = (400, 3000, 10_000, 55_000)
COLUMNS = {
    "recipe": "recipe",
    "rule": "read by",
    "digits": "learned from",
    "planes": "K2/K3/K4",
    "bytes_fp16": "bytes (fp16)",
    "validation": "validation|.2%",
    "test": "MNIST test|.2%",
    "usps": "USPS, unseen|.2%",
    "sklearn": "scikit-learn, unseen|.2%",
}
SETS = ("validation", "test", "usps", "sklearn")


def rules(recipe: Recipe) -> tuple[Recipe, ...]:
    """One recipe, read by three rules."""
    return tuple(replace(recipe, rule=rule) for rule in ("strongest", "pairs", "triples"))


def sweep(limits: tuple[int, int], *per_label: int) -> tuple[Recipe, ...]:
    """Compact recipes of several sizes of US4, each read by three rules."""
    base = replace(RECIPES["neocog"], limits=limits)
    return tuple(recipe for n in per_label for recipe in rules(replace(base, per_label=n)))


#: part -> (recipes of one family, digits to learn from, sets to read)
PARTS: dict[str, list[tuple[tuple[Recipe, ...], tuple[int, ...], tuple[str, ...]]]] = {
    "every": [(rules(RECIPES["nearest"]), SIZES, SETS)],
    "silent": [((RECIPES["silent"],), (3000, 55_000), SETS)],
    "2003": [((RECIPES["fukushima2003"],), SIZES, SETS)],
    "delta": [((RECIPES["delta"],), (3000, 55_000), SETS)],
    "neocog": [((RECIPES["neocog"],), SIZES, SETS)],
    "small": [((RECIPES["neocog-small"],), SIZES, SETS)],
    "fukushima": [((RECIPES["fukushima"],), (3000, 55_000), SETS)],
    "sizes": [
        (sweep((26, 78), 7, 15, 25, 30), (55_000,), ("validation",)),
        (sweep((40, 110), 7, 10, 15, 20), (55_000,), ("validation",)),
        (sweep((60, 160), 8, 10), (55_000,), ("validation",)),
    ],
}


def read_sets(data: Path, names: tuple[str, ...]) -> dict[str, Any]:
    """The labelled digits of each set."""
    where = {
        "validation": lambda: open_digits(data / "mnist", split="validation"),
        "test": lambda: open_digits(data / "mnist", split="test"),
        "usps": lambda: open_digits(data / "usps"),
        "sklearn": lambda: open_digits("sklearn"),
    }
    return {name: where[name]() for name in names}


def run_part(part: str, data: Path, xp: Any) -> Iterator[dict[str, Any]]:
    """Learn and read; one row per model."""
    learning = open_digits(data / "mnist", split="learning")
    for recipes, sizes, names in PARTS[part]:
        sets = read_sets(data, tuple({*names, "validation"}))
        kept = sets["validation"]
        for n in sizes:
            start = time.perf_counter()
            shared = LayerByLayer(recipes[0], xp=xp)
            order = np.random.default_rng(0).permutation(n)
            with one_blas_thread():
                maps = shared.below(learning.images[:n][order])
            for recipe in recipes:
                with one_blas_thread():
                    model = shared.model(recipe, maps, learning.labels[:n][order])
                model = calibrated(model, Mix((Hand(kept),)), table=False, xp=xp)
                row: dict[str, Any] = {
                    "part": part,
                    "recipe": recipe.name,
                    "rule": recipe.rule,
                    "digits": n,
                    "planes": "/".join(map(str, model.planes)),
                    "bytes_fp16": 2 * sum(s.reference.size + s.c.size for s in model.s),
                    "per_label": recipe.per_label,
                    "limits": recipe.limits,
                    "validation": model.card["validation_accuracy"],
                    "temperature": model.temperature,
                }
                for name in names:
                    if name != "validation":
                        found = labels_of(score(model, sets[name].images, xp))
                        row[name] = round(float(np.mean(found == sets[name].labels)), 5)
                row["seconds"] = round(time.perf_counter() - start, 1)
                yield row


def main() -> None:
    gpu = (False, "learn on CuPy arrays")
    args = data_and_output(__doc__, gpu=gpu, parts=",".join(PARTS)).parse_args()
    found, xp = [], module_of_device("cuda" if args.gpu else "cpu")
    for part in args.parts.split(","):
        for row in run_part(part, args.data, xp):
            print(json.dumps(row), flush=True)
            found.append(row)
    write_results(args.output, found, columns=COLUMNS, gpu=args.gpu)


if __name__ == "__main__":
    main()
