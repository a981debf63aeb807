"""Times a convolution with average pooling in the ways PyTorch has, and the network's C-layers.

    python benchmarks/convpool.py -o benchmarks/results/convpool.json [options]

32x32 places, 3x3 filter, 2x2 pooling, as many channels out as in: the measurements of the paper
that names the fused filter and the direct sum of convolution and average pooling on the GPU (its
section V). Each way is held against float64 before it is timed, in both memory formats, as a CUDA
graph.
"""

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpu_steps import Run, c_layers
from record import write_results

from neocog.bench.convpool import WAYS, naive, operations
from neocog.bench.peers import TYPES, Graph, set_precision

SIZE = 32
CHECKED = 2  # pictures that float64 computes
REPEATS = 5  # in one graph
TOLERANCES = {"fp32": 5e-5, "tf32": 5e-3, "fp16": 5e-3, "bf16": 5e-2}
#: Direct sum as a matrix product by naive library calls at 512 channels (the same paper, V100).
PAPER = {"fp32": 1.8, "fp16": 4.4}
COLUMNS = {
    "batch": "batch",
    "channels": "channels",
    "precision": "precision",
    **{way: f"{way}, us" for way in WAYS},
    "ratio": "naive by the fastest",
    "paper": "paper's ratio",
}
FORMATS = dict.fromkeys((*WAYS, "ratio", "paper"), ".1f")


def microseconds(run: Callable[[], Any]) -> float:
    """Time of one run, several of them in a CUDA graph: the median."""
    graph = Graph(lambda: [run() for _ in range(REPEATS)][-1])
    return 1e3 * float(np.median([graph.elapsed(4) for _ in range(7)])) / REPEATS


def measure(batch: int, channels: int, precision: str) -> dict[str, Any]:
    """Microseconds of each way in its better memory format, and its error."""
    set_precision(precision)
    torch.manual_seed(0)
    x = torch.rand((batch, channels, SIZE, SIZE), dtype=torch.float64)
    w = torch.randn((channels, channels, 3, 3), dtype=torch.float64) / channels
    want = naive(x[:CHECKED], w)
    row: dict[str, Any] = {"batch": batch, "channels": channels, "precision": precision}
    row["errors"], row["layout"] = {}, {}
    for way, (function, filter_of) in WAYS.items():
        for layout in (torch.contiguous_format, torch.channels_last):
            u, f = (
                t.to(TYPES[precision]).to("cuda").contiguous(memory_format=layout)
                for t in (x, filter_of(w))
            )
            got = function(u, f)[:CHECKED].double().cpu()
            error = float((got - want).abs().max() / want.abs().max())
            if not error <= TOLERANCES[precision]:
                raise RuntimeError(f"{way} at {precision} is wrong by {error:.1e}")
            us = microseconds(partial(function, u, f))
            row["errors"][way] = max(error, row["errors"].get(way, 0.0))
            if us < row.get(way, np.inf):
                row[way] = us
                row["layout"][way] = "last" if layout is torch.channels_last else "first"
    work = {way: operations(way, ci=channels, co=channels, n=SIZE) for way in WAYS}
    row["tflops"] = {way: 1e-6 * batch * work[way] / row[way] for way in WAYS}
    row["ratio"] = row["naive"] / min(row[way] for way in WAYS)
    row["paper"] = PAPER.get(precision) if (batch, channels) == (1, 512) else None
    return row


def sizes(args: argparse.Namespace) -> Iterator[tuple[int, int, str]]:
    """All combinations asked for."""
    for precision in args.precisions:
        for batch in args.batches:
            for channels in args.channels:
                yield batch, channels, precision


def main() -> None:
    """Parse, check, time, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 64])
    parser.add_argument("--channels", nargs="+", type=int, default=[32, 64, 128, 256, 512])
    parser.add_argument("--precisions", nargs="+", default=["fp32", "tf32", "fp16"])
    parser.add_argument("--models", nargs="+", default=["neocog-small"])
    parser.add_argument("--step-batches", nargs="+", type=int, default=[8, 256])
    args = parser.parse_args()
    rows = []
    for batch, channels, precision in sizes(args):
        rows.append(measure(batch, channels, precision))
        print(rows[-1], flush=True)
    layers = []
    try:
        for row in c_layers(Run(args)):
            layers.append(row)
            print(row, flush=True)
    finally:
        write_results(
            args.output, rows, columns=COLUMNS, formats=FORMATS, gpu=True, c_layers=layers
        )


if __name__ == "__main__":
    main()
