"""What the network should answer on a page, and the loss."""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from neocog.learning.finder.networks import DIGIT, DOWN, HIGH, RIGHT, SIGN, WIDE
from neocog.vision.finder import CELL, UNIT

Tensor = Any

SMALLEST = 8.0  #: longer side of the smallest digits that one size of a picture is asked for, in pixels

_SURE = 0.3  # from this height of the hill on a place learns the box
_KIND = 0.5  # and from this one what the mark is
_NONE = -100  # where nothing is asked
#: Weights of the parts of the loss beside the heat's 1 (boxes' sizes, their middles, what the marks are); set
#: in a trial run and not tuned.
_OF_SIZE, _OF_OFFSET, _OF_KIND = 0.5, 0.2, 0.3


class Targets(NamedTuple):
    """What is wanted of every place (h, w) of B pages."""

    heat: Tensor  #: (B, 2, h, w) hills of height 1 on the middles of digits and of signs
    centre: Tensor  #: (B, 2, h, w) of bool, the cells of the middles
    care: Tensor  #: (B, h, w) of bool, where the heat counts
    box: Tensor  #: (B, 4, h, w) log width and height, offset x and y of the nearest mark
    near: Tensor  #: (B, h, w) how much the box counts
    kind: Tensor  #: (B, h, w) of int8


def targets(marks: Tensor, side: int, largest: float) -> Targets:
    """What is wanted of pages with ``marks`` (B, M, 5), of digits up to ``largest`` pixels long."""
    label, x, y, wide, high = marks.unbind(-1)
    count = side // CELL
    at = (torch.arange(count, device=marks.device) + 0.5) * CELL
    long = torch.maximum(wide, high)
    digit, sign = (label >= 0) & (label < 10), label >= 10
    large, small = long > largest, long < SMALLEST
    asked = digit & ~large & ~small, sign & ~large
    column, row = ((torch.floor(v / CELL).clamp(0, count - 1) + 0.5) * CELL for v in (x, y))
    sx = (0.11 * wide + 0.04 * high).clamp_min(1.6)
    sy = (0.11 * high + 0.04 * wide).clamp_min(1.6)
    gx = torch.exp(-((at - column[..., None]) ** 2) / (2 * sx[..., None] ** 2))
    gy = torch.exp(-((at - row[..., None]) ** 2) / (2 * sy[..., None] ** 2))
    hill = gy[..., :, None] * gx[..., None, :]
    hills = torch.stack([(hill * use[..., None, None]).amax(1) for use in asked], 1)
    best, index = (hill * (asked[0] | asked[1])[..., None, None]).max(1)
    flat = index.flatten(1)

    def of_mark(value: Tensor) -> Tensor:
        return value.gather(1, flat).unflatten(1, (count, count))

    box = torch.stack([
        torch.log(of_mark(wide).clamp_min(1) / UNIT), torch.log(of_mark(high).clamp_min(1) / UNIT),
        of_mark(x) / CELL - at[None, None, :] / CELL, of_mark(y) / CELL - at[None, :, None] / CELL,
    ], 1)  # fmt: skip
    share = torch.where(digit & large, 0.25, 0.55)[..., None]
    across = (at - x[..., None]).abs() < share * wide[..., None] + 2
    down = (at - y[..., None]).abs() < share * high[..., None] + 2
    unasked = (label == -1) | (digit & (large | small)) | (sign & large)
    ignored = (across[..., None, :] & down[..., None] & unasked[..., None, None]).any(1)
    kind = torch.where(best > _KIND, of_mark(label).long(), torch.full_like(index, _NONE))
    near = torch.where(best > _SURE, best, torch.zeros_like(best)).half()
    care = ~ignored | (best > _SURE)
    return Targets(hills.half(), hills > 0.9999, care, box.half(), near, kind.to(torch.int8))


def loss(out: Tensor, wanted: Targets) -> tuple[Tensor, Tensor]:
    """Focal loss (Zhou et al. 2019, eq. 1), L1, entropy: their mean, and how wrong each page is (B,)."""
    logits = out[:, DIGIT : SIGN + 1]
    p = torch.sigmoid(logits)
    hit = F.softplus(-logits) * (1 - p) ** 2
    miss = F.softplus(logits) * p**2 * (1 - wanted.heat.float()) ** 4
    focal = torch.where(wanted.centre, hit, miss) * wanted.care[:, None]
    by_page = focal.sum((2, 3))
    count = wanted.centre.sum((2, 3)).float()
    heat = (by_page[:, 0].sum() + by_page[:, 1].sum()) / (count.sum() + len(out))
    near = wanted.near.float().sum().clamp_min(1)
    off = (out[:, WIDE : DOWN + 1] - wanted.box.float()).abs() * wanted.near.float()[:, None]
    size = off[:, : HIGH - WIDE + 1].sum() / near
    offset = off[:, RIGHT - WIDE :].sum() / near
    kinds = wanted.kind.long()
    kind = F.cross_entropy(out[:, DOWN + 1 :], kinds, ignore_index=_NONE, reduction="sum")
    kind = kind / (kinds >= 0).sum().clamp_min(1)
    total = heat + _OF_SIZE * size + _OF_OFFSET * offset + _OF_KIND * kind
    return total, by_page[:, 0].detach() / (1 + count[:, 0])
