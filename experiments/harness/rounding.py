"""Rounding to what tensor cores take: TF32 and bfloat16, of NumPy's and CuPy's arrays alike."""

import numpy as np

from neocog.cuda.kernel import Array


def tf32(x: Array) -> Array:
    """Round finite numbers to TF32 (10 bits of fraction), ties away from zero, as float32."""
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)


def bf16(x: Array) -> Array:
    """Round finite numbers to bfloat16, ties to even; return the 16 bits as uint16."""
    bits = x.astype(np.float32).view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    return ((bits + (odd + np.uint32(0x7FFF))) >> np.uint32(16)).astype(np.uint16)


def of_bf16(bits: Array) -> Array:
    """Return what bits of bfloat16 stand for, as float32."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
