"""The finder on a GPU: a grey picture goes up, the few marks found on it come down.

Reducing, normalising, the network at all sizes, peaks, their order and what overlaps are one CUDA
graph for all pictures that need about as much (``kernels/finder.cu`` and :mod:`neocog.cuda.finder_network`).
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from math import inf, isqrt, log
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from neocog.cuda.devices import number_of
from neocog.cuda.finder_network import FinderNetwork, Node, area, level_rows
from neocog.cuda.kernel import Kernel, Launch, up
from neocog.cuda.lanes import Lane, captured, pinned
from neocog.cuda.launcher import Failing, Gpu, gpu
from neocog.vision import finder as vision
from neocog.vision.finder import CELL, FinderSettings, Finding, Grey, Maps

MARK_WORDS = 18
_THREADS = 256
_NORMALISED = 16 * 128  # pixels, at least, of a block that normalises: its columns are 208, or the last ones
_PEAKS = 64  # places of a block that looks for marks
_REDUCING = 1024  # blocks that reduce a picture
_LEAST = 2**14  # pixels and bytes that are told apart
_SAME = "most", "least", "overlap", "inside"  # settings that a graph holds; the others are brought to it
_KEPT = 48  # needs of pictures whose graphs are kept, 20 to 80 MB each


class Frame:
    """Arrays and launches for pictures of so many sizes, pixels and bytes: ``given`` uint8 in, ``best`` out.

    ``best`` (most + 1, MARK_WORDS) float32: left, top, width, height, score, as whole numbers kind, order,
    alive (no better one overlaps), log probabilities of ten digits; the last row's kind: how many came.
    """

    def __init__(self, network: FinderNetwork, need: "Need", settings: FinderSettings) -> None:
        xp, (count, pixels, picture) = network.machine.xp, need
        head = 32 * count
        memory = xp.empty(2 * head + picture + pixels, "uint8")
        self.given = memory[: 2 * head + picture]
        levels = memory[:head].view("int32").reshape(count, 8)
        scales = memory[head : 2 * head].view("float32").reshape(count, 8)
        greys = memory[2 * head :]
        x, maps, inner = network.launches(levels, pixels)
        self.count = xp.zeros(1, "uint32")
        self.marks = xp.empty((2 * len(maps), MARK_WORDS), "float32")  # a digit and a sign a place
        self.best = xp.zeros((settings.most + 1, MARK_WORDS), "float32")
        defines = {
            "SPAN": isqrt(vision.WINDOW), "FLOOR": f"{vision.FLOOR}f", "UNIT": f"{vision.UNIT}f",
            "CELL": CELL, "SURE": f"{vision.SURE}f", "PLANES": network.maps[network.output].planes,
            "CO": maps.shape[1], "MOST": settings.most,
        }  # fmt: skip

        def launch(name: str, blocks: int, *args: Any, threads: int = _THREADS) -> Launch:
            kernel = Kernel("finder.cu", name, tuple(defines.items()), threads, arch=80)
            return Launch(kernel, (blocks, 1, 1), args)

        sizes, reducing = np.int32(count), min(pixels // _THREADS, _REDUCING)
        odds = np.float32(log(settings.least / (1 - settings.least)))
        shares = np.float32(settings.overlap), np.float32(settings.inside)
        self.launches = [
            *(launch("reduce", reducing, levels, np.int32(k), greys) for k in range(1, count)),
            launch("normalise", pixels // _NORMALISED, levels, sizes, greys, x, self.count),
            *inner,
            launch("peaks", len(maps) // _PEAKS, levels, sizes, scales, maps, odds, self.marks, self.count,
                   threads=_PEAKS),
            launch("rank", -(-len(self.marks) // _THREADS), self.marks, self.count, self.best),
            launch("suppress", 1, self.best, *shares),
        ]  # fmt: skip


class Need(NamedTuple):
    """What a picture needs, rounded up so that few graphs are made."""

    sizes: int  # the picture itself among them
    area: int  # pixels, see `area`
    picture: int  # bytes


def brought(grey: Grey, settings: FinderSettings) -> tuple[Need, list[NDArray[np.uint8]]]:
    """Return what a picture (H, W) needs, and what goes up of it: bytes of its sizes, scales, greys."""
    shape = grey.shape[0], grey.shape[1]
    shapes, padded = level_shapes(shape, settings)
    scales = np.zeros((len(shapes) + 1, 8), np.float32)
    for i, (high, wide) in enumerate(shapes):
        small, large = settings.smallest if i else 0.0, settings.largest if i + 1 < len(shapes) else inf
        scales[i + 1, :5] = shape[1] / wide, shape[0] / high, small, 0.4 * small, large
    levels = level_rows([shape, *shapes], [(0, 0), *padded])
    need = Need(len(levels), _rounded(area(padded)), _rounded(grey.size))
    return need, [levels.view(np.uint8).reshape(-1), scales.view(np.uint8).reshape(-1), grey.reshape(-1)]


def _rounded(n: int) -> int:
    return up(n, max(_LEAST, 1 << max(0, n.bit_length() - 3)))


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
            levels, pixels = level_rows([x.shape], [x.shape]), area([x.shape])
            given, told, launches = self._network.launches(self._gpu.xp.asarray(levels), pixels)
            given[: x.size] = self._gpu.xp.asarray(x.astype(np.float16).reshape(-1))
            self._gpu.prepare(launch.kernel for launch in launches)
            for launch in launches:
                self._gpu.launch(launch)
            planes = self._network.maps[self._network.output].planes
            maps = told[: x.size // CELL**2].get().reshape(x.shape[0] // CELL, x.shape[1] // CELL, -1)
        return np.ascontiguousarray(maps[:, :, :planes].transpose(2, 0, 1))

    def find(self, grey: Grey, settings: FinderSettings) -> Finding:
        """Find the digits and signs of a picture, as :func:`neocog.vision.finder.find` at all sizes."""
        with self._at_work():
            need, parts = brought(grey, settings)
            same = FinderSettings(**{name: getattr(settings, name) for name in _SAME})
            best = self._lane(need, same).run(parts)
        return finding(best, settings)


class _FrameLane(Lane):
    """The lane of a frame: a graph from the second picture on."""

    def __init__(self, device: Gpu, frame: Frame) -> None:
        told = pinned(device, frame.best.shape, frame.best.dtype)
        super().__init__(device, frame.launches, frame.given, frame.best, told)
        device.xp.cuda.get_current_stream().synchronize()  # weights are there
        self._seen = False
        self._graph: Any = None

    def run(self, parts: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        start = 0
        for part in parts:
            self.given[start : start + len(part)] = part
            start += len(part)
        if not self._seen:
            with self.stream:
                self.enqueue()
        else:
            self._graph = self._graph or captured(self.stream, self.enqueue)
            self._graph.launch(self.stream)
        self.stream.synchronize()
        self._seen = True
        return np.array(self.told)
