"""Work spread over the cores in shares, each on a thread with single-threaded BLAS."""

import os
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


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold BLAS to one thread while our own threads are at work.

    For a single digit too: its products are small, and BLAS threads that wait for one another on
    a busy machine take many times as long as one that works alone.
    """
    with _blas().limit(limits=1, user_api="blas"):
        yield


_controller: Any = None


def _blas() -> Any:
    """Return the process's BLAS controller; looking the libraries up takes milliseconds, once."""
    global _controller
    if _controller is None:
        from threadpoolctl import ThreadpoolController

        _controller = ThreadpoolController()
    return _controller
