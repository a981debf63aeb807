"""Pages as they are turned to be read, and what the finder sees on them."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from neocog.vision.finder import FinderSettings, Finding, Network, find, merged

TURNS = (0, 90, 180, 270)

_ALIKE = 0.8  # share of the union of two boxes from which they are one

Grey = NDArray[np.uint8]


def look(grey: Grey, network: Network, settings: FinderSettings | None = None) -> Finding:
    """Return all boxes that may be digits or signs, also those that overlap."""
    settings = replace(settings or FinderSettings(), overlap=_ALIKE, inside=np.inf, apart=True)
    return find(grey, network, settings)


def turned(grey: Grey, degrees: int) -> Grey:
    return np.ascontiguousarray(np.rot90(grey, -degrees // 90))


def seen(found: Finding) -> float:
    """Log odds of all that the finder takes for digits, together."""
    settings = FinderSettings()
    some = found[(found.kinds < 10) & (found.scores >= settings.score)]
    scores = merged(some, settings).scores.astype(np.float64).clip(1e-6, 1 - 1e-6)
    return float(np.log(scores / (1 - scores)).sum())


def turned_back(box: Sequence[float], turn: int, wide: int, high: int) -> tuple[int, int, int, int]:
    """A box of the turned page in whole pixels of the given one, which is ``wide`` x ``high``."""
    x, y, w, h = box
    if turn == 90:
        x, y, w, h = y, high - x - w, h, w
    elif turn == 180:
        x, y = wide - x - w, high - y - h
    elif turn == 270:
        x, y, w, h = wide - y - h, x, h, w
    left, top = min(max(round(x), 0), wide - 1), min(max(round(y), 0), high - 1)
    right, bottom = min(round(x + w), wide), min(round(y + h), high)
    return left, top, max(1, right - left), max(1, bottom - top)
