"""A worker process: it decodes, finds and writes records; the networks answer it from elsewhere."""

import os
import queue
import sys
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from neocog.batch.batching import RemoteEngine, RemoteFinder
from neocog.batch.tasks import Task
from neocog.forkserver import tell

if TYPE_CHECKING:
    from neocog.batch.reader import Reader
    from neocog.batch.tasks import Job

READY, QUESTION, BLOCK, ERROR = "ready", "question", "block", "error"  # what a worker sends
BEAT = "beat"  # it is at work
TASK, ANSWER = "task", "answer"  # and what it is sent

NO_MEMORY = 75
"""Exit code of a worker that asked for more than it may have."""

MEMORY = 1_500_000_000
"""Bytes that a worker may take beyond what it has when it starts: it has one page at a time."""

# what workers need is loaded once, by the process that they are forked from
PRELOAD = [
    "numpy", "cv2", "PIL.Image", "PIL.PngImagePlugin", "PIL.JpegImagePlugin",
    "PIL.TiffImagePlugin", "neocog.batch.isolated", "neocog.batch.reader", "neocog.batch.tasks",
    "neocog.network.decision", "neocog.network.model", "neocog.vision.decode",
    "neocog.vision.finder_model", "neocog.vision.page",
]  # fmt: skip


def run_worker(connection: Connection, job: "Job", threads: int, pause: float) -> None:
    """Do tasks until the connection closes; the body of a worker process.

    ``threads`` do tasks, one of them at a time; after ``pause`` seconds in which it has sent
    nothing, a worker says that it is at work.
    """
    limit_process()
    Worker(connection, job, threads, pause).run()


def limit_process() -> None:
    """Hold this process to one thread of cv2 and BLAS, and keep remarks of decoders to itself."""
    import cv2
    from threadpoolctl import threadpool_limits

    cv2.setNumThreads(1)
    threadpool_limits(1)
    warnings.simplefilter("ignore")


def ask_elsewhere(reader: "Reader", ask: Callable[..., Any]) -> None:
    """Have a reader without networks of its own ask others, as `batching.Networks.ask`."""
    reader.engine = RemoteEngine(reader.model, ask, batch=reader.batch)  # type: ignore[assignment]
    if reader.finder.device != "cpu":
        reader.finder = RemoteFinder(reader.finder.model, ask)  # type: ignore[assignment]


class Worker:
    """The inside of a worker process.

    While one of its threads waits for a network, another one decodes. One at a time is at work
    (``turn``): two that take turns at Python with every line of a scan that they decode are slower
    than one.
    """

    def __init__(self, connection: Connection, job: "Job", threads: int, pause: float) -> None:
        self._connection, self._job, self._pause = connection, job, pause
        self._sent = time.monotonic()
        self._sending, self._turn = threading.Lock(), threading.Lock()
        self._waiting: dict[int, Future[Any]] = {}
        self._tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()
        ask_elsewhere(job.reader, self.ask)
        for _ in range(threads):
            threading.Thread(target=self._work, daemon=True).start()

    def run(self) -> None:
        """Take tasks and answers."""
        _bound_memory()
        self._send(READY)
        while True:
            kind, *what = self._connection.recv()
            if kind == TASK:
                self._tasks.put(what[0])
            elif kind == ANSWER:
                self._waiting.pop(what[0]).set_result(what[1])

    def ask(self, *question: Any) -> Any:
        """Have a network answer; meanwhile another thread works."""
        future: Future[Any] = Future()
        number = id(future)
        self._waiting[number] = future
        self._turn.release()
        try:
            self._send(QUESTION, number, question)
            return future.result()
        finally:
            self._turn.acquire()

    def _beat(self) -> None:
        """Say now and then that the worker is at work; called after each page."""
        if time.monotonic() - self._sent > self._pause:
            self._send(BEAT)

    def _send(self, *message: Any) -> None:
        with self._sending:
            self._connection.send(message)
        self._sent = time.monotonic()

    def _work(self) -> None:
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
                block = self._job.do(task, beat=self._beat)
        except (ConnectionError, MemoryError):
            raise
        except Exception as error:
            self._send(ERROR, f"{type(error).__name__}: {error}")
            return
        self._send(BLOCK, block)


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
