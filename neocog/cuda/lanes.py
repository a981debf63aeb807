"""Lanes: a stream with launches, from pinned memory of the host and back to it.

Captured as one CUDA graph, which carries what goes up and what comes down as well. While one lane
computes, the host fills the next.
"""

import math
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocog.cuda.kernel import Array, Launch, Layout, Machine, Step
from neocog.cuda.launcher import Gpu
from neocog.cuda.plan import Pass, form

# One capture at a time: what a second thread does to the device could break it off.
_CAPTURING = threading.Lock()


class Lane:
    """Launches on a stream of their own, the kernels loaded.

    ``source`` is what they read first, ``target`` what they write last: arrays of the device,
    copied from ``given`` and to ``told``, the host's. Without a ``target`` they write to ``told``.
    """

    def __init__(self, gpu: Gpu, launches: Iterable[Launch], source: Array, target: Array | None,
                 told: NDArray[Any], stream: Any = None) -> None:  # fmt: skip
        self.gpu, self.launches = gpu, tuple(launches)
        self.stream = stream or gpu.xp.cuda.Stream(non_blocking=True)
        self._source, self._target = source, target
        self.given, self.told = pinned(gpu, source.shape, source.dtype), told
        gpu.prepare(launch.kernel for launch in self.launches)

    def upload(self) -> None:
        runtime, given, to = self.gpu.xp.cuda.runtime, self.given, self._source.data.ptr
        runtime.memcpyAsync(to, given.ctypes.data, given.nbytes, runtime.memcpyHostToDevice, self.stream.ptr)

    def enqueue(self) -> None:
        """Enqueue all of it on the current stream, which is the lane's."""
        self.upload()
        enqueue(self.gpu, self.launches)
        if self._target is not None:
            runtime, told, source = self.gpu.xp.cuda.runtime, self.told, self._target.data.ptr
            kind = runtime.memcpyDeviceToHost
            runtime.memcpyAsync(told.ctypes.data, source, told.nbytes, kind, self.stream.ptr)


class PassLane(Lane):
    """Recognises up to ``batch`` digits at a time by a `Pass`; OutOfMemoryError of CuPy: there is no room."""

    def __init__(self, gpu: Gpu, steps: Sequence[Step], layouts: dict[str, Layout], batch: int,
                 part: int = 0, late: Collection[str] = ()) -> None:  # fmt: skip
        self.batch = batch
        self.waiting: tuple[int, int] | None = None
        cuda = gpu.xp.cuda
        with gpu.current():
            with cuda.Stream(non_blocking=True) as stream:
                told = pinned(gpu, *form("answers", layouts, batch))
                # kernels write the answers to the host: a copy behind them takes 6 to 9 us
                memory = cuda.UnownedMemory(told.ctypes.data, told.nbytes, told, gpu.number)
                answers = gpu.xp.ndarray(told.shape, told.dtype, cuda.MemoryPointer(memory, 0))
                self.work = Pass(gpu, steps, layouts, batch, part, late, answers)
                super().__init__(gpu, self.work.launches, self.work.arrays["digits"], None, told, stream)
                self.work.run()  # once uncaptured: what goes wrong does so here
                stream.synchronize()
            self._graph = captured(stream, self.enqueue)

    def fill(self, digits: NDArray[np.uint8]) -> None:
        """Put digits where the pass takes them from; the lane has none on their way."""
        np.copyto(self.given[: len(digits)], digits)

    def replay(self) -> None:
        self._graph.launch(self.stream)

    def submit(self, digits: NDArray[np.uint8], place: int) -> None:
        """Start on digits of the host; ``place`` is where their answers go."""
        self.fill(digits)
        self.replay()
        self.waiting = (place, len(digits))

    def collect(self, out: NDArray[np.float32]) -> None:
        """Wait for the answers, if any are on their way, and put them where they go."""
        if self.waiting is not None:
            place, count = self.waiting
            self.stream.synchronize()
            self.waiting = None
            out[place : place + count] = self.told[:count]


def enqueue(gpu: Gpu, launches: Iterable[Launch]) -> None:
    """Launch kernels on the current stream, each set up while the one in front of it runs (see `Pass`)."""
    for i, launch in enumerate(launches):
        gpu.launch(launch, follows=i > 0)


def elapsed(gpu: Gpu, stream: Any, run: Callable[[], object], times: int = 1) -> float:
    """Return milliseconds of what ``run`` enqueues on a stream, the mean of ``times`` by the device."""
    cuda = gpu.xp.cuda
    start, end = cuda.Event(), cuda.Event()
    start.record(stream)
    for _ in range(times):
        run()
    end.record(stream)
    end.synchronize()
    return float(cuda.get_elapsed_time(start, end)) / times


class Timed:
    """Work that is enqueued on the current stream: done once, then captured as a graph of some repeats."""

    def __init__(self, gpu: Gpu, work: Callable[[], object], repeats: int = 1, stream: Any = None) -> None:
        self._gpu, self._repeats = gpu, repeats
        with gpu.current():
            self.stream = stream or gpu.xp.cuda.Stream(non_blocking=True)
            with self.stream:
                work()
            self.stream.synchronize()
            self._graph = captured(self.stream, lambda: [work() for _ in range(repeats)])

    def elapsed(self, times: int = 1) -> float:
        """Return milliseconds of the work once, over so many replays, launched while one more is at work."""
        self.replay()
        return elapsed(self._gpu, self.stream, self.replay, times) / self._repeats

    def median(self, rounds: int, times: int = 1) -> float:
        return float(np.median([self.elapsed(times) for _ in range(rounds)]))

    def replay(self) -> None:
        self._graph.launch(self.stream)


def captured(stream: Any, work: Callable[[], object]) -> Any:
    """Return the graph of what ``work`` enqueues on a stream, brought to the device."""
    with _CAPTURING, stream:
        stream.begin_capture()
        try:
            work()
        except BaseException:
            with suppress(Exception):  # the capture is broken off, the first error is told
                stream.end_capture()
            raise
        graph = stream.end_capture()
    graph.upload(stream)
    stream.synchronize()
    return graph


def pinned(gpu: Machine, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Return an array of pinned host memory, filled with 0."""
    count = math.prod(shape)
    memory = gpu.xp.cuda.alloc_pinned_memory(count * np.dtype(dtype).itemsize)
    array = np.frombuffer(memory, dtype, count).reshape(shape)
    array[...] = 0
    return array
