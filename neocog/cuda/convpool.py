"""Convolution and average pooling as one operation: ``kernels/conv_avgpool.cu``.

The mean of p x p neighbouring results of a convolution is the convolution, at stride p, of the
means of p x p neighbouring inputs (the *direct sum* of papers on convolution with pooling): p^2
times fewer products. One kernel does it, with no map in between.
"""

from typing import Any, get_args

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from neocog.cuda.convpool_tilings import Shape, Tiling, choose, kernel
from neocog.cuda.kernel import Array, Launch, Machine, up
from neocog.cuda.rounding import bf16, of_bf16, tf32
from neocog.cuda.steps import MODES, Precision
from neocog.errors import InputError, UsageError
from neocog.network.arrays import array_module

KERNELS = range(1, 12)  # taps a side
POOLS = range(2, 5)
#: Type of the arrays by precision; bfloat16 is held as its 16 bits.
DTYPES: dict[Precision, str] = {"fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "uint16"}
_MOST_PLACES = 2**31 - 1  # that the kernel counts to, in units of 16 bytes a picture


def conv_avgpool(
    x: Array, w: Array, pool: int, *, padding: int = 0, precision: Precision | None = None
) -> Array:
    """Convolve, then average over ``pool`` x ``pool`` places, as one operation on a GPU.

    The same as ``avg_pool2d(conv2d(x, w, padding=padding), pool)`` of PyTorch: places that fill
    no whole box are left out. For weights that stay the same, :class:`ConvAvgPool` packs them
    once. Runs on the device of ``w``, on the stream that is current there, without waiting for the
    result; NumPy's arrays are computed by NumPy.

    ``x`` (B, C, H, W) and ``w`` (K, C, k, k), k of 1 .. 11, are both float32, float16 or uint16
    (bfloat16); ``pool`` is 2 .. 4. Quickest is a view of channel-last memory where C fills units of 16
    bytes; any other ``x`` is copied first. float32 may be multiplied as ``"fp32"`` (each number as two
    of TF32; the default) or ``"tf32"``; sums are float32. The result, of the same type, is a view of
    channel-last memory, (B, K, (H + 2 padding - k + 1) // pool, ...). Raises InputError for arrays of
    another type or shape or of two devices, UsageError if filter, pooling, padding or precision cannot
    be, DeviceError if the device cannot run the kernel.

    The direct sum is the method of the paper on convolution and average pooling that
    ``neocog bench convpool`` repeats, there as a kernel for sums and a library's matrix product.
    """
    return ConvAvgPool(w, pool, padding=padding, precision=precision)(x)


class ConvAvgPool:
    """:func:`conv_avgpool` whose weights are packed once, on ``machine`` or the device of ``w``.

    Packed weights and scratch are kept from call to call: all calls go on one stream, or wait for
    one another. ``box`` places a side are averaged in front of the product: ``pool`` if not given, 1
    for inputs that are averaged already. ``tiling`` is taken instead of what `choose` picks.
    """

    def __init__(
        self,
        w: Array,
        pool: int,
        *,
        padding: int = 0,
        precision: Precision | None = None,
        box: int | None = None,
        tiling: Tiling | None = None,
        machine: Machine | None = None,
    ) -> None:
        self.precision = _precision_of(w, precision)
        self.pool, self.padding, self.box = pool, padding, pool if box is None else box
        _check_filter(w, pool, padding)
        self._machine = machine or _gpu_of(w)
        self._w, self._tiling = w, tiling
        self.planes, self.inputs, self.kernel = int(w.shape[0]), int(w.shape[1]), int(w.shape[2])
        self._packed: dict[tuple[int, int], Array] = {}
        self._scratch: dict[tuple[int, int], tuple[Array, Array]] = {}

    def __call__(self, x: Array) -> Array:
        """Return the pooled convolution of x (B, C, H, W), a view of channel-last memory."""
        machine = self._machine
        if machine is None:
            return self._by_numpy(x)
        with machine.current():
            stored = self.stored(x)
            s = self.shape(stored.shape)
            out = machine.xp.empty((s.batch, s.out_height, s.out_width, s.planes), stored.dtype)
            machine.launch(self.launch(stored, out))
        return out.transpose(0, 3, 1, 2)

    def _by_numpy(self, x: Array) -> Array:
        """Return the same by NumPy, in float64 until it is rounded."""
        _check_input(x, self)
        halves = self.precision == "bf16"
        given, w = (of_bf16(a) if halves else a for a in (x, self._w))
        pad = (self.padding, self.padding)
        padded = np.pad(given.astype(np.float64), ((0, 0), (0, 0), pad, pad))
        means = sliding_window_view(padded, (self.box, self.box), (2, 3)).mean((4, 5))
        windows = sliding_window_view(means, w.shape[2:], (2, 3))[:, :, :: self.pool, :: self.pool]
        y = np.einsum("bchwij,kcij->bkhw", windows, w.astype(np.float64))
        return bf16(y) if halves else y.astype(x.dtype)

    def stored(self, x: Array) -> Array:
        """Return x (B, C, H, W) as the kernel reads it: channel-last, in whole units."""
        _check_input(x, self)
        xp = array_module(x)
        last = x.transpose(0, 2, 3, 1)
        channels = up(self.inputs, 16 // last.dtype.itemsize)
        if channels == self.inputs:
            return last if last.flags.c_contiguous else xp.ascontiguousarray(last)
        filled = xp.zeros((*last.shape[:3], channels), last.dtype)
        filled[..., : self.inputs] = last
        return filled

    def shape(self, stored: tuple[int, ...]) -> Shape:
        """Return the sizes for an input as the kernel reads it, (B, H, W, C)."""
        batch, height, width, channels = stored
        outer = self.kernel + self.box - 1  # what one output sees
        rows, columns = ((n + 2 * self.padding - outer) // self.pool + 1 for n in (height, width))
        return Shape(
            *(batch, channels, self.planes, rows, columns),
            kernel=self.kernel,
            pool=self.pool,
            box=self.box,
            precision=self.precision,
        )

    def launch(self, stored: Array, out: Array) -> Launch:
        """Return the launch for x as :meth:`stored` gives it, into out (B, H', W', K)."""
        machine = self._machine
        assert machine is not None
        shape = self.shape(stored.shape)
        tiling = self._tiling or choose(shape, machine.arch, machine.processors)
        items = shape.items(tiling)
        lasting = tiling.wgmma and tiling.split == 1  # blocks take item after item
        blocks = min(items, machine.processors) if lasting else items
        numbers = (*stored.shape, shape.out_height, shape.out_width, self.planes, self.padding, tiling.split)
        args = (
            *(stored, self._weights(machine.xp, shape, tiling), out),
            *self._parts(machine.xp, shape, tiling),
            *(np.int32(n) for n in numbers),
        )
        return Launch(kernel(shape, tiling), (blocks, 1, 1), args)

    def _parts(self, xp: Any, shape: Shape, tiling: Tiling) -> tuple[Array, Array]:
        """Parts of sums, and counts of blocks that came (0 before and after a launch)."""
        groups = max(tiling.groups, 1)
        sums = tiling.patches * 64 * tiling.planes * shape.items(tiling) if tiling.split > 1 else 1
        counts = shape.tiles(tiling) * shape.slices(tiling) * groups
        key = sums, counts
        if key not in self._scratch:
            self._scratch[key] = xp.empty(sums, np.float32), xp.zeros(counts, np.uint32)
        return self._scratch[key]

    def _weights(self, xp: Any, shape: Shape, tiling: Tiling) -> Array:
        key = (tiling.planes, tiling.units)
        if key not in self._packed:
            self._packed[key] = pack(xp, self._w, shape, tiling)
        return self._packed[key]


def pack(xp: Any, w: Array, shape: Shape, tiling: Tiling) -> Array:
    """Pack filters (K, C, k, k) in the order in which blocks take them.

    Returns 32-bit words, flat: slice of planes, chunk of channels, tap, (fp32: higher, lower part,) unit,
    plane, channel of the unit. Planes are dealt so that a lane ends with eight neighbouring ones.
    """
    planes, inputs = w.shape[:2]
    slices, chunks, taps = shape.slices(tiling), shape.chunks(tiling), shape.kernel**2
    values = shape.values
    full = xp.zeros((slices * tiling.planes, taps, chunks * tiling.units * values), w.dtype)
    full[:planes, :, :inputs] = w.reshape(planes, inputs, taps).transpose(0, 2, 1)
    column = np.arange(tiling.planes)
    tile, n = column // 8, column % 8
    dealt = xp.asarray(32 * (tile // 4) + 8 * (n // 2) + 2 * (tile % 4) + n % 2)
    full = full.reshape(slices, tiling.planes, taps, chunks, tiling.units, values)[:, dealt]
    full = full.transpose(0, 3, 2, 4, 1, 5)  # slice, chunk, tap, unit, plane, channel
    if shape.mode >= 2:
        high = tf32(full)
        parts = [high] if shape.mode == 2 else [high, tf32(full - high)]
        full = xp.stack(parts, axis=3)
    return xp.ascontiguousarray(full).reshape(-1).view(np.uint32)


def _precision_of(w: Array, precision: Precision | None) -> Precision:
    """Return the precision asked for, or the one that the type of an array stands for."""
    if precision is not None and precision not in get_args(Precision):
        raise UsageError(f"precision {precision!r}: expected one of {', '.join(MODES)}")
    dtype = str(getattr(w, "dtype", type(w).__name__))
    fitting = [p for p in MODES if DTYPES[p] == dtype]
    if not fitting:
        raise InputError(f"got filters of {dtype}, expected float32, float16 or uint16 (bfloat16)")
    if precision is None:
        return "fp32" if dtype == "float32" else fitting[0]
    if precision not in fitting:
        raise InputError(f"got filters of {dtype} for {precision}, expected {DTYPES[precision]}")
    return precision


def _check_filter(w: Array, pool: int, padding: int) -> None:
    if w.ndim != 4 or w.shape[2] != w.shape[3] or 0 in w.shape:
        raise InputError(f"got filters {w.shape}, expected (planes, channels, k, k)")
    if w.shape[2] not in KERNELS:
        raise UsageError(f"a filter of {w.shape[2]}x{w.shape[2]}: expected 1x1 .. 11x11")
    if pool not in POOLS:
        raise UsageError(f"pooling {pool}: expected 2, 3 or 4")
    if padding < 0:
        raise UsageError(f"padding {padding}: expected 0 or more")


def _check_input(x: Array, layer: ConvAvgPool) -> None:
    xp = layer._machine.xp if layer._machine else np
    if not isinstance(x, xp.ndarray):
        raise InputError(
            f"got a {type(x).__module__}.{type(x).__name__} with filters of {xp.__name__}, "
            f"expected a {xp.__name__} array"
        )
    if str(x.dtype) != DTYPES[layer.precision]:
        raise InputError(f"got inputs of {x.dtype}, expected {DTYPES[layer.precision]}, as filters")
    if x.ndim != 4 or x.shape[1] != layer.inputs or 0 in x.shape:
        raise InputError(f"got inputs {x.shape}, expected (batch, {layer.inputs}, height, width)")
    least = layer.kernel + layer.box - 1
    if min(x.shape[2:]) + 2 * layer.padding < least:
        raise InputError(
            f"inputs of {x.shape[2]}x{x.shape[3]} with padding {layer.padding} are smaller than "
            f"filter and pooling together, {least}x{least}"
        )
    if x.shape[2] * x.shape[3] * up(layer.inputs, 8) > _MOST_PLACES:
        raise InputError(f"inputs {x.shape}: a picture has too many values; cut it into parts")


def _gpu_of(w: Array) -> Machine | None:
    """Return the device of an array; None for NumPy's."""
    if isinstance(w, np.ndarray):
        return None
    if type(w).__module__.partition(".")[0] != "cupy":
        raise InputError(f"got filters of type {type(w).__name__}, expected a CuPy or NumPy array")
    from neocog.cuda.launcher import gpu

    return gpu(int(w.device.id))
