"""Rounding to what tensor cores take, TF32, of NumPy's and CuPy's arrays alike."""

import numpy as np

from neocog.cuda.kernel import Array


def tf32(x: Array) -> Array:
    """Round finite numbers to TF32 (10 bits of fraction), ties away from zero, as float32."""
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
