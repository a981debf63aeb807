"""Holds the CPU engine against the float64 reference on all MNIST test digits.

    python -m experiments.accuracy.parity DATA -o RESULT [--models DIR] [--jobs N]

For each model: the largest error of every map in a whole pass, the largest error of every layer
fed the reference's input, and every digit whose decision differs from the reference's (its own
float64 rule on its own maps), with its margin.
"""

import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from experiments.harness.arguments import data_and_output
from experiments.harness.record import write_results
from neocog.learning.datasets import open_digits
from neocog.network import reference
from neocog.network.decision import answers
from neocog.network.engine import Engine, Layers
from neocog.network.layers import Patch
from neocog.network.model import load_model
from neocog.network.u0 import u0_from_digits

COLUMNS = {
    "model": "model",
    "digits": "digits",
    "same": "same decision",
    "accuracy": "accuracy",
    "whole": "largest error, whole pass",
    "layer": "largest error of a layer",
    "worst": "in",
}
FORMATS = {"whole": ".1e", "layer": ".1e", "accuracy": ".2%"}
_STEP = 20


def compare(job: tuple[str, np.ndarray]) -> dict[str, Any]:
    """Errors and decisions for some digits."""
    path, digits = job
    model = load_model(Path(path))
    engine, layers = Engine(model, threads=1), Layers(model)
    whole: dict[str, float] = {}
    single: dict[str, float] = {}
    labels: list[np.ndarray] = []
    margins: list[np.ndarray] = []
    for start in range(0, len(digits), _STEP):
        u0 = u0_from_digits(digits[start : start + _STEP])
        want, got = reference.respond(u0, model), engine.maps(u0)
        before = "U0"
        for name, layer in layers.stages:
            scale = np.abs(want[name]).max()
            error = np.abs(got[name] - want[name]).max() / scale
            whole[name] = max(whole.get(name, 0), float(error))
            given = want[before].transpose(0, 2, 3, 1).astype(np.float32)
            alone = layer(given[..., 0] if name == "UG" else Patch.whole(given).tight()).full()
            error = np.abs(alone.transpose(0, 3, 1, 2) - want[name]).max() / scale
            single[name] = max(single.get(name, 0), float(error))
            before = name
        ours = engine.recognise(digits[start : start + _STEP], batch=8)
        theirs = answers(reference.scores(want["US4"], model), temperature=model.temperature)
        labels.append(np.stack([ours.label, theirs.label]))
        margins.append(theirs.margin)
    return {
        "whole": whole,
        "single": single,
        "labels": np.concatenate(labels, axis=1),
        "margins": np.concatenate(margins),
    }


def main() -> None:
    """Parse, compare in several processes, write."""
    parser = data_and_output(__doc__)
    parser.add_argument("--models", type=Path, default=Path("models"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    args = parser.parse_args()
    test = open_digits(args.data / "mnist", split="test")
    rows = []
    for path in sorted(args.models.glob("*.safetensors")):
        parts = np.array_split(test.images, args.jobs * 2)
        with ProcessPoolExecutor(args.jobs) as pool:
            found = list(pool.map(compare, [(str(path), part) for part in parts]))
        labels = np.concatenate([f["labels"] for f in found], axis=1)
        margins = np.concatenate([f["margins"] for f in found])
        changed = np.flatnonzero(labels[0] != labels[1])
        whole = {k: max(f["whole"][k] for f in found) for k in found[0]["whole"]}
        single = {k: max(f["single"][k] for f in found) for k in found[0]["single"]}
        rows.append(
            {
                "model": load_model(path).id,
                "digits": len(test),
                "same": int((labels[0] == labels[1]).sum()),
                "accuracy": float((labels[0] == test.labels).mean()),
                "whole": max(whole.values()),
                "layer": max(single.values()),
                "worst": max(single, key=lambda name: single[name]),
                "whole_by_layer": whole,
                "single_by_layer": single,
                "changed": [
                    {
                        "digit": int(i),
                        "ours": int(labels[0, i]),
                        "reference": int(labels[1, i]),
                        "margin": float(margins[i]),
                    }
                    for i in changed
                ],
            }
        )
        print(rows[-1], flush=True)
    write_results(args.output, rows, columns=COLUMNS, formats=FORMATS)


if __name__ == "__main__":
    main()
