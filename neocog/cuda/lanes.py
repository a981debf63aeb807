"""A lane: one stream with arrays for a batch and the pass over them, captured as one CUDA graph.

Digits lie in pinned memory of the host, so that the graph itself carries them to the device and
the answers back. While one lane computes, the host fills the next.
"""

import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocog.cuda.kernel import Array, Launch, Layout
from neocog.cuda.launcher import Gpu
from neocog.cuda.passes import ANSWER_COLUMNS, Pass
from neocog.cuda.steps import Step
from neocog.network.u0 import DIGIT_SIZE

# One capture at a time: what a second thread does to the device could break it off.
_CAPTURING = threading.Lock()


class Lane:
    """Recognises up to ``batch`` digits at a time.

    Parameters
    ----------
    gpu : Gpu
        Where.
    steps : sequence of Step
        The pass; the first reads ``"digits"``, the last writes ``"answers"``.
    layouts : dict
        Of :func:`neocog.cuda.steps.layouts`.
    batch : int
        Digits of the captured pass; fewer may come.
    part, late
        As :class:`neocog.cuda.passes.Pass`.

    Raises
    ------
    cupy.cuda.memory.OutOfMemoryError
        If the device has no memory for it.
    """

    def __init__(
        self,
        gpu: Gpu,
        steps: Sequence[Step],
        layouts: dict[str, Layout],
        batch: int,
        part: int = 0,
        late: Collection[str] = (),
    ) -> None:
        self.gpu, self.batch = gpu, batch
        self.waiting: tuple[int, int] | None = None
        with gpu.current():
            self.stream = gpu.xp.cuda.Stream(non_blocking=True)
            with self.stream:
                self.work = Pass(gpu, steps, layouts, batch, part, late)
                self._digits = pinned(gpu, (batch, DIGIT_SIZE, DIGIT_SIZE), np.uint8)
                self._answers = pinned(gpu, (batch, ANSWER_COLUMNS), np.float32)
                gpu.warmup(self.work.launches)
                self.work.run()  # once uncaptured: what goes wrong does so here
                self.stream.synchronize()
            self._graph = self._capture(upload=True)
        self._graph_on_device: Any = None

    def fill(self, digits: NDArray[np.uint8]) -> None:
        """Put digits where the pass takes them from; the lane has none on their way."""
        np.copyto(self._digits[: len(digits)], digits)

    def elapsed(self, times: int) -> float:
        """Return milliseconds of a pass, over so many one after another on the device."""
        self._graph.launch(self.stream)
        return elapsed(self.gpu.xp.cuda, self.stream, self._graph, times) / times

    def submit(self, digits: NDArray[np.uint8], place: int) -> None:
        """Start on digits of the host; ``place`` is where their answers go."""
        self.fill(digits)
        self._graph.launch(self.stream)
        self.waiting = (place, len(digits))

    def submit_on_device(self, digits: Array, place: int, ready: Any) -> None:
        """Start on digits of this device once the event ``ready`` has come."""
        if self._graph_on_device is None:
            self._graph_on_device = self._capture(upload=False)
        runtime = self.gpu.xp.cuda.runtime
        self.stream.wait_event(ready)
        runtime.memcpyAsync(
            self.work.arrays["digits"].data.ptr,
            digits.data.ptr,
            digits.nbytes,
            runtime.memcpyDeviceToDevice,
            self.stream.ptr,
        )
        self._graph_on_device.launch(self.stream)
        self.waiting = (place, len(digits))

    def collect(self, out: NDArray[np.float32]) -> None:
        """Wait for the answers, if any are on their way, and put them where they go."""
        if self.waiting is None:
            return
        place, count = self.waiting
        self.stream.synchronize()
        self.waiting = None
        out[place : place + count] = self._answers[:count]

    def upload(self) -> None:
        """Enqueue the way of the digits to the device."""
        runtime = self.gpu.xp.cuda.runtime
        self._copy(self.work.arrays["digits"].data.ptr, self._digits, runtime.memcpyHostToDevice)

    def download(self) -> None:
        """Enqueue the way of the answers to the host."""
        runtime = self.gpu.xp.cuda.runtime
        self._copy(self.work.arrays["answers"].data.ptr, self._answers, runtime.memcpyDeviceToHost)

    def _copy(self, device: int, host: NDArray[Any], kind: int) -> None:
        ends = (device, host.ctypes.data)
        if kind == self.gpu.xp.cuda.runtime.memcpyDeviceToHost:
            ends = ends[::-1]
        self.gpu.xp.cuda.runtime.memcpyAsync(*ends, host.nbytes, kind, self.stream.ptr)

    def _capture(self, *, upload: bool) -> Any:
        with self.gpu.current(), captured(self.stream) as graphs:
            if upload:
                self.upload()
            enqueue(self.gpu, self.work.launches)
            self.download()
        graphs[0].upload(self.stream)
        self.stream.synchronize()
        return graphs[0]


def enqueue(gpu: Gpu, launches: Iterable[Launch]) -> None:
    """Launch kernels on the current stream.

    A kernel may be set up while the one in front of it runs, whichever that is: it waits for its
    end before it reads or writes maps (see :class:`neocog.cuda.passes.Pass`).
    """
    for i, launch in enumerate(launches):
        gpu.launch(launch, follows=i > 0)


def elapsed(cuda: Any, stream: Any, graph: Any, times: int) -> float:
    """Return milliseconds of some replays of a graph, launched behind what is on the stream."""
    start, end = cuda.Event(), cuda.Event()
    start.record(stream)
    for _ in range(times):
        graph.launch(stream)
    end.record(stream)
    end.synchronize()
    return float(cuda.get_elapsed_time(start, end))


@contextmanager
def captured(stream: Any) -> Iterator[list[Any]]:
    """Capture what the block enqueues on a stream; the list holds the graph after the block."""
    graphs: list[Any] = []
    with _CAPTURING, stream:
        stream.begin_capture()
        try:
            yield graphs
        except BaseException:
            with suppress(Exception):  # the capture is broken off, the first error is told
                stream.end_capture()
            raise
        graphs.append(stream.end_capture())


def pinned(gpu: Gpu, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Return an array of pinned host memory, filled with 0."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = gpu.xp.cuda.alloc_pinned_memory(size)
    array = np.frombuffer(memory, dtype, int(np.prod(shape))).reshape(shape)
    array[...] = 0
    return array
