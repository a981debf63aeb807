"""Makes the shipped models: trains each, measures the file as it is shipped, writes its card.

    python benchmarks/models.py DATA [NAME ...] -o models [--gpu]

DATA holds mnist/ and usps/. Weights are those of the command that the card names; the card adds
what the fp16 weights read of each set.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from learning import SETS, read_sets

from neocog.learning.recipes import RECIPES, score, train
from neocog.network.arrays import module_of_device
from neocog.network.decision import labels_of
from neocog.network.model import Model, from_bytes, to_bytes

#: name -> digits learned from (the first ones of MNIST's 55 000)
SHIPPED = {"neocog": 55_000, "neocog-small": 55_000, "fukushima": 3000}


def make(name: str, data: Path, *, gpu: bool) -> Model:
    """Train one model and fill in its card."""
    from neocog.learning.datasets import open_digits

    xp = module_of_device("cuda" if gpu else "cpu")
    count = SHIPPED[name]
    learning = open_digits(data / "mnist", split="learning")[:count]
    sets = read_sets(data, SETS)
    kept = sets["validation"]
    model = train(
        RECIPES[name],
        learning.images,
        learning.labels,
        validation=(kept.images, kept.labels),
        xp=xp,
    )
    model = from_bytes(to_bytes(model, precision="fp16"), source=name)
    card: dict[str, Any] = dict(model.card)
    card["data"] = "MNIST, the last 5 000 training digits kept apart for the temperature"
    card["command"] = (
        f"neocog train --data MNIST --recipe {name} --seed 0 --limit {count} --precision fp16"
        + " --device cuda" * gpu
    )
    card["accuracy"] = {}
    for part in SETS:
        found = labels_of(score(model, sets[part].images, xp))
        card["accuracy"][part] = round(float((found == sets[part].labels).mean()), 5)
        if part == "test":
            confusion = np.zeros((10, 11), dtype=int)
            np.add.at(confusion, (sets[part].labels, found), 1)
            card["confusion"] = confusion.tolist()
    return replace(model, card=card)


def main() -> None:
    """Parse, make, save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("names", nargs="*", default=list(SHIPPED))
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--gpu", action="store_true")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    for name in args.names:
        saved = make(name, args.data, gpu=args.gpu).save(
            args.output / f"{name}.safetensors", precision="fp16"
        )
        print(saved.id, saved.planes, saved.card["accuracy"], flush=True)


if __name__ == "__main__":
    main()
