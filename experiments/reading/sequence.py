"""Fits what boxes and their links weigh, by how likely the chains are that spell what is written.

The loss is that of a conditional random field: of all chains of a line's candidates, the share of
those that spell its digits. Needs PyTorch.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

RIDGE = 1e-3  # of what the weights are changed by, squared, beside the mean loss of a line
WORST = 12.0  # a line that hardly any chain spells: a wrong label, or no box at all
BATCH = 64  # lines
NEVER = -1e9


class Lattice(NamedTuple):
    """One line: its share in the loss, what speaks for candidates and links, what each spells."""

    share: float
    x: np.ndarray  # (n, F)
    link: np.ndarray  # (n, n, L)
    may: np.ndarray  # (n, n): whether the second may follow
    spells: np.ndarray  # (n, m): log probability of being each digit of the line, -inf for never


class Padded(NamedTuple):
    """Lattices of one batch."""

    x: torch.Tensor
    link: torch.Tensor
    may: torch.Tensor
    spells: torch.Tensor
    many: torch.Tensor  # candidates of each
    long: torch.Tensor  # digits of each
    share: torch.Tensor


def padded(some: Sequence[Lattice]) -> Padded:
    n = max(len(one.x) for one in some)
    m = max(1, max(one.spells.shape[1] for one in some))
    out = Padded(
        torch.zeros(len(some), n, some[0].x.shape[1]),
        torch.zeros(len(some), n, n, some[0].link.shape[2]),
        torch.zeros(len(some), n, n, dtype=torch.bool), torch.full((len(some), n, m), NEVER),
        torch.tensor([len(one.x) for one in some]),
        torch.tensor([one.spells.shape[1] for one in some]),
        torch.tensor([one.share for one in some]),
    )  # fmt: skip
    for k, one in enumerate(some):
        a, b = one.spells.shape
        out.x[k, :a], out.link[k, :a, :a] = torch.tensor(one.x), torch.tensor(one.link)
        out.may[k, :a, :a] = torch.tensor(one.may)
        out.spells[k, :a, :b] = torch.tensor(np.maximum(one.spells, NEVER))
    return out


def loss(weights: torch.Tensor, some: Padded) -> torch.Tensor:
    """Of each line: minus the log probability that a chain spells it."""
    lines, n, m = some.spells.shape
    own = some.x.shape[2]
    worth = some.x @ weights[:own]
    worth = torch.where(torch.arange(n) < some.many[:, None], worth, NEVER)
    link = torch.where(some.may, some.link @ weights[own:], NEVER)
    begin = torch.full((lines, m), NEVER)
    begin[:, 0] = 0
    free, right = [worth[:, 0]], [worth[:, :1] + some.spells[:, 0] + begin]
    for k in range(1, n):
        step = link[:, :k, k]
        before = torch.logsumexp(torch.stack(free, 1) + step, 1)
        free.append(worth[:, k] + torch.logaddexp(torch.zeros(lines), before))
        spelt = torch.logsumexp(torch.stack(right, 1) + step[..., None], 1)
        spelt = torch.cat([begin[:, :1], spelt[:, :-1]], 1)
        right.append(worth[:, k, None] + some.spells[:, k] + spelt)
    every = torch.logaddexp(torch.zeros(lines), torch.logsumexp(torch.stack(free, 1), 1))
    ends = torch.logsumexp(torch.stack(right, 1), 1)
    ends = ends.gather(1, (some.long - 1).clamp(0)[:, None])[:, 0]
    return (every - torch.where(some.long > 0, ends, 0.0)).clamp(max=WORST)


def fitted(lattices: Sequence[Lattice], start: np.ndarray) -> np.ndarray:
    """Weights of a candidate's features and of a link's, at which the lines are likeliest."""
    torch.set_default_dtype(torch.float64)
    some = sorted(lattices, key=lambda one: len(one.x))
    parts = (some[k : k + BATCH] for k in range(0, len(some), BATCH))
    batches = [padded(part) for part in parts]
    whole = sum(one.share for one in some)
    first = torch.tensor(start)
    weights = first.clone().requires_grad_()
    optimiser = torch.optim.LBFGS([weights], max_iter=60, line_search_fn="strong_wolfe")

    def step() -> float:
        optimiser.zero_grad()
        total = RIDGE * ((weights - first) ** 2).sum()
        for batch in batches:
            total = total + batch.share @ loss(weights, batch) / whole
        total.backward()
        return float(total.detach())

    optimiser.step(step)
    return weights.detach().numpy()
