"""Which worker gets which task: workers of any kind, here or on a cluster, none ever overloaded.

Tasks go out while a worker has fewer than it can begin, so what is under way is bounded, and what
feeds them waits when records are not taken. What a dead worker had goes out again, a task at a
time to a worker that has nothing else: if that dies too, it is clear over what.
"""

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Protocol

from neocog.batch.tasks import Place, Task
from neocog.errors import EndedEarly

_AHEAD = 2  # tasks for each worker that are made before they are asked for
_HELD = 2**29  # bytes of pictures in tasks that are made ahead; as many in those under way
_FALSE_STARTS = 3  # workers in succession that may die before they have done anything


class Worker(Protocol):
    """What does tasks."""

    tasks: dict[Place, Task]
    proven: bool
    """Whether it has ever done anything."""
    open: bool
    """Whether it is there to be given tasks."""

    def give(self, task: Task) -> None:
        """Send a task."""


class Dispatch:
    """Deals tasks out to workers.

    Parameters
    ----------
    tasks : iterable of Task
        They are made on a thread of their own, a little ahead: finding inputs may take its time.
    workers : sequence of Worker
        A worker in it may be replaced by another one.
    depth : int
        Most tasks that a worker has at a time.
    window : int, optional
        A task is not begun before the one so many places ahead of it is done.
    wake : callable
        Called, on another thread, when there is one more task to deal out.
    """

    def __init__(
        self,
        tasks: Iterable[Task],
        workers: "Sequence[Worker]",
        *,
        depth: int,
        window: int | None = None,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self._workers, self._depth, self._window = workers, depth, window
        self._again: deque[Task] = deque()
        self._false_starts = 0
        self._feeder = _Feeder(tasks, ahead=_AHEAD * len(workers), wake=wake)

    def under_way(self) -> list[Task]:
        """Tasks that workers have."""
        return [task for worker in self._workers for task in worker.tasks.values()]

    def deal(self) -> bool:
        """Give tasks to workers as long as there are both; False where all is done."""
        while self._again:
            idle = next((w for w in self._workers if w.open and not w.tasks), None)
            if idle is None:
                break
            _give(idle, self._again.popleft())
        # one of them is let run dry for a task that must be by itself
        dry = next((w for w in self._workers if w.open and not _alone(w)), None)
        dry = dry if self._again else None
        while free := [w for w in self._workers if w is not dry and self._can_take(w)]:
            task = self._feeder.peek()
            if task is None or not (self._within_window(task) and self._within_memory(task)):
                break
            _give(min(free, key=lambda worker: len(worker.tasks)), self._feeder.take())
        return bool(not self._feeder.done or self._again or self.under_way())

    def finished(self, worker: Worker, place: Place) -> None:
        """Take a task from who has done it."""
        del worker.tasks[place]
        self._false_starts = 0

    def died(self, worker: Worker, how: str) -> None:
        """Have the tasks of a dead worker done again.

        Raises
        ------
        EndedEarly
            If several workers die before they do anything, and none does a task meanwhile.
        """
        self._false_starts += not worker.proven
        if self._false_starts >= _FALSE_STARTS:
            raise EndedEarly(f"worker processes cannot be started: one {how}")
        for task in worker.tasks.values():
            self._again += task.after_death(how)

    def stop(self) -> None:
        """Make no more tasks."""
        self._feeder.stop()

    def _can_take(self, worker: Worker) -> bool:
        return worker.open and len(worker.tasks) < self._depth and not _alone(worker)

    def _within_window(self, task: Task) -> bool:
        if self._window is None:
            return True
        begun = [t.place.number for t in (*self.under_way(), *self._again)]
        return task.place.number < min(begun, default=task.place.number) + self._window

    def _within_memory(self, task: Task) -> bool:
        held = sum(t.held for t in self.under_way()) if task.held else 0
        return not held or held + task.held <= _HELD


def _give(worker: Worker, task: Task) -> None:
    worker.tasks[task.place] = task
    worker.give(task)


def _alone(worker: Worker) -> bool:
    """Whether it has a task that must be by itself."""
    return any(task.deaths for task in worker.tasks.values())


class _Feeder:
    """Makes tasks a little ahead of their use, on a thread.

    ``ahead`` is how many are made ahead at most, fewer where they carry many bytes; ``wake`` is
    called after each of them.
    """

    def __init__(self, tasks: Iterable[Task], *, ahead: int, wake: Callable[[], None]) -> None:
        self.done = False
        self._queue: queue.Queue[Task | BaseException | None] = queue.Queue(maxsize=ahead)
        self._next: Task | None = None
        self._made = self._taken = 0  # bytes; each is counted by one thread
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
        self._taken += task.held
        return task

    def stop(self) -> None:
        """Make no more."""
        self._stopped.set()

    def _run(self, tasks: Iterator[Task]) -> None:
        try:
            for task in tasks:
                self._made += task.held
                self._put(task)
                while self._made - self._taken > _HELD and not self._stopped.wait(0.05):
                    pass
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
