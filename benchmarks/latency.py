"""Where the time of a pass over few digits goes, with and without what is meant to shorten it.

    python -m benchmarks.latency DIGITS [--model neocog-small] [--precision fp16] [--batch 8]

Each row is the pass of one variant: programmatic launches or none, the driver's own division of
shared memory and L1 or all of it shared memory for every kernel; microseconds of each stage and
of the whole, medians.
"""

import argparse
import itertools
from pathlib import Path

import numpy as np

from neocog.cuda.launcher import Gpu
from neocog.cuda.measure import stage_times
from neocog.cuda.runner import Runner
from neocog.learning.datasets import open_digits
from neocog.network.model import load_model
from neocog.network.registry import find_model


def main() -> None:
    """Time the variants and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("digits", type=Path)
    parser.add_argument("--model", default="neocog-small")
    parser.add_argument("--precision", default="fp16")
    parser.add_argument("--batch", type=int, default=8)
    arguments = parser.parse_args()
    model = load_model(find_model(arguments.model))
    digits = open_digits(arguments.digits, split="train").images[: arguments.batch]
    for programmatic, carveout in itertools.product((True, False), (None, 100)):
        gpu = Gpu(0, programmatic=programmatic, carveout=carveout)
        runner = Runner(gpu, model, arguments.precision, None)
        times = stage_times(runner, digits, repeats=9)
        row = "  ".join(f"{name} {np.median(ms) * 1e3:.1f}" for name, ms in times.items())
        print(f"programmatic {programmatic!s:5}  carveout {carveout!s:4}  {row}", flush=True)


if __name__ == "__main__":
    main()
