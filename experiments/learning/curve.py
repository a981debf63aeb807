"""What each way of learning reaches on MNIST, from 400 to 55 000 digits, without gradients.

    python -m experiments.learning.curve DATA -o RESULT [--gpu] [--parts a,b]

DATA holds mnist/ and usps/. Temperatures are set on the last 5 000 training digits.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from experiments.harness.record import data_and_output, write_results
from experiments.learning.intvec import Interpolated
from neocog.learning.calibrate import best_temperature, score
from neocog.learning.datasets import open_digits
from neocog.learning.mix import Hand, Mix
from neocog.learning.recipes import RECIPES, LayerByLayer, Recipe
from neocog.network.arrays import module_of_device
from neocog.network.decision import Decision, labels_of
from neocog.network.parallel import one_blas_thread

SIZES = (400, 3000, 10_000, 55_000)
COLUMNS = {"recipe": "recipe", "rule": "read by", "digits": "learned from", "planes": "K2/K3/K4",
           "bytes_fp16": "bytes (fp16)", "validation": "validation|.2%", "test": "MNIST test|.2%",
           "usps": "USPS, unseen|.2%", "sklearn": "scikit-learn, unseen|.2%"}  # fmt: skip
SETS = ("validation", "test", "usps", "sklearn")
#: part -> (recipe, rules by which its US4 is read, digits to learn from)
PARTS: dict[str, tuple[Recipe, tuple[str, ...], tuple[int, ...]]] = {
    "every": (RECIPES["nearest"], ("strongest", "pairs"), SIZES),
    "silent": (RECIPES["silent"], ("pairs",), (3000, 55_000)),
    "2003": (RECIPES["fukushima2003"], ("strongest",), SIZES),
    "neocog": (RECIPES["neocog"], ("pairs",), SIZES),
    "small": (RECIPES["neocog-small"], ("pairs",), SIZES),
    "fukushima": (RECIPES["fukushima"], ("strongest",), (3000, 55_000)),
}


def run_part(part: str, data: Path, xp: Any) -> Iterator[dict[str, Any]]:
    """Learn and read; one row per model."""
    recipe, rules, sizes = PARTS[part]
    learning = open_digits(data / "mnist", split="learning")
    sets = {"validation": open_digits(data / "mnist", split="validation"),
            "test": open_digits(data / "mnist", split="test"),
            "usps": open_digits(data / "usps"), "sklearn": open_digits("sklearn")}  # fmt: skip
    for n in sizes:
        start = time.perf_counter()
        order = np.random.default_rng(0).permutation(n)
        shared = LayerByLayer(recipe, xp=xp)
        with one_blas_thread():
            maps = shared.below(learning.images[:n][order])
            model = shared.model(recipe, maps, learning.labels[:n][order])
        for rule in rules:
            scores = Decision(model, xp).scores if rule == "strongest" else Interpolated(model, xp)
            found = {name: score(model, digits.images, xp, scores=scores) for name, digits in sets.items()}
            right = {name: float(np.mean(labels_of(own) == sets[name].labels)) for name, own in found.items()}
            yield {
                "part": part, "recipe": recipe.name, "rule": rule, "digits": n,
                "planes": "/".join(map(str, model.planes)),
                "bytes_fp16": 2 * sum(s.reference.size + s.c.size for s in model.s),
                "temperature": best_temperature(found["validation"], Mix((Hand(sets["validation"]),))),
                **{name: round(share, 5) for name, share in right.items()},
                "seconds": round(time.perf_counter() - start, 1),
            }  # fmt: skip


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
