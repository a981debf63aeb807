"""Worker processes: they decode and find, the network stays here; none can lose a picture.

A worker that is silent for too long while it owes something is killed from here: a decoder that
holds Python's lock, or a process that was stopped, could not end itself.
"""

import os
import pickle
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

from neocog.batch.dispatch import Dispatch
from neocog.batch.gather import Gatherer
from neocog.batch.tasks import Block, Place, Task
from neocog.batch.work import Job
from neocog.batch.worker import (
    ANSWERS,
    BLOCK,
    DIGITS,
    ERROR,
    MEMORY,
    NO_MEMORY,
    PRELOAD,
    READY,
    TASK,
    run_worker,
)
from neocog.errors import EndedEarly
from neocog.forkserver import ForkServer, pack

LANES = 2
"""Threads of a worker: one decodes while the other waits for the network."""

PATIENCE = 120.0
"""Seconds that a page may take where every worker has a core: many times what the slowest takes
there (26 for a JPEG 2000 of 64 million pixels, 4 for any other kind of 130 million)."""

_DEPTH = LANES + 1  # tasks that a worker has at a time: the next one is there when one is done
_TICKS = 20  # a worker's silence is counted in so many parts of the patience with it
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


class _Worker:
    """One worker process, and what it has been given."""

    def __init__(self, connection: Connection, number: int) -> None:
        self.connection, self.number = connection, number
        self.tasks: dict[Place, Task] = {}
        self.asked: set[int] = set()
        """Questions to the network that it waits for."""
        self.proven, self.open, self.killed = False, True, False
        self._silence = 0
        self._taking = True  # what it is sent
        self._sending = threading.Lock()

    def give(self, task: Task) -> None:
        """Send a task."""
        self.send(pickle.dumps((TASK, task)))

    def answer(self, number: int, answers: Any) -> None:
        """Answer a question."""
        self.send(pickle.dumps((ANSWERS, number, answers)))
        self.asked.discard(number)

    def send(self, message: bytes) -> None:
        """Send a message, if the worker is still there: its end is noticed elsewhere."""
        with self._sending:
            self._taking = False
            with suppress(OSError, ValueError):
                self.connection.send_bytes(message)
            self._taking = True
            self._silence = 0

    def heard(self) -> None:
        """Count its silence anew."""
        self._silence = 0

    def watch(self) -> None:
        """Count its silence, and kill it if that lasts too long.

        It is counted, not timed: while this program itself was stopped, nobody listened.
        """
        owes = not self.proven or len(self.asked) < min(len(self.tasks), LANES)
        if self._taking and (not owes or self._unread()):
            return
        self._silence += 1
        if self._silence > _TICKS and not self.connection.closed:
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

    One that dies is replaced, and its tasks are done again.

    Parameters
    ----------
    job : Job
        How tasks are done.
    gatherer : Gatherer
        What recognises the digits.
    workers : int
        How many processes.
    window : int, optional
        As :class:`neocog.batch.dispatch.Dispatch`.
    patience : float, optional
        Seconds that one may be silent that owes something, `PATIENCE` by default.

    Raises
    ------
    EndedEarly
        If workers cannot be started; also later, while tasks are done.
    """

    def __init__(
        self,
        job: Job,
        gatherer: Gatherer,
        *,
        workers: int,
        window: int | None = None,
        patience: float | None = None,
    ) -> None:
        from neocog.network.parallel import cores

        self._gatherer, self._window = gatherer, window
        self._patience = (patience or PATIENCE) * max(1.0, workers / cores())
        self._work = pack(run_worker, job, LANES, self._patience / _TICKS)
        self._server = ForkServer(*PRELOAD, variables=_ONE_THREAD)
        self._wake_reader, self._wake_writer = Pipe(duplex=False)
        self._workers: list[_Worker] = []
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name="neocog-watch", daemon=True).start()
        gatherer.when_failing(self._wake)
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
        self._closed.set()
        for worker in self._workers:
            worker.connection.close()
        self._server.close()

    def run(self, tasks: Iterable[Task]) -> Iterator[Block]:
        """Do tasks, and yield what comes of each as it comes.

        Raises
        ------
        NeocogError
            Whatever stops the network.
        EndedEarly
            If workers fail, or cannot be started any more.
        """
        dispatch = Dispatch(
            tasks, self._workers, depth=_DEPTH, window=self._window, wake=self._wake
        )
        try:
            while dispatch.deal():
                yield from self._received(dispatch)
                self._gatherer.check()
        finally:
            dispatch.stop()

    def _start(self, place: int) -> None:
        """Start a worker in a place; it is watched from the first on."""
        worker = _Worker(*self._server.start())
        self._workers[place : place + 1] = [worker]
        worker.send(self._work)

    def _watch(self) -> None:
        while not self._closed.wait(self._patience / _TICKS):
            for worker in self._workers:
                worker.watch()

    def _wake(self) -> None:
        with suppress(OSError, ValueError):
            self._wake_writer.send(None)

    def _received(self, dispatch: Dispatch) -> Iterator[Block]:
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
                dispatch.died(worker, self._end_of(worker))
                self._start(place)
                continue
            worker.heard()
            if kind == READY:
                worker.proven = True
            elif kind == DIGITS:
                self._ask(worker, *what)
            elif kind == ERROR:
                raise EndedEarly(f"a worker process failed: {what[0]}")
            elif kind == BLOCK:
                block: Block = what[0]
                dispatch.finished(worker, block.place)
                yield block

    def _ask(self, worker: _Worker, number: int, digits: Any) -> None:
        worker.asked.add(number)
        self._gatherer.submit(digits, lambda answers: worker.answer(number, answers))

    def _end_of(self, worker: _Worker) -> str:
        """Say what became of a worker whose connection is closed."""
        with worker._sending:
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
