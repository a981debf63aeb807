"""Worker processes: they decode and find, the network stays here; none of them can lose a picture.

Tasks go out while a worker has fewer than it can begin, so what is under way is bounded, and what
feeds them waits when records are not taken. A worker that dies is replaced, and its tasks are done
again (see :meth:`neocog.batch.tasks.Task.after_death`).
"""

import multiprocessing
import queue
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any

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

_AHEAD = 2  # tasks for each worker that are made before they are asked for
_DEPTH = LANES + 1  # tasks that a worker has at a time
_FALSE_STARTS = 3  # workers that may die before they are ready


class _Worker:
    """One worker process, and what it has been given."""

    def __init__(self, context: Any, job: Job) -> None:
        self.connection, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(
            target=run_worker, args=(theirs, job, LANES), daemon=True
        )
        self.process.start()
        theirs.close()
        self.tasks: dict[Place, Task] = {}
        self.ready = False
        self._sending = threading.Lock()

    @property
    def alone(self) -> bool:
        """Whether it has a task that must be by itself."""
        return any(task.deaths for task in self.tasks.values())

    def send(self, *message: Any) -> None:
        """Send a message, if the worker is still there: its end is noticed elsewhere."""
        with self._sending, suppress(OSError, ValueError):
            self.connection.send(message)

    def give(self, task: Task) -> None:
        """Give it a task."""
        self.tasks[task.place] = task
        self.send(TASK, task)

    def end(self) -> str:
        """Wait for its end, and say what became of it."""
        self.connection.close()
        self.process.join(5.0)
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

    Parameters
    ----------
    job : Job
        How tasks are done.
    gatherer : Gatherer
        What recognises the digits.
    workers : int
        How many processes.
    window : int, optional
        A task is not begun before the one so many places ahead of it is done, so that records
        that wait for their turn are bounded.
    """

    def __init__(
        self, job: Job, gatherer: Gatherer, *, workers: int, window: int | None = None
    ) -> None:
        method = "forkserver" if sys.platform != "win32" else "spawn"
        self._context = multiprocessing.get_context(method)
        self._context.set_forkserver_preload(PRELOAD)
        self._job, self._gatherer, self._window = job, gatherer, window
        self._again: deque[Task] = deque()
        self._false_starts = 0
        self._wake_reader, self._wake_writer = self._context.Pipe(duplex=False)
        self._workers = [_Worker(self._context, job) for _ in range(workers)]
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
        feeder = _Feeder(tasks, ahead=_AHEAD * len(self._workers), wake=self._wake)
        try:
            while True:
                self._hand_out(feeder)
                if feeder.done and not self._again and not self._under_way():
                    return
                yield from self._received()
                self._gatherer.check()
        finally:
            feeder.stop()

    def _under_way(self) -> list[Task]:
        return [task for worker in self._workers for task in worker.tasks.values()]

    def _wake(self) -> None:
        with suppress(OSError, ValueError):
            self._wake_writer.send(None)

    def _hand_out(self, feeder: "_Feeder") -> None:
        """Give tasks to workers as long as there are both."""
        while self._again:
            idle = next((worker for worker in self._workers if not worker.tasks), None)
            if idle is None:
                break
            idle.give(self._again.popleft())
        # one of them is let run dry for a task that must be by itself
        dry = next((w for w in self._workers if not w.alone), None) if self._again else None
        while True:
            free = [
                w for w in self._workers if len(w.tasks) < _DEPTH and not w.alone and w is not dry
            ]
            if not free:
                return
            task = feeder.peek()
            if task is None or not self._within_window(task):
                return
            min(free, key=lambda worker: len(worker.tasks)).give(feeder.take())

    def _within_window(self, task: Task) -> bool:
        if self._window is None:
            return True
        open_ = [t.place.number for t in (*self._under_way(), *self._again)]
        return task.place.number < min(open_, default=task.place.number) + self._window

    def _received(self) -> Iterator[Block]:
        """Wait for messages, and yield the blocks among them."""
        ends: list[Any] = [worker.connection for worker in self._workers]
        for end in wait([*ends, self._wake_reader], timeout=1.0):
            if end is self._wake_reader:
                while self._wake_reader.poll():
                    self._wake_reader.recv()
                continue
            worker = next(w for w in self._workers if w.connection is end)
            try:
                kind, *what = worker.connection.recv()
            except (EOFError, OSError):
                self._replace(worker)
                continue
            if kind == READY:
                worker.ready = True
            elif kind == DIGITS:
                self._ask(worker, *what)
            elif kind == ERROR:
                raise NeocogError(f"a worker process failed: {what[0]}")
            elif kind == BLOCK:
                block: Block = what[0]
                del worker.tasks[block.place]
                yield block

    def _ask(self, worker: _Worker, number: int, digits: Any) -> None:
        self._gatherer.submit(digits, lambda answers: worker.send(ANSWERS, number, answers))

    def _replace(self, worker: _Worker) -> None:
        """Put another worker in the place of one that died; its tasks are done again."""
        how = worker.end()
        self._false_starts += not worker.ready
        if self._false_starts >= _FALSE_STARTS:
            raise NeocogError(f"worker processes cannot be started: one {how}; try --workers 0")
        for task in worker.tasks.values():
            self._again += task.after_death(how)
        self._workers[self._workers.index(worker)] = _Worker(self._context, self._job)


class _Feeder:
    """A thread that makes tasks a little ahead of their use: finding inputs may take its time.

    Parameters
    ----------
    tasks : iterable of Task
    ahead : int
        Most tasks that are made ahead.
    wake : callable
        Called after each of them.
    """

    def __init__(self, tasks: Iterable[Task], *, ahead: int, wake: Any) -> None:
        self.done = False
        self._queue: queue.Queue[Task | BaseException | None] = queue.Queue(maxsize=ahead)
        self._next: Task | None = None
        self._stopped = threading.Event()
        self._wake = wake
        threading.Thread(target=self._run, args=(iter(tasks),), daemon=True).start()

    def peek(self) -> Task | None:
        """The next task if there is one by now."""
        if self._next is None and not self.done:
            with suppress(queue.Empty):
                found = self._queue.get_nowait()
                if isinstance(found, BaseException):
                    self.done = True
                    raise found
                self._next, self.done = found, found is None
        return self._next

    def take(self) -> Task:
        """Take the task that `peek` showed."""
        task, self._next = self._next, None
        assert task is not None
        return task

    def stop(self) -> None:
        """Make no more."""
        self._stopped.set()

    def _run(self, tasks: Iterator[Task]) -> None:
        try:
            for task in tasks:
                self._put(task)
                if self._stopped.is_set():
                    return
            self._put(None)
        except BaseException as error:
            self._put(error)

    def _put(self, what: Task | BaseException | None) -> None:
        while not self._stopped.is_set():
            with suppress(queue.Full):
                self._queue.put(what, timeout=0.2)
                self._wake()
                return
