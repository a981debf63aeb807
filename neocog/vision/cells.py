"""Print around the digits of a form: cells, rings, combs, brackets. It comes again in each cell."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]  # rows and columns of a piece of a line, (H, W)

AROUND = -3, -2, -1, 1, 2, 3  # cells on both sides that print is looked for in
_LEAST = 0.1  # share of a line's ink that is in none of its marks, if there are cells
_AGAIN = 0.6  # share of that ink which comes again
_EVEN = 0.5  # mean resultant length of the digits' places in their cells; without cells it is about 0.3
_DRIFT = 4  # rows that a cell is higher or lower than the one before


def step_of(ink: Mask, free: Mask, digits: Any, least: float, most: float) -> tuple[float, float] | None:
    """Columns (``least`` to ``most``) and rows from each cell of a line to the next; None if it has no cells.

    That is the step after which most of the ``ink`` comes again that is ``free``, in no mark of the line, and
    that puts all ``digits`` (columns of their middles) at about the same place of a cell.
    """
    import cv2

    high, wide = ink.shape
    steps = np.arange(round(least), min(round(most), wide // 2) + 1)
    even = np.abs(np.exp(2j * np.pi * np.asarray(digits) / steps[:, None]).mean(axis=1)) > _EVEN
    rule = np.ones((1, round(2 * least)), np.uint8)  # what goes through comes again after any step
    outer = ink & free & (cv2.morphologyEx(ink.astype(np.uint8), cv2.MORPH_OPEN, rule) == 0)
    if not even.any() or outer.sum() < _LEAST * ink.sum():
        return None
    size = [cv2.getOptimalDFTSize(side) for side in (high + 3 * _DRIFT + 2, wide + 3 * int(steps[-1]) + 8)]
    near = wider(outer)
    of, *to = (np.fft.rfft2(mask, size) for mask in (outer, near, free))
    again, seen = (np.fft.irfft2(of.conj() * other, size) for other in to)
    shares = again / np.maximum(seen, _LEAST * outer.sum())  # of what could come again, by rows and columns
    drift = np.arange(-_DRIFT, _DRIFT + 1)
    best = shares[drift].max(axis=0)
    steps = steps[even & (best[steps] >= best[steps - 1]) & (best[steps] >= best[steps + 1])]
    found, told = None, _AGAIN
    for step in sorted(steps[np.argsort(-best[steps])][:5].tolist()):
        x, y = float(step), float(drift[shares[drift, step].argmax()])
        for k in (2, 3):  # two and three cells further tell parts of a pixel
            xs, ys = round(k * x) + np.arange(-2, 3), (round(k * y) + np.arange(-2, 3))[:, None]
            if seen[ys, xs].min() > _LEAST * outer.sum():
                row, column = np.unravel_index(shares[ys, xs].argmax(), (5, 5))
                x, y = float(xs[column] / k), float(ys[row, 0] / k)
        ways = [np.array([[1, 0, -round(k * x)], [0, 1, -round(k * y)]], np.float64) for k in AROUND]
        there, here = (
            sum(cv2.warpAffine(m, way, (wide, high), flags=cv2.INTER_NEAREST) for way in ways)
            for m in (free.view(np.uint8), near.view(np.uint8))
        )
        share = (outer & (here >= 2) & (3 * here >= 2 * there)).sum() / outer.sum()
        if share > told:  # a cell tells as much as two of them
            found, told = (x, y), share + 0.05
    return found


def repeated(looked: Any, again: Any) -> Mask:
    """Where two of three cells AROUND, on a side or beside have ink ``again`` where ``looked``, (6, H, W)."""
    out: Mask = np.zeros(looked.shape[1:], np.bool_)
    for some in (slice(None), slice(0, 3), slice(3, 6), slice(2, 4)):
        count = again[some].sum(axis=0)
        out |= (count >= 2) & (3 * count >= 2 * looked[some].sum(axis=0))
    return out


def uncrossed(out: Mask, dark: Mask) -> Mask:
    """What of print that is to go no stroke of the other ink crosses."""
    import cv2

    strokes = cv2.morphologyEx((dark & ~out).astype(np.uint8), cv2.MORPH_CLOSE, np.ones((7, 7), np.uint8))
    return np.asarray(out & (strokes == 0))


def wider(mask: Mask, high: int = 3, wide: int = 3) -> Mask:
    """A mask and the pixels around it, in a rectangle around each."""
    import cv2

    return np.asarray(cv2.dilate(mask.astype(np.uint8), np.ones((high, wide), np.uint8)) > 0)
