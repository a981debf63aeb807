"""A worker process: it decodes, finds and writes records; the networks answer it from elsewhere."""

import os
import sys
import time
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neocog.batch.tasks import Job
    from neocog.network.decision import Answers
    from neocog.network.model import Model

READY, QUESTION, BLOCK, ERROR = "ready", "question", "block", "error"  # what a worker sends
BEAT = "beat"  # it is at work

NO_MEMORY = 75
"""Exit code of a worker that asked for more than it may have."""

MEMORY = 1_500_000_000
"""Bytes that a worker may take beyond what it has when it starts: it has one page at a time."""

# what workers need is loaded once, by the process that they are forked from
PRELOAD = [
    "numpy", "cv2", "PIL.Image", "PIL.PngImagePlugin", "PIL.JpegImagePlugin",
    "PIL.TiffImagePlugin", "neocog.reading.reader", "neocog.batch.tasks", "neocog.network.decision",
    "neocog.network.model", "neocog.vision.decode", "neocog.vision.finder_model",
    "neocog.vision.page",
]  # fmt: skip


class RemoteEngine:
    """Stands in for the engine in a process that has none; ``ask`` is `batching.Networks.ask`."""

    device = "cpu"

    def __init__(self, model: "Model", ask: Callable[..., Any], *, batch: int) -> None:
        self.model, self.batch, self._ask = model, batch, ask

    def recognise(self, digits: Any, *, batch: int | None = None) -> "Answers":
        """Recognise isolated digits (N, 28, 28)."""
        answers: Answers = self._ask(digits)
        return answers


def run_worker(connection: Connection, job: "Job", pause: float) -> None:
    """Do task after task until the connection closes; the body of a worker process.

    After ``pause`` seconds in which it has sent nothing, it says that it is at work. It ends where
    memory runs out: half a message may be left in the connection.
    """
    try:
        _work(connection, job, pause)
    except MemoryError:
        os._exit(NO_MEMORY)


def _work(connection: Connection, job: "Job", pause: float) -> None:
    heard = time.monotonic()

    def ask(*question: Any) -> Any:
        try:
            connection.send((QUESTION, question))
            return connection.recv()
        except MemoryError:  # not the page's error: what follows would be taken for the answer
            os._exit(NO_MEMORY)

    def beat() -> None:
        nonlocal heard
        if time.monotonic() - heard > pause:
            connection.send((BEAT, None))
            heard = time.monotonic()

    limit_process()
    reader: Any = job.reader
    reader.engine = RemoteEngine(reader.model, ask, batch=reader.batch)
    if reader.finder.device != "cpu":
        reader.finder = SimpleNamespace(model=reader.finder.model, find=ask)
    _bound_memory()
    connection.send((READY, None))
    while True:
        task = connection.recv()
        heard = time.monotonic()
        try:
            connection.send((BLOCK, job.do(task, beat=beat)))
        except (ConnectionError, MemoryError):
            raise
        except Exception as error:
            connection.send((ERROR, f"{type(error).__name__}: {error}"))


def limit_process() -> None:
    """Hold this process to one thread of cv2 and BLAS, and keep remarks of decoders to itself."""
    import cv2
    from threadpoolctl import threadpool_limits

    cv2.setNumThreads(1)
    threadpool_limits(1)
    warnings.simplefilter("ignore")


def _bound_memory() -> None:
    """Have a decoder that asks for too much fail, not the machine."""
    if sys.platform != "linux":
        return
    import resource

    with open("/proc/self/statm") as stream:
        size = int(stream.read().split()[0]) * resource.getpagesize()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    limit = size + MEMORY
    if hard == resource.RLIM_INFINITY or limit < hard:
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
