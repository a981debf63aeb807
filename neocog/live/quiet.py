"""Threads of the libraries held down: the stages are the threads of this program."""

import sys
from typing import Any

_TURN = 0.0005  # seconds; at Python's 0.005 whoever must speak five times a frame waits 25 ms

_held: list[Any] = []


def one_thread_each() -> None:
    """Hold OpenCV and BLAS to one thread, and threads to short turns, until the process ends."""
    import cv2
    from threadpoolctl import threadpool_limits

    sys.setswitchinterval(_TURN)
    cv2.setNumThreads(1)
    if not _held:
        _held.append(threadpool_limits(limits=1, user_api="blas"))
