"""S-cells on CUDA cores: how ``kernels/s_direct.cu`` is specialised, fed and launched."""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

import numpy as np

from neocog.cuda.kernel import Array, Kernel, Launch, Layout, Machine
from neocog.cuda.steps import Precision, Step, Work, s_work, up
from neocog.cuda.tilings import shared_limit
from neocog.errors import UsageError
from neocog.network.layers import s_constants
from neocog.network.model import Model

#: Registers a thread by the cells and planes that it holds: what ptxas needs, and a few to spare.
_REGISTERS = {(8, 8): 168, (8, 4): 120, (4, 8): 120, (4, 4): 80, (2, 4): 64}
#: Bytes of weights in shared memory at a time: for many digits, and for few, where each wait for
#: the next ones is long beside what is done with them.
_STAGE, _LONG_STAGE = 8192, 49152
#: Cycles from asking for weights to having them.
_WAIT = 700
#: 32-bit registers and bytes of shared memory of one multiprocessor (compute capability 9.0).
_REGISTER_FILE, _SHARED_FILE = 65536, 233472


@dataclass(frozen=True, slots=True)
class Shape:
    """What a layer asks of the kernel: sizes of its window, input and output."""

    kernel: int
    width: int
    channels: int
    depth: int
    out: int
    planes: int

    @property
    def vector(self) -> int:
        """Channels that a thread reads at once."""
        return 4 if self.depth % 4 == 0 else 2

    @property
    def pitch(self) -> int:
        """Floats a pixel in shared memory: neighbours lie in different banks."""
        return self.depth + 4 if self.depth % 8 == 0 else self.depth


@dataclass(frozen=True, slots=True)
class Tiling:
    """How cells and planes are dealt to blocks, warps and threads.

    Attributes
    ----------
    group, rows : int
        Digits, and rows of cells of each, that a block computes.
    ln : int
        Lanes of a warp along the planes.
    wm, wn : int
        Warps along cells and planes.
    tm, tn : int
        Cells and planes that a thread holds.
    wk : int
        Sets of such warps, among which the channels are shared out.
    """

    group: int
    rows: int
    ln: int
    wm: int
    wn: int
    tm: int
    tn: int
    wk: int = 1

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.wm * self.wn * self.wk

    @property
    def registers(self) -> int:
        """Registers that a thread may take."""
        return _REGISTERS[self.tm, self.tn]

    @property
    def planes(self) -> int:
        """Planes of a block."""
        return self.wn * self.ln * self.tn


class CudaCoreS(Step):
    """US1 .. US4 on CUDA cores; sums and products are float32 in every precision.

    Parameters
    ----------
    machine : Machine
        Where to run.
    model : Model
        Whose layer.
    layer : int
        0 .. 3 for US1 .. US4.
    layouts : dict
        Of :func:`neocog.cuda.steps.layouts`.
    precision : {"fp32", "tf32", "fp16", "bf16"}
        Type of the maps, as in ``layouts``.
    """

    def __init__(
        self,
        machine: Machine,
        model: Model,
        layer: int,
        layouts: dict[str, Layout],
        precision: Precision,
    ) -> None:
        self.reads, self.writes = (f"UC{layer}" if layer else "UG"), f"US{layer + 1}"
        self._machine = machine
        self._source, self._target = layouts[self.reads], layouts[self.writes]
        depth = min(self._source.channels, up(self._source.planes, 4))
        self.shape = Shape(
            model.spec.s[layer].kernel,
            self._source.width,
            self._source.channels,
            depth,
            self._target.size,
            self._target.channels,
        )
        a, self._theta, silence = s_constants(model.s[layer])
        self._a, self._silence_of_planes = np.asarray(a), np.asarray(silence)
        self._c = machine.xp.asarray(np.ascontiguousarray(model.s[layer].c, dtype=np.float32))

    def _defines(self) -> dict[str, int]:
        s = self.shape
        return {
            "MAP": self._source.code,
            "OUT_MAP": self._target.code,
            "KSIZE": s.kernel,
            "WIDTH": s.width,
            "CHANNELS": s.channels,
            "DEPTH": s.depth,
            "OUT": s.out,
            "OUT_CHANNELS": s.planes,
        }

    def _constants(self, slices: int, planes: int) -> tuple[Array, Array]:
        """Return weights (slices, taps, depth, planes of a slice) and s of all planes."""
        s, (k, inputs) = self.shape, self._a.shape[:2]
        weights = np.zeros((s.kernel**2, s.depth, slices * planes), dtype=np.float32)
        weights[:, :inputs, :k] = self._a.transpose(2, 3, 1, 0).reshape(s.kernel**2, inputs, k)
        dealt = weights.reshape(s.kernel**2, s.depth, slices, planes).transpose(2, 0, 1, 3)
        silence = np.full(slices * planes, 1e30, dtype=np.float32)
        silence[:k] = self._silence_of_planes
        xp = self._machine.xp
        return xp.asarray(np.ascontiguousarray(dealt)), xp.asarray(silence)

    @abstractmethod
    def launches(
        self, batch: int, source: Array, target: Array, scratch: dict[str, Array]
    ) -> list[Launch]:
        """One launch."""

    def work(self) -> Work:
        """Return the work by the plain equations."""
        return s_work(self._source, self._target, self.shape.kernel)


class NaiveS(CudaCoreS):
    """One thread a cell and plane, everything gathered from global memory."""

    version: ClassVar[str] = "naive"
    _uploaded: tuple[Array, Array] | None = None

    def launches(
        self, batch: int, source: Array, target: Array, scratch: dict[str, Array]
    ) -> list[Launch]:
        """One launch."""
        s = self.shape
        if self._uploaded is None:
            self._uploaded = self._constants(1, s.planes)
        weights, silence = self._uploaded
        kernel = Kernel(
            "s_direct.cu", "s_naive", (*self._defines().items(), ("NAIVE", 1)), registers=64
        )
        grid = (-(-(s.out**2) * s.planes // 256), 1, batch)
        return [Launch(kernel, grid, (source, weights, self._c, silence, target, self._theta))]


class DirectS(CudaCoreS):
    """Input in shared memory, cells x planes in registers.

    ``tilings`` (tiling by batch) are taken instead of those that :func:`choose` picks; each has
    warps for all cells of a block.
    """

    version: ClassVar[str] = "direct"

    def __init__(
        self,
        machine: Machine,
        model: Model,
        layer: int,
        layouts: dict[str, Layout],
        precision: Precision,
        *,
        tilings: dict[int, Tiling] | None = None,
    ) -> None:
        super().__init__(machine, model, layer, layouts, precision)
        self._tilings = dict(tilings or {})
        self._uploaded: dict[int, tuple[Array, Array]] = {}

    def tiling(self, batch: int) -> Tiling:
        """Return the tiling for a batch."""
        if batch not in self._tilings:
            machine = self._machine
            self._tilings[batch] = choose(self.shape, batch, machine.arch, machine.processors)
        return self._tilings[batch]

    def launches(
        self, batch: int, source: Array, target: Array, scratch: dict[str, Array]
    ) -> list[Launch]:
        """One launch."""
        t, s = self.tiling(batch), self.shape
        slices = -(-s.planes // t.planes)
        if t.planes not in self._uploaded:
            self._uploaded[t.planes] = self._constants(slices, t.planes)
        weights, silence = self._uploaded[t.planes]
        grid = (-(-batch // t.group) * -(-s.out // t.rows), slices, 1)
        args = (source, weights, self._c, silence, target, self._theta, np.int32(batch))
        return [Launch(self.kernel(t), grid, args)]

    def kernel(self, t: Tiling) -> Kernel:
        """Return the kernel, specialised for a tiling."""
        assert t.group * t.rows * self.shape.out <= t.wm * (32 // t.ln) * t.tm
        defines = self._defines() | {
            "GROUP": t.group,
            "ROWS": t.rows,
            "LN": t.ln,
            "WM": t.wm,
            "WN": t.wn,
            "WK": t.wk,
            "TM": t.tm,
            "TN": t.tn,
            "STAGE": stage_taps(self.shape, t),
        }
        return Kernel(
            "s_direct.cu",
            "s_direct",
            tuple(defines.items()),
            t.threads,
            shared_bytes(self.shape, t),
            arch=80,
            registers=t.registers,
        )


def stage_taps(shape: Shape, tiling: Tiling) -> int:
    """Return how many taps of weights wait in shared memory at a time."""
    tap = shape.depth * tiling.planes * 4
    most = _STAGE if tiling.wk == 1 else _LONG_STAGE
    for taps in (shape.kernel**2, shape.kernel):
        if taps * tap <= most:
            return taps
    return 1


def shared_bytes(shape: Shape, tiling: Tiling) -> int:
    """Return the bytes of shared memory of a block: v, input, weights and energy, or parts."""
    pixels = tiling.group * (tiling.rows + shape.kernel - 1) * shape.width
    taps = stage_taps(shape, tiling)
    stages = (1 if taps == shape.kernel**2 else 2) * taps * shape.depth * tiling.planes
    parts = (tiling.wk - 1) * tiling.wm * tiling.wn * 32 * tiling.tm * tiling.tn
    cells = up(tiling.group * tiling.rows * shape.out, 4)
    return 4 * (cells + max(up(pixels * shape.pitch, 4) + stages + pixels, parts))


def choose(shape: Shape, batch: int, arch: int, processors: int) -> Tiling:
    """Return the tiling with the least estimated time.

    Raises
    ------
    UsageError
        If the layer does not fit the device's shared memory in any way.
    """
    limit = shared_limit(arch)
    fitting = [t for t in _tilings(shape, batch) if shared_bytes(shape, t) <= limit]
    if not fitting:
        raise UsageError(
            f"S version 'direct': {shape.depth} input planes do not fit {limit} bytes of shared "
            "memory; choose another version"
        )
    return min(fitting, key=lambda t: cycles(shape, t, batch, processors))


def _tilings(shape: Shape, batch: int) -> Iterator[Tiling]:
    bands = sorted({-(-shape.out // n) for n in range(1, shape.out + 1)})
    shares = [(1, rows) for rows in bands]
    shares += [(group, shape.out) for group in (2, 3, 4, 6, 8) if group <= batch]
    for (group, rows), ln, (tm, tn) in product(shares, (1, 2, 4, 8), _REGISTERS):
        wm = -(-group * rows * shape.out // (32 // ln * tm))
        for wn in range(1, -(-shape.planes // (ln * tn)) + 1):
            for wk in (1, 2, 4, 8):
                t = Tiling(group, rows, ln, wm, wn, tm, tn, wk)
                if t.threads > 512 or t.threads * t.registers > _REGISTER_FILE:
                    break
                if shape.depth % (wk * shape.vector) == 0 or wk * shape.vector * 4 <= shape.depth:
                    yield t


def cycles(shape: Shape, t: Tiling, batch: int, processors: int) -> float:
    """Return the estimated cycles of a launch.

    Counted: instructions issued, four a cycle and processor, or the turns that loads take in shared
    memory (one for each 128 bytes of a warp, two at least for loads of 16 bytes), whichever is
    more; the filling of shared memory; how well few warps hide what they wait for; and the wait for
    each stage of weights.
    """
    sets, window = t.wm * t.wn, shape.kernel**2
    pixels = t.group * (t.rows + shape.kernel - 1) * shape.width
    issue = (t.tm * t.tn + t.tm / shape.vector + t.tn / 4) / 4
    turns = t.tm / shape.vector * max(shape.vector / 2, 32 // t.ln * shape.vector / 32) + t.tn / 2
    depth = -(-shape.depth // (t.wk * shape.vector)) * shape.vector * t.wk
    busy = sets * window * depth * max(issue, turns)
    busy += pixels * shape.depth / shape.vector * 16 / 32 / 4
    busy += window * shape.depth * t.planes / 4 * 4 / 32 / 4
    slices = -(-shape.planes // t.planes)
    blocks = -(-batch // t.group) * -(-shape.out // t.rows) * slices
    rounds = -(-blocks // processors)
    resident = min(
        _SHARED_FILE // (shared_bytes(shape, t) + 1024),
        _REGISTER_FILE // (t.threads * t.registers),
        rounds,
    )
    hidden = min(1.0, 0.4 + max(resident, 1) * sets * t.wk / 20)
    stages = window // stage_taps(shape, t)
    return rounds * max(busy / hidden, stages * _WAIT / max(resident, 1)) + 1500


#: By name, the quickest first.
VERSIONS: dict[str, type[CudaCoreS]] = {cls.version: cls for cls in (DirectS, NaiveS)}
