"""Rows of digits that the finder is unsure of are looked at once more, each without the print around it."""

from dataclasses import replace

import numpy as np

from neocog.vision.finder import FinderSettings, Finding, Grey, Network, agreed, find, merged

_LEAST, _MOST = 0.1, 0.5  # scores of digits that are unsure
_COUNT = 2  # of them are a row:
_ALIKE, _ASIDE, _APART = 0.6, 0.5, 1.2  # share of each other's height; heights above or below, and beside
_HIGH, _LARGER = 32, 2.0  # pixels that they then have, unless that enlarges them more
# Median score from which a row is digits: on 32 sheets of experiments/sheets (seed 22) written numbers in
# unsure rows have 0.7 and more, of some 30 rows of letters one has more than 0.4.
_SURE = 0.7
_ROWS = 64  # of a page, the likeliest


def again(grey: Grey, found: Finding, network: Network) -> Finding:
    """What was found on a picture (H, W), but rows of unsure digits as they look by themselves, if surer."""
    import cv2

    digits = np.flatnonzero((found.kinds < 10) & (found.scores >= _LEAST) & (found.scores < _MOST))
    boxes, (x, y), (_, _, wide, high) = found.boxes[digits], found.middles[digits].T, found.boxes[digits].T
    tall = np.maximum(high[:, None], high)
    near = (np.minimum(high[:, None], high) > _ALIKE * tall) & (np.abs(y[:, None] - y) < _ASIDE * tall)
    near &= np.abs(x[:, None] - x) - (wide[:, None] + wide) / 2 < _APART * tall
    count, first, before = len(digits), np.arange(len(digits)), np.zeros(0, np.int64)
    while not np.array_equal(first, before):  # the first digit of the row that each is in
        before, first = first, np.where(near, first, count).min(axis=1, initial=count)
    rows = [some for k in np.unique(first) if len(some := np.flatnonzero(first == k)) >= _COUNT]
    parts = [found]
    for some in sorted(rows, key=lambda some: -found.scores[digits[some]].mean())[:_ROWS]:
        low, top = boxes[some, :2].min(axis=0), (boxes[some, :2] + boxes[some, 2:]).max(axis=0)
        usual = float(np.median(high[some]))
        (left, up), (right, down) = np.maximum(low - usual, 0).astype(int), (top + usual).astype(int)
        row, factor = grey[up:down, left:right], min(_LARGER, _HIGH / usual)
        view = np.asarray(cv2.resize(row, None, fx=factor, fy=factor, interpolation=cv2.INTER_AREA), np.uint8)
        part = find(view, network, FinderSettings(small=0))
        part = part.scaled(row.shape[1] / view.shape[1], row.shape[0] / view.shape[0])
        part.boxes[:, :2] += left, up
        part = part[((part.middles >= low) & (part.middles <= top)).all(axis=1)]
        scores = part.scores[part.kinds < 10]
        if len(scores) >= _COUNT and np.median(scores) >= _SURE:
            parts.append(part)
    joined = Finding.join(parts)
    again = agreed(merged(joined, FinderSettings(most=len(joined))), joined) if len(parts) > 1 else found
    return replace(again, whole=found.whole)
