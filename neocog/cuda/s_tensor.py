"""S-cells on tensor cores: how ``kernels/s_tensor.cu`` is specialised, fed and launched."""

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from neocog.cuda.kernel import Array, Forms, Kernel, Launch, LayerStep, Place, Precision, named
from neocog.cuda.tilings import Shape, Tiling, choose, clustered
from neocog.network.model import s_constants

#: MODE in the kernel: products of halves, or of two halves a number.
_MODES: dict[Precision, int] = {"fp16": 0, "fp32": 3}


class TensorS(LayerStep):
    """US1 .. US4 as an implicit matrix product on tensor cores; operands of ``fp32`` are sums of two halves.

    ``tilings`` by batch are taken instead of those of :func:`neocog.cuda.tilings.choose`.
    """

    kind = "S"
    version: ClassVar[str] = "tensor"

    def __init__(self, *place: *Place, tilings: dict[int, Tiling] | None = None) -> None:
        super().__init__(*place)
        machine, model, layer, _, precision = place
        kernel, s, t = model.spec.s[layer].kernel, self.source, self.target
        self.taps = kernel
        self.shape = Shape(kernel, s.width, s.channels, t.size, t.channels, _MODES[precision])
        weights = model.s[layer]
        a, theta, silence = s_constants(weights)
        self._a, self._silence = np.asarray(a, dtype=np.float64), np.asarray(silence)
        self._theta = np.float32(theta)
        # the largest weight becomes 1 .. 2, a power of two away: halves reach down to 6e-8
        largest = float(np.abs(self._a).max()) or 1.0
        self._scale = np.float32(2.0 ** np.floor(np.log2(largest)))
        self._c = machine.xp.asarray(np.ascontiguousarray(weights.c, dtype=np.float32))
        profile = np.sqrt((self._a**2).sum(axis=1)).max(axis=0) / self._scale
        self._profile = machine.xp.asarray(profile.astype(np.float32))
        self.tilings = dict(tilings or {})
        self._packed: dict[tuple[int, ...], Array] = {}
        self._silences: dict[int, Array] = {}

    def tiling(self, batch: int) -> Tiling:
        if batch not in self.tilings:
            self.tilings[batch] = choose(self.shape, batch, self.machine.arch)
        return self.tilings[batch]

    def launches(self, batch: int, source: Array, target: Array, scratch: dict[str, Array]) -> list[Launch]:
        s, machine, tiling = self.shape, self.machine, self.tiling(batch)
        defines = {
            "MODE": s.mode, "MAP": self.source.code, "OUT_MAP": self.target.code, "KSIZE": s.kernel,
            "IN_W": s.width, "IN_C": s.channels, "OUT": s.out, "OUT_C": s.planes,
            **named(tiling, "group rows wm wn wk mt nt ksplit chunks"), "STAGE_TAPS": tiling.stage,
            **named(tiling, "depth wgmma compact"),
            "CLUSTER": int(clustered(s, tiling, batch, machine.arch, machine.processors)),
        }  # fmt: skip
        registers, (arch, features) = (
            min(255, 65536 // tiling.threads),
            (90, "a") if tiling.wgmma else (80, ""),
        )
        kernel = Kernel("s_tensor.cu", "s_tensor", tuple(defines.items()), tiling.threads, s.shared(tiling),
                        arch, registers, features)  # fmt: skip
        planes = s.slices(tiling) * tiling.wn * tiling.nt * 8
        if planes not in self._silences:
            padded = np.full(planes, 1e30, dtype=np.float32)
            padded[: len(self._silence)] = self._silence / self._scale
            self._silences[planes] = machine.xp.asarray(padded)
        key = (tiling.nt, tiling.wn, tiling.ksplit, tiling.chunks, tiling.wgmma)
        if key not in self._packed:
            self._packed[key] = machine.xp.asarray(pack(self._a / float(self._scale), s, tiling))
        weights = self._packed[key], self._c, self._profile, self._silences[planes]
        shared = scratch["partial"], scratch["arrivals"]
        numbers = np.int32(batch), self._theta, np.float32(1 / self._scale)
        return [Launch(kernel, s.blocks(tiling, batch), (source, *weights, target, *shared, *numbers))]

    def scratch(self, batch: int) -> Forms:
        """Parts of sums, and a count of blocks that came, where blocks share a window."""
        t = self.tiling(batch)
        if t.ksplit == 1:
            return {"partial": ((1,), np.float32), "arrivals": ((1,), np.uint32)}
        blocks = self.shape.blocks(t, batch)
        return {
            "partial": ((blocks[0] * blocks[1] * t.ksplit * self.shape.part(t),), np.float32),
            "arrivals": ((blocks[0] * blocks[1],), np.uint32),
        }


def pack(a: NDArray[np.float64], shape: Shape, tiling: Tiling) -> NDArray[np.uint32]:
    """Pack weights (K, K', kernel, kernel) in the order in which warps take them, 32-bit words, flat.

    Slice of planes, part of the window or of the channels, tap, step, warp along planes, (MODE 3: higher,
    lower halves,) tiles of planes; a lane ends with four planes of two tiles that follow one another.
    """
    k, inputs = a.shape[:2]
    slices, tiles = shape.slices(tiling) * tiling.wn, tiling.nt
    # a window's run of values, in the order of the kernel's steps
    runs = np.zeros((k, shape.kernel, *((8, 2) if shape.pair else (shape.kernel, shape.channels))))
    runs[:, :, : shape.kernel, :inputs] = a.transpose(0, 2, 3, 1)
    if tiling.chunks > 1:  # a chunk of the channels of all taps, then the next
        runs = runs.reshape(k, shape.taps(tiling), tiling.chunks, -1).transpose(0, 2, 1, 3)
    full = np.zeros((slices * tiles * 8, shape.taps(tiling) * tiling.ksplit * shape.steps * 16))
    full[:k] = runs.reshape(k, -1)
    # plane, among those of a warp, of each column of each tile
    tile, n = np.divmod(np.arange(8 * tiles), 8)
    paired = tile // 2 * 16 + n // 2 * 4 + tile % 2 * 2 + n % 2
    columns = np.where(tile < tiles // 2 * 2, paired, tile * 8 + n)
    # (slice of a block, warp, tile, column) x (part, tap and step, depth of a step)
    full = full.reshape(slices, tiles * 8, tiling.ksplit, -1, 16)
    full = full[:, columns].reshape(slices // tiling.wn, tiling.wn, tiles, 8, tiling.ksplit, -1, 16)
    # -> block slice, part, step, warp, tile, column, depth
    full = full.transpose(0, 4, 5, 1, 2, 3, 6)
    halves = [full.astype(np.float16)]
    if shape.mode == 3:
        halves.append((full - halves[0].astype(np.float64)).astype(np.float16))
    words = [_words(np.ascontiguousarray(half).view(np.uint32), tiling.wgmma) for half in halves]
    return np.ascontiguousarray(np.stack(words, axis=4)).reshape(-1)


def _words(words: NDArray[np.uint32], wgmma: bool) -> NDArray[np.uint32]:
    """(..., tile, column, 8 words) -> (..., words) as an instruction takes them."""
    *lead, tiles = words.shape[:-2]
    held = words.reshape(*lead, tiles, 8, 2, 4)
    if wgmma:  # half of the depth, column, 4 words
        return np.moveaxis(held, -2, -3).reshape(*lead, -1)
    # lane (column, t) holds words t and t + 4
    held = np.moveaxis(held, -2, -1).reshape(*lead, tiles, 32, 2)  # tile, lane, (b0, b1)
    even = tiles // 2 * 2
    pairs = held[..., :even, :, :].reshape(*lead, even // 2, 2, 32, 2)
    pairs = np.moveaxis(pairs, -3, -2).reshape(*lead, -1)
    return np.concatenate([pairs, held[..., even:, :, :].reshape(*lead, -1)], axis=-1)
