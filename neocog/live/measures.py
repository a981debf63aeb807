"""What a run measures of itself: rate, age, dropped frames, times of its stages."""

import time
from collections import deque
from dataclasses import dataclass, field

_WINDOW = 64  # frames that the rate and the median age are taken from
_SMOOTH = 0.1  # weight of the newest in a running mean

STAGES = ("capture", "find", "recognise", "vote", "draw")


@dataclass(frozen=True, slots=True)
class Measures:
    """Figures of a run at one frame.

    ``frames`` were read, ``dropped`` gave way to newer ones; ``fps`` frames a second, lately;
    ``age_ms`` from a frame's arrival to its reading, median of the last ones; ``ms`` milliseconds
    of each stage, running means.
    """

    frames: int = 0
    dropped: int = 0
    fps: float = 0.0
    age_ms: float = 0.0
    ms: dict[str, float] = field(default_factory=dict)


class Meter:
    """Collects the figures; its memory does not grow."""

    def __init__(self) -> None:
        self.frames = 0
        self._ends: deque[float] = deque(maxlen=_WINDOW)
        self._ages: deque[float] = deque(maxlen=_WINDOW)
        self._ms: dict[str, float] = {}

    def stage(self, name: str, ms: float) -> None:
        """Note the milliseconds of a stage."""
        before = self._ms.get(name, ms)
        self._ms[name] = before + _SMOOTH * (ms - before)

    def done(self, age_ms: float) -> None:
        """Note that a frame was read, and its age."""
        self.frames += 1
        self._ends.append(time.perf_counter())
        self._ages.append(age_ms)

    def measures(self, dropped: int) -> Measures:
        """Return the figures so far."""
        ends, ages = list(self._ends), sorted(self._ages)
        spent = ends[-1] - ends[0] if len(ends) > 1 else 0.0
        fps = (len(ends) - 1) / spent if spent > 0 else 0.0
        age = ages[len(ages) // 2] if ages else 0.0
        return Measures(self.frames, dropped, fps, age, dict(self._ms))
