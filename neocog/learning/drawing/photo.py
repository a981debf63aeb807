"""Photographed lines in PyTorch: warps, and the reader's strip.

Strips are (B, 1, rows, columns) float32; ``widths`` (B,) are the columns that each fills. All is drawn from
torch's generator and a NumPy one, so that a seed gives the same pictures on the same kind of device.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from neocog.network.lines import ROWS

Tensor = Any
Rng = np.random.Generator


def warped(x: Tensor, widths: NDArray[np.int64], columns: int, rng: Rng) -> tuple[Tensor, NDArray[np.int64]]:
    """Strips of any rows, of other size, slant and waves: (B, 1, 48, columns), and their widths."""
    count, device = len(x), x.device
    high, wide = x.shape[2:]
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
