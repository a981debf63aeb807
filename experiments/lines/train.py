"""Trains a reader of lines as ``neocog train --lines`` does, with other settings or on several GPUs.

OUTPUT/lines-SEED keeps the run, and the same command goes on with it. Of several GPUs each runs one part: the
same command with --part from 0 to --parts less 1, an OUTPUT each and a --meeting file that is not there yet.
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
        __doc__, "data", steps=20_000, seed=0, start="neocog", device="cpu", workers=2, part=0, parts=1,
        minutes=float, meeting=Path,
    )  # fmt: skip
    parser.add_argument("--change", nargs="+", default=[], metavar="SETTING=NUMBER")
    args = parser.parse_args()
    import torch  # not by the processes that draw
    from torch import distributed

    from neocog.learning.lines import LineRun, LineTraining, start

    class Part(LineRun):
        part, parts = args.part, args.parts

        def over(self, begin: float, minutes: float | None) -> bool:  # all parts end at the same step
            late = super().over(begin, minutes)
            if self.parts == 1 or self.step % 20:  # only then parts ask one another for the time
                return late and self.parts == 1
            told = torch.tensor([float(late)], device=self.place)
            distributed.all_reduce(told, distributed.ReduceOp.MAX)
            return bool(told)

    settings = LineTraining(seed=args.seed, steps=args.steps, mixed=args.device != "cpu")
    settings = changed(settings, args.change)
    torch.manual_seed(args.seed)
    network, folder = start(args.start, settings), args.output / f"lines-{args.seed}"
    run = Part(network, args.data, folder, settings, device=args.device, workers=args.workers)
    if args.parts > 1:
        place = f"file://{args.meeting}"
        distributed.init_process_group("nccl", init_method=place, rank=args.part, world_size=args.parts)
        for p in run.network.parameters():
            p.register_post_accumulate_grad_hook(
                lambda p: distributed.all_reduce(p.grad, distributed.ReduceOp.AVG)
            )
    if run.learn(minutes=args.minutes):
        print(run.model(folder.name).save(f"{folder}.safetensors").id)


if __name__ == "__main__":
    try:
        main()
    except NeocogError as error:
        sys.exit(str(error))
