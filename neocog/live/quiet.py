"""Threads of the libraries held down: the stages are the threads of this program."""

from typing import Any

_held: list[Any] = []


def one_thread_each() -> None:
    """Hold OpenCV and BLAS to one thread, for the rest of the process."""
    import cv2
    from threadpoolctl import threadpool_limits

    cv2.setNumThreads(1)
    if not _held:
        _held.append(threadpool_limits(limits=1, user_api="blas"))
