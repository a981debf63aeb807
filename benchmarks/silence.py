"""How many cells of each S-layer hear nothing on real digits (their v is 0, so is their response).

python -m benchmarks.silence DIGITS [--model neocog-small] [--count 64]
"""

import argparse
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from neocog.learning.datasets import open_digits
from neocog.network.engine import Engine
from neocog.network.model import load_model
from neocog.network.registry import find_model
from neocog.network.u0 import u0_from_digits


def main() -> None:
    """Print the share of silent cells, layer by layer, in the first training digits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("digits", type=Path)
    parser.add_argument("--model", default="neocog-small")
    parser.add_argument("--count", type=int, default=64)
    arguments = parser.parse_args()
    model = load_model(find_model(arguments.model))
    digits = open_digits(arguments.digits, split="train").images[: arguments.count]
    maps = Engine(model).maps(u0_from_digits(digits))
    for i, (spec, weights) in enumerate(zip(model.spec.s, model.s, strict=True)):
        heard = (maps[f"UC{i}" if i else "UG"] > 0).any(axis=1)
        rim = (spec.padding, spec.padding)
        windows = sliding_window_view(
            np.pad(heard, ((0, 0), rim, rim)), (spec.kernel, spec.kernel), axis=(1, 2)
        )
        silent = np.logical_not((windows & (weights.c > 0)).any(axis=(3, 4)))
        print(f"US{i + 1}: {silent.mean():.1%} of {silent.size // len(digits)} cells hear nothing")


if __name__ == "__main__":
    main()
