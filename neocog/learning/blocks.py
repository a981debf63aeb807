"""A parallel map over blocks of work; the number of processes changes nothing."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any, TypeVar

import cv2

Result = TypeVar("Result")


def in_blocks(
    work: Callable[..., Result], count: int, block: int, *given: Any, jobs: int = 1
) -> list[Result]:
    """Return ``work(*given, number, size)`` of each block of ``count``, over ``jobs`` processes."""
    sizes = [min(block, count - first) for first in range(0, count, block)] or [0]
    whole, jobs = partial(work, *given), min(jobs, len(sizes))
    if jobs <= 1:
        return [whole(number, size) for number, size in enumerate(sizes)]
    with ProcessPoolExecutor(jobs, get_context("spawn"), cv2.setNumThreads, (1,)) as pool:
        return list(pool.map(whole, range(len(sizes)), sizes))
