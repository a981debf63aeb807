"""A parallel map over blocks of work; the number of processes changes nothing."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

Result = TypeVar("Result")

_work: Any = None  # of a process of :func:`in_blocks`


def in_blocks(
    work: Callable[..., Result], count: int, block: int, *given: Any, jobs: int = 1
) -> list[Result]:
    """Return ``work(*given, number, size)`` of each block of ``count``, over ``jobs`` processes. ``work`` is
    a function of a module; of a count of 0 there is one block of size 0. What is ``given`` is sent to each
    process once.
    """
    sizes = [min(block, count - first) for first in range(0, count, block)] or [0]
    whole, jobs = partial(work, *given), min(jobs, len(sizes))
    if jobs <= 1:
        return [whole(number, size) for number, size in enumerate(sizes)]
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(jobs, get_context("spawn"), _begin, (whole,)) as pool:
        return list(pool.map(_do, range(len(sizes)), sizes))


def _begin(work: Any) -> None:
    import cv2

    global _work
    _work = work
    cv2.setNumThreads(1)


def _do(number: int, size: int) -> Any:
    return _work(number, size)
