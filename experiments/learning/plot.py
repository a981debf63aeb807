"""Draws experiments/learning/figures/learning-curve.png from the learning results.

    python -m experiments.learning.plot

Needs matplotlib (extra ``bench``).
"""

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

#: (part, recipe, rule) -> name in the plot
CURVES = {
    ("2003", "fukushima2003", "strongest"): "rules of 2003, strongest plane",
    ("every", "nearest", "strongest"): "every digit a plane, nearest",
    ("every", "nearest", "pairs"): "interpolating pairs",
    ("every", "nearest", "triples"): "interpolating triples",
    ("neocog", "neocog", "pairs"): "neocog: 26/78/300 planes",
    ("small", "neocog-small", "pairs"): "neocog-small: 26/78/70 planes",
}


def main() -> None:
    """Draw."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = json.loads((ROOT / "experiments/learning/results/learning.json").read_text())["rows"]
    figure, axes = plt.subplots(figsize=(7, 4.2))
    for key, name in CURVES.items():
        own = sorted(
            (row["digits"], 100 * (1 - row["test"]))
            for row in rows
            if (row["part"], row["recipe"], row["rule"]) == key
        )
        axes.plot(*zip(*own, strict=True), marker="o", label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    ticks = [0.8, 1, 2, 3, 5, 8]
    axes.set_yticks(ticks, [f"{t:g} %" for t in ticks])
    axes.set_xticks([400, 3000, 10_000, 55_000], ["400", "3 000", "10 000", "55 000"])
    axes.minorticks_off()
    axes.set_xlabel("digits learned from")
    axes.set_ylabel("errors on MNIST's test set")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(ROOT / "experiments/learning/figures/learning-curve.png", dpi=110)


if __name__ == "__main__":
    main()
