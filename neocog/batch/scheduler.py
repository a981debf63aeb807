"""Which worker gets which task: workers of any kind, here or on a cluster, none ever overloaded.

Tasks go out while a worker has fewer than it can begin, so what is under way is bounded, and what
makes them waits when records are not taken. What a dead worker had goes out again, a task at a
time to a worker that has nothing else: if that dies too, it is clear over what.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from neocog.batch.tasks import Block, Task
from neocog.errors import EndedEarly

_AHEAD = 2  # tasks for each worker that are made before they are asked for
_HELD = 2**29  # bytes of pictures in tasks that are made ahead; as many in those under way
_FALSE_STARTS = 3  # workers in succession that may die before they have done anything


class Worker(Protocol):
    """What does tasks."""

    tasks: dict[int, Task]
    """What it has, by the number of the first input."""
    proven: bool
    """Whether it has ever done anything."""
    open: bool
    """Whether it is there to be given tasks."""

    def give(self, task: Task) -> None:
        """Send a task."""


class Scheduler:
    """Deals tasks out to workers; one of these may be replaced by another one.

    Tasks are made on a thread of their own, a little ahead: finding inputs may take its time.
    ``wake`` is called there when there is one more. A worker has ``depth`` tasks at most; with a
    ``window`` an input is not begun before the one so many places ahead of it is done.
    """

    def __init__(
        self,
        tasks: Iterable[Task],
        workers: Sequence[Worker],
        *,
        depth: int,
        window: int | None = None,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self._workers, self._depth, self._window = workers, depth, window
        self._again: deque[Task] = deque()
        self._false_starts = 0
        self._ahead = _Ahead(tasks, most=_AHEAD * len(workers), wake=wake)

    def run(self, receive: "Callable[[Scheduler], Iterator[Block]]") -> Iterator[Block]:
        """Deal tasks until all are done, and yield what is received in between."""
        try:
            while self.deal():
                yield from receive(self)
        finally:
            self.stop()

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
            task = self._ahead.peek()
            if task is None or not (self._within_window(task) and self._within_memory(task)):
                break
            _give(min(free, key=lambda worker: len(worker.tasks)), self._ahead.take())
        return bool(not self._ahead.done or self._again or self.under_way())

    def finished(self, worker: Worker, first: int) -> None:
        """Take a task, by the number of its first input, from who has done it."""
        del worker.tasks[first]
        self._false_starts = 0

    def died(self, worker: Worker, how: str) -> None:
        """Have the tasks of a dead worker done again.

        EndedEarly if several die before they do anything, and none does a task meanwhile.
        """
        self._false_starts += not worker.proven
        if self._false_starts >= _FALSE_STARTS:
            raise EndedEarly(
                f"worker processes cannot be started: the last one {how}; see above, or use "
                "--workers 0"
            )
        for task in worker.tasks.values():
            self._again += task.after_death(how)

    def stop(self) -> None:
        """Make no more tasks."""
        self._ahead.stop()

    def _can_take(self, worker: Worker) -> bool:
        return worker.open and len(worker.tasks) < self._depth and not _alone(worker)

    def _within_window(self, task: Task) -> bool:
        if self._window is None:
            return True
        begun = [t.first for t in (*self.under_way(), *self._again)]
        return task.first < min(begun, default=task.first) + self._window

    def _within_memory(self, task: Task) -> bool:
        held = sum(t.held for t in self.under_way()) if task.held else 0
        return not held or held + task.held <= _HELD


def _give(worker: Worker, task: Task) -> None:
    worker.tasks[task.first] = task
    worker.give(task)


def _alone(worker: Worker) -> bool:
    """Whether it has a task that must be by itself."""
    return any(task.deaths for task in worker.tasks.values())


class _Ahead:
    """Tasks made ahead of their use, on a thread: ``most``, fewer where they carry many bytes."""

    def __init__(self, tasks: Iterable[Task], *, most: int, wake: Callable[[], None]) -> None:
        self._tasks, self._most, self._wake = iter(tasks), most, wake
        self._made: deque[Task] = deque()
        self._changed = threading.Condition()
        self._ended = self._stopped = False
        self._error: BaseException | None = None
        threading.Thread(target=self._run, daemon=True).start()

    @property
    def done(self) -> bool:
        """Whether there will be no task any more."""
        return self._ended and self._error is None and not self._made

    def peek(self) -> Task | None:
        """The next task if there is one by now."""
        if self._made:
            return self._made[0]
        if self._error is not None:
            raise self._error
        return None

    def take(self) -> Task:
        """Take the task that `peek` showed."""
        with self._changed:
            self._changed.notify()
            return self._made.popleft()

    def stop(self) -> None:
        """Make no more."""
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def _run(self) -> None:
        try:
            for task in self._tasks:
                with self._changed:
                    self._made.append(task)
                self._wake()
                with self._changed:
                    self._changed.wait_for(lambda: self._stopped or not self._full())
                if self._stopped:
                    return
        except BaseException as error:
            self._error = error
        self._ended = True
        self._wake()

    def _full(self) -> bool:
        return len(self._made) >= self._most or sum(task.held for task in self._made) > _HELD
