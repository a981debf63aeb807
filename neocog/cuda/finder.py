"""The finder on a GPU: a grey picture goes up, the few marks found on it come down.

Reducing, normalising, the network at all sizes, peaks, their order and what overlaps are one CUDA
graph for each size of picture (``kernels/finder.cu`` and :mod:`neocog.cuda.finder_network`).
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from math import inf, isqrt, log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocog.cuda.devices import number_of
from neocog.cuda.finder_network import FinderNetwork, Node, tile_table
from neocog.cuda.kernel import Kernel, Launch, up
from neocog.cuda.lanes import Lane, captured, pinned
from neocog.cuda.launcher import Failing, Gpu, gpu
from neocog.vision import finder as vision
from neocog.vision.finder import CELL, FinderSettings, Finding, Grey, Maps

MARK_WORDS = 18
_THREADS = 256
_STRIP = 16  # rows of a block that normalises
_KEPT = 64  # sizes of pictures whose graphs are kept, some 12 MB each


class Frame:
    """Arrays and launches for pictures of one size: ``grey`` (H, W) uint8 in, ``best`` out.

    ``best`` (most + 1, MARK_WORDS) float32: left, top, width, height, score, as whole numbers kind, order,
    alive (no better one overlaps), log probabilities of ten digits; the last row's kind: how many came.
    """

    def __init__(self, network: FinderNetwork, shape: tuple[int, int], settings: FinderSettings) -> None:
        xp, high, wide = network.machine.xp, *shape
        shapes, padded = level_shapes(shape, settings)
        ends = np.cumsum([0, *(h * w for h, w in shapes)])
        if shapes[0] != shape:  # the picture itself lies in front of its sizes
            ends += high * wide
        greys = xp.empty(int(ends[-1]), "uint8")
        self.grey = greys[: high * wide].reshape(high, wide)
        x, maps, inner = network.launches(padded)
        self.count = xp.zeros(1, "uint32")
        self.marks = xp.empty((2 * len(maps), MARK_WORDS), "float32")  # a digit and a sign a place
        self.best = xp.zeros((settings.most + 1, MARK_WORDS), "float32")
        levels = np.zeros((len(shapes), 8), np.int32)  # Level and Scale of ``finder.cu``
        scales = np.zeros((len(shapes), 8), np.float32)
        cells = np.cumsum([0, *(h * w for h, w in padded)])
        for i, ((h, w), sides) in enumerate(zip(shapes, padded, strict=True)):
            levels[i, :6] = ends[i], h, w, *sides, cells[i]
            small, large = settings.smallest if i else 0.0, settings.largest if i + 1 < len(shapes) else inf
            scales[i, :5] = wide / w, high / h, small, 0.4 * small, large
            scales.view(np.int32)[i, 5] = cells[i] // CELL**2
        levels, scales = xp.asarray(levels), xp.asarray(scales)
        defines = {
            "SPAN": isqrt(vision.WINDOW), "FLOOR": f"{vision.FLOOR}f", "UNIT": f"{vision.UNIT}f",
            "CELL": CELL, "SURE": f"{vision.SURE}f", "PLANES": network.maps[network.output].planes,
            "CO": maps.shape[1], "MOST": settings.most,
        }  # fmt: skip

        def launch(name: str, blocks: int, *args: Any, threads: int = _THREADS) -> Launch:
            kernel = Kernel("finder.cu", name, tuple(defines.items()), threads, arch=80)
            return Launch(kernel, (blocks, 1, 1), args)

        self.launches: list[Launch] = []
        before, sides = self.grey, shape
        for i, (h, w) in enumerate(shapes):
            after = greys[int(ends[i]) : int(ends[i + 1])]
            if (h, w) != shape or i:
                given = (np.int32(side) for side in (*sides, h, w))
                self.launches.append(launch("reduce", -(-h * w // _THREADS), before, after, *given))
            before, sides = after, (h, w)
        columns = _THREADS - vision.WINDOW + 1
        strips = xp.asarray(tile_table(padded, 1, _STRIP, columns))
        places = xp.asarray(tile_table(padded, CELL))
        least = np.float32(log(settings.least / (1 - settings.least)))
        shares = np.float32(settings.overlap), np.float32(settings.inside)
        self.launches += [
            launch("normalise", len(strips), levels, strips, greys, x, self.count),
            *inner,
            launch("peaks", len(places), places, scales, maps, least, self.marks, self.count,
                   threads=64),
            launch("rank", -(-len(self.marks) // _THREADS), self.marks, self.count, self.best),
            launch("suppress", 1, self.best, *shares),
        ]  # fmt: skip


def level_shapes(
    shape: tuple[int, int], settings: FinderSettings
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return (H, W) of each size that a picture is read at, and filled up to multiples of 16."""
    factors, (high, wide) = vision.sizes(shape, settings), shape
    shapes = [(max(1, round(high * f)), max(1, round(wide * f))) for f in factors]
    return shapes, [(up(h, vision.MULTIPLE), up(w, vision.MULTIPLE)) for h, w in shapes]


def finding(best: NDArray[np.float32], settings: FinderSettings) -> Finding:
    """Return the marks of `Frame.best` that are alive."""
    whole = best.view(np.int32)
    came = best[: min(int(whole[-1, 5]), len(best) - 1)]
    kinds, alive = whole[: len(came), 5], whole[: len(came), 7] != 0
    found = Finding(came[:, :4], came[:, 4], kinds.astype(np.int64), came[:, 8:])
    return found if settings.overlap >= 1 else vision.agreed(found[alive], found)


class CudaFinder:
    """The finder on one GPU (``"cuda"``: the first), in halves; sums are float32.

    ``nodes`` and ``tensors`` are those of a :class:`neocog.vision.finder_model.FinderModel`. A DeviceError
    says that the device cannot be used, a ModelError that the network has what the kernels do not know.
    """

    def __init__(self, nodes: Sequence[Node], tensors: Mapping[str, Maps], *, device: str = "cuda") -> None:
        self._gpu = gpu(number_of(device))
        self._lock = threading.Lock()
        with self._at_work():
            self._network = FinderNetwork(self._gpu, nodes, tensors)
        self._lane = lru_cache(_KEPT)(lambda *key: _FrameLane(self._gpu, Frame(self._network, *key)))

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """One picture at a time; errors of CUDA and CuPy become a DeviceError of one line."""
        device = f"cuda:{self._gpu.number}"
        with Failing(self._gpu, device), self._lock, self._gpu.current():
            yield

    def __call__(self, x: Maps) -> Maps:
        """Answer for a normalised picture, (H, W) multiples of 16 -> (C, H / 4, W / 4)."""
        with self._at_work():
            given, told, launches = self._network.launches([x.shape])
            given.set(x.astype(np.float16).reshape(-1))
            self._gpu.prepare(launch.kernel for launch in launches)
            for launch in launches:
                self._gpu.launch(launch)
            planes = self._network.maps[self._network.output].planes
            maps = told.get().reshape(x.shape[0] // CELL, x.shape[1] // CELL, -1)
        return np.ascontiguousarray(maps[:, :, :planes].transpose(2, 0, 1))

    def find(self, grey: Grey, settings: FinderSettings) -> Finding:
        """Find the digits and signs of a picture, as :func:`neocog.vision.finder.find` at all sizes."""
        with self._at_work():
            best = self._lane((grey.shape[0], grey.shape[1]), settings).run(grey)
        return finding(best, settings)


class _FrameLane(Lane):
    """The lane of a frame: a graph from the second picture on."""

    def __init__(self, device: Gpu, frame: Frame) -> None:
        told = pinned(device, frame.best.shape, frame.best.dtype)
        super().__init__(device, frame.launches, frame.grey, frame.best, told)
        device.xp.cuda.get_current_stream().synchronize()  # weights and tables are there
        self._seen = False
        self._graph: Any = None

    def run(self, grey: Grey) -> NDArray[np.float32]:
        np.copyto(self.given, grey)
        if not self._seen:
            with self.stream:
                self.enqueue()
        else:
            self._graph = self._graph or captured(self.stream, self.enqueue)
            self._graph.launch(self.stream)
        self.stream.synchronize()
        self._seen = True
        return np.array(self.told)
