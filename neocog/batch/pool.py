"""Worker processes: they decode and find, the networks stay here; none can lose a picture.

Each worker has a thread here, which gives it tasks, answers its questions and takes its records. A digit's
answer is the same, to the last bit, whatever stands beside it in a pass of the network.
"""

import math
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from neocog.batch.tasks import Block, Job, Task
from neocog.batch.worker import ERROR, MEMORY, NO_MEMORY, QUESTION, STARTS
from neocog.errors import EndedEarly, NeocogError
from neocog.network.decision import Answers
from neocog.network.parallel import cores
from neocog.programs import python
from neocog.vision.finder import find

#: Seconds that a page may take where every worker has a core: many times what the slowest takes
#: there (26 for a JPEG 2000 of 64 million pixels, 4 for any other kind of 130 million).
PATIENCE = 120.0

_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
_HELD = 2**29  # bytes of pictures in the tasks that workers have
_LIVES = 2  # times that a worker may die over an input, the second time with it alone
_WINDOW = 8  # tasks for each worker that may be begun before one that is not done, where order is kept
_FALSE_STARTS = 3  # times in succession that a worker may die before it is ready
_UNSTARTED = "worker processes cannot be started"
_PAGES_PASS = 256  # digits of a pass on CUDA while pages are read: a page has tens
_STRIPS = 32  # of a pass


class WorkerDied(Exception):
    """A worker died over a task; the text says how."""


class OutOfTime(Exception):
    """A worker ended at its task's limit, or because nobody wants the result."""


class Worker:
    """Does tasks, in a process here or on a cluster, whatever becomes of what does them."""

    def launch(self) -> None:
        """Start, or start again; WorkerDied if it dies meanwhile."""
        raise NotImplementedError

    def attempt(self, task: Task) -> list[Block]:
        """Do a task once; WorkerDied if it dies over it, OutOfTime if the task is given up."""
        raise NotImplementedError

    def start(self) -> None:
        """Launch it; EndedEarly if it dies again and again before it has done anything."""
        how = ""
        for _ in range(_FALSE_STARTS):
            try:
                return self.launch()
            except WorkerDied as death:
                how = str(death)
        raise EndedEarly(f"{_UNSTARTED}: the last one {how}; see above, or use --workers 0")

    def do(self, task: Task, job: Job) -> list[Block]:
        """Do a task; after a death each input alone; one that kills a worker twice gives a record of it."""
        try:
            return self.attempt(task)
        except OutOfTime:
            self.start()
            return [job.late(task)]
        except WorkerDied as death:
            deaths, how = task.deaths + 1, str(death)
        self.start()
        if len(task.items) == 1 and deaths >= _LIVES:
            trouble = f"cannot be read: twice, the process that reads it {how}"
            return [job.do(task._replace(items=(task.items[0]._replace(trouble=trouble, data=None),)))]
        alone = [(task.first + n, (item,)) for n, item in enumerate(task.items)]
        parts = (task._replace(first=first, items=items, deaths=deaths) for first, items in alone)
        return [block for part in parts for block in Worker.do(self, part, job)]


class WorkerProcess(Worker):
    """A worker process, and the one that takes its place when it dies, or takes ``patience`` for a page."""

    def __init__(self, begin: bytes, ask: Callable[..., Any], patience: float) -> None:
        self._begin, self._ask, self._patience = begin, ask, patience
        self._lock, self._closed = threading.Lock(), False
        self._first: int | None = None  # the task that is done, retries included
        self._until, self._busy = math.inf, False  # its end, by `time.monotonic`; whether a process is at it
        self.process: subprocess.Popen[bytes] | None = None

    def launch(self) -> None:
        """See `Worker`; EndedEarly if no worker can be started at all."""
        with self._lock:
            if self._closed:
                raise EndedEarly("the run has ended")
            if self.process is not None:
                self._death(self.process)
            try:  # Ctrl-C is for this process
                self.process = subprocess.Popen(
                    python("-c", "from neocog.batch.worker import main; main()"), stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE, env=os.environ | _ONE_THREAD, start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                raise EndedEarly(f"{_UNSTARTED}: {error}; try again") from None
        kind, what = self._exchange(self._begin)
        if kind == ERROR:
            raise EndedEarly(f"{_UNSTARTED}: {what}")

    def do(self, task: Task, job: Job) -> list[Block]:
        with self._lock:
            self._first, self._until = task.first, time.monotonic() + task.limit
        try:
            return super().do(task, job) if job.is_wanted(task) else [job.late(task)]
        finally:
            with self._lock:
                self._first, self._until = None, math.inf

    def attempt(self, task: Task) -> list[Block]:
        with self._lock:
            if (left := self._until - time.monotonic()) <= 0:
                raise OutOfTime
            self._busy = True
        try:
            kind, what = self._exchange(pickle.dumps(task._replace(limit=left)))
            while kind == QUESTION:
                kind, what = self._exchange(pickle.dumps(self._ask(*what)))
        finally:
            with self._lock:
                self._busy, given_up = False, self._until == -math.inf
        if given_up:  # just now: its process has been killed
            raise OutOfTime
        if kind == ERROR and isinstance(what, NeocogError):
            raise what
        if kind == ERROR:
            raise EndedEarly(f"a worker process failed: {what}; start again (neocog read: with --resume)")
        return [what]

    def give_up(self, first: int) -> None:
        """End the task of this number, if it is done here."""
        with self._lock:
            if self._first == first:
                self._until = -math.inf
                if self._busy and self.process is not None:
                    self.process.kill()

    def close(self) -> None:
        """End it; no other takes its place."""
        with self._lock:
            self._closed = True
            if self.process is not None:
                self._death(self.process)

    def _exchange(self, message: bytes) -> tuple[str, Any]:
        """Send a message and return what comes next."""
        process = self.process
        assert process is not None
        try:
            with suppress(OSError, ValueError):  # receiving says what became of it
                cast("IO[bytes]", process.stdin).write(message)
                cast("IO[bytes]", process.stdin).flush()
            kind, what = pickle.load(cast("IO[bytes]", process.stdout))
        except (EOFError, OSError, ValueError, pickle.UnpicklingError):
            how = self._death(process)
            if self._busy and time.monotonic() >= self._until:
                raise OutOfTime from None
            raise WorkerDied(how) from None
        return kind, what

    def _death(self, process: "subprocess.Popen[bytes]") -> str:
        """End a process for good, and return how it died."""
        process.kill()
        code = process.wait()
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        if code == NO_MEMORY:
            return f"needed more than {MEMORY / 1e9:.1f} GB"
        if code == -getattr(signal, "SIGALRM", 0):
            return f"took longer than {self._patience if self._busy else STARTS:.3g} s"
        with suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name}"
        return f"ended with code {code}"


def workers_of(job: Job, ask: Callable[..., Any], count: int = 1) -> list[WorkerProcess]:
    """Return workers for a job; ``ask`` answers them, from many threads."""
    patience = PATIENCE * max(1.0, count / cores())
    path = [place for place in sys.path if os.path.isabs(place)]
    begin = pickle.dumps(path) + pickle.dumps((job.with_engine(None), patience))  # they share it
    return [WorkerProcess(begin, ask, patience) for _ in range(count)]


def run_tasks(
    tasks: Iterable[Task], workers: Sequence[Worker], job: Job, *, ordered: bool = False
) -> Iterator[Block]:
    """Have workers do tasks, a bounded number ahead; yield what comes of each, as it comes or in order."""
    tasks, taking, changed = iter(tasks), threading.Lock(), threading.Condition()
    window = _WINDOW * len(workers) * job.size if ordered else math.inf
    begun: dict[int, Task] = {}
    blocks: deque[Block] = deque()
    errors: list[BaseException] = []
    ended = False  # no task is begun any more

    def has_room(task: Task | None) -> bool:
        if ended or task is None:
            return True
        held = sum(other.held for other in begun.values()) if task.held else 0
        room = len(blocks) < 2 * len(workers) and task.first < min(begun, default=task.first) + window
        return room and (not held or held + task.held <= _HELD)

    def work(worker: Worker) -> None:
        nonlocal ended
        task = None
        try:
            worker.start()
            while True:
                with taking:
                    task = None if ended else next(tasks, None)
                    with changed:
                        changed.wait_for(partial(has_room, task))
                        if task is None or ended:
                            return
                        begun[task.first] = task
                found = worker.do(task, job)
                with changed:
                    blocks.extend(found)
                    del begun[task.first]
                    changed.notify_all()
        except BaseException as error:
            errors.append(error)
        finally:
            with changed:
                ended = True
                begun.pop(task.first if task else -1, None)
                changed.notify_all()

    early: dict[int, Block] = {}  # blocks that wait for those before them, where order is kept
    wanted = 0
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
            early[block.first] = block
            while (ready := early.pop(wanted if ordered else block.first, None)) is not None:
                wanted += ready.inputs
                yield ready
    finally:
        with changed:
            ended = True
            changed.notify_all()
    if errors:
        raise errors[0]


class FullPasses:
    """A CUDA engine of digits whose passes are filled up to ``batch``: others may take other steps."""

    def __init__(self, engine: Any, batch: int) -> None:
        self._engine, self.model, self.device, self.batch = engine, engine.model, engine.device, batch

    def recognise(self, digits: NDArray[np.uint8], *, batch: int | None = None) -> Answers:
        """Recognise isolated digits (N, 28, 28); ``batch`` changes nothing."""
        count = len(digits)
        rest = np.zeros((-count % self.batch, *digits.shape[1:]), digits.dtype)
        found: Answers = self._engine.recognise(np.concatenate([digits, rest]), batch=self.batch)
        return found[:count]


def in_passes(engine: Any, *, batch: int | None = None, isolated: bool = True) -> Any:
    """An engine whose answers depend on no pass; ``isolated`` digits fill any, those of pages do not."""
    if engine.device == "cpu" or hasattr(engine, "likelihoods"):
        return engine
    return FullPasses(engine, batch or (engine.batch if isolated else min(_PAGES_PASS, engine.batch)))


class Networks:
    """Networks for processes without: questions of many threads share passes, none waits for company."""

    def __init__(self, engine: Any, finder: Any = None, *, batch: int | None = None) -> None:
        self._engine, self._finder, self._closed = engine, finder, False
        self._most: int = getattr(engine, "batch", _STRIPS) if batch is None else batch
        self._waiting: deque[tuple[Any, Future[Any]]] = deque()
        self._at_work, self._looking = threading.Lock(), threading.Lock()

    def ask(self, what: Any, *settings: Any) -> Any:
        """Ask for digits (N, 28, 28) or strips, or about a grey page with settings; EndedEarly if closed."""
        if settings:
            with self._looking:
                self._check()
                return find(what, self._finder, *settings)
        future: Future[Any] = Future()
        self._waiting.append((what, future))
        with self._at_work:
            while not future.done():
                self._answer()
        return future.result()

    def close(self) -> None:
        """Answer nothing any more, once what is asked just now is answered (or 10 s have passed)."""
        self._closed = True
        for lock in (self._at_work, self._looking):
            if lock.acquire(timeout=10.0):
                lock.release()

    def _check(self) -> None:
        if self._closed:
            raise EndedEarly("the run has ended")

    def _answer(self) -> None:
        # the questions that came first, as many as fit into a pass, one at least
        batch = [self._waiting.popleft()]
        while self._waiting and sum(len(a) for a, _ in batch) + len(self._waiting[0][0]) <= self._most:
            batch.append(self._waiting.popleft())
        asked = [what for what, _ in batch]
        try:
            self._check()
            if hasattr(self._engine, "likelihoods"):
                answers = self._engine.likelihoods([strip for strips in asked for strip in strips])
            else:
                answers = self._engine.recognise(np.concatenate(asked), batch=self._most)
        except BaseException as error:
            for _, future in batch:
                future.set_exception(error)
        else:
            ends = pairwise(np.cumsum([0, *map(len, asked)]).tolist())
            for (_, future), (first, last) in zip(batch, ends, strict=True):
                future.set_result(answers[first:last])
