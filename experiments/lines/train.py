"""Trains a reader of lines as ``neocog train --lines`` does, with other settings, or the plain peer.

    python -m experiments.lines.train NAME DATA -o FOLDER [--steps N] [--seed N] [--start MODEL]
        [--change SETTING=NUMBER ...] [--device cuda] [--workers N]

NAME is lines, plain, or what the teacher leaves out: no-writers, no-styles, no-real, no-touching.
FOLDER/NAME-SEED keeps the run and curves.json, and the same command goes on with it; beside it lies the
model, but for plain.
"""

import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch

from experiments.harness.arguments import arguments
from experiments.lines.plain import PlainReader
from neocog.errors import NeocogError, UsageError
from neocog.learning.lines import LineRun, LineTraining, start

NAMES: dict[str, dict[str, Any]] = {
    "lines": {}, "plain": {}, "no-writers": {"writers": False}, "no-styles": {"styles": False},
    "no-real": {"real": 0.0}, "no-touching": {"touching": False},
}  # fmt: skip


def changed(usual: LineTraining, changes: list[str]) -> LineTraining:
    """Return other settings; UsageError if there is no such setting, or its value is no number."""
    kinds = {field.name: type(getattr(usual, field.name)) for field in fields(usual)}
    kinds = {name: kind for name, kind in kinds.items() if kind in (int, float)}
    for change in changes:
        name, _, value = change.partition("=")
        try:
            usual = replace(usual, **{name: kinds[name](value)})
        except (KeyError, ValueError):
            raise UsageError(f"--change {change}: expected SETTING=NUMBER of {', '.join(kinds)}") from None
    return usual


def main() -> None:
    parser = arguments(__doc__, output=None, steps=20_000, seed=0, start="neocog", device="cpu", workers=2)
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("data", type=Path)
    parser.add_argument("--change", nargs="+", default=[], metavar="SETTING=NUMBER")
    args = parser.parse_args()
    mixed = args.device != "cpu" and args.name != "plain"
    settings = LineTraining(seed=args.seed, steps=args.steps, mixed=mixed, **NAMES[args.name])
    settings = changed(settings, args.change)
    torch.manual_seed(args.seed)
    network = PlainReader() if args.name == "plain" else start(args.start, settings)
    folder = args.output / f"{args.name}-{args.seed}"
    run = LineRun(network, args.data, folder, settings, device=args.device, workers=args.workers)
    if run.learn() and args.name != "plain":
        print(run.model(folder.name).save(f"{folder}.safetensors").id)


if __name__ == "__main__":
    try:
        main()
    except NeocogError as error:
        sys.exit(str(error))
