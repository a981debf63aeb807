"""A convolution for any maps and filters: ``conv2d_winograd``, by decomposed Winograd on tensor cores."""

from typing import Any

import numpy as np

from experiments.winograd.filters import LEAST_TAPS, MOST_TAPS, filter_split, usual
from neocog.cuda.kernel import Array, Machine, up
from neocog.cuda.winograd import Shape
from neocog.errors import InputError


def conv2d_winograd(x: Any, w: Any, *, padding: int | None = None, machine: Machine | None = None) -> Array:
    """Convolve maps with filters (as deep learning has it: no filter is turned), stride 1.

    ``x`` (B, C, H, W) and ``w`` (K, C, k, k), k from 3 to 51, are float32 arrays of CuPy; ``padding`` is
    (k - 1) // 2 if not given. Errors are below 5e-5 of the largest output. InputError if shapes do not
    fit. Filters are split into parts of at most 4x4 whose products are summed in the Winograd domain (Lee and
    Kwak 2025, section II; Huang et al. 2020), every float32 as two TF32 numbers; each call transforms them.
    """
    planes, channels, kernel = (int(n) for n in w.shape[:3])
    border = (kernel - 1) // 2 if padding is None else padding
    batch, _, height, width = (int(n) for n in x.shape)
    rows, columns = (n + 2 * border - kernel + 1 for n in (height, width))
    fits = w.shape[1:] == (x.shape[1], kernel, kernel) and LEAST_TAPS <= kernel <= MOST_TAPS
    if not fits or min(rows, columns, border + 1) < 1 or not x.dtype == w.dtype == np.float32:
        came = f"maps {x.shape} of {x.dtype}, filters {w.shape} of {w.dtype} and padding {border}"
        wanted = "float32, as many channels, filters of 3x3 to 51x51 that are no larger than the maps"
        raise InputError(f"got {came}, expected {wanted}")
    if machine is None:
        from neocog.cuda.launcher import gpu

        machine = gpu(int(x.device.id))
    xp = machine.xp
    with machine.current():
        side = max(height, width) + 2 * border  # tiles are counted for a square
        held = xp.zeros((batch, side, side, channels), np.float32)
        inside = slice(border, border + height), slice(border, border + width)
        held[:, inside[0], inside[1]] = x.transpose(0, 2, 3, 1)
        plan = usual(Shape(kernel, side, channels, up(planes, 8)), batch, arch=machine.arch)
        u = xp.zeros((plan.split.multiplications(plan.m) * plan.channels * plan.shape.planes,), np.float32)
        machine.launch(filter_split(plan, xp.ascontiguousarray(w), u, "channel-wise"))
        y = xp.empty((batch, plan.shape.out, plan.shape.out, plan.shape.planes), np.float32)
        scratch = {name: xp.empty(*form) for name, form in plan.scratch(batch).items()}
        for launch in plan.launches(batch, held, u, y, scratch, machine.processors):
            machine.launch(launch)
        return xp.ascontiguousarray(y[:, :rows, :columns, :planes].transpose(0, 3, 1, 2))
