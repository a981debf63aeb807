"""Worker processes: they decode and find, the network stays here; none can lose a picture."""

import multiprocessing
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
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
    PATIENCE,
    PRELOAD,
    READY,
    STALLED,
    TASK,
    run_worker,
)
from neocog.errors import NeocogError

LANES = 2
"""Threads of a worker: one decodes while the other waits for the network."""

_DEPTH = LANES + 1  # tasks that a worker has at a time: the next one is there when one is done


class _Process:
    """One worker process, and what it has been given."""

    def __init__(self, context: Any, job: Job) -> None:
        self.connection, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(
            target=run_worker, args=(theirs, job, LANES), daemon=True
        )
        self.process.start()
        theirs.close()
        self.tasks: dict[Place, Task] = {}
        self.proven, self.open = False, True
        self._sending = threading.Lock()

    def give(self, task: Task) -> None:
        """Send a task."""
        self.send(TASK, task)

    def send(self, *message: Any) -> None:
        """Send a message, if the worker is still there: its end is noticed elsewhere."""
        with self._sending, suppress(OSError, ValueError):
            self.connection.send(message)

    def end(self) -> str:
        """Wait for its end, and say what became of it."""
        with self._sending:
            self.connection.close()
        self.process.join(30.0)  # on a busy machine the end of a process takes its time
        code = self.process.exitcode
        if code is None:
            self.process.kill()
            self.process.join()
        if code == STALLED:
            return f"made no step for {PATIENCE:.0f} s"
        if code is not None and code < 0:
            with suppress(ValueError):
                return f"was ended by {signal.Signals(-code).name}"
        return f"ended with code {code}"


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
    """

    def __init__(
        self, job: Job, gatherer: Gatherer, *, workers: int, window: int | None = None
    ) -> None:
        method = "forkserver" if sys.platform != "win32" else "spawn"
        self._context = multiprocessing.get_context(method)
        self._context.set_forkserver_preload(PRELOAD)
        self._job, self._gatherer, self._window = job, gatherer, window
        self._wake_reader, self._wake_writer = self._context.Pipe(duplex=False)
        self._workers = [_Process(self._context, job) for _ in range(workers)]
        gatherer.when_failing(self._wake)

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.connection.close()  # it ends on that
        for worker in self._workers:
            worker.process.join(2.0)
            if worker.process.is_alive():
                worker.process.kill()

    def run(self, tasks: Iterable[Task]) -> Iterator[Block]:
        """Do tasks, and yield what comes of each as it comes.

        Raises
        ------
        NeocogError
            If the network fails, or workers cannot be started.
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
                dispatch.died(worker, worker.end())
                self._workers[place] = _Process(self._context, self._job)
                continue
            if kind == READY:
                worker.proven = True
            elif kind == DIGITS:
                self._ask(worker, *what)
            elif kind == ERROR:
                raise NeocogError(f"a worker process failed: {what[0]}")
            elif kind == BLOCK:
                block: Block = what[0]
                dispatch.finished(worker, block.place)
                yield block

    def _ask(self, worker: _Process, number: int, digits: Any) -> None:
        self._gatherer.submit(digits, lambda answers: worker.send(ANSWERS, number, answers))
