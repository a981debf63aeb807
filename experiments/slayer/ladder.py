"""The GPU paper's own S-kernels: how ``kernels/s_paper.cu`` is specialised, fed and launched.

Ikeda et al. (2011), section 5. They are there to be measured, not to recognise with: maps have no
silent border, one character at a time was what they were made for.
"""

from typing import Any, ClassVar

import numpy as np

from neocog.cuda.kernel import Array, Kernel, Launch, Layout, Machine, up
from neocog.cuda.plan import Shelf
from neocog.cuda.steps import Forms, LayerStep
from neocog.errors import UsageError
from neocog.network.layers import s_constants
from neocog.network.model import Model
from neocog.network.spec import NetworkSpec

_WARP = 32
_MOST_THREADS = 1024
#: Registers that 1 024 threads may have, and that few threads may.
_REGISTERS, _MANY_REGISTERS = 64, 128
#: Threads that keep a large GPU busy, and most groups of them that share a place (``skip``).
_BUSY_THREADS, _MOST_GROUPS = 147456, 8
_EVERYWHERE = 10**6  # DISC where no tap is left out
#: Threads a block that the paper's trial found best for its smallest layer (section 6.1).
_USUAL_THREADS = 64


def paper_layouts(spec: NetworkSpec, planes: tuple[int, int, int]) -> dict[str, Layout]:
    """Return the layout of UG .. US4 as the paper's kernels have them: float32, no border."""
    layers = (spec.orientations, *planes)
    counts = (2, *(k for own in layers for k in (own, own)))
    names = ("UG", "US1", "UC1", "US2", "UC2", "US3", "UC3", "US4")
    return {name: Layout(k, spec.size(name), 0, k) for name, k in zip(names, counts, strict=False)}


class PaperS(LayerStep):
    """US1 .. US4 by one rung; ``places`` are the neighbouring cells that a block computes."""

    kind = "S"
    rung: ClassVar[int]
    kernel_name: ClassVar[str]
    #: Whether planes are padded to whole warps.
    padded: ClassVar[bool] = False
    #: More that its kernel is built with.
    defines: ClassVar[dict[str, str | int]] = {}

    def __init__(
        self, machine: Machine, model: Model, layer: int, layouts: dict[str, Layout], places: int = 0
    ) -> None:
        super().__init__(machine, model, layer, layouts, "fp32")
        self.taps = model.spec.s[layer].kernel
        a, self._theta, silence = s_constants(model.s[layer])
        self._c = np.ascontiguousarray(model.s[layer].c, dtype=np.float32)
        self.stride = up(len(a), _WARP) if self.padded else len(a)
        if self.stride > _MOST_THREADS:
            raise UsageError(
                f"S version {self.version!r}: {len(a)} planes, a block has {_MOST_THREADS} threads"
            )
        usual = max(1, _USUAL_THREADS // self.stride)
        self.places = places or max((n for n in self.choices() if n <= usual), default=1)
        if self.places not in self.choices():
            raise UsageError(
                f"S version {self.version!r}: {self.places} places a block do not fit "
                f"{self.writes}; choose {self.choices()[:1]} .. {self.choices()[-1:]}"
            )
        taps = np.zeros((self.taps**2, a.shape[1], self.stride), np.float32)
        taps[..., : len(a)] = np.asarray(a).transpose(2, 3, 1, 0).reshape(*taps.shape[:2], -1)
        xp = machine.xp
        self._weights, self._silence = xp.asarray(taps), xp.asarray(np.asarray(silence))
        self._c_there = xp.asarray(self._c)

    @property
    def threads(self) -> int:
        return self.places * self.stride

    def choices(self) -> list[int]:
        limit = getattr(self.machine, "shared", 48 * 1024)
        most = min(self.target.size, _MOST_THREADS // self.stride)
        return [n for n in range(1, most + 1) if self._shared(n) <= limit]

    def _shared(self, places: int) -> int:
        return 0

    def _grid(self, batch: int) -> tuple[int, int, int]:
        strips = -(-self.target.size // self.places)
        return self.target.size * strips, 1, batch

    def _built(self, name: str, threads: int, shared: int = 0, **more: str | int) -> Kernel:
        defines: dict[str, str | int] = {
            "VERSION": self.rung, "KSIZE": self.taps, "PAD": self.padding, "SIZE": self.source.size,
            "DEPTH": self.source.planes, "OUT": self.target.size, "PLANES": self.target.planes,
            "STRIDE": self.stride, "DISC": connecting_area(self._c),
        }  # fmt: skip
        defines |= self.defines | more
        registers = _REGISTERS if self.rung >= 4 else _MANY_REGISTERS
        return Kernel("s_paper.cu", name, tuple(defines.items()), threads, shared, registers=registers)

    def kernel(self) -> Kernel:
        return self._built(self.kernel_name, self.threads, self._shared(self.places))

    def launches(self, batch: int, source: Array, target: Array, scratch: dict[str, Array]) -> list[Launch]:
        args = (source, self._weights, self._c_there, self._silence, target, self._theta)
        return [Launch(self.kernel(), self._grid(batch), args)]


class T1(PaperS):
    """One thread gathers one cell."""

    version = "T1"
    rung = 1
    kernel_name = "s_paper_t1"
    threads = 256

    def scratch(self, batch: int) -> Forms:
        return {"v": ((batch * self.target.size**2,), np.float32)}

    def choices(self) -> list[int]:
        """Return 1 .. the places that the usual threads make: they play no part."""
        return list(range(1, self.target.size + 1))

    def launches(self, batch: int, source: Array, target: Array, scratch: dict[str, Array]) -> list[Launch]:
        cells = self.target.size**2
        v = scratch["v"]
        inhibition = self._built("s_paper_v", self.threads)
        first = Launch(inhibition, (-(-cells // 256), 1, batch), (source, self._c_there, v))
        args = (source, self._weights, v, self._silence, target, self._theta)
        grid = (-(-cells * self.target.planes // 256), 1, batch)
        return [first, Launch(self.kernel(), grid, args)]


class T3(PaperS):
    """A block is all planes of one place, inhibition with excitation."""

    version = "T3"
    rung = 3
    kernel_name = "s_paper_t3"

    def choices(self) -> list[int]:
        return [1]


class T4(PaperS):
    """Neighbouring places share their input in shared memory."""

    version = "T4"
    rung = 4
    kernel_name = "s_paper_shared"

    def _shared(self, places: int) -> int:
        return 4 * (places + self.taps - 1) * self.taps * self.source.planes


class T5(T4):
    """The list of a cell's inputs in constant memory."""

    version = "T5"
    rung = 5

    def kernel(self) -> Kernel:
        """Return the kernel, the list in its source."""
        k, depth = self.taps, self.source.planes
        taps = [tap for tap in range(k * k) if self._c.flat[tap] > 0]
        lists: dict[str, str | int] = {
            "INPUTS": len(taps),
            "INPUTS_AT": ",".join(str((tap % k * k + tap // k) * depth) for tap in taps),
            "INPUTS_TAP": ",".join(str(tap * depth * self.stride) for tap in taps),
            "INPUTS_C": ",".join(f"{float(self._c.flat[tap]):.9e}f" for tap in taps),
        }
        return self._built(self.kernel_name, self.threads, self._shared(self.places), **lists)


class T5Heard(T5):
    """As T5, silent inputs passed over."""

    version = "T5, u > 0"
    defines: ClassVar = {"ZERO_TEST": 1}


class B(T5):
    """As T5, planes padded to a multiple of 32 threads."""

    version = "B"
    padded = True


class Skip(PaperS):
    """Ours: inputs that are heard are listed, silent ones cost nothing."""

    version = "skip"
    rung = 6
    kernel_name = "s_paper_skip"
    padded = True

    def split(self, batch: int) -> int:
        """Return how many groups of threads share a place, so that few characters keep it busy."""
        wanted = _BUSY_THREADS // (batch * self.target.size**2 * self.stride)
        most = _MOST_THREADS // self.stride
        return 1 << (min(max(1, wanted), most, _MOST_GROUPS).bit_length() - 1)

    @property
    def threads(self) -> int:
        return self.places * self.split(1) * self.stride

    def choices(self) -> list[int]:
        most = _MOST_THREADS // (self.stride * self.split(1))
        return [places for places in super().choices() if places <= most]

    def _shared(self, places: int) -> int:
        return max(self._bytes(places, split) for split in {1, self.split(1)})

    def _bytes(self, places: int, split: int) -> int:
        warps = split * self.stride // _WARP
        listed = places * warps * up(-(-(self.taps**2) * self.source.planes // warps), _WARP)
        return 4 * listed + 8 * places * warps + 2 * listed

    def launches(self, batch: int, source: Array, target: Array, scratch: dict[str, Array]) -> list[Launch]:
        split = self.split(batch)
        threads, shared = self.places * split * self.stride, self._bytes(self.places, split)
        kernel = self._built(self.kernel_name, threads, shared, SPLIT=split)
        args = (source, self._weights, self._c_there, self._silence, target, self._theta)
        return [Launch(kernel, self._grid(batch), args)]


#: Rungs by name, in the order of the paper's Table 5; ``skip`` is ours.
VERSIONS: dict[str, type[PaperS]] = {cls.version: cls for cls in (T1, T3, T4, T5, T5Heard, B, Skip)}


def connecting_area(c: Any) -> int:
    """Return DISC: the squared radius, in half cells, of the disc where c > 0; all if no disc."""
    size = len(c)
    offset = 2 * np.arange(size) - (size - 1)
    distance = offset[:, None] ** 2 + offset**2
    heard = np.asarray(c) > 0
    radius = int(distance[heard].max(initial=0))
    return radius if np.array_equal(distance <= radius, heard) else _EVERYWHERE


class Ladder(Shelf):
    """The paper's S-layers as a shelf of steps; ``places`` a block by stage and version."""

    def __init__(
        self, machine: Machine, model: Model, places: dict[tuple[str, str], int] | None = None
    ) -> None:
        super().__init__(machine, model, "fp32")
        self.layouts = paper_layouts(model.spec, model.planes)
        self.places = dict(places or {})

    def step(self, stage: str, version: str) -> PaperS:
        """Return a step, made anew each time: ``places`` may have changed."""
        layer, places = int(stage[-1]) - 1, self.places.get((stage, version), 0)
        return VERSIONS[version](self.machine, self.model, layer, self.layouts, places)
