"""Spreads work over processes; the results are the same, in the same order."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

import cv2

Part = TypeVar("Part")
Result = TypeVar("Result")


def spread(work: Callable[[Part], Result], parts: Iterable[Part], jobs: int) -> Iterator[Result]:
    """Do ``work`` (picklable) on each part, on ``jobs`` processes; with one job: here."""
    parts = list(parts)
    if jobs == 1 or len(parts) == 1:
        yield from map(work, parts)
        return
    with ProcessPoolExecutor(
        min(jobs, len(parts)), get_context("spawn"), cv2.setNumThreads, (1,)
    ) as pool:
        yield from pool.map(work, parts)
