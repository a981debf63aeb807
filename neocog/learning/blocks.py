"""Blocks of work over processes; their number changes nothing."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

Result = TypeVar("Result")

_work: Any = None  # of a process of :func:`in_blocks`


def in_blocks(
    work: Callable[..., Result], count: int, block: int, *given: Any, jobs: int = 1
) -> list[Result]:
    """Return ``work(*given, number, size)`` of each block of ``count``.

    Parameters
    ----------
    work : callable
        A function of a module; it draws from a seed that holds the block's number.
    count, block : int
        How many in all, and in a block; of none there is one block of size 0.
    given
        Arguments of every block, sent to each process once.
    jobs : int
        Processes; 1 works here.
    """
    sizes = [min(block, count - first) for first in range(0, count, block)] or [0]
    whole = partial(work, *given)
    if jobs <= 1 or len(sizes) == 1:
        return [whole(number, size) for number, size in enumerate(sizes)]
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    jobs = min(jobs, len(sizes))
    with ProcessPoolExecutor(jobs, get_context("spawn"), _begin, (whole,)) as pool:
        return list(pool.map(_do, range(len(sizes)), sizes))


def _begin(work: Any) -> None:
    import cv2

    global _work
    _work = work
    cv2.setNumThreads(1)


def _do(number: int, size: int) -> Any:
    return _work(number, size)
