"""A parallel map over the cores, and single-threaded BLAS for its threads."""

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from queue import SimpleQueue
from typing import Any, TypeVar

from neocog.errors import UsageError

Part = TypeVar("Part")
Result = TypeVar("Result")


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class ParallelMap:
    """Applies functions to several parts at once, on all cores if ``threads`` are not given."""

    def __init__(self, threads: int | None = None) -> None:
        if threads is not None and threads < 1:
            raise UsageError(f"got {threads} threads, expected 1 or more")
        self.threads = threads or cores()
        self._asked: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        for _ in range(self.threads - 1):
            threading.Thread(target=_help, args=(self._asked,), daemon=True).start()
            weakref.finalize(self, self._asked.put, None)

    def __call__(self, function: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
        """Apply a function to the parts, several at once; call it within :func:`one_blas_thread`.

        The calling thread works as well and waits for no helper that has not begun: on a busy machine it may
        do everything itself. Futures would take 20 us a call instead of 3.
        """
        if self.threads == 1 or len(parts) == 1:
            return [function(part) for part in parts]
        results: dict[int, Result] = {}
        left = deque(enumerate(parts))

        def work() -> None:
            while left:
                try:
                    i, part = left.popleft()
                except IndexError:  # another thread took the last one
                    return
                results[i] = function(part)

        errors: list[BaseException] = []
        helpers = [threading.Lock() for _ in range(min(self.threads, len(parts)) - 1)]
        shared = [work]

        def help_out(begun: threading.Lock) -> None:
            if begun.acquire(blocking=False):
                try:
                    shared[0]()
                except BaseException as error:
                    errors.append(error)
                finally:
                    begun.release()

        for begun in helpers:
            self._asked.put(partial(help_out, begun))
        try:
            work()
        finally:
            left.clear()
            for begun in helpers:
                begun.acquire()  # those that have not begun never will
            shared.clear()  # they hold nothing: in a forked process there is no thread to take them
        if errors:
            raise errors[0]
        return [results[i] for i in range(len(parts))]


def _help(asked: "SimpleQueue[Callable[[], None] | None]") -> None:
    while job := asked.get():
        job()
        del job  # and what its parts hold


#: One part after another, on the calling thread.
SEQUENTIAL = ParallelMap(1)

_lock = threading.Lock()
_users = 0  # blocks within `one_blas_thread`
_limits = ExitStack()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold BLAS to one thread in the whole process, until the last such block ends.

    Blocks overlap in any order: if each restored what it found, one would leave another's behind. A single
    digit needs it as well: BLAS threads that wait for one another on a busy machine are slower than one
    alone.
    """
    global _users
    with _lock:
        if not _users:
            _release()
            _limits.enter_context(_blas().limit(limits=1, user_api="blas"))
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                _release()
                _limits.close()
                _release()


@cache
def _blas() -> Any:
    """Return the controller of the process's BLAS; looking it up takes milliseconds."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def _release() -> None:
    """Let any thread set the limit: threadpoolctl 3.8 obeys the first thread that did alone."""
    for library in _blas().lib_controllers:
        if hasattr(library, "clear_controlling_thread"):
            library.clear_controlling_thread(force=True)
