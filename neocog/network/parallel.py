"""A parallel map over the cores, and single-threaded BLAS for its threads."""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache
from typing import Any, TypeVar

from neocog.errors import UsageError

Part = TypeVar("Part")
Result = TypeVar("Result")


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class ParallelMap:
    """Applies functions to several parts at once.

    Parameters
    ----------
    threads : int, optional
        Threads to use; all cores by default.

    Raises
    ------
    UsageError
        If ``threads`` is below 1.
    """

    def __init__(self, threads: int | None = None) -> None:
        if threads is not None and threads < 1:
            raise UsageError(f"got {threads} threads, expected 1 or more")
        self.threads = threads or cores()
        self._pool = ThreadPoolExecutor(self.threads - 1) if self.threads > 1 else None

    def __call__(self, function: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
        """Apply a function to the parts, several at once; call it within :func:`one_blas_thread`.

        The calling thread works as well and waits for no helper that has not begun: on a busy
        machine it may do everything itself.
        """
        if self._pool is None or len(parts) == 1:
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

        helpers = [self._pool.submit(work) for _ in range(min(self.threads, len(parts)) - 1)]
        try:
            work()
        finally:
            left.clear()
            begun = [helper for helper in helpers if not helper.cancel()]
            wait(begun)
        for helper in begun:
            helper.result()
        return [results[i] for i in range(len(parts))]


#: One part after another, on the calling thread.
SEQUENTIAL = ParallelMap(1)


class ProcessSetting:
    """A setting of the whole process: the first user makes it, the last one undoes it.

    Users overlap in any order: if each restored what it found, one would leave another's behind.

    Parameters
    ----------
    make : callable
        Returns a context that makes the setting and undoes it. It is given what a call is given:
        of several users at a time, what the first one gave.
    """

    def __init__(self, make: Callable[..., AbstractContextManager[object]]) -> None:
        self._make = make
        self._lock, self._users, self._made = threading.Lock(), 0, ExitStack()

    @contextmanager
    def __call__(self, *given: Any) -> Iterator[None]:
        """Keep the setting to the end of the block."""
        with self._lock:
            if not self._users:
                self._made.enter_context(self._make(*given))
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._made.close()


@contextmanager
def _single_threaded_blas() -> Iterator[None]:
    controller = _blas()
    _release(controller)
    with controller.limit(limits=1, user_api="blas"):
        yield
        _release(controller)
    _release(controller)


@cache
def _blas() -> Any:
    """Return the controller of the process's BLAS; looking it up takes milliseconds."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def _release(controller: Any) -> None:
    """Let any thread set the limit: threadpoolctl 3.8 obeys the first thread that did alone."""
    for library in controller.lib_controllers:
        if hasattr(library, "clear_controlling_thread"):
            library.clear_controlling_thread(force=True)


#: Context that holds BLAS to one thread while our own threads work. A single digit needs it as
#: well: BLAS threads that wait for one another on a busy machine are slower than one alone.
one_blas_thread = ProcessSetting(_single_threaded_blas)
