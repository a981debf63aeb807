"""Ink on paper before a camera, in PyTorch: warps, paper, light, blur, resolution, and the reader's strip.

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


def warped(
    x: Tensor, widths: NDArray[np.int64], columns: int, rng: Rng, *, real: bool = False
) -> tuple[Tensor, NDArray[np.int64]]:
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
    across, middle = (
        torch.from_numpy(value.astype(np.float32)).to(device).view(count, 1, 1)
        for value in (wider, own * wider / 2)
    )
    tall = torch.exp(normal(0.06)).clamp(0.85, 1.2)
    shear, lift = normal(0.1), normal(1.0)
    turn = normal(0.018) * (torch.rand(count, 1, 1, device=device) < 0.5)
    rows = torch.arange(ROWS, device=device).view(1, ROWS, 1).float()
    cols = torch.arange(columns, device=device).view(1, 1, columns).float()
    y = (rows - (ROWS - 1) / 2 - lift - turn * (cols - middle)) / (scale * tall) + (high - 1) / 2
    z = (cols + shear * (rows - ROWS / 2)) / (scale * across)
    waves = (torch.rand(count, 1, 1, 1, device=device) < 0.35).float() * 1.6
    field = _texture(2 * count, ROWS, columns, 2.5, device).view(count, 2, ROWS, columns) * waves
    y, z = y + field[:, 0], z + field[:, 1]
    grid = torch.stack([(z + 0.5) / wide * 2 - 1, (y + 0.5) / high * 2 - 1], -1)
    beyond = "border" if real else "zeros"
    out = functional.grid_sample(x, grid, mode="bilinear", padding_mode=beyond, align_corners=False)
    return out, wide_now


_ORDINARY = 0.6
"""Share of strips that are ordinary scans: good contrast, little pattern, more rows."""


def on_paper(ink: Tensor, rng: Rng) -> Tensor:
    """Photograph ink (B, 1, h, w), 0 .. 1: grey 0 .. 255. Patterns of the paper stay fainter than its ink."""
    count, _, high, wide = ink.shape
    device = ink.device

    def u(low: float, upper: float) -> Tensor:
        return torch.rand(count, 1, 1, 1, device=device) * (upper - low) + low

    def chance(share: float) -> Tensor:
        return (torch.rand(count, 1, 1, 1, device=device) < share).float()

    paper = u(0.35, 0.98)
    plain = chance(_ORDINARY)
    contrast = torch.where(plain > 0, u(0.35, 0.96), torch.exp(u(float(np.log(0.16)), float(np.log(0.96)))))
    faint = (0.3 * contrast * paper).clamp(max=0.1) * (1 - 0.6 * plain)  # of textures
    ground = paper + _texture(count, high, wide, 2, device) * u(0, 0.08)
    cells = float(rng.uniform(4, 24))
    ground = ground + chance(0.5) * _texture(count, high, wide, cells, device) * u(0, 0.6) * faint
    rows = torch.arange(high, device=device).view(1, 1, high, 1) / high
    cols = torch.arange(wide, device=device).view(1, 1, 1, wide) / high
    for share in (0.3, 0.15):  # guilloche
        way, bend = torch.randn(count, 1, 1, 1, device=device) * 0.6, u(0, 0.06)
        course = rows * way.cos() + cols * way.sin() + bend * torch.sin(6.283 * cols * u(0.5, 3) + u(0, 6.3))
        wave = torch.sin(6.283 * u(5, 22) * course) + u(-0.5, 0.3)
        ground = ground - chance(share) * wave.clamp(0, 1) * torch.minimum(u(0.02, 0.24), 2 * faint)
    worn = 1 - (_texture(count, high, wide, float(rng.uniform(3, 16)), device) * u(0, 0.25)).clamp(0, 0.7)
    kind = rng.random()
    if kind < 0.15:  # a broader pen, and a finer one
        ink = 0.6 * functional.max_pool2d(ink, 3, 1, 1) + 0.4 * ink
    elif kind < 0.25:
        thin = -functional.max_pool2d(-ink, (1, 2), 1, (0, 1))[..., :wide]
        ink = 0.5 * thin + 0.5 * ink
    image = ground * (1 - ink.clamp(0, 1) * contrast * worn)
    return 255 * image * (1 - chance(0.25) * u(0, 0.5) * cols * high / wide)


def camera(image: Tensor, rng: Rng) -> Tensor:
    """Blur, low resolution, noise, few greys: (B, 1, h, w) 0 .. 255; an eighth of a batch is one case."""
    out = []
    for part in image.chunk(8):
        count, _, high, wide = part.shape
        ordinary = rng.random() < _ORDINARY
        low = (
            int(np.exp(rng.uniform(np.log(24 if ordinary else 15), np.log(ROWS))))
            if rng.random() < 0.6
            else high
        )
        blur = rng.uniform(0, 0.7 if ordinary else 1.1)
        if blur > 0.3:
            reach = int(3 * blur) + 1
            at = torch.arange(-reach, reach + 1, device=part.device).float()
            taps = torch.exp(-(at**2) / (2 * blur**2))
            taps = taps / taps.sum()
            part = functional.pad(part, (reach,) * 4, mode="replicate")
            part = functional.conv2d(functional.conv2d(part, taps.view(1, 1, 1, -1)), taps.view(1, 1, -1, 1))
        if low < high:
            size = (low, max(8, wide * low // high))
            part = functional.interpolate(part, size, mode="bilinear", antialias=True)
        loud = part.std((1, 2, 3), keepdim=True).clamp(min=2) * 0.3  # noise, by what is to be seen
        strength = torch.rand(count, 1, 1, 1, device=part.device)
        part = part + torch.randn_like(part) * torch.minimum(7 * strength, loud)
        if rng.random() < 0.3:
            levels = rng.uniform(4, 16)
            part = (part / levels).round() * levels
        part = part.clamp(0, 255).round()
        out.append(functional.interpolate(part, (high, wide), mode="bilinear") if low < high else part)
    return torch.cat(out)


def strips(grey: Tensor, widths: NDArray[np.int64]) -> Tensor:
    """Ink 0 .. 1 of grey strips, as :func:`neocog.vision.strips.ink_of`, nothing beyond their widths."""
    ends = torch.from_numpy(widths).to(grey.device).view(-1, 1, 1, 1)
    inside = torch.arange(grey.shape[3], device=grey.device) < ends
    last = (ends - 1).expand(-1, 1, grey.shape[2], 1)
    grey = torch.where(inside, grey, grey.gather(3, last).mean(2, keepdim=True))
    paper = _box(functional.max_pool2d(_box(grey, 3), 9, 1, 4), 31)
    ink = (paper - grey).clamp(min=0)
    ranked = torch.where(inside, ink, torch.inf).flatten(1).sort(1).values
    count = inside.sum((1, 2, 3)) * ink.shape[2] - 1
    middle, full = (
        ranked.gather(1, (count * share).long()[:, None]).view(-1, 1, 1, 1) for share in (0.5, 0.97)
    )
    return ((ink - middle) / (full - middle).clamp(min=4)).clamp(0, 1) * inside


def _box(x: Tensor, side: int) -> Tensor:
    x = functional.pad(x, (side // 2,) * 4, mode="reflect")
    return functional.avg_pool2d(functional.avg_pool2d(x, (1, side), 1), (side, 1), 1)


def _texture(count: int, high: int, wide: int, cells: float, device: Any) -> Tensor:
    """Smooth noise (count, 1, high, wide) of so many cells a height."""
    size = (max(2, int(cells)), max(2, int(cells * wide / high)))
    coarse = torch.randn(count, 1, *size, device=device)
    return functional.interpolate(coarse, (high, wide), mode="bicubic", align_corners=False)
