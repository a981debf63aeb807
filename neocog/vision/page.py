"""Pages as they are turned to be read, and what is written on them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocog.vision.finder import FinderSettings, Finding, Grey

TURNS = (0, 90, 180, 270)
_FAINT, _SOFT = 0.4, 0.82
"""Contrast and sharpness below which ink comes from the back, as shares of those of the front's strong ink.
Faint pencil is as sharp: 1.7 % of drawn digits with 0.12 to 0.45 of a pen's contrast fall below both, and
57 % of those of a back that is blurred by 0.8 to 2.5 pixels."""

Box = tuple[int, int, int, int]


def turned(grey: Grey, degrees: int) -> Grey:
    return np.ascontiguousarray(np.rot90(grey, -degrees // 90))


def percentiles(grey: NDArray[Any], *shares: float) -> list[float]:
    """As `np.percentile` of a small picture, to the bit, from how many pixels each grey has."""
    import cv2

    counts = np.cumsum(cv2.calcHist([grey], [0], None, [256], [0, 256]))
    ranks = (grey.size - 1) * (np.array(shares) / 100)
    low, high = np.searchsorted(counts, [np.floor(ranks), np.ceil(ranks)], side="right")
    after = ranks % 1
    between = np.where(after < 0.5, low + (high - low) * after, high - (high - low) * (1 - after))
    return [float(value) for value in between]


def seen(found: Finding) -> float:
    """Log odds of all that the finder takes for digits, together."""
    some = found.scores[(found.kinds < 10) & (found.scores >= FinderSettings().score)]
    scores = some.astype(np.float64).clip(1e-6, 1 - 1e-6)
    return float(np.log(scores / (1 - scores)).sum())


def on_front(grey: Grey, found: Finding) -> NDArray[np.bool_]:
    """Which of N marks are written on a page (H, W): faint and soft digits show through from its back."""
    import cv2

    smooth, front = cv2.blur(grey, (3, 3)), np.ones(len(found), np.bool_)
    x, y, w, h = np.rint(found.boxes.T).astype(int)
    tops, lefts = np.clip(y - 2, 0, grey.shape[0] - 1), np.clip(x - 2, 0, grey.shape[1] - 1)
    feet, rights = np.maximum(y + h + 2, tops + 1), np.maximum(x + w + 2, lefts + 1)
    spans = zip(tops.tolist(), feet.tolist(), lefts.tolist(), rights.tolist(), strict=True)
    places = [np.s_[top:foot, left:right] for top, foot, left, right in spans]
    ends = np.array([cv2.minMaxLoc(smooth[place])[:2] for place in places]).reshape(-1, 2)
    contrast = (ends[:, 1] - ends[:, 0]) / (ends[:, 1] + 1)
    strong = contrast > np.percentile(contrast, 90) / 2 if len(found) else front
    faint = (
        (found.kinds < 10) & (contrast < _FAINT * np.median(contrast[strong])) if strong.sum() > 1 else ~front
    )
    if not faint.any():
        return front

    sharp = np.zeros(len(found))  # the steepest edges of a mark, to its contrast
    for k in np.flatnonzero(strong | faint).tolist():
        crop = cv2.GaussianBlur(grey[places[k]], (0, 0), 1.0).astype(np.float32)
        slope = np.hypot(cv2.Sobel(crop, cv2.CV_32F, 1, 0), cv2.Sobel(crop, cv2.CV_32F, 0, 1))
        crop, slope, ranks = np.sort(crop, axis=None), np.sort(slope, axis=None), np.arange(crop.size)
        dark, bright = np.interp(np.array([0.05, 0.9]) * ranks[-1], ranks, crop)
        sharp[k] = np.interp(0.97 * ranks[-1], ranks, slope) / (bright - dark + 1)
    front[faint] = sharp[faint] > _SOFT * np.median(sharp[strong])
    return front


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


def around(boxes: Sequence[Box]) -> Box:
    x, y = min(box[0] for box in boxes), min(box[1] for box in boxes)
    right, bottom = max(box[0] + box[2] for box in boxes), max(box[1] + box[3] for box in boxes)
    return x, y, right - x, bottom - y
