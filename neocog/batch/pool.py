"""Worker processes: they decode and find, the networks stay here; none can lose a picture.

Each worker has a thread here, which gives it tasks, answers its questions and takes its records.
"""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import IO, Any, Protocol, cast

from neocog.batch.tasks import Block, Job, Task
from neocog.batch.worker import BEAT, ERROR, MEMORY, NO_MEMORY, QUESTION
from neocog.errors import EndedEarly, NeocogError
from neocog.programs import python

PATIENCE = 120.0
"""Seconds that a page may take where every worker has a core: many times what the slowest takes
there (26 for a JPEG 2000 of 64 million pixels, 4 for any other kind of 130 million)."""

STARTS = 60.0
"""Seconds that a worker may take to start."""

_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
_HELD = 2**29  # bytes of pictures in the tasks that workers have
_LIVES = 2  # times that a worker may die over an input, the second time with it alone
_FALSE_STARTS = 3  # times in succession that a worker may die before it is ready


class WorkerDied(Exception):
    """A worker died over a task; the text says how."""


class OutOfTime(Exception):
    """A worker was killed at the deadline of its task, or because nobody wants the result."""


class Worker(Protocol):
    """Does tasks, here or on a cluster; WorkerDied if it dies over one, or does not start."""

    def start(self) -> None: ...
    def do(self, task: Task) -> list[Block]: ...


class WorkerProcess:
    """A worker process of a pool, and the one that takes its place when it dies.

    It takes no module from the current folder and hears no Ctrl-C.
    """

    def __init__(self, pool: "Pool") -> None:
        self._pool, self._lock, self._closed, self._given_up = pool, threading.Lock(), False, False
        self._deadline = threading.Timer(0, self.give_up)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """See `Worker`; EndedEarly if no worker can be started at all."""
        with self._lock:
            if self._closed:
                raise EndedEarly("the run has ended")
            if self.process is not None:
                self._death(self.process)
            try:
                self.process = subprocess.Popen(
                    python("-c", "from neocog.batch.worker import main; main()"),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env=os.environ | _ONE_THREAD,
                    start_new_session=True,  # Ctrl-C is for this process
                )
            except OSError as error:
                raise EndedEarly(f"worker processes cannot be started: {error}; try again") from None
        kind, what = self._exchange(self._pool.begin, STARTS, 1)
        if kind == ERROR:
            raise EndedEarly(f"worker processes cannot be started: {what}")

    def do(self, task: Task) -> list[Block]:
        """See `Worker`; OutOfTime at the deadline."""
        if self._given_up:
            raise OutOfTime
        kind, what = self._exchange(pickle.dumps(task), self._pool.patience)
        while kind == QUESTION:
            kind, what = self._exchange(pickle.dumps(self._pool.ask(*what)), self._pool.patience)
        if kind == ERROR and isinstance(what, NeocogError):
            raise what
        if kind == ERROR:
            raise EndedEarly(f"a worker process failed: {what}; start again (neocog read: with --resume)")
        return [what]

    def set_deadline(self, seconds: float | None = None) -> None:
        """Have all that it does from now on take at most ``seconds`` in total."""
        self._deadline.cancel()
        if self._deadline.is_alive():
            self._deadline.join()  # it may be giving up just now
        self._given_up = False
        if seconds is not None:
            self._deadline = threading.Timer(seconds, self.give_up)
            self._deadline.daemon = True
            self._deadline.start()

    def give_up(self) -> None:
        """End what it does: `do` raises OutOfTime on its thread."""
        self._given_up = True
        if self.process is not None:
            self.process.kill()

    def close(self) -> None:
        """End it; no other takes its place."""
        self._deadline.cancel()
        with self._lock:
            self._closed = True
            if self.process is not None:
                self._death(self.process)

    def _exchange(self, message: bytes, patience: float, times: int = 2) -> tuple[str, Any]:
        """Send a message and return what comes next.

        A worker that needs longer than ``patience`` ends itself; silent for ``times`` that, it is killed.
        """
        process = self.process
        assert process is not None
        stdin, stdout = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
        while True:
            since, timer = time.monotonic(), threading.Timer(times * patience, process.kill)
            timer.daemon = True
            timer.start()
            try:
                with suppress(OSError, ValueError):  # receiving says what became of it
                    stdin.write(message)
                    stdin.flush()
                kind, what = pickle.load(stdout)
            except (EOFError, OSError, ValueError, pickle.UnpicklingError):
                how = self._death(process)  # 1 is the code of one that ended itself, a bit before or after
                if time.monotonic() - since > patience * (0.9 if process.returncode == 1 else times):
                    how = f"took longer than {patience:.3g} s"
                raise OutOfTime if self._given_up else WorkerDied(how) from None
            finally:
                timer.cancel()
            if kind != BEAT:
                return kind, what
            message = b""

    def _death(self, process: "subprocess.Popen[bytes]") -> str:
        """End a process for good, and return how it died."""
        process.kill()
        code = process.wait()
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        if code == NO_MEMORY:
            return f"needed more than {MEMORY / 1e9:.1f} GB"
        with suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name}"
        return f"ended with code {code}"


class Pool:
    """Worker processes for a job; a context manager. ``ask`` answers their questions, from many threads.

    One that works on a page for ``patience`` seconds ends itself; one that cannot is killed after twice that.
    """

    def __init__(
        self, job: Job, ask: Callable[..., Any], *, workers: int, patience: float | None = None
    ) -> None:
        from neocog.network.parallel import cores

        self.ask, self.patience = ask, (patience or PATIENCE) * max(1.0, workers / cores())
        path = [place for place in sys.path if os.path.isabs(place)]
        self.begin = pickle.dumps(path) + pickle.dumps((job.with_engine(None), self.patience))
        self.workers = [WorkerProcess(self) for _ in range(workers)]

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.close()


def start(worker: Worker) -> None:
    """Start a worker; EndedEarly if it dies again and again before it has done anything."""
    how = ""
    for _ in range(_FALSE_STARTS):
        try:
            return worker.start()
        except WorkerDied as death:
            how = str(death)
    raise EndedEarly(f"worker processes cannot be started: the last one {how}; see above, or use --workers 0")


def do(worker: Worker, task: Task, job: Job) -> list[Block]:
    """Have a task done, whatever becomes of the worker.

    After a death each input is tried alone; one that kills a worker twice gives a record that says
    how, which is written here without opening the input.
    """
    try:
        return worker.do(task)
    except WorkerDied as death:
        deaths, how = task.deaths + 1, str(death)
    start(worker)
    if len(task.items) == 1 and deaths >= _LIVES:
        trouble = f"cannot be read: twice, the process that reads it {how}"
        return [job.do(replace(task, items=(task.items[0]._replace(trouble=trouble, data=None),)))]
    parts = [Task(task.first + n, (item,), deaths) for n, item in enumerate(task.items)]
    return [block for part in parts for block in do(worker, part, job)]


def run_tasks(
    tasks: Iterable[Task], workers: Sequence[Worker], job: Job, *, window: int | None = None
) -> Iterator[Block]:
    """Have workers do tasks, and yield what comes of each as it comes.

    What is begun and not yet taken is bounded, in tasks and in bytes; with a ``window`` an input is
    not begun before the one so many places ahead of it is done. An error of a network or of the
    tasks is raised once what was begun is done; EndedEarly if workers cannot be started any more.
    """
    tasks = iter(tasks)
    taking, changed = threading.Lock(), threading.Condition()
    begun: dict[int, Task] = {}
    blocks: deque[Block] = deque()
    ended: list[BaseException | None] = []  # why no task is begun any more; None: all are done

    def has_room(task: Task) -> bool:
        held = sum(other.held for other in begun.values()) if task.held else 0
        first = min(begun, default=task.first)
        return (
            len(blocks) < 2 * len(workers)
            and (window is None or task.first < first + window)
            and (not held or held + task.held <= _HELD)
        )

    def next_task() -> Task | None:
        with taking:
            task = None if ended else next(tasks, None)
            with changed:
                changed.wait_for(lambda: ended or task is None or has_room(task))
                if task is None or ended:
                    ended.append(None)
                    changed.notify_all()
                    return None
                begun[task.first] = task
            return task

    def work(worker: Worker) -> None:
        task = None
        try:
            start(worker)
            while (task := next_task()) is not None:
                found = do(worker, task, job)
                with changed:
                    blocks.extend(found)
                    del begun[task.first]
                    changed.notify_all()
        except BaseException as error:
            with changed:
                ended.insert(0 if not ended or ended[0] is None else 1, error)  # the first one is raised
                begun.pop(task.first if task else -1, None)
                changed.notify_all()

    try:
        for worker in workers:
            threading.Thread(target=work, args=(worker,), daemon=True).start()
        while True:
            with changed:
                changed.wait_for(lambda: blocks or (ended and not begun))
                if not blocks:
                    break
                block = blocks.popleft()
                changed.notify_all()
            yield block
    finally:
        with changed:
            ended.append(None)
            changed.notify_all()
    if ended[0] is not None:
        raise ended[0]
