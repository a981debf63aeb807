"""Times the shipped models on the CPU, onnxruntime on the same network beside them in the same run.

python -m experiments.network.speed -o experiments/network/results/speed.json [--rounds N]
"""

import time
from typing import Any

import numpy as np

from experiments.harness.arguments import arguments
from experiments.harness.record import write_results
from experiments.network.compare import compare
from neocog.evaluation.timing import WARM_UP
from neocog.network.engine import Engine
from neocog.network.model import Model, load_model
from neocog.network.registry import list_models
from neocog.network.u0 import made_digits

BATCHES = (1, 8, 32)
SETTLE = 0.5  # seconds: BLAS threads that helped to prepare the model turn on for a while
COLUMNS = {
    "model": "model", "planes": "K1/K2/K3/K4", "batch": "batch", "neocog": "ms a digit|.2f",
    "processor": "processor time, ms a digit|.2f", "onnxruntime": "onnxruntime, ms a digit|.2f",
    "ratio": "times as fast|.2f",
}  # fmt: skip


def processor_time(model: Model, batch: int, *, passes: int) -> float:
    """Return what a digit takes of all cores together, ms: the median of some passes."""
    engine, digits = Engine(model), made_digits(batch)
    time.sleep(SETTLE)
    spent = []
    for _ in range(WARM_UP + passes):
        start = time.process_time()
        engine.recognise(digits, batch=batch)
        spent.append(1e3 * (time.process_time() - start))
    return float(np.median(spent[WARM_UP:])) / batch


def main() -> None:
    args = arguments(__doc__, output=None, rounds=60).parse_args()
    models = [load_model(path.stem) for path in list_models()]
    passes = 4 * args.rounds
    # before onnxruntime's threads are there, which turn on too
    spent = [[processor_time(model, batch, passes=passes) for batch in BATCHES] for model in models]
    rows: list[dict[str, Any]] = []
    for model, of_model in zip(models, spent, strict=True):
        for batch, processor in zip(BATCHES, of_model, strict=True):
            found = compare(model, batch=batch, rounds=args.rounds, peers=["onnxruntime"])
            rows.append({
                "model": model.id, "planes": "/".join(map(str, (model.spec.orientations, *model.planes))),
                "batch": batch, "threads": found.threads,
                **{side: found.per_digit(side) for side in found.passes},
                "p95": {side: found.per_digit(side, 95) for side in found.passes},
                "processor": processor, "ratio": found.ratios()["onnxruntime"],
                "difference": found.difference,
            })  # fmt: skip
            print(rows[-1], flush=True)
    write_results(args.output, rows, columns=COLUMNS)


if __name__ == "__main__":
    main()
