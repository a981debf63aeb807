"""Rows of digits that the finder is unsure of are looked at once more, each without the print around it."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from neocog.vision.finder import FinderSettings, Finding, Grey, Network, agreed, find, merged, the_best

_LEAST, _MOST = 0.1, 0.5  # scores of digits that are unsure
_COUNT = 2  # of them are a row:
_ALIKE, _ASIDE, _APART = 0.6, 0.5, 1.2  # share of each other's height; heights above or below, and beside
_HIGH, _LARGER = 32, 2.0  # pixels that they then have, unless that enlarges them more
# Median score from which a row is digits: on 32 sheets of experiments/sheets (seed 22) written numbers in
# unsure rows have 0.7 and more, of some 30 rows of letters one has more than 0.4.
_SURE = 0.7
_ROWS = 64  # of a page, the likeliest
_WORK = 24e6  # pixels of all rows, as of finer tiles (`scales`)
_MARKS = 1000  # more than twice those of the page are not compared: a row of writing has some ten


def again(grey: Grey, found: Finding, network: Network) -> Finding:
    """What was found on a picture (H, W), but rows of unsure digits as they look by themselves, if surer."""
    import cv2

    digits = np.flatnonzero((found.kinds < 10) & (found.scores >= _LEAST) & (found.scores < _MOST))
    boxes, (x, y), (_, _, wide, high) = found.boxes[digits], found.middles[digits].T, found.boxes[digits].T
    tall = np.maximum(high[:, None], high)
    near = (np.minimum(high[:, None], high) > _ALIKE * tall) & (np.abs(y[:, None] - y) < _ASIDE * tall)
    near &= np.abs(x[:, None] - x) - (wide[:, None] + wide) / 2 < _APART * tall
    rows, parts, left = list[NDArray[np.intp]](), [found], np.ones(len(digits), np.bool_)
    while left.any():  # each digit is in one row, and in one step of that
        row, new = np.zeros_like(left), np.arange(len(left)) == left.argmax()
        while new.any():
            row |= new
            left &= ~new
            new = near[new].any(axis=0) & left
        if row.sum() >= _COUNT:
            rows.append(np.flatnonzero(row))
    work = _WORK
    for some in sorted(rows, key=lambda some: -found.scores[digits[some]].mean())[:_ROWS]:
        low, top = boxes[some, :2].min(axis=0), (boxes[some, :2] + boxes[some, 2:]).max(axis=0)
        usual = float(np.median(high[some]))
        corner, (right, foot) = np.maximum((low - usual, top + usual), 0).astype(int)
        around, factor = grey[corner[1] : foot, corner[0] : right], min(_LARGER, _HIGH / usual)
        if factor * min(around.shape) < 1 or around.size * factor**2 > work:  # beyond the edge, too
            continue
        work -= around.size * factor**2
        view = cv2.resize(around, None, fx=factor, fy=factor, interpolation=cv2.INTER_AREA)
        part = find(np.asarray(view, np.uint8), network, FinderSettings(small=0))
        part = part.scaled(around.shape[1] / view.shape[1], around.shape[0] / view.shape[0])
        part.boxes[:, :2] += corner
        part = part[((part.middles >= low) & (part.middles <= top)).all(axis=1)]
        scores = part.scores[part.kinds < 10]
        if len(scores) >= _COUNT and np.median(scores) >= _SURE:
            parts.append(part)
    if len(parts) == 1:
        return found
    joined = the_best(Finding.join(parts), 2 * len(found) + _MARKS)
    return replace(agreed(merged(joined, FinderSettings(most=len(joined))), joined), whole=found.whole)
