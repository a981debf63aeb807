"""Worker processes: they decode and find, the networks stay here; none can lose a picture.

Each worker has a thread here, which takes the next task, answers the worker's questions and takes
its records. A worker that is silent for too long is killed from here: a decoder that holds Python's
lock, or a process that was stopped, could not end itself.
"""

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any, Protocol

from neocog.batch.tasks import Block, Job, Task
from neocog.batch.worker import BEAT, BLOCK, ERROR, MEMORY, NO_MEMORY, PRELOAD, QUESTION, run_worker
from neocog.errors import EndedEarly
from neocog.forkserver import ForkServer, pack
from neocog.watchdog import Watchdog

PATIENCE = 120.0
"""Seconds that a page may take where every worker has a core: many times what the slowest takes
there (26 for a JPEG 2000 of 64 million pixels, 4 for any other kind of 130 million)."""

_LOOKS = 20  # of the watchdog, in the patience with a worker
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
_HELD = 2**29  # bytes of pictures in the tasks that workers have
_FALSE_STARTS = 3  # times in succession that a worker may die before it is there


class WorkerDied(Exception):
    """A worker died over a task; the text says how."""


class Worker(Protocol):
    """What does tasks, here or on a cluster."""

    def start(self) -> None:
        """Be there, for the first time or once more; WorkerDied if that fails."""

    def do(self, task: Task) -> list[Block]:
        """Do a task; WorkerDied if the worker does not outlive it."""


class WorkerProcess:
    """A worker process, and the one that takes its place when it dies."""

    def __init__(self, server: ForkServer, work: bytes, ask: Callable[..., Any], patience: float) -> None:
        self._server, self._work, self._ask, self._patience = server, work, ask, patience
        self._connection: Connection | None = None
        self._wait: object = None
        self._killed = False
        self.number = 0

    def start(self) -> None:
        """See `Worker`."""
        self._killed = False
        self._connection, self.number = self._server.start()
        self._wait = object()
        with suppress(OSError):  # receiving says what became of it
            self._connection.send_bytes(self._work)
        self._received()

    def do(self, task: Task) -> list[Block]:
        """See `Worker`."""
        kind, what = self._exchanged(task)
        while kind == QUESTION:
            kind, what = self._exchanged(self._ask(*what))
        if kind == ERROR:
            raise EndedEarly(f"a worker process failed: {what}; start again (neocog read: with --resume)")
        assert kind == BLOCK
        return [what]

    def wait_id(self) -> object | None:
        """See `neocog.watchdog.Watched`."""
        return self._wait

    def kill(self) -> None:
        """End it; who waits for it notices."""
        self._killed = True
        with suppress(ProcessLookupError):
            os.kill(self.number, signal.SIGKILL)

    def _exchanged(self, message: Any) -> tuple[str, Any]:
        """Send a message, and return what comes next."""
        assert self._connection is not None
        self._wait = object()
        with suppress(OSError):
            self._connection.send(message)
        return self._received()

    def _received(self) -> tuple[str, Any]:
        assert self._connection is not None
        message: tuple[str, Any] = BEAT, None
        try:
            while message[0] == BEAT:
                self._wait = object()
                message = self._connection.recv()
        except (EOFError, OSError):
            raise WorkerDied(self._end()) from None
        finally:
            self._wait = None
        return message

    def _end(self) -> str:
        """What became of it, once its connection is closed."""
        assert self._connection is not None
        self._connection.close()
        code = self._server.end_of(self.number)
        if self._killed:
            return f"took longer than {self._patience:.3g} s"
        if code == NO_MEMORY:
            return f"needed more than {MEMORY / 1e9:.1f} GB"
        if code is not None and code < 0:
            with suppress(ValueError):
                return f"was ended by {signal.Signals(-code).name}"
        return "ended" if code is None else f"ended with code {code}"


class Pool:
    """Worker processes that do tasks; a context manager.

    ``ask`` answers their questions, from many threads; ``patience`` are the seconds that one may be
    silent that owes something.
    """

    def __init__(
        self, job: Job, ask: Callable[..., Any], *, workers: int, patience: float | None = None
    ) -> None:
        from neocog.network.parallel import cores

        patience = (patience or PATIENCE) * max(1.0, workers / cores())
        work = pack(run_worker, without_engine(job), patience / _LOOKS)
        self._server = ForkServer(*PRELOAD, variables=_ONE_THREAD)
        self.workers = [WorkerProcess(self._server, work, ask, patience) for _ in range(workers)]
        self._watchdog = Watchdog(lambda: self.workers, lambda: patience, every=patience / _LOOKS)

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        self._watchdog.close()
        self._server.close()  # which ends all workers; nobody waits for what they are at


def run_tasks(
    tasks: Iterable[Task], workers: Sequence[Worker], *, window: int | None = None
) -> Iterator[Block]:
    """Have workers do tasks, and yield what comes of each as it comes.

    With a ``window`` an input is not begun before the one so many places ahead of it is done. What
    stops a network or the tasks is raised once what was begun is done; EndedEarly if workers fail
    or cannot be started any more.
    """
    return _Run(tasks, window, most=2 * len(workers)).blocks(workers)


def start(worker: Worker) -> None:
    """Start a worker; EndedEarly if it dies again and again before it has done anything."""
    how = ""
    for _ in range(_FALSE_STARTS):
        try:
            return worker.start()
        except WorkerDied as death:
            how = str(death)
    raise EndedEarly(f"worker processes cannot be started: the last one {how}; see above, or use --workers 0")


def do(worker: Worker, task: Task) -> list[Block]:
    """Have a task done, whatever becomes of the worker; EndedEarly if worker after worker dies."""
    try:
        return worker.do(task)
    except WorkerDied as death:
        parts = task.after_death(str(death))
        start(worker)
        return [block for part in parts for block in do(worker, part)]


class _Run:
    """Tasks that the threads of workers take, one after another, and the blocks that come of them.

    What has begun and what nobody has taken yet is bounded: ``most`` blocks.
    """

    def __init__(self, tasks: Iterable[Task], window: int | None, *, most: int) -> None:
        self._tasks, self._window, self._most = iter(tasks), window, most
        self._taking = threading.Lock()
        self._changed = threading.Condition()  # for all that follows
        self._begun: dict[int, Task] = {}
        self._blocks: deque[Block] = deque()
        self._ended = False  # no task is begun any more
        self._error: BaseException | None = None

    def blocks(self, workers: Sequence[Worker]) -> Iterator[Block]:
        """Do all tasks; each worker gets a thread of its own."""
        try:
            for worker in workers:
                threading.Thread(target=self._work, args=(worker,), daemon=True).start()
            while (block := self._next_block()) is not None:
                yield block
        finally:
            self._end()
        if self._error is not None:
            raise self._error

    def _next_block(self) -> Block | None:
        with self._changed:
            self._changed.wait_for(lambda: self._blocks or (self._ended and not self._begun))
            self._changed.notify_all()
            return self._blocks.popleft() if self._blocks else None

    def _work(self, worker: Worker) -> None:
        task: Task | None = None
        try:
            start(worker)
            while (task := self._next_task()) is not None:
                blocks = do(worker, task)
                with self._changed:
                    self._blocks += blocks
                    del self._begun[task.first]
                    self._changed.notify_all()
        except BaseException as error:
            self._end(error, task)

    def _end(self, error: BaseException | None = None, failed: Task | None = None) -> None:
        with self._changed:
            self._ended, self._error = True, self._error or error
            if failed is not None:
                self._begun.pop(failed.first, None)
            self._changed.notify_all()

    def _next_task(self) -> Task | None:
        """Wait for a task that may begin; None where there is none any more."""
        with self._taking:
            task = None if self._ended else next(self._tasks, None)
            with self._changed:
                self._changed.wait_for(lambda: self._ended or task is None or self._has_room(task))
                if task is None or self._ended:
                    self._ended = True
                    self._changed.notify_all()
                    return None
                self._begun[task.first] = task
            return task

    def _has_room(self, task: Task) -> bool:
        held = sum(other.held for other in self._begun.values()) if task.held else 0
        first = min(self._begun, default=task.first)
        return (
            len(self._blocks) < self._most
            and (self._window is None or task.first < first + self._window)
            and (not held or held + task.held <= _HELD)
        )


def without_engine(job: Job) -> Job:
    """The job for another process: its reader has no engine."""
    reader = copy(job.reader)
    reader.engine = None  # type: ignore[assignment]
    return replace(job, reader=reader)
