"""Every scale at which a digit may stand: a page is searched as a whole, then finer where there is small ink.

The finder is sure of digits from 14 pixels on. The page is searched at a long side of 512 pixels; then, where
ink is lower than 14 pixels and no mark explains it, at twice the scale, tile by tile, and so on until a digit
of 10 pixels of the picture is large enough. Silent paper costs nothing, print only what tells it from digits.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, product
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocog.vision import alone, finder
from neocog.vision.cells import wider
from neocog.vision.finder import FinderSettings, Finding, Grey, Network
from neocog.vision.page import percentiles

SURE = 14.0  #: pixels of a digit's height below which the finder misses many
FINEST = 1.25  #: least finest scale of pictures up to `LARGE`: there digits of 10 pixels have 12 to 25
LARGE = 4096  #: long side of pictures that are not enlarged: their digits of 10 pixels are 1 mm high on A4
LONGEST = 8192  #: long side, in pixels, that pages are decoded at; A4 at 600 dpi has 7 016

_DUST, _LEAST = 2, 5  # lower ink is dust; or no digit at the next scale, but perhaps at one after it
_TOLD = 11  # pixels of height of ink that is a letter if no mark is near: seed 12 of experiments/sheets
_SILENT = 10  # grey levels that silent paper spans in a cell
_STROKE = 15  # pixels: wider than a stroke of small ink
_FAINT, _SHARE = 18.0, 0.2  # grey levels by which ink stands out at least, and share of what stands out most
_GRAIN = 3.0  # times the median, which is 2.7 standard deviations of a camera's noise
_RULE = 41  # pixels in a row that are a rule
_NEAR = 17  # pixels around writing in which smaller ink is a part of it
_CELL, _TILE = 64, 16  # pixels of a cell, in which there is small ink or none; most cells of a tile's side
_AROUND = 32  # pixels that are seen around a tile
_CLEAR = 0.7  # score of a digit of which what is found inside is a part
_MOST = 2000  # marks of a page, the best, and pieces of ink of a tile, the highest
_WORK = 24_000_000  # pixels seen of all finer tiles of a page, two seconds of a core; then no more are

Corners = tuple[int, int, int, int]  # left, top, right and bottom in pixels of a scale
Cells = NDArray[np.bool_]


class _Scale:
    """A page (H, W) at one scale; of what is larger than the page only parts are made."""

    def __init__(self, page: Grey, reduced: Grey, factor: float) -> None:
        self.grey, self.factor = (reduced, 1.0) if factor <= 1 else (page, factor)
        self.high, self.wide = (round(side * self.factor) for side in self.grey.shape)
        self.to_page = page.shape[1] / self.wide, page.shape[0] / self.high
        self.cells = -(-self.high // _CELL), -(-self.wide // _CELL)

    def seen(self, box: Corners) -> tuple[Grey, int, int]:
        """What is in a box and around it, and where its corner lies."""
        import cv2

        left, top = max(0, box[0] - _AROUND), max(0, box[1] - _AROUND)
        right, bottom = min(self.wide, box[2] + _AROUND), min(self.high, box[3] + _AROUND)
        if self.factor == 1:
            return self.grey[top:bottom, left:right], left, top
        step, size = 1 / self.factor, (right - left, bottom - top)
        first, row = max(0, int(left * step) - 2), max(0, int(top * step) - 2)
        part = self.grey[row : int(bottom * step) + 3, first : int(right * step) + 3]
        x, y = (left + 0.5) * step - 0.5 - first, (top + 0.5) * step - 0.5 - row
        move, how = np.array([[step, 0, x], [0, step, y]]), cv2.INTER_CUBIC | cv2.WARP_INVERSE_MAP
        large = cv2.warpAffine(part, move, size, flags=how, borderMode=cv2.BORDER_REPLICATE)
        return np.asarray(large, np.uint8), left, top

    def touched(self, middle: NDArray[Any], half: Any = 0) -> Cells:
        """The cells that boxes touch: their middles (N, 2), x and y, and half of their sides."""
        most, count = np.array(self.cells[::-1]), np.zeros((self.cells[0] + 1, self.cells[1] + 1), np.int32)
        x0, y0 = ((middle - half) / _CELL).astype(np.int64).clip(0, most - 1).T
        x1, y1 = ((middle + half) / _CELL).astype(np.int64).clip(0, most - 1).T + 1
        for y, x, way in ((y0, x0, 1), (y1, x1, 1), (y0, x1, -1), (y1, x0, -1)):
            np.add.at(count, (y, x), way)
        return np.asarray(count.cumsum(axis=0).cumsum(axis=1)[:-1, :-1] > 0)

    def tiles(self, cells: Cells, top: int = 0, left: int = 0, side: int = 0) -> Iterator[Corners]:
        """Boxes around cells, of which most are in each; or around those of a square from a cell on."""
        if not side:
            for top, left in product(*(range(0, count, _TILE) for count in cells.shape)):
                yield from self.tiles(cells, top, left, _TILE)
            return
        rows, columns = np.nonzero(cells[top : top + side, left : left + side])
        if not len(rows):
            return
        (first, up), (last, down) = (columns.min(), rows.min()), (columns.max() + 1, rows.max() + 1)
        if side > 2 and 2 * len(rows) < (last - first) * (down - up):
            half = side // 2
            for y, x in product((top, top + half), (left, left + half)):
                yield from self.tiles(cells, y, x, half)
            return
        box = (np.array([left + first, top + up, left + last, top + down]) * _CELL).tolist()
        yield box[0], box[1], min(box[2], self.wide), min(box[3], self.high)


def search(grey: Grey, network: Network) -> Finding:
    """Find digits and signs of a picture (H, W) at every scale, as `neocog.vision.finder.find` at some.

    Where more is small than `_WORK` or `_MOST` allow, what was found is not ``whole``.
    """
    usual = FinderSettings()
    factor, settings = min(1.0, finder.LONG_SIDE / max(grey.shape)), usual
    if max(grey.shape) > usual.small:
        factor, settings = factor / 2, replace(usual, small=0, fine=inf, least=usual.faint)
    factors = [factor]
    while factors[-1] < (FINEST if max(grey.shape) <= LARGE else 1.0):
        factors.append(2 * factors[-1])
    page, scales = grey, list[_Scale]()
    for factor in factors[::-1]:
        page = finder.reduced(page, factor, grey.shape)
        scales.insert(0, _Scale(grey, page, factor))
    found = finder.find(scales[0].grey, network, settings).scaled(*scales[0].to_page)
    cells, work, many = np.ones(scales[0].cells, np.bool_), _WORK, 0
    for coarse, fine in pairwise(scales):
        most = SURE * np.where(found.scores < _CLEAR, 8, 2 * (found.kinds < 10))  # of words, of low digits
        if fine.factor > FINEST and not (found.boxes[:, 3] < most * coarse.to_page[1]).any():
            break
        found, middle, sides = _small_ink(coarse, cells, found)
        cells, high = fine.touched(2 * middle, sides), sides[:, 1]
        unknown, told = ((least <= high) & (high < most) for least, most in ((_LEAST, _TOLD), (_TOLD, SURE)))
        digits = fine.touched(2 * middle[unknown], sides[unknown])
        if settings.least < usual.least:  # the page at its usual size: wherever there may be a digit
            sure = found[found.kinds < 10]
            known = sure.scores.max(initial=0) >= usual.clear
            # where paper is not silent, if there is no clear digit, or those of 10 pixels were dust so far
            if not known or 10 * factor < _DUST:
                (rows, columns), (all_of_it, _, _) = fine.cells, fine.seen((0, 0, fine.wide, fine.high))
                more = (0, rows * _CELL - fine.high), (0, columns * _CELL - fine.wide)
                blocks = np.pad(all_of_it, more, "edge").reshape(rows, _CELL, -1)
                ends = blocks.max(axis=1), blocks.min(axis=1)  # columns apart: 10 times as fast
                bright, dark = (end.reshape(rows, columns, _CELL) for end in ends)
                cells = wider(bright.max(axis=2) - dark.min(axis=2) > _SILENT, 5, 5)
                digits = digits if known else cells
            small = sure[sure.boxes[:, 2:].max(axis=1) * fine.high < usual.fine * grey.shape[0]]
            digits = digits | fine.touched(small.middles / fine.to_page)
            found, settings = found[found.scores >= usual.least], usual
        low = found[(found.kinds < 10) & (found.boxes[:, 3] < 2 * SURE * coarse.to_page[1])]
        near = wider(fine.touched(low.middles / fine.to_page), 3, 5)
        there = fine.touched(2 * middle[told], sides[told])
        digits |= there & near if told.sum() > 100 else there  # of so many pieces most are print
        if fine.factor > FINEST:  # of an enlarged picture only where there is a sign of a digit
            digits &= near
        for tile in fine.tiles(digits):
            work -= (tile[2] - tile[0] + 2 * _AROUND) * (tile[3] - tile[1] + 2 * _AROUND)
            if work < 0:
                break
            part, left, top = fine.seen(tile)
            new = finder.read(network, part, usual)
            new.boxes[:, :2] += left, top
            # they stand instead of small ones of the tile that were found before
            known, corners = found.scaled(1 / fine.to_page[0], 1 / fine.to_page[1]), np.array(tile)
            at = known.middles
            within = ((at >= corners[:2]) & (at < corners[2:])).all(axis=1)
            known = known[~(within & (known.kinds < 10) & (known.boxes[:, 3] < 2 * SURE))]
            at = new.middles
            within = ((at >= corners[:2] - _AROUND // 2) & (at < corners[2:] + _AROUND // 2)).all(axis=1)
            new = new[within & new.long_from(usual.smallest, usual.largest)]
            # a loop of a digit is none
            clear = known.boxes[(known.kinds < 10) & (known.scores >= _CLEAR)]
            here = (clear[:, :2] < (left + part.shape[1], top + part.shape[0])).all(axis=1)
            clear = clear[here & (clear[:, :2] + clear[:, 2:] > (left, top)).all(axis=1)]
            loops = finder.overlaps(new.boxes, clear)[2] > usual.inside
            loops &= new.boxes[:, 3, None] < clear[:, 3] / 2
            found = Finding.join([known, new[~loops.any(axis=1)]]).scaled(*fine.to_page)
        many = max(many, len(found))
        found = finder.the_best(found, _MOST) if many > _MOST else found
    if work < _WORK:
        found = finder.the_best(found, _MOST)
        found = finder.agreed(finder.merged(found, replace(usual, most=_MOST)), found)
    return alone.again(grey, replace(found, whole=work >= 0 and many <= _MOST), network)


def _small_ink(scale: _Scale, cells: Cells, found: Finding) -> tuple[Finding, Any, Any]:
    """What was found but words; middles and sides, in its pixels, of small ink that no mark explains."""
    import cv2

    whole, parts = np.zeros(len(found), np.bool_), np.zeros(len(found), np.int64)
    centre, half = found.middles / scale.to_page, found.boxes[:, 2:] / 2 / scale.to_page
    tall = 2 * half[:, 1]  # what is far larger than the ink in it does not explain it
    sure = np.flatnonzero((found.scores >= FinderSettings().score) & (tall >= SURE) & (tall < 8 * SURE))
    pieces = list[tuple[Any, ...]]()
    for tile in scale.tiles(cells):
        # strokes that stand out of the paper, and of their grain
        grey, left, top = scale.seen(tile)
        how, half_size = cv2.INTER_AREA, min(grey.shape) > 1
        dim = cv2.resize(grey, None, fx=0.5, fy=0.5, interpolation=how) if half_size else grey
        off = cv2.subtract(dim, cv2.blur(dim, (_STROKE, _STROKE)), dtype=cv2.CV_32F)
        way = cv2.MORPH_TOPHAT if float((off * off * off).mean()) > 0 else cv2.MORPH_BLACKHAT
        strokes = cv2.morphologyEx(grey, way, np.ones((_STROKE, _STROKE), np.uint8))
        grain, most = percentiles(strokes[::2, ::2], 50, 99.5)
        ink = (strokes > max(_FAINT, _SHARE * most, _GRAIN * grain)).astype(np.uint8)
        for size in ((1, _RULE), (_RULE, 1)):
            rules = cv2.morphologyEx(ink, cv2.MORPH_OPEN, np.ones(size, np.uint8))
            ink = np.asarray(cv2.subtract(ink, cv2.dilate(rules, np.ones((3, 3), np.uint8))), np.uint8)
        # pieces of ink in the tile, the highest, no dots of writing: their middles and sides
        _, labels, boxes, _ = cv2.connectedComponentsWithStats(ink, connectivity=8)
        boxes[0, 3] = 0  # the paper
        tops = boxes[:, 3]
        beside = wider(((tops >= SURE) & (tops < _CELL))[labels], _NEAR, _NEAR)
        middle = boxes[:, :2] + boxes[:, 2:4] // 2
        own = (tops >= _DUST) & ((tops > SURE / 2) | ~beside[middle[:, 1], middle[:, 0]])
        middle += np.array([left, top])
        own = np.flatnonzero(own & (middle >= tile[:2]).all(axis=1) & (middle < tile[2:]).all(axis=1))
        own = own[np.argsort(-tops[own], kind="stable")[:_MOST]]
        middle, sides = middle[own], boxes[own, 2:4].astype(np.int64)
        # which marks may explain which of them
        reach = half[sure] + half[sure][:, 1:]
        here = sure[((centre[sure] + reach >= tile[:2]) & (centre[sure] - reach <= tile[2:])).all(axis=1)]
        away, high = np.abs(middle[:, None] - centre[here]), sides[:, 1:]
        inside = (away < half[here]).all(axis=2)
        whole[here] |= (inside & (high > half[here, 1])).any(axis=0)
        parts[here] += (inside & (high > _LEAST)).sum(axis=0)
        room = half[here, 1] * (high < half[here, 1])  # a sign beside it, a part of a stroke
        pieces.append((middle, sides, here, (away < half[here] + room[:, :, None]).all(axis=2)))
    # those with a high one do, signs of two at most; marks with many and no high one are words
    explain = whole & ((found.kinds < 10) | (parts <= 2))
    left_over = [(np.zeros((0, 2)), np.zeros((0, 2)))]
    for middle, sides, here, near in pieces:
        free = ~(near & explain[here]).any(axis=1) & (sides < (8 * SURE, SURE)).all(axis=1)
        left_over.append((middle[free], sides[free]))
    words = (parts > 2) & ~whole & (found.scores < _CLEAR)  # no stroke is half as high
    middle, sides = (np.concatenate(some) for some in zip(*left_over, strict=True))
    return found[~words], middle, sides
