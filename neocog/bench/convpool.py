"""A 3x3 convolution and 2x2 average pooling as one operation, in the ways that PyTorch has.

The three ways compute the same: pooling is linear, so it may be moved into the filter (a filter
of 4x4 taps at stride 2) or before the convolution (sums of 2x2 inputs, then the 3x3 filter at
stride 2: the direct sum).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

Tensor = Any

KERNEL, POOL, PADDING = 3, 2, 1


def naive(x: Tensor, w: Tensor) -> Tensor:
    """Convolve, then pool: (B, ci, n, n) and (co, ci, 3, 3) -> (B, co, n/2, n/2)."""
    return functional.avg_pool2d(functional.conv2d(x, w, padding=PADDING), POOL)


def fused(x: Tensor, w: Tensor) -> Tensor:
    """Convolve with :func:`fused_filter` at stride 2."""
    return functional.conv2d(x, w, stride=POOL, padding=PADDING)


def direct_sum(x: Tensor, w: Tensor) -> Tensor:
    """Sum 2x2 inputs at every place, then convolve at stride 2."""
    sums = functional.avg_pool2d(functional.pad(x, [PADDING] * 4), POOL, stride=1)
    return functional.conv2d(sums, w, stride=POOL)


def fused_filter(w: Tensor) -> Tensor:
    """Return the filter (co, ci, 4, 4) that convolves and averages 2x2 at once."""
    out = w.new_zeros((*w.shape[:2], KERNEL + 1, KERNEL + 1))
    for dy in range(POOL):
        for dx in range(POOL):
            out[:, :, dy : dy + KERNEL, dx : dx + KERNEL] += w / POOL**2
    return out


#: name -> (function, what makes its filter of the 3x3 filter)
WAYS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "naive": (naive, torch.clone),
    "fused filter": (fused, fused_filter),
    "direct sum": (direct_sum, torch.clone),
}


def operations(way: str, *, ci: int, co: int, n: int) -> int:
    """Return the operations of one picture, by Table I of the paper on convolution with pooling."""
    k, p = KERNEL, POOL
    if way == "naive":
        return 2 * k**2 * ci * co * n**2 + p**2 * (n // p) ** 2 * co
    if way == "fused filter":
        return (2 * (k + p - 1) ** 2 * ci - 1) * (n // p) ** 2 * co
    return 2 * p * n**2 * ci + (2 * k**2 * ci - 1) * co * (n // p) ** 2
