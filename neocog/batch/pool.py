"""Worker processes: they decode and find, the networks stay here; none can lose a picture.

A worker that is silent for too long while it owes something is killed from here: a decoder that
holds Python's lock, or a process that was stopped, could not end itself.
"""

import os
import pickle
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from copy import copy
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

from neocog.batch.batching import Networks
from neocog.batch.scheduler import Scheduler
from neocog.batch.tasks import Block, Job, Task
from neocog.batch.worker import (
    ANSWER,
    BLOCK,
    ERROR,
    MEMORY,
    NO_MEMORY,
    PRELOAD,
    QUESTION,
    READY,
    TASK,
    run_worker,
)
from neocog.errors import EndedEarly
from neocog.forkserver import ForkServer, pack
from neocog.watchdog import Watchdog

THREADS = 2
"""Threads of a worker: one decodes while the other waits for a network."""

PATIENCE = 120.0
"""Seconds that a page may take where every worker has a core: many times what the slowest takes
there (26 for a JPEG 2000 of 64 million pixels, 4 for any other kind of 130 million)."""

_DEPTH = THREADS + 1  # tasks that a worker has at a time: the next one is there when one is done
_LOOKS = 20  # of the watchdog, in the patience with a worker
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


class _Worker:
    """One worker process, and what it has been given."""

    def __init__(self, connection: Connection, number: int) -> None:
        self.connection, self.number = connection, number
        self.tasks: dict[int, Task] = {}
        self.asked: set[int] = set()
        """Questions to the networks that it waits for."""
        self.proven, self.open, self.killed = False, True, False
        self.heard: object = object()
        """Another one whenever it sends something, or takes what it is sent."""
        self.sending = threading.Lock()
        self._taking = True  # what it is sent

    def give(self, task: Task) -> None:
        """Send a task."""
        self.send(pickle.dumps((TASK, task)))

    def answer(self, number: int, answer: Any) -> None:
        """Answer a question."""
        self.send(pickle.dumps((ANSWER, number, answer)))
        self.asked.discard(number)

    def send(self, message: bytes) -> None:
        """Send a message, if the worker is still there: its end is noticed elsewhere."""
        with self.sending:
            self._taking = False
            with suppress(OSError, ValueError):
                self.connection.send_bytes(message)
            self._taking = True
            self.heard = object()

    def wait_id(self) -> object | None:
        """See `neocog.watchdog.Watched`: it owes something, or does not take what it is sent."""
        owes = not self.proven or len(self.asked) < min(len(self.tasks), THREADS)
        return None if self._taking and (not owes or self._unread()) else self.heard

    def kill(self) -> None:
        """End it; its end is noticed elsewhere."""
        if not self.connection.closed:
            self.killed = True
            with suppress(ProcessLookupError):
                os.kill(self.number, signal.SIGKILL)

    def _unread(self) -> bool:
        """Whether it has sent something that nobody has received yet, or its end."""
        with suppress(OSError, ValueError):
            return self.connection.poll()
        return True


class Pool:
    """Worker processes that do tasks; a context manager.

    One that dies is replaced, and its tasks are done again. ``networks`` answer their questions and
    are closed with the pool; ``patience`` are the seconds that one may be silent that owes
    something. EndedEarly if workers cannot be started, at first or later.
    """

    def __init__(
        self,
        job: Job,
        networks: Networks,
        *,
        workers: int,
        window: int | None = None,
        patience: float | None = None,
    ) -> None:
        from neocog.network.parallel import cores

        self._networks, self._window = networks, window
        self._patience = (patience or PATIENCE) * max(1.0, workers / cores())
        pause = self._patience / _LOOKS
        self._work = pack(run_worker, without_engine(job), THREADS, pause)
        self._server = ForkServer(*PRELOAD, variables=_ONE_THREAD)
        self._wake_reader, self._wake_writer = Pipe(duplex=False)
        self._workers: list[_Worker] = []
        self._watchdog = Watchdog(lambda: self._workers, lambda: self._patience, every=pause)
        networks.when_failing(self._wake)
        try:
            for place in range(workers):
                self._start(place)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all workers; nobody waits for what they are at."""
        self._watchdog.close()
        for worker in self._workers:
            worker.connection.close()
        self._server.close()
        self._networks.close()

    def run(self, tasks: Iterable[Task]) -> Iterator[Block]:
        """Do tasks, and yield what comes of each as it comes.

        What stops a network is raised; EndedEarly if workers fail or cannot be started any more.
        """
        scheduler = Scheduler(
            tasks, self._workers, depth=_DEPTH, window=self._window, wake=self._wake
        )
        yield from scheduler.run(self._received)

    def _start(self, place: int) -> None:
        """Start a worker in a place; it is watched from the first on."""
        worker = _Worker(*self._server.start())
        self._workers[place : place + 1] = [worker]
        worker.send(self._work)

    def _wake(self) -> None:
        with suppress(OSError, ValueError):
            self._wake_writer.send(None)

    def _received(self, scheduler: Scheduler) -> Iterator[Block]:
        """Wait for messages, and yield the blocks among them."""
        ends: list[Any] = [worker.connection for worker in self._workers]
        for end in wait([*ends, self._wake_reader], timeout=1.0):
            if end is self._wake_reader:
                while self._wake_reader.poll():
                    self._wake_reader.recv()
                continue
            place = next(i for i, w in enumerate(self._workers) if w.connection is end)
            worker = self._workers[place]
            try:
                kind, *what = worker.connection.recv()
            except (EOFError, OSError):
                scheduler.died(worker, self._end_of(worker))
                self._start(place)
                continue
            worker.heard = object()
            if kind == READY:
                worker.proven = True
            elif kind == QUESTION:
                self._ask(worker, *what)
            elif kind == ERROR:
                raise EndedEarly(f"a worker process failed: {what[0]}")
            elif kind == BLOCK:
                scheduler.finished(worker, what[0].first)
                yield what[0]
        self._networks.check()

    def _ask(self, worker: _Worker, number: int, question: tuple[Any, ...]) -> None:
        worker.asked.add(number)
        self._networks.submit(question, lambda answer: worker.answer(number, answer))

    def _end_of(self, worker: _Worker) -> str:
        """Say what became of a worker whose connection is closed."""
        with worker.sending:
            worker.connection.close()
        code = self._server.end_of(worker.number)
        if worker.killed:
            return f"took longer than {self._patience:.3g} s"
        if code == NO_MEMORY:
            return f"needed more than {MEMORY / 1e9:.1f} GB"
        if code is not None and code < 0:
            with suppress(ValueError):
                return f"was ended by {signal.Signals(-code).name}"
        return "ended" if code is None else f"ended with code {code}"


def without_engine(job: Job) -> Job:
    """The job for another process: its reader has no engine."""
    reader = copy(job.reader)
    reader.engine = None  # type: ignore[assignment]
    return replace(job, reader=reader)
