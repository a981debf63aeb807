"""A convolution for everybody: ``conv2d_winograd``, by decomposed Winograd on tensor cores."""

from functools import lru_cache
from typing import Any

import numpy as np

from neocog.cuda.kernel import Array, Machine, up
from neocog.cuda.winograd import Shape
from neocog.cuda.winograd_count import LEAST_TAPS, MOST_TAPS, choose
from neocog.cuda.winograd_filters import filter_split
from neocog.errors import DeviceError, InputError

_chosen = lru_cache(maxsize=256)(choose)


def conv2d_winograd(x: Any, w: Any, *, padding: int | None = None, machine: Machine | None = None) -> Array:
    """Convolve maps with filters (as deep learning has it: no filter is turned), stride 1.

    ``x`` (B, C, H, W) and ``w`` (K, C, k, k), k from 3 to 51, are float32: CuPy arrays, or what CuPy
    takes as one. ``padding`` zeros are around each map, (k - 1) // 2 if not given. The result is a
    CuPy array (B, K, H + 2 padding - k + 1, W + 2 padding - k + 1), errors below 5e-5 of the largest
    output. It runs on the GPU that ``x`` or ``w`` lies on, else on the current one. Raises InputError
    if shapes or types do not fit, DeviceError if there is no GPU.

    Filters are split into parts of at most 4x4 whose products are summed in the Winograd domain
    (Lee and Kwak 2025, section II; Huang et al. 2020), on tensor cores with every float32 as the
    sum of two TF32 numbers. Split and tile are chosen by a count of operations and bytes. The
    filters are transformed on the device in every call, threads ordered channel-wise (Algorithm 1).
    """
    _check(x, w, padding)
    if machine is None:
        machine = _gpu(x, w)
    with machine.current():
        return _convolved(x, w, padding, machine)


def _convolved(x: Any, w: Any, padding: int | None, machine: Machine) -> Array:
    xp = machine.xp
    planes, kernel = int(w.shape[0]), int(w.shape[2])
    border = (kernel - 1) // 2 if padding is None else padding
    maps, filters = xp.asarray(x), xp.ascontiguousarray(xp.asarray(w))
    batch, channels, height, width = (int(n) for n in maps.shape)
    rows, columns = (n + 2 * border - kernel + 1 for n in (height, width))
    side = max(height, width) + 2 * border  # tiles are counted for a square
    held = xp.zeros((batch, side, side, channels), np.float32)
    inside = slice(border, border + height), slice(border, border + width)
    held[:, inside[0], inside[1]] = maps.transpose(0, 2, 3, 1)
    plan = _chosen(Shape(kernel, side, channels, up(planes, 8)), batch, arch=machine.arch)
    u = xp.zeros((plan.split.multiplications(plan.m) * plan.channels * plan.shape.planes,), np.float32)
    machine.launch(filter_split(plan, filters, u, "channel-wise"))
    y = xp.empty((batch, plan.shape.out, plan.shape.out, plan.shape.planes), np.float32)
    scratch = {name: xp.empty(*form) for name, form in plan.scratch(batch).items()}
    for launch in plan.launches(batch, held, u, y, scratch, machine.processors):
        machine.launch(launch)
    return xp.ascontiguousarray(y[:, :rows, :columns, :planes].transpose(0, 3, 1, 2))


def _check(x: Any, w: Any, padding: int | None) -> None:
    for name, value, axes in (("x", x, "(B, C, H, W)"), ("w", w, "(K, C, k, k)")):
        shape = getattr(value, "shape", None)
        if shape is None:
            raise InputError(f"{name}: got a {type(value).__name__}, expected an array {axes}")
        if len(shape) != 4 or 0 in shape:
            raise InputError(f"{name}: got shape {tuple(shape)}, expected {axes}, none of them 0")
        if str(value.dtype).rpartition(".")[2] != "float32":
            raise InputError(f"{name}: got {value.dtype}, expected float32")
    kernel = w.shape[2]
    if w.shape[3] != kernel or not LEAST_TAPS <= kernel <= MOST_TAPS:
        raise InputError(f"w: got filters of {w.shape[2]}x{w.shape[3]}, expected 3x3 to 51x51")
    if x.shape[1] != w.shape[1]:
        raise InputError(f"x has {x.shape[1]} channels, w is for {w.shape[1]}: give the same number")
    border = (kernel - 1) // 2 if padding is None else padding
    if not isinstance(border, int) or border < 0:
        raise InputError(f"padding: got {padding!r}, expected 0 or more")
    if min(x.shape[2:]) + 2 * border < kernel:
        raise InputError(
            f"x: maps of {x.shape[2]}x{x.shape[3]} with padding {border} are smaller than the "
            f"{kernel}x{kernel} filters; give more padding"
        )


def _gpu(x: Any, w: Any) -> Machine:
    from neocog.cuda.devices import trouble
    from neocog.cuda.launcher import gpu

    why = trouble()
    if why is not None:
        raise DeviceError(f"conv2d_winograd: {why.partition(';')[0]}; it needs a CUDA device")
    for array in (x, w):
        device = getattr(array, "device", None)
        number = getattr(device, "id", getattr(device, "index", None))  # CuPy's, PyTorch's
        if isinstance(number, int):
            return gpu(number)
    import cupy

    return gpu(int(cupy.cuda.Device().id))
