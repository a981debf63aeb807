"""A worker process: it decodes, finds and writes records; the network answers it from elsewhere."""

import os
import queue
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from functools import partial
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from neocog.batch.tasks import Task
from neocog.forkserver import tell

if TYPE_CHECKING:
    from neocog.batch.work import Job
    from neocog.network.decision import Answers
    from neocog.network.model import Model

READY, DIGITS, BLOCK, ERROR = "ready", "digits", "block", "error"  # what a worker sends
BEAT = "beat"  # it is at work
TASK, ANSWERS = "task", "answers"  # and what it is sent

NO_MEMORY = 75
"""Exit code of a worker that asked for more than it may have."""

MEMORY = 1_500_000_000
"""Bytes that a worker may take beyond what it has when it starts: it has one page at a time."""

# what workers need is loaded once, by the process that they are forked from
PRELOAD = [
    "numpy", "cv2", "PIL.Image", "PIL.PngImagePlugin", "PIL.JpegImagePlugin",
    "PIL.TiffImagePlugin", "neocog.batch.isolated", "neocog.batch.reader", "neocog.batch.work",
    "neocog.learning.formats", "neocog.network.decision", "neocog.network.model",
    "neocog.vision.decode", "neocog.vision.finder_model", "neocog.vision.page",
]  # fmt: skip


def alone() -> None:
    """Hold this process to one thread of cv2 and BLAS, and keep remarks of decoders to itself."""
    import cv2
    from threadpoolctl import threadpool_limits

    cv2.setNumThreads(1)
    threadpool_limits(1)
    warnings.simplefilter("ignore")


class Link:
    """A worker's connection: it sends from several threads, and knows who waits for what.

    ``pause`` are the seconds after which it says that the worker is at work, where it sends
    nothing else.
    """

    def __init__(self, connection: Connection, pause: float = 1.0) -> None:
        self._connection, self._pause, self._sent = connection, pause, time.monotonic()
        self._sending = threading.Lock()
        self._waiting: dict[int, Future[Answers]] = {}
        self._count = 0

    def send(self, *message: Any) -> None:
        """Send a message whole."""
        with self._sending:
            self._connection.send(message)
        self._sent = time.monotonic()

    def beat(self) -> None:
        """Say now and then that the worker is at work; called after each page."""
        if time.monotonic() - self._sent > self._pause:
            self.send(BEAT)

    def ask(self, digits: NDArray[np.uint8]) -> "Answers":
        """Have digits (N, 28, 28) recognised."""
        future: Future[Answers] = Future()
        with self._sending:
            self._count += 1
            number = self._count
            self._waiting[number] = future
            self._connection.send((DIGITS, number, digits))
        return future.result()

    def answer(self, number: int, answers: "Answers") -> None:
        """Hand answers to who waits for them."""
        self._waiting.pop(number).set_result(answers)


class RemoteEngine:
    """Stands in for the engine in a process that has none.

    Parameters
    ----------
    model : Model
        What the engine recognises with.
    ask : callable
        Has digits (N, 28, 28) recognised.
    """

    def __init__(
        self, model: "Model", ask: "Callable[[NDArray[np.uint8]], Answers]", *, batch: int
    ) -> None:
        self.model, self.batch = model, batch
        self._ask = ask

    def recognise(self, digits: NDArray[np.uint8], *, batch: int | None = None) -> "Answers":
        """Recognise isolated digits (N, 28, 28)."""
        return self._ask(digits)


class _Lane(threading.Thread):
    """One of a worker's threads: while it waits for the network, another one decodes.

    One at a time is at work (``turn``): two that take turns at Python with every line of a scan
    that they decode are slower than one.
    """

    def __init__(
        self, job: "Job", link: Link, tasks: "queue.SimpleQueue[Task]", turn: threading.Lock
    ) -> None:
        super().__init__(daemon=True)
        self._job, self._link, self._tasks, self._turn = job, link, tasks, turn

    def run(self) -> None:
        try:
            while True:
                self._do(self._tasks.get())
        except OSError:  # nobody is there any more to send anything to
            os._exit(0)
        except MemoryError:
            os._exit(NO_MEMORY)
        except BaseException as error:  # who waits for its block would wait for ever
            tell(error)
            os._exit(1)

    def _do(self, task: Task) -> None:
        try:
            with self._turn:
                block = self._job.do(task, beat=self._link.beat)
        except (ConnectionError, MemoryError):
            raise
        except Exception as error:
            self._link.send(ERROR, f"{type(error).__name__}: {error}")
            return
        self._link.send(BLOCK, block)

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Let another lane work while this one waits for the network."""
        self._turn.release()
        try:
            yield
        finally:
            self._turn.acquire()


def _ask(link: Link, digits: NDArray[np.uint8]) -> "Answers":
    """Have digits (N, 28, 28) recognised; called on a lane."""
    lane = threading.current_thread()
    with lane.resting() if isinstance(lane, _Lane) else nullcontext():
        return link.ask(digits)


def run_worker(connection: Connection, job: "Job", lanes: int, pause: float) -> None:
    """Do tasks until the connection closes; the body of a worker process."""
    alone()
    link = Link(connection, pause)
    reader = job.reader
    reader.engine = RemoteEngine(reader.model, partial(_ask, link), batch=reader.batch)  # type: ignore[assignment]
    tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()
    turn = threading.Lock()
    for _ in range(lanes):
        _Lane(job, link, tasks, turn).start()
    _bound_memory()
    link.send(READY)
    while True:
        kind, *what = connection.recv()
        if kind == TASK:
            tasks.put(what[0])
        elif kind == ANSWERS:
            link.answer(*what)


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
