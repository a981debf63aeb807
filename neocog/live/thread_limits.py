"""Threads of the libraries held down: the stages are the threads of this program."""

import gc
import sys
import threading
from collections.abc import Callable
from typing import Any

from neocog.network.parallel import cores

_TURN = 0.0005  # seconds; at Python's 0.005 whoever must speak five times a frame waits 25 ms

_MOST = 4  # threads of the finder's network; with more a frame is hardly found sooner

_lock = threading.Lock()
_holders: list[object] = []
_before: list[tuple[float, int, Any]] = []  # interval, OpenCV's threads, BLAS's limits


def limit_threads() -> Callable[[], None]:
    """Hold BLAS to one thread, OpenCV and the finder to some, and threads to short turns.

    Returns
    -------
    callable
        Leaves them as they were, once all who hold them have called theirs.
    """
    import cv2
    from threadpoolctl import threadpool_limits

    holder = object()
    with _lock:
        if not _holders:
            limits = threadpool_limits(limits=1, user_api="blas")
            _before.append((sys.getswitchinterval(), cv2.getNumThreads(), limits))
        _holders.append(holder)
        sys.setswitchinterval(_TURN)
        cv2.setNumThreads(finder_threads())

    def let_go() -> None:
        with _lock:
            if holder not in _holders:
                return
            _holders.remove(holder)
            if not _holders:
                interval, threads, limits = _before.pop()
                sys.setswitchinterval(interval)
                cv2.setNumThreads(threads)
                limits.restore_original_limits()

    return let_go


def finder_threads() -> int:
    """Threads of the finder's network: half of the cores, the stages beside it need some."""
    return max(1, min(_MOST, cores() // 2))


def settle() -> None:
    """Leave all that is loaded by now out of the collector's rounds: it stays until the end."""
    gc.collect()
    gc.freeze()
