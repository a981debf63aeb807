"""How long work takes, by a clock of the host."""

import time
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Given = TypeVar("Given")


def milliseconds(
    work: Callable[[Given], object],
    given: Sequence[Given],
    *,
    warm_up: int = 0,
    least: int = 1,
    seconds: float = 0.0,
    clock: Callable[[], float] = time.perf_counter,
) -> NDArray[np.float64]:
    """Time calls with what is given, in turn: at least so many, for at least some seconds."""
    turns, spent = cycle(given), []
    for _ in range(warm_up):
        work(next(turns))
    end = time.perf_counter() + seconds
    while len(spent) < least or time.perf_counter() < end:
        one = next(turns)
        start = clock()
        work(one)
        spent.append(1e3 * (clock() - start))
    return np.array(spent)
