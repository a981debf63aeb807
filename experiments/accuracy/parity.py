"""Holds the CPU engine against the float64 reference on all MNIST test digits.

    python -m experiments.accuracy.parity DATA -o RESULT [--models DIR] [--jobs N]

For each model: the largest error of every map in a whole pass, the largest error of every layer
fed the reference's input, and every digit whose decision differs from the reference's (its own
float64 rule on its own maps), with its margin.
"""

import os
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from experiments.harness.arguments import data_and_output
from experiments.harness.processes import spread
from experiments.harness.record import write_results
from neocog.learning.datasets import open_digits
from neocog.network import reference
from neocog.network.decision import answers
from neocog.network.engine import Engine, Layers
from neocog.network.layers import Patch
from neocog.network.model import load_model
from neocog.network.registry import kind_of
from neocog.network.u0 import u0_from_digits

COLUMNS = {
    "model": "model", "digits": "digits", "same": "same decision", "accuracy": "accuracy|.2%",
    "whole": "largest error, whole pass|.1e", "layer": "largest error of a layer|.1e",
    "worst": "in",
}  # fmt: skip
_STEP = 20


def compare(job: tuple[Path, np.ndarray]) -> dict[str, Any]:
    """Errors of each layer, decisions and the reference's margins for some digits."""
    path, digits = job
    model = load_model(path)
    engine, layers = Engine(model, threads=1), Layers(model)
    errors: dict[str, dict[str, float]] = {"whole": {}, "single": {}}
    labels, margins = [], []

    def note(kind: str, name: str, found: np.ndarray, want: np.ndarray) -> None:
        error = float(np.abs(found - want).max() / np.abs(want).max())
        errors[kind][name] = max(errors[kind].get(name, 0), error)

    for start in range(0, len(digits), _STEP):
        u0 = u0_from_digits(digits[start : start + _STEP])
        want, got = reference.respond(u0, model), engine.maps(u0)
        before = "U0"
        for name, layer in layers.stages:
            note("whole", name, got[name], want[name])
            given = want[before].transpose(0, 2, 3, 1).astype(np.float32)
            alone = layer(given[..., 0] if name == "UG" else Patch.whole(given).tight()).full()
            note("single", name, alone.transpose(0, 3, 1, 2), want[name])
            before = name
        ours = engine.recognise(digits[start : start + _STEP], batch=8)
        uc4 = reference.strongest_of_label(want["US4"], model.labels)
        theirs = answers(uc4, temperature=model.temperature)
        labels.append(np.stack([ours.label, theirs.label]))
        margins.append(theirs.margin)
    return {**errors, "labels": np.concatenate(labels, axis=1), "margins": np.concatenate(margins)}


def main() -> None:
    args = data_and_output(__doc__, models=Path("models"), jobs=os.cpu_count()).parse_args()
    test = open_digits(args.data / "mnist", split="test")
    rows = []
    for path in sorted(args.models.glob("*.safetensors")):
        if kind_of(path) != "digits":
            continue
        parts = np.array_split(test.images, args.jobs * 2)
        found = list(spread(compare, [(path, part) for part in parts], args.jobs))
        ours, theirs = np.concatenate([f["labels"] for f in found], axis=1)
        margins = np.concatenate([f["margins"] for f in found])
        whole, single = ({k: max(f[kind][k] for f in found) for k in found[0][kind]}
                         for kind in ("whole", "single"))  # fmt: skip
        rows.append({
            "model": load_model(path).id, "digits": len(test),
            "same": int((ours == theirs).sum()), "accuracy": float((ours == test.labels).mean()),
            "whole": max(whole.values()), "layer": max(single.values()),
            "worst": max(single, key=lambda name: single[name]),
            "whole_by_layer": whole, "single_by_layer": single,
            "changed": [
                {"digit": int(i), "ours": int(ours[i]), "reference": int(theirs[i]),
                 "margin": float(margins[i])}
                for i in np.flatnonzero(ours != theirs)
            ],
        })  # fmt: skip
        print(rows[-1], flush=True)
    write_results(args.output, rows, columns=COLUMNS)


if __name__ == "__main__":
    main()
