"""How long one digit takes, and which stages take it."""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from neocog.network.engine import Engine

WARM_UP = 3  # passes that are not counted
LEAST = 5  # passes that are counted, however slow
MOST_STAGES = 50  # passes that are taken apart into stages
_SIDE = 28


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of one engine at one batch size.

    Attributes
    ----------
    stages : tuple of (str, float)
        Median milliseconds of each stage for a whole batch, in order.
    passes : (N,) ndarray of float64
        Milliseconds of each whole pass.
    batch : int
        Digits per pass.
    """

    stages: tuple[tuple[str, float], ...]
    passes: NDArray[np.float64]
    batch: int

    def per_digit(self, percentile: float = 50.0) -> float:
        """Milliseconds of a digit, over the passes."""
        return float(np.percentile(self.passes, percentile)) / self.batch

    def to_dict(self) -> dict[str, Any]:
        """As ``neocog timing --json`` prints it; a stage's ``ms`` is for the whole batch."""
        return {
            "stages": [{"name": name, "ms": round(ms, 4)} for name, ms in self.stages],
            "ms_per_digit": round(self.per_digit(), 4),
            "ms_per_digit_p95": round(self.per_digit(95.0), 4),
            "batch": self.batch,
        }


def measure(engine: "Engine", *, batch: int, seconds: float = 3.0) -> Timing:
    """Time whole passes and single stages.

    Parameters
    ----------
    engine : Engine
    batch : int
        Digits per pass.
    seconds : float
        Passes are repeated for this long, and at least `LEAST` times.
    """
    digits = made_digits(batch)
    for _ in range(WARM_UP):
        engine.recognise(digits, batch=batch)
    passes: list[float] = []
    end = time.perf_counter() + seconds
    while len(passes) < LEAST or time.perf_counter() < end:
        start = time.perf_counter()
        engine.recognise(digits, batch=batch)
        passes.append(1e3 * (time.perf_counter() - start))
    repeats = min(len(passes), MOST_STAGES)
    times = engine.stage_times(digits, repeats=repeats)
    stages = tuple((name, float(np.median(ms))) for name, ms in times.items() if name != "total")
    return Timing(stages, np.array(passes), batch)


def made_digits(count: int, *, seed: int = 0) -> NDArray[np.uint8]:
    """Digits made of three random strokes of a pen 2.3 pixels wide.

    Their longer side is 20 pixels, as MNIST's is, so that a network that skips silence is not
    flattered.

    Returns
    -------
    (count, 28, 28) ndarray of uint8
    """
    random = np.random.default_rng(seed)
    ends = random.uniform(size=(count, 4, 1, 1, 2))  # strokes join end to end
    low, high = ends.min(axis=1, keepdims=True), ends.max(axis=1, keepdims=True)
    ends = (ends - (low + high) / 2) / (high - low).max(axis=-1, keepdims=True)
    ends = _SIDE / 2 - 0.5 + (20.0 - 2.3) * ends
    place = np.moveaxis(np.mgrid[:_SIDE, :_SIDE].astype(np.float64), 0, -1)
    distance = np.full((count, _SIDE, _SIDE), np.inf)
    for stroke in range(3):
        start, step = ends[:, stroke], ends[:, stroke + 1] - ends[:, stroke]
        along = ((place - start) * step).sum(-1) / np.maximum((step**2).sum(-1), 1e-9)
        nearest = start + np.clip(along, 0.0, 1.0)[..., None] * step
        distance = np.minimum(distance, np.linalg.norm(place - nearest, axis=-1))
    return (255.0 * np.clip(1.65 - distance, 0.0, 1.0)).astype(np.uint8)
