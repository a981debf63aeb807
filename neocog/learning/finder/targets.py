"""What the network should answer on a page, and the loss: one head, one loss."""

from dataclasses import dataclass, fields
from typing import Any

import torch
import torch.nn.functional as F

from neocog.learning.finder.networks import DIGIT, DOWN, HIGH, RIGHT, SIGN, WIDE
from neocog.vision.finder import CELL, UNIT

Tensor = Any

SMALLEST = 8.0
"""Longer side of the smallest digits that one size of a picture is asked for, in pixels."""

_SURE = 0.3  # from this height of the hill on a place learns the box
_KIND = 0.5  # and from this one what the mark is
_NONE = -100  # where nothing is asked


@dataclass(frozen=True, slots=True)
class Weights:
    """Shares of the parts of the loss (chosen once, by eye, from the trial's scale)."""

    sign: float = 1.0
    size: float = 0.5
    offset: float = 0.2
    kind: float = 0.3


@dataclass(frozen=True, slots=True)
class Targets:
    """What is wanted of every place; all (B, h, w) unless told otherwise.

    Attributes
    ----------
    heat : (B, 2, h, w)
        Hills of height 1 on the middles of digits and of signs.
    centre : (B, 2, h, w) of bool
        The cells of the middles.
    care : (B, h, w) of bool
        Where the heat counts.
    box : (B, 4, h, w)
        Log width, log height, offset x, offset y of the nearest mark.
    near : (B, h, w)
        How much the box counts there.
    kind : (B, h, w) of int8
    """

    heat: Tensor
    centre: Tensor
    care: Tensor
    box: Tensor
    near: Tensor
    kind: Tensor

    def __getitem__(self, index: Any) -> "Targets":
        """Of some of the pages."""
        return Targets(*(getattr(self, f.name)[index] for f in fields(self)))


def joined(parts: list[Targets]) -> Targets:
    """Put what is wanted of several batches of pages together."""
    return Targets(*(torch.cat([getattr(p, f.name) for p in parts]) for f in fields(Targets)))


def targets(marks: Tensor, side: int, largest: float) -> Targets:
    """What is wanted at every place of pages of ``side`` pixels.

    Parameters
    ----------
    marks : tensor, shape (B, M, 5)
    side : int
    largest : float
        Longer side of the largest digits that one size of a picture is asked for, in pixels.
    """
    label, x, y, wide, high = marks.unbind(-1)
    count = side // CELL
    at = (torch.arange(count, device=marks.device) + 0.5) * CELL
    long = torch.maximum(wide, high)
    digit, sign = (label >= 0) & (label < 10), label >= 10
    large, small = long > largest, long < SMALLEST
    asked_digit, asked_sign = digit & ~large & ~small, sign & ~large
    column = (torch.floor(x / CELL).clamp(0, count - 1) + 0.5) * CELL
    row = (torch.floor(y / CELL).clamp(0, count - 1) + 0.5) * CELL
    sx = (0.11 * wide + 0.04 * high).clamp_min(1.6)
    sy = (0.11 * high + 0.04 * wide).clamp_min(1.6)
    gx = torch.exp(-((at - column[..., None]) ** 2) / (2 * sx[..., None] ** 2))
    gy = torch.exp(-((at - row[..., None]) ** 2) / (2 * sy[..., None] ** 2))
    hill = gy[..., :, None] * gx[..., None, :]
    hills = torch.stack([
        (hill * use[..., None, None]).amax(1) for use in (asked_digit, asked_sign)
    ], 1)  # fmt: skip
    best, index = (hill * (asked_digit | asked_sign)[..., None, None]).max(1)
    flat = index.flatten(1)

    def of_mark(value: Tensor) -> Tensor:
        return value.gather(1, flat).unflatten(1, (count, count))

    box = torch.stack([
        torch.log(of_mark(wide).clamp_min(1) / UNIT), torch.log(of_mark(high).clamp_min(1) / UNIT),
        of_mark(x) / CELL - at[None, None, :] / CELL, of_mark(y) / CELL - at[None, :, None] / CELL,
    ], 1)  # fmt: skip
    share = torch.where(digit & large, 0.25, 0.55)
    inside = ((at - x[..., None]).abs() < share[..., None] * wide[..., None] + 2)[..., None, :]
    inside = (
        inside & ((at - y[..., None]).abs() < share[..., None] * high[..., None] + 2)[..., None]
    )
    unasked = (label == -1) | (digit & (large | small)) | (sign & large)
    ignored = (inside & unasked[..., None, None]).any(1)
    return Targets(
        heat=hills.half(),
        centre=hills > 0.9999,
        care=~ignored | (best > _SURE),
        box=box.half(),
        near=torch.where(best > _SURE, best, torch.zeros_like(best)).half(),
        kind=torch.where(best > _KIND, of_mark(label).long(), torch.full_like(index, _NONE)).to(
            torch.int8
        ),
    )


def loss(out: Tensor, wanted: Targets, weights: Weights) -> tuple[Tensor, Tensor]:
    """Focal loss of the heat (Zhou et al. 2019, eq. 1), L1 of the boxes, entropy of the kinds.

    Returns
    -------
    scalar tensor
        Mean over the batch.
    tensor, shape (B,)
        How wrong each page is: its focal loss by digit.
    """
    logits = out[:, DIGIT : SIGN + 1]
    p = torch.sigmoid(logits)
    hit = F.softplus(-logits) * (1 - p) ** 2
    miss = F.softplus(logits) * p**2 * (1 - wanted.heat.float()) ** 4
    focal = torch.where(wanted.centre, hit, miss) * wanted.care[:, None]
    by_page = focal.sum((2, 3))
    count = wanted.centre.sum((2, 3)).float()
    heat = (by_page[:, 0].sum() + weights.sign * by_page[:, 1].sum()) / (count.sum() + len(out))
    near = wanted.near.float().sum().clamp_min(1)
    off = (out[:, WIDE : DOWN + 1] - wanted.box.float()).abs() * wanted.near.float()[:, None]
    size = off[:, : HIGH - WIDE + 1].sum() / near
    offset = off[:, RIGHT - WIDE :].sum() / near
    kinds = wanted.kind.long()
    kind = F.cross_entropy(out[:, DOWN + 1 :], kinds, ignore_index=_NONE, reduction="sum")
    kind = kind / (kinds >= 0).sum().clamp_min(1)
    total = heat + weights.size * size + weights.offset * offset + weights.kind * kind
    return total, by_page[:, 0].detach() / (1 + count[:, 0])
