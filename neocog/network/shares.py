"""Work spread over the cores in shares, each on a thread with single-threaded BLAS."""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from neocog.errors import UsageError

Part = TypeVar("Part")
Result = TypeVar("Result")

#: Digits that one thread takes through the layers at a time.
SHARE = 4


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Shares:
    """Takes a batch through the layers in shares, on all cores.

    Parameters
    ----------
    threads : int, optional
        Threads to use; all cores by default.
    """

    def __init__(self, threads: int | None = None) -> None:
        if threads is not None and threads < 1:
            raise UsageError(f"{threads} threads came; wanted 1 or more")
        self.threads = threads or cores()
        self._pool = ThreadPoolExecutor(self.threads - 1) if self.threads > 1 else None

    def cut(self, digits: NDArray[np.uint8]) -> list[NDArray[np.uint8]]:
        """Cut a batch into shares of at most SHARE digits, as many for each thread if possible."""
        count = -(-len(digits) // SHARE)
        count = min(len(digits), -(-count // self.threads) * self.threads)
        return np.array_split(digits, count)

    def map(self, function: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
        """Apply a function to the parts, several at once; call within :func:`one_blas_thread`.

        The thread that asks works as well and waits for no other that has not begun: on a busy
        machine it may do everything itself.
        """
        if self._pool is None or len(parts) == 1:
            return [function(part) for part in parts]
        results: dict[int, Result] = {}
        left = deque(enumerate(parts))

        def work() -> None:
            while True:
                try:
                    i, part = left.popleft()
                except IndexError:
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


#: One part after another, on the thread that asks.
IN_TURN = Shares(1)


class _OneThread:
    """BLAS held to one thread, in the whole process, while anybody needs it.

    Passes of several threads overlap in any order: the first to come sets the limit, the last to
    go lifts it. If each restored what it found, one would leave the other's limit behind.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._controller: Any = None
        self._limit: Any = None

    def enter(self) -> None:
        with self._lock:
            if not self._inside:
                self._let_any_thread_set()
                self._limit = self._blas().limit(limits=1, user_api="blas")
            self._inside += 1

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._let_any_thread_set()
                self._limit.restore_original_limits()
                self._let_any_thread_set()

    def _let_any_thread_set(self) -> None:
        """Have the next call obeyed: threadpoolctl 3.8 ignores all threads but the first that set.

        The last to go is often another, and once it has gone the limit is nobody's.
        """
        for library in self._blas().lib_controllers:
            if hasattr(library, "clear_controlling_thread"):
                library.clear_controlling_thread(force=True)

    def _blas(self) -> Any:
        """Return the process's BLAS controller; looking the libraries up takes milliseconds."""
        if self._controller is None:
            from threadpoolctl import ThreadpoolController

            self._controller = ThreadpoolController()
        return self._controller


_one_thread = _OneThread()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold BLAS to one thread while our own threads are at work.

    For a single digit too: its products are small, and BLAS threads that wait for one another on
    a busy machine take many times as long as one that works alone.
    """
    _one_thread.enter()
    try:
        yield
    finally:
        _one_thread.leave()
