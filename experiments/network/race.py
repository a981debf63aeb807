"""Times several sides that do the same work: in turn, on several inputs, after a comparison."""

import time
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

GROUP_MS = 3.0  # what one turn of a side takes, about
MOST_REPEATS = 200  # passes of a turn: more would not fit a stream's queue of launches
INPUT_SETS = 4


class Side(Protocol):
    """One way to compute the answers of a batch on a GPU, ready to run again and again."""

    def load(self, digits: NDArray[np.uint8]) -> None:
        """Put a batch of digits (B, 28, 28) where the passes read it."""

    def elapsed(self, repeats: int) -> float:
        """Return milliseconds of one pass by the GPU's own clock, over ``repeats`` in a row."""

    def scores(self) -> NDArray[np.float32]:
        """Return the scores (B, 10) of the digits last loaded."""

    def trip(self, digits: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return scores of digits that lie on the host: transfers, one pass, waiting."""


def race(
    sides: Mapping[str, Side], sets: Sequence[NDArray[np.uint8]], *, rounds: int
) -> dict[str, NDArray[np.float64]]:
    """Return milliseconds of a pass, one for each round, by side.

    The sides take turns, so that a clock that slows down slows all of them; each turn takes the
    next input set.
    """
    repeats = {}
    for name, side in sides.items():
        side.load(sets[0])
        once = side.elapsed(3)
        repeats[name] = int(np.clip(GROUP_MS / max(once, 1e-3), 3, MOST_REPEATS))
    times: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(rounds):
        for name, side in sides.items():
            side.load(sets[turn % len(sets)])
            times[name].append(side.elapsed(repeats[name]))
    return {name: np.array(ms) for name, ms in times.items()}


def trips(
    sides: Mapping[str, Side], sets: Sequence[NDArray[np.uint8]], *, rounds: int
) -> dict[str, NDArray[np.float64]]:
    """Return milliseconds from digits on the host to scores on the host, by the host's clock."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(rounds):
        for name, side in sides.items():
            for again in range(4):
                start = time.perf_counter()
                side.trip(sets[turn % len(sets)])
                if again:  # the first after a change of sides finds other caches
                    times[name].append(1e3 * (time.perf_counter() - start))
    return {name: np.array(ms) for name, ms in times.items()}
