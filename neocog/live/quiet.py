"""Threads of the libraries held down: the stages are the threads of this program."""

import gc
import sys
from typing import Any

_TURN = 0.0005  # seconds; at Python's 0.005 whoever must speak five times a frame waits 25 ms
_SHORT_TURN = 0.00005  # where there are cores for all threads; to switch takes a tenth of it

_held: list[Any] = []


def one_thread_each(*, short: bool = False, pictures: int = 1) -> None:
    """Hold OpenCV and BLAS to one thread, and threads to short turns, until the process ends.

    Parameters
    ----------
    short : bool
        Whether turns are as short as can be.
    pictures : int
        Threads that OpenCV may take nevertheless.
    """
    import cv2
    from threadpoolctl import threadpool_limits

    sys.setswitchinterval(_SHORT_TURN if short else _TURN)
    cv2.setNumThreads(pictures)
    if not _held:
        _held.append(threadpool_limits(limits=1, user_api="blas"))


def settle() -> None:
    """Leave all that is loaded by now out of the collector's rounds: it stays until the end."""
    gc.collect()
    gc.freeze()
