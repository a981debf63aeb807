"""Trains a reader of lines as ``neocog train --lines`` does, with other settings, or the plain peer.

    python -m experiments.lines.train NAME DATA -o FOLDER [--steps N] [--seed N] [--start MODEL]
        [--change SETTING=NUMBER ...] [--device cuda] [--workers N] [--minutes N]
        [--guide RUN.safetensors] [--part K --parts N --meeting FILE]

NAME is lines or plain. FOLDER/NAME-SEED keeps the run and curves.json, and the same command goes on with
it; beside it lies the model, but for plain. ``--guide`` is the checkpoint of a plain reader whose answers are
learned, too. Of several GPUs each runs one part: the same command with K from 0 to N - 1, a FOLDER each and
one FILE that is not there yet.
"""

import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from experiments.harness.record import arguments
from neocog.errors import NeocogError, UsageError


def changed(usual: Any, changes: list[str]) -> Any:
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
    parser = arguments(
        __doc__, output=None, steps=20_000, seed=0, start="neocog", device="cpu", workers=2, part=0, parts=1
    )
    parser.add_argument("name", choices=("lines", "plain"))
    parser.add_argument("data", type=Path)
    parser.add_argument("--change", nargs="+", default=[], metavar="SETTING=NUMBER")
    parser.add_argument("--minutes", type=float)
    for name in ("--guide", "--meeting"):
        parser.add_argument(name, type=Path)
    args = parser.parse_args()
    import torch  # not by the processes that draw

    from experiments.lines.guided import Guided, join
    from experiments.lines.plain import PlainReader
    from neocog.learning.lines import LineTraining, start

    mixed = args.device != "cpu" and args.name != "plain"
    settings = LineTraining(seed=args.seed, steps=args.steps, mixed=mixed)
    settings = changed(settings, args.change)
    torch.manual_seed(args.seed)
    network = (
        PlainReader() if args.name == "plain" else start(args.start, settings, args.data, device=args.device)
    )
    folder = args.output / f"{args.name}-{args.seed}"
    run = Guided(network, args.data, folder, settings, device=args.device, workers=args.workers)
    if args.guide:
        run.take_guide(args.guide)
    if args.parts > 1:
        join(run, args.part, args.parts, args.meeting)
    if run.learn(minutes=args.minutes) and args.name != "plain":
        print(run.model(folder.name).save(f"{folder}.safetensors").id)


if __name__ == "__main__":
    try:
        main()
    except NeocogError as error:
        sys.exit(str(error))
