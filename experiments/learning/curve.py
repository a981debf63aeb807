"""What each way of learning reaches on MNIST, from 400 to 55 000 digits, without gradients.

    python -m experiments.learning.curve DATA -o RESULT [--gpu] [--parts a,b]

DATA holds mnist/ and usps/. Learning uses the first 55 000 training digits; the last 5 000 set
the temperatures and decide between settings (part ``sizes``, which never sees the test set).
"""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments.harness.arguments import data_and_output
from experiments.harness.record import write_results
from experiments.learning.intvec import Interpolated, signed_sums, with_delta_rule
from neocog.learning.calibrate import best_temperature
from neocog.learning.datasets import open_digits
from neocog.learning.mix import Hand, Mix
from neocog.learning.recipes import RECIPES, LayerByLayer, Recipe, score
from neocog.network.arrays import module_of_device
from neocog.network.decision import Decision, labels_of
from neocog.network.model import Model
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


RULES = ("strongest", "pairs", "triples")
Way = tuple[Recipe, str]  # a recipe, and the rule by which its US4 is read


def ways(recipe: Recipe, *rules: str) -> tuple[Way, ...]:
    return tuple((recipe, rule) for rule in rules)


def sweep(limits: tuple[int, int], *per_label: int) -> tuple[Way, ...]:
    """Compact recipes of several sizes of US4, each read by three rules."""
    base = replace(RECIPES["neocog"], limits=limits)
    return tuple(way for n in per_label for way in ways(replace(base, per_label=n), *RULES))


#: part -> (recipes of one family, digits to learn from, sets to read)
PARTS: dict[str, list[tuple[tuple[Way, ...], tuple[int, ...], tuple[str, ...]]]] = {
    "every": [(ways(RECIPES["nearest"], *RULES), SIZES, SETS)],
    "silent": [(ways(RECIPES["silent"], "pairs"), (3000, 55_000), SETS)],
    "2003": [(ways(RECIPES["fukushima2003"], "strongest"), SIZES, SETS)],
    "delta": [(ways(replace(RECIPES["nearest"], name="delta"), "linear"), (3000, 55_000), SETS)],
    "neocog": [(ways(RECIPES["neocog"], "pairs"), SIZES, SETS)],
    "small": [(ways(RECIPES["neocog-small"], "pairs"), SIZES, SETS)],
    "fukushima": [(ways(RECIPES["fukushima"], "strongest"), (3000, 55_000), SETS)],
    "sizes": [
        (sweep((26, 78), 7, 15, 25, 30), (55_000,), ("validation",)),
        (sweep((40, 110), 7, 10, 15, 20), (55_000,), ("validation",)),
        (sweep((60, 160), 8, 10), (55_000,), ("validation",)),
    ],
}


def read_sets(data: Path, names: tuple[str, ...]) -> dict[str, Any]:
    where = {
        "validation": lambda: open_digits(data / "mnist", split="validation"),
        "test": lambda: open_digits(data / "mnist", split="test"),
        "usps": lambda: open_digits(data / "usps"),
        "sklearn": lambda: open_digits("sklearn"),
    }
    return {name: where[name]() for name in names}


def learned(
    shared: LayerByLayer, recipe: Recipe, rule: str, maps: Any, labels: Any, xp: Any
) -> tuple[Model, Callable[[Any], Any]]:
    """A network, and what scores its US4 by a rule."""
    if rule == "linear":
        rough = shared.model(recipe, maps[:1], labels[:1])  # layers below; US4 is learned anew
        model, gains = with_delta_rule(rough, maps, labels, np.random.default_rng([shared.seed, 4]))
        return model, lambda us4: signed_sums(us4, model, gains)
    model = shared.model(recipe, maps, labels)
    return model, Decision(model, xp).scores if rule == "strongest" else Interpolated(model, rule, xp)


def run_part(part: str, data: Path, xp: Any) -> Iterator[dict[str, Any]]:
    """Learn and read; one row per model."""
    learning = open_digits(data / "mnist", split="learning")
    for recipes, sizes, names in PARTS[part]:
        sets = read_sets(data, tuple({*names, "validation"}))
        kept = sets["validation"]
        for n in sizes:
            start = time.perf_counter()
            shared = LayerByLayer(recipes[0][0], xp=xp)
            order = np.random.default_rng(0).permutation(n)
            with one_blas_thread():
                maps = shared.below(learning.images[:n][order])
            for recipe, rule in recipes:
                labels = learning.labels[:n][order]
                with one_blas_thread():
                    model, scores = learned(shared, recipe, rule, maps, labels, xp)
                own = score(model, kept.images, xp, scores=scores)
                row: dict[str, Any] = {
                    "part": part,
                    "recipe": recipe.name,
                    "rule": rule,
                    "digits": n,
                    "planes": "/".join(map(str, model.planes)),
                    "bytes_fp16": 2 * sum(s.reference.size + s.c.size for s in model.s),
                    "per_label": recipe.per_label,
                    "limits": recipe.limits,
                    "validation": round(float(np.mean(labels_of(own) == kept.labels)), 5),
                    "temperature": best_temperature(own, Mix((Hand(kept),))),
                }
                for name in names:
                    if name != "validation":
                        found = labels_of(score(model, sets[name].images, xp, scores=scores))
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
