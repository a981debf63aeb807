"""The finder's network: convolutions to three maps, a head that answers for every place; its loss.

From the grey picture, `normalised`, (B, 1, H, W), H and W multiples of 16, to `OUTPUTS` maps at a quarter of
the side: is a digit centred here, is a sign, log of the width and the height over 16 pixels, offset of the
middle in cells (x, y), and one number for each digit and sign.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neocog.learning.augment import box
from neocog.learning.finder.graph import Graph
from neocog.vision.finder import CELL, FLOOR, SIGNS, UNIT, WINDOW
from neocog.vision.finder_model import FinderModel

OUTPUTS = 6 + 10 + len(SIGNS)
DIGIT, SIGN, WIDE, HIGH, RIGHT, DOWN = range(6)

PLANES = 28, 56, 96, 192, 5
"""Planes at a quarter, an eighth and a sixteenth of the side; within the last blocks; these."""


def normalised(grey: Tensor, extents: Tensor | None = None) -> Tensor:
    """As `neocog.vision.finder.normalised`, of (B, H, W) uint8; 0 beyond the pictures' extents (B, 2)."""
    g = grey.float()[:, None]
    mean = box(g, WINDOW)
    variance = (box(g * g, WINDOW) - mean * mean).clamp_min(0)
    x = (g - mean) * torch.rsqrt(variance + FLOOR**2)
    if extents is None:
        return x
    rows, columns = (torch.arange(side, device=x.device) for side in x.shape[2:])
    high, wide = extents[:, :1], extents[:, 1:]
    return x * ((rows < high)[:, None, :, None] & (columns < wide)[:, None, None, :])


class ConvNorm(nn.Module):  # type: ignore[misc]
    """A convolution, normalised; ``dense``: a depthwise one computed as a full one, for tensor cores."""

    def __init__(self, planes: int, out: int, kernel: int, *, stride: int = 1, groups: int = 1,
                 rectify: bool = True, padding: int | None = None) -> None:  # fmt: skip
        super().__init__()
        self.padding, self.rectify, self.dense = kernel // 2 if padding is None else padding, rectify, False
        self.conv = nn.Conv2d(planes, out, kernel, stride, self.padding, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(out)

    def forward(self, x: Tensor) -> Tensor:
        if self.dense:  # zero off its diagonal
            full = torch.diag_embed(self.conv.weight[:, 0].permute(1, 2, 0)).permute(2, 3, 0, 1)
            x = F.conv2d(x, full, stride=self.conv.stride, padding=self.padding)
        else:
            x = self.conv(x)
        x = self.norm(x)
        return F.relu(x, inplace=True) if self.rectify else x

    def graph(self, g: Graph, x: str) -> str:
        """Append it to a graph, the normalisation folded into the convolution."""
        gain = self.norm.weight * torch.rsqrt(self.norm.running_var + self.norm.eps)
        weight, conv = self.conv.weight * gain[:, None, None, None], self.conv
        bias = self.norm.bias - self.norm.running_mean * gain
        x = g.conv(x, weight, bias, stride=conv.stride[0], groups=conv.groups, padding=self.padding)
        return g.add("Relu", x) if self.rectify else x


class Block(nn.Module):  # type: ignore[misc]
    """x + W2 relu(W1 d(x)), d a depthwise kernel and W1, W2 1x1: wide views at little cost."""

    def __init__(self, planes: int, inner: int) -> None:
        super().__init__()
        wide = ConvNorm(planes, planes, 5, groups=planes, rectify=False)
        narrow = ConvNorm(planes, inner, 1), ConvNorm(inner, planes, 1, rectify=False)
        self.parts = nn.Sequential(wide, *narrow)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.parts(x)

    def graph(self, g: Graph, x: str) -> str:
        return g.add("Add", x, _chain(self.parts, g, x))


def _chain(parts: Any, g: Graph, x: str) -> str:
    for part in parts:
        x = part.graph(g, x)
    return x


class Head(nn.Module):  # type: ignore[misc]
    """From the three maps, of a, b and c planes, to the answers at a quarter of the side."""

    def __init__(self, a: int, b: int, c: int) -> None:
        super().__init__()
        self.from16, self.from8 = ConvNorm(c, 32, 1, rectify=False), ConvNorm(32, 24, 1, rectify=False)
        self.side8, self.side4 = ConvNorm(b, 32, 1, rectify=False), ConvNorm(a, 24, 1, rectify=False)
        self.block8, self.block4 = Block(32, 64), Block(24, 36)
        self.inner = ConvNorm(24, 32, 1)
        self.out = nn.Conv2d(32, OUTPUTS, 1)
        with torch.no_grad():
            self.out.weight.mul_(0.3)
            self.out.bias.zero_()
            self.out.bias[:2] = -4.0  # a digit is rare

    def forward(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        """Maps at 1/4, 1/8, 1/16 of the side -> (B, OUTPUTS, H / 4, W / 4)."""
        b = self.block8(self.side8(b) + F.interpolate(self.from16(c), scale_factor=2))
        a = self.block4(self.side4(a) + F.interpolate(self.from8(b), scale_factor=2))
        y = self.inner(F.relu(a))
        with torch.autocast(y.device.type, enabled=False):
            return self.out(y.float())

    def graph(self, g: Graph, a: str, b: str, c: str) -> str:
        b = g.add("Add", self.side8.graph(g, b), g.add("Resize", self.from16.graph(g, c)))
        b = self.block8.graph(g, b)
        a = g.add("Add", self.side4.graph(g, a), g.add("Resize", self.from8.graph(g, b)))
        y = self.inner.graph(g, g.add("Relu", self.block4.graph(g, a)))
        return g.conv(y, self.out.weight, self.out.bias)


class FinderNetwork(nn.Module):  # type: ignore[misc]
    """Strided convolutions to a quarter, an eighth and a sixteenth of the side (`PLANES`), and the head."""

    def __init__(self) -> None:
        super().__init__()
        a, b, c, inner, blocks = PLANES
        self.front = nn.ModuleDict({
            "quarter": nn.Sequential(
                ConvNorm(1, 12, 3, stride=2), ConvNorm(12, a, 3, stride=2), Block(a, 3 * a // 2)),
            "eighth": nn.Sequential(
                ConvNorm(a, b, 2, stride=2, padding=0), *(Block(b, 2 * b) for _ in range(3))),
            "sixteenth": nn.Sequential(
                ConvNorm(b, c, 2, stride=2, padding=0), *(Block(c, inner) for _ in range(blocks))),
        })  # fmt: skip
        self.head = Head(a, b, c)

    def forward(self, x: Tensor) -> Tensor:
        """(B, 1, H, W) -> (B, OUTPUTS, H / 4, W / 4)."""
        maps = []
        for part in self.front.values():
            maps.append(x := part(x))
        return self.head(*maps)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def take(self, model: FinderModel, x: Tensor) -> None:
        """Take the weights of a file, its folded normalisations as pictures ``x`` have them: answers stay."""
        head = self.head
        order = [*self.front.modules(), head.side8, head.from16, *head.block8.modules(),
                 head.side4, head.from8, *head.block4.modules(), head.inner]  # fmt: skip
        parts = [part for part in order if isinstance(part, ConvNorm)]
        values = [torch.from_numpy(model.tensors[name]).to(x.device)
                  for node in model.nodes for name in node["inputs"] if name in model.tensors]  # fmt: skip
        mine = [*(part.conv.weight for part in parts), head.out.weight, head.out.bias]
        for own, value in zip(mine, [*values[:-2:2], *values[-2:]], strict=True):
            own.copy_(value)

        def fold(norm: Any, given: tuple[Tensor]) -> None:
            variance, mean = torch.var_mean(given[0].float(), (0, 2, 3), correction=0)
            norm.running_var.copy_(variance)
            norm.running_mean.copy_(mean)
            norm.weight.copy_((norm.running_var + norm.eps).sqrt())
            norm.bias.add_(norm.running_mean)

        hooks = [part.norm.register_forward_pre_hook(fold) for part in parts]
        for part, bias in zip(parts, values[1:-2:2], strict=True):
            part.norm.bias.copy_(bias)
        self.eval()(x)
        for hook in hooks:
            hook.remove()

    def graph(self) -> Graph:
        """Return the network as operations, its input named ``x``."""
        g, x, maps = Graph(), "x", list[str]()
        for part in self.front.values():
            maps.append(x := _chain(part, g, x))
        self.head.graph(g, *maps)
        return g


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
    anchor: Tensor  #: (B, 2, h, w) probabilities that are to stay, -1 where none is


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
    anchor = torch.full_like(hills, -1.0).half()
    return Targets(hills.half(), hills > 0.9999, care, box.half(), near, kind.to(torch.int8), anchor)


def loss(out: Tensor, wanted: Targets) -> tuple[Tensor, Tensor]:
    """Focal loss (Zhou et al. 2019, eq. 1), L1, entropy: their mean, and how wrong each page is (B,).

    Where probabilities are to stay, the divergence from them takes the focal loss's place.
    """
    logits = out[:, DIGIT : SIGN + 1]
    p = torch.sigmoid(logits)
    hit = F.softplus(-logits) * (1 - p) ** 2
    miss = F.softplus(logits) * p**2 * (1 - wanted.heat.float()) ** 4
    focal = torch.where(wanted.centre, hit, miss) * wanted.care[:, None]
    before = wanted.anchor.float().clamp_min(0)
    moved = F.softplus(logits) - before * logits - torch.special.entr(before) - torch.special.entr(1 - before)
    focal = torch.where(wanted.anchor < 0, focal, moved)
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
