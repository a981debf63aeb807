"""Draws experiments/learning/figures/learning-curve.png from the learning results.

    python -m experiments.learning.plot

Needs matplotlib (extra ``bench``).
"""

import json
from pathlib import Path

from matplotlib.figure import Figure

from experiments.harness.arguments import arguments

HERE = Path(__file__).parent
#: (part, rule) -> name in the plot
CURVES = {
    ("2003", "strongest"): "rules of 2003, strongest plane",
    ("every", "strongest"): "every digit a plane, nearest",
    ("every", "pairs"): "interpolating pairs",
    ("every", "triples"): "interpolating triples",
    ("neocog", "pairs"): "neocog: 26/78/300 planes",
    ("small", "pairs"): "neocog-small: 26/78/70 planes",
}


def main() -> None:
    arguments(__doc__).parse_args()
    figure = Figure(figsize=(7, 4.2), layout="tight")
    axes = figure.subplots()
    rows = json.loads((HERE / "results/learning.json").read_text())["rows"]
    for key, name in CURVES.items():
        own = [row for row in rows if (row["part"], row["rule"]) == key]
        points = sorted((row["digits"], 100 * (1 - row["test"])) for row in own)
        axes.plot(*zip(*points, strict=True), marker="o", label=name)
    axes.set(xscale="log", yscale="log", xlabel="digits learned from")
    axes.set_ylabel("errors on MNIST's test set")
    axes.set_yticks([0.8, 1, 2, 3, 5, 8], ["0.8 %", "1 %", "2 %", "3 %", "5 %", "8 %"])
    axes.set_xticks([400, 3000, 10_000, 55_000], ["400", "3 000", "10 000", "55 000"])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(HERE / "figures/learning-curve.png", dpi=110)


if __name__ == "__main__":
    main()
