"""Runs of line readers that are guided by another reader's answers, or run on several GPUs."""

from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.nn import functional

from experiments.lines.plain import PlainReader
from neocog.learning.checkpoint import load_checkpoint
from neocog.learning.lines import LineRun
from neocog.network.lines import columns

Tensor = Any
_ASK = 20  # steps after which parts ask one another for the time
_LATER = 3  # columns by which the ten layers answer later than the plain reader
_WEIGHT, _UNTIL = 0.4, 0.7  # of its answers at first, and the share of the run in which that falls to 0


class Guided(LineRun):
    """A run that also learns what a plain reader answers at each column (relative entropy)."""

    guide: PlainReader | None = None

    def take_guide(self, run: Path) -> None:
        """Take the reader of a run's checkpoint; ModelError if it is none."""
        self.guide = PlainReader()
        self.guide.load_state_dict(load_checkpoint(run)[0]["network"])
        self.guide.eval().to(self.place)

    def over(self, begin: float, minutes: float | None) -> bool:
        late = super().over(begin, minutes)
        if self.parts > 1:  # all parts end at the same step
            if self.step % _ASK:
                return False
            told = torch.tensor([float(late)], device=self.place)
            distributed.all_reduce(told, distributed.ReduceOp.MAX)
            late = bool(told)
        return late

    def loss(self, x: Tensor, z: Tensor, widths: Any, texts: list[str]) -> Tensor:
        own = super().loss(x, z, widths, texts)
        weight = _WEIGHT * (1 - self.step / (_UNTIL * self.settings.steps))
        if self.guide is None or weight <= 0:
            return own
        with torch.no_grad(), torch.autocast(x.device.type, torch.bfloat16):
            told = self.guide(x).float()
        count = min(z.shape[2] - _LATER, told.shape[2])
        told = told[:, :, :count].log_softmax(1)
        mine = z.float()[:, :, _LATER : _LATER + count].log_softmax(1)
        counted = torch.from_numpy(columns(widths) - _LATER).to(x.device, non_blocking=True)
        inside = torch.arange(count, device=x.device) < counted[:, None]
        apart = functional.kl_div(mine, told, reduction="none", log_target=True).sum(1) * inside
        lengths = torch.tensor([len(text) + 2.0 for text in texts]).to(x.device, non_blocking=True)
        return own + weight * (apart.sum(1) / lengths).mean()


def join(run: LineRun, part: int, parts: int, meeting: Path) -> None:
    """Make a run one part of several, each on its own GPU: slopes are their mean after every step."""
    distributed.init_process_group("nccl", init_method=f"file://{meeting}", rank=part, world_size=parts)
    run.part, run.parts = part, parts
    for p in run.network.parameters():
        p.register_post_accumulate_grad_hook(
            lambda p: distributed.all_reduce(p.grad, distributed.ReduceOp.AVG)
        )
