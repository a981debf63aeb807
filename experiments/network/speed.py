"""Times the shipped models on the CPU, onnxruntime on the same network beside them in the same run.

python -m experiments.network.speed -o experiments/network/results/speed.json [--rounds N]
"""

from typing import Any

from experiments.harness.arguments import arguments
from experiments.harness.record import write_results
from experiments.network.compare import compare
from neocog.network.model import load_model
from neocog.network.registry import list_models

COLUMNS = {
    "model": "model", "planes": "K1/K2/K3/K4", "batch": "batch", "neocog": "ms a digit|.2f",
    "onnxruntime": "onnxruntime, ms a digit|.2f", "ratio": "times as fast|.2f",
}  # fmt: skip


def main() -> None:
    args = arguments(__doc__, output=None, rounds=60).parse_args()
    rows: list[dict[str, Any]] = []
    for model in (load_model(path.stem) for path in list_models()):
        for batch in (1, 8, 32):
            found = compare(model, batch=batch, rounds=args.rounds, peers=["onnxruntime"])
            rows.append({
                "model": model.id, "planes": "/".join(map(str, (model.spec.orientations, *model.planes))),
                "batch": batch, "threads": found.threads,
                **{side: found.per_digit(side) for side in found.passes},
                "p95": {side: found.per_digit(side, 95) for side in found.passes},
                "ratio": found.ratios()["onnxruntime"], "difference": found.differences["onnxruntime"],
            })  # fmt: skip
            print(rows[-1], flush=True)
    write_results(args.output, rows, columns=COLUMNS)


if __name__ == "__main__":
    main()
