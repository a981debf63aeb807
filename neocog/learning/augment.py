"""Digits and lines as other hands, pens, papers and cameras would have made them: batched, in PyTorch.

Each digit of a batch is changed with its own strength; lengths are in pixels of U0 (65 x 65, where a digit is
40 high), angles in degrees. Strips are (B, 1, rows, columns) float32; ``widths`` (B,) are the columns that
each fills. The same state of the generators gives the same pictures on one kind of device.
"""

from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from neocog.learning.settings import Augmentation
from neocog.network.lines import ROWS
from neocog.network.spec import INPUT_SIZE
from neocog.network.u0 import DIGIT_SIZE, ENLARGED, MARGIN

_EACH = (slice(None), None, None, None)  # a number for each digit beside its pixels, (B, 1, 1, 1)


class Dice:
    """Random numbers for a batch, (B, *shape), from one generator on one device."""

    def __init__(self, generator: Tensor, batch: int) -> None:
        self.generator, self.batch, self.device = generator, batch, generator.device

    def uniform(self, *shape: int) -> Tensor:  # 0 .. 1
        return torch.rand((self.batch, *shape), generator=self.generator, device=self.device)

    def spread(self, *shape: int) -> Tensor:  # -1 .. 1
        return 2 * self.uniform(*shape) - 1

    def normal(self, *shape: int) -> Tensor:
        return torch.randn((self.batch, *shape), generator=self.generator, device=self.device)

    def happens(self, share: float) -> Tensor:  # True for about so many of the batch
        return self.uniform() < share


def augment(digits: Tensor, how: Augmentation, generator: Tensor) -> Tensor:
    """Change digits (B, 28, 28) uint8, ink 255, and lay them into U0, (B, 65, 65) float32, ink 1."""
    dice, ink = Dice(generator, len(digits)), digits.float() / 255
    if how.neighbour:  # a piece of another digit at the left or right border, not touching the middle
        other = ink[dice.uniform().argsort()]
        away = torch.where(dice.happens(0.5), 1, -1) * (17 + 3 * dice.uniform())
        eye = torch.eye(2, 3, device=dice.device).repeat(dice.batch, 1, 1)
        eye[:, 0, 2] = 2 * away / DIGIT_SIZE
        eye[:, 1, 2] = 2 * 3 * dice.spread() / DIGIT_SIZE
        grid = functional.affine_grid(eye, [dice.batch, 1, DIGIT_SIZE, DIGIT_SIZE], align_corners=False)
        moved = functional.grid_sample(other[:, None], grid, align_corners=False)[:, 0]
        ink = torch.where(dice.happens(how.neighbour)[:, None, None], torch.maximum(ink, moved), ink)
    u = functional.grid_sample(ink[:, None], _places(how, dice), padding_mode="zeros", align_corners=False)
    return _seen(_written(u, how, dice), how, dice)[:, 0]


def _places(how: Augmentation, dice: Dice) -> Tensor:
    """Where each pixel of U0 is taken from, (B, 65, 65, 2), in grid_sample's units."""
    line = torch.arange(INPUT_SIZE, device=dice.device) - (MARGIN + (ENLARGED - 1) / 2)
    y, x = torch.meshgrid(line, line, indexing="ij")
    places = torch.stack([x, y], dim=2).reshape(1, -1, 2)
    far = torch.where(dice.happens(how.far), how.far_shift, how.shift)
    places = places - (far[:, None] * dice.spread(2))[:, None]
    # inverse of scale, shear and rotation
    angle = torch.deg2rad(how.rotation * dice.spread())
    cos, sin = angle.cos(), angle.sin()
    both, apart = dice.spread(2).unbind(1)
    wide, high = 1 + how.scale * (both + 0.5 * apart), 1 + how.scale * (both - 0.5 * apart)
    slant = how.shear * dice.spread()
    turn = torch.stack([cos, sin, -sin, cos], dim=1).view(-1, 2, 2)
    shape = torch.stack([1 / wide, slant / high, torch.zeros_like(cos), 1 / high], dim=1).view(-1, 2, 2)
    places = (places @ (shape @ turn).transpose(1, 2)).view(dice.batch, INPUT_SIZE, INPUT_SIZE, 2)
    if how.elastic:
        moved = _smooth(how.elastic * dice.normal(2, 7, 7), "bicubic", align_corners=True)
        places = places + moved.permute(0, 2, 3, 1)
    return places / (ENLARGED / 2)


def _written(u: Tensor, how: Augmentation, dice: Dice) -> Tensor:
    """Strokes that grow or shrink; a bar through a digit, or a patch of it, that is paper."""
    if how.stroke:  # grey dilation (positive) or erosion of each digit, in part; twice where it is strong
        amount = (how.stroke * dice.spread())[_EACH]
        for done in range(2 if how.stroke > 1 else 1):
            wide, thin = functional.max_pool2d(u, 3, 1, 1), -functional.max_pool2d(-u, 3, 1, 1)
            goal = torch.where(amount > 0, wide, thin)
            u = u + (amount.abs() - done).clamp(0, 1) * (goal - u)
    if how.occlusion:
        chosen = dice.happens(how.occlusion)[:, None, None]
        angle = torch.pi * dice.uniform()[:, None, None]
        line = torch.arange(INPUT_SIZE, device=dice.device) - (INPUT_SIZE - 1) / 2
        offset = 16 * dice.spread(2)
        y, x = line[None, :, None] - offset[:, :1, None], line[None, None, :] - offset[:, 1:, None]
        along, across = angle.cos() * x + angle.sin() * y, angle.cos() * y - angle.sin() * x
        width = 1 + 1.5 * dice.uniform()[:, None, None]
        length = torch.where(dice.happens(0.5)[:, None, None], 60.0, 4.0)
        hidden = chosen & (across.abs() < width) & (along.abs() < length)
        u = torch.where(hidden[:, None], 0.0, u)
    return u


def _seen(u: Tensor, how: Augmentation, dice: Dice) -> Tensor:
    """Blur, few pixels, a poor scan in black and white, pale and uneven ink, noise."""
    if how.blur:
        sigma = how.blur * dice.uniform() * dice.happens(0.5) + 1e-3
        reach = max(2, round(2.5 * how.blur))
        bell = torch.exp(-0.5 * (torch.arange(-reach, reach + 1, device=dice.device) / sigma[:, None]) ** 2)
        bell = bell / bell.sum(dim=1, keepdim=True)
        for axis, room in ((2, (0, 0, reach, reach)), (3, (reach, reach))):
            seen = functional.pad(u, room).unfold(axis, 2 * reach + 1, 1)
            u = torch.einsum("bchwk,bk->bchw", seen, bell)
    if how.coarse:  # averaged over few pixels and enlarged again
        chosen, scanners = dice.happens(how.coarse)[_EACH], _scanners(dice.device)
        along = scanners[(dice.uniform() * len(scanners)).long()][:, None]
        u = torch.where(chosen, along @ u @ along.transpose(2, 3), u)
    if how.binary:  # at an uncertain threshold, coarse pixels and all
        chosen = dice.happens(how.binary)[_EACH]
        threshold = 0.35 + 0.3 * dice.uniform()[_EACH]
        rough = u + 0.1 * dice.normal(1, INPUT_SIZE, INPUT_SIZE)
        u = torch.where(chosen, ((rough - threshold) * 8 + 0.5).clamp(0, 1) * (u > 0.02), u)
    if how.contrast:  # less ink, unevenly; and some digits with harder or softer edges
        ink = 1 - how.contrast * dice.uniform()[_EACH]
        uneven = _smooth(dice.normal(1, 4, 4), "bicubic", align_corners=True)
        gamma = torch.exp(how.contrast * dice.spread())[_EACH]
        u = (u.clamp(0, 1).pow(gamma) * ink * (1 + 0.3 * how.contrast * uneven)).clamp(0, 1)
    if how.noise:  # of the size of a digit's pixels, twice those of U0
        strength = how.noise * dice.uniform() * dice.happens(1 / 3)
        coarse = dice.normal(1, DIGIT_SIZE + 5, DIGIT_SIZE + 5)
        u = (u + strength[_EACH] * _smooth(coarse, "bilinear", align_corners=False)).clamp(0, 1)
    return u


@cache
def _scanners(device: Tensor) -> Tensor:
    """Products with lines of U0 that see it by 9 to 22 pixels a digit, (14, 65, 65)."""
    eye, seen = torch.eye(INPUT_SIZE)[:, None], []  # each line a column of the product
    for pixels in range(9, 23):
        coarse = functional.interpolate(eye, round(pixels * INPUT_SIZE / ENLARGED), mode="area")
        fine = functional.interpolate(coarse, INPUT_SIZE, mode="linear", align_corners=False)
        seen.append(fine[:, 0].T)
    return torch.stack(seen).to(device)


def _smooth(points: Tensor, mode: str, *, align_corners: bool) -> Tensor:
    """Interpolate coarse grids (B, C, n, n) to (B, C, 65, 65), as two products."""
    along = _interpolation(points.shape[-1], mode, align_corners, points.device)
    return along @ points @ along.T


@cache
def _interpolation(count: int, mode: str, align_corners: bool, device: Tensor) -> Tensor:
    """What each of ``count`` points gives to each pixel of a line of U0, (65, count)."""
    square = torch.eye(count)[:, None, None].expand(-1, 1, count, count)
    lines = functional.interpolate(square, (count, INPUT_SIZE), mode=mode, align_corners=align_corners)
    return lines[:, 0, 0].T.contiguous().to(device)


def warped(
    x: Tensor, widths: NDArray[np.int64], columns: int, rng: np.random.Generator
) -> tuple[Tensor, NDArray[np.int64]]:
    """Strips of any rows, of other size, slant and waves: (B, 1, 48, columns), and their widths."""
    (count, _, high, wide), device = x.shape, x.device
    scale = ROWS / high

    def normal(spread: float) -> Tensor:
        return torch.randn(count, 1, 1, device=device) * spread

    own = np.maximum(scale * widths, 8)
    fits = ((columns - 1) / own).clip(min=0.6)
    wider = np.minimum(np.exp(rng.normal(0, 0.07, count)).clip(0.8, 1.25), fits)
    wide_now = np.ceil(own * wider).clip(8, columns).astype(np.int64)
    across, middle = (torch.from_numpy(value.astype(np.float32)).to(device).view(count, 1, 1)
                      for value in (wider, own * wider / 2))  # fmt: skip
    tall = torch.exp(normal(0.06)).clamp(0.85, 1.2)
    shear, lift = normal(0.1), normal(1.0)
    turn = normal(0.018) * (torch.rand(count, 1, 1, device=device) < 0.5)
    rows = torch.arange(ROWS, device=device).view(1, ROWS, 1).float()
    cols = torch.arange(columns, device=device).view(1, 1, columns).float()
    y = (rows - (ROWS - 1) / 2 - lift - turn * (cols - middle)) / (scale * tall) + (high - 1) / 2
    z = (cols + shear * (rows - ROWS / 2)) / (scale * across)
    waves = (torch.rand(count, 1, 1, 1, device=device) < 0.35).float() * 1.6
    coarse = torch.randn(2 * count, 1, 2, max(2, int(2.5 * columns / ROWS)), device=device)  # smooth noise
    field = functional.interpolate(coarse, (ROWS, columns), mode="bicubic", align_corners=False)
    field = field.view(count, 2, ROWS, columns) * waves
    y, z = y + field[:, 0], z + field[:, 1]
    grid = torch.stack([(z + 0.5) / wide * 2 - 1, (y + 0.5) / high * 2 - 1], -1)
    return functional.grid_sample(x, grid, padding_mode="border", align_corners=False), wide_now


def strips(grey: Tensor, widths: NDArray[np.int64]) -> Tensor:
    """Ink 0 .. 1 of grey strips, as :func:`neocog.vision.strips.ink_of`, nothing beyond their widths."""
    ends = torch.from_numpy(widths).to(grey.device).view(-1, 1, 1, 1)
    inside = torch.arange(grey.shape[3], device=grey.device) < ends
    last = (ends - 1).expand(-1, 1, grey.shape[2], 1)
    grey = torch.where(inside, grey, grey.gather(3, last).mean(2, keepdim=True))
    paper = box(functional.max_pool2d(box(grey, 3), 9, 1, 4), 31)
    ink = (paper - grey).clamp(min=0)
    ranked = torch.where(inside, ink, torch.inf).flatten(1).sort(1).values
    count = inside.sum((1, 2, 3)) * ink.shape[2] - 1
    middle, full = (ranked.gather(1, (count * share).long()[:, None])[..., None, None]
                    for share in (0.5, 0.97))  # fmt: skip
    return ((ink - middle) / (full - middle).clamp(min=4)).clamp(0, 1) * inside


def box(x: Tensor, side: int) -> Tensor:
    """Means over squares of ``side`` pixels."""
    x = functional.pad(x, (side // 2,) * 4, mode="reflect")
    return functional.avg_pool2d(functional.avg_pool2d(x, (1, side), 1), (side, 1), 1)
