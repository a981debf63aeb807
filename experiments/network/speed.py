"""Times the shipped models on the CPU, onnxruntime on the same network beside them in the same run.

The last column is the share of the cores that others took: figures of a busy machine are not worth much.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

from experiments.harness.record import arguments, write_results
from experiments.network.compare import compare
from neocog.network.lines import load_lines
from neocog.network.model import load_model
from neocog.network.parallel import cores
from neocog.network.registry import LINES, list_models

COLUMNS = {
    "model": "model", "planes": "K1/K2/K3/K4", "of": "of", "threads": "threads", "batch": "batch",
    "neocog": "ms each|.2f", "onnxruntime": "onnxruntime, ms each|.2f", "ratio": "times as fast|.2f",
    "others": "cores taken by others|.0%",
}  # fmt: skip


def busy() -> float:
    """Seconds that all cores together have worked, for this or another machine; nan if no one says."""
    stat = Path("/proc/stat")
    if not stat.is_file():
        return float("nan")
    ticks = [int(word) for word in stat.read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    args = arguments(__doc__, rounds=60, seconds=5.0).parse_args()
    rows: list[dict[str, Any]] = []
    models: list[Any] = [(load_model(path.stem), "digits", (1, 8, 32)) for path in list_models()]
    for model, of, batches in (*models, (load_lines(LINES), "strips", (1,))):
        net = model.digits if of == "strips" else model
        for threads, batch in ((t, b) for t in sorted({1, cores()}) for b in batches):
            begin, taken, own = time.perf_counter(), busy(), time.process_time()
            found = compare(model, batch=batch, rounds=args.rounds, peers=["onnxruntime"], threads=threads,
                            seconds=args.seconds)  # fmt: skip
            taken, own = busy() - taken, time.process_time() - own
            rows.append({
                "model": model.id, "planes": "/".join(map(str, (net.spec.orientations, *net.planes))),
                "of": of, "batch": batch, "threads": threads,
                **{side: found.per_digit(side) for side in found.passes},
                "p95": {side: found.per_digit(side, 95) for side in found.passes},
                "least": {side: found.per_digit(side, 0) for side in found.passes},
                "ratio": found.ratios()["onnxruntime"], "difference": found.differences["onnxruntime"],
                "others": max((taken - own) / (time.perf_counter() - begin) / cores(), 0.0),  # nan stays
            })  # fmt: skip
            print(rows[-1], flush=True)
    if not max(row["others"] for row in rows) <= 0.03:  # which a machine takes for itself
        print("this machine was not idle: other programs took some of its cores", file=sys.stderr)
    write_results(args.output, rows, columns=COLUMNS)


if __name__ == "__main__":
    main()
