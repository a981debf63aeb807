"""The GPU paper's own S-kernels (Ikeda et al. 2011, section 5): how ``s_paper.cu`` is launched."""

from pathlib import Path
from typing import Any

import numpy as np

from neocog.cuda.kernel import Array, Forms, Kernel, Launch, LayerStep, Layout, Machine
from neocog.cuda.plan import Shelf
from neocog.errors import UsageError
from neocog.network.model import Model, s_constants
from neocog.network.spec import NetworkSpec

_MOST_THREADS = 1024


#: Kernels of ``s_paper.cu`` by rung, in the order of the paper's Table 5.
VERSIONS = {
    "T1": "s_paper_t1",  # one thread gathers one cell
    "T3": "s_paper_t3",  # a block is all planes of one place, inhibition with excitation
    "T4": "s_paper_shared",  # neighbouring places share their input in shared memory
    "T5": "s_paper_shared",  # a cell's inputs are a list in constant memory
}


class PaperS(LayerStep):
    """US1 .. US4 by one rung; ``places`` are the neighbouring cells that a block computes."""

    kind = "S"

    def __init__(
        self, machine: Machine, model: Model, layer: int, layouts: dict[str, Layout], version: str,
        places: int,
    ) -> None:  # fmt: skip
        super().__init__(machine, model, layer, layouts, "fp32")
        self.version, self.rung = version, int(version[1:])  # type: ignore[misc]
        self.taps = model.spec.s[layer].kernel
        a, self._theta, silence = s_constants(model.s[layer])
        self._c = np.ascontiguousarray(model.s[layer].c, dtype=np.float32)
        self.stride = len(a)
        if self.stride > _MOST_THREADS:
            raise UsageError(f"S version {version!r}: {len(a)} planes, a block has {_MOST_THREADS} threads")
        usual = max(1, 64 // self.stride)  # threads that were best for the paper's smallest layer (6.1)
        self.places = places or max((n for n in self.choices() if n <= usual), default=1)
        if self.places not in self.choices():
            ends = f"choose {self.choices()[:1]} .. {self.choices()[-1:]}"
            raise UsageError(f"S version {version!r}: {self.places} places do not fit {self.writes}; {ends}")
        taps = np.zeros((self.taps**2, a.shape[1], self.stride), np.float32)
        taps[..., : len(a)] = np.asarray(a).transpose(2, 3, 1, 0).reshape(*taps.shape[:2], -1)
        xp = machine.xp
        self._weights, self._silence = xp.asarray(taps), xp.asarray(np.asarray(silence))
        self._c_there = xp.asarray(self._c)

    @property
    def threads(self) -> int:
        return 256 if self.rung == 1 else self.places * self.stride

    def choices(self) -> list[int]:
        """Return the places that a block may have; they play no part in T1."""
        most = 1 if self.rung == 3 else self.target.size
        if self.rung > 3:
            most = min(most, _MOST_THREADS // self.stride)
        limit = getattr(self.machine, "shared", 48 * 1024)
        return [n for n in range(1, most + 1) if self._shared(n) <= limit]

    def _shared(self, places: int) -> int:
        """Return the bytes of shared memory of a block."""
        return 4 * (places + self.taps - 1) * self.taps * self.source.planes if self.rung > 3 else 0

    def scratch(self, batch: int) -> Forms:
        return {"v": ((batch * self.target.size**2,), np.float32)} if self.rung == 1 else {}

    def _built(self, name: str, **more: str | int) -> Kernel:
        defines: dict[str, str | int] = {
            "VERSION": self.rung, "KSIZE": self.taps, "PAD": self.padding, "SIZE": self.source.size,
            "DEPTH": self.source.planes, "OUT": self.target.size, "PLANES": self.target.planes,
            "STRIDE": self.stride, "DISC": connecting_area(self._c), **more,
        }  # fmt: skip
        source, shared = str(Path(__file__).with_name("s_paper.cu")), self._shared(self.places)
        registers = 64 if self.rung > 3 else 128  # what 1 024 threads may have, and few threads
        return Kernel(source, name, tuple(defines.items()), self.threads, shared, registers=registers)

    def launches(self, batch: int, source: Array, target: Array, scratch: dict[str, Array]) -> list[Launch]:
        size, ends = self.target.size, (self._silence, target, self._theta)
        kernel = self._built(VERSIONS[self.version], **(self._list() if self.rung == 5 else {}))
        if self.rung == 1:  # inhibition in a launch of its own
            v, blocks = scratch["v"], -(-(size**2) // 256)
            cells = (-(-(size**2) * self.target.planes // 256), 1, batch)
            inhibition = Launch(self._built("s_paper_v"), (blocks, 1, batch), (source, self._c_there, v))
            return [inhibition, Launch(kernel, cells, (source, self._weights, v, *ends))]
        grid = (size * -(-size // self.places), 1, batch)
        return [Launch(kernel, grid, (source, self._weights, self._c_there, *ends))]

    def _list(self) -> dict[str, str | int]:
        """Return the list of a cell's inputs, for the kernel's source."""
        k, depth = self.taps, self.source.planes
        taps = [tap for tap in range(k * k) if self._c.flat[tap] > 0]
        return {
            "INPUTS": len(taps),
            "INPUTS_AT": ",".join(str((tap % k * k + tap // k) * depth) for tap in taps),
            "INPUTS_TAP": ",".join(str(tap * depth * self.stride) for tap in taps),
            "INPUTS_C": ",".join(f"{float(self._c.flat[tap]):.9e}f" for tap in taps),
        }


def connecting_area(c: Any) -> int:
    """Return DISC: the squared radius, in half cells, of the disc where c > 0; all if no disc."""
    size = len(c)
    offset = 2 * np.arange(size) - (size - 1)
    distance = offset[:, None] ** 2 + offset**2
    heard = np.asarray(c) > 0
    radius = int(distance[heard].max(initial=0))
    return radius if np.array_equal(distance <= radius, heard) else 10**6


class Ladder(Shelf):
    """The paper's S-layers as a shelf of steps, maps float32 without a border; ``places`` a block."""

    def __init__(
        self, machine: Machine, model: Model, places: dict[tuple[str, str], int] | None = None
    ) -> None:
        super().__init__(machine, model, "fp32")
        spec: NetworkSpec = model.spec
        counts = (2, *(k for own in (spec.orientations, *model.planes) for k in (own, own)))
        names = ("UG", "US1", "UC1", "US2", "UC2", "US3", "UC3", "US4")
        self.layouts = {n: Layout(k, spec.size(n), 0, k) for n, k in zip(names, counts, strict=False)}
        self.places = dict(places or {})

    def step(self, stage: str, version: str) -> PaperS:
        """Return a step, made anew each time: ``places`` may have changed."""
        layer, places = int(stage[-1]) - 1, self.places.get((stage, version), 0)
        return PaperS(self.machine, self.model, layer, self.layouts, version, places)
