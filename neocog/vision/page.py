"""Pages as they are turned to be read."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from neocog.vision.finder import FinderSettings, Finding

TURNS = (0, 90, 180, 270)

Grey = NDArray[np.uint8]


def turned(grey: Grey, degrees: int) -> Grey:
    return np.ascontiguousarray(np.rot90(grey, -degrees // 90))


def seen(found: Finding) -> float:
    """Log odds of all that the finder takes for digits, together."""
    some = found.scores[(found.kinds < 10) & (found.scores >= FinderSettings().score)]
    scores = some.astype(np.float64).clip(1e-6, 1 - 1e-6)
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
