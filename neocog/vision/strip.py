"""A low picture that holds one line: a field cut out of a form or a cheque.

It is read for what it is. The strip is brought to one height, so that a few pixels of ink do not
make ragged strokes; the paper is what is brighter than its surroundings on average; ink passes a
share of the contrast that the darkest strokes of the strip have in common, and must somewhere
pass a higher one, so that a printed pattern, however dense, stays paper.
"""

from statistics import median

import numpy as np
from numpy.typing import NDArray

from neocog.vision.binarise import BRIGHTER, Marks, excursions, marks_of
from neocog.vision.components import Component, measure
from neocog.vision.filters import Reference
from neocog.vision.parts import join_broken
from neocog.vision.rules import is_strip

HEIGHT = 112
"""Strips are searched at this height, in pixels."""

_HIGHEST = 160  # a picture higher than this, in pixels, has detail enough as it is
_LOWEST = 16  # and one lower than this has none
_FIELD, _BROADER = 120, 1.1  # one as low as this is a line if it is so many times as wide
_BLUR = 0.012  # standard deviation of the blur, in heights of the strip
_WINDOW = 0.9  # side of the window that averages the paper, in heights of the strip
_COARSE = 4  # the paper is averaged in a picture reduced so many times
_BARE = 0.5  # paper is what is at most so many standard deviations darker than its surroundings
_INK, _SURE = 0.42, 0.62  # shares of the strokes' contrast: what may be ink, and what must be
_LEAST = 14.0  # contrast, in grey levels, that the strokes must have
_SHORT = 0.4  # a mark lower than so many heights of the line is a ring, if it is a digit
_SMALL = 0.25  # and one lower than this is none
_DASH = 3.0  # a dash or a dot is lower than so many strokes
_FLAT = 1.5  # and a dash is broader than so many times its height
_COMMA = 0.55  # a narrow mark in the lower half of the line, lower than this, is a comma
_SPECK = 0.12  # marks smaller than so many heights of the strip are not even parts of one
_LONG = 0.8  # a level line longer than so many heights of the strip is no stroke
_THICK = 9  # pixels; a rule is thinner


def is_low(page: tuple[int, int]) -> bool:
    """Whether a picture (height, width) is one line, and low enough to be searched as such."""
    high, wide = page
    field = high <= _FIELD and wide > _BROADER * high
    return high >= _LOWEST and (field or (high <= _HIGHEST and is_strip(page)))


def is_line(page: tuple[int, int]) -> bool:
    """Whether a picture (height, width) is cut out so that it may hold one line alone."""
    return is_strip(page) or is_low(page)


def enlarge(grey: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], float]:
    """Bring a strip to the height that is searched; return it and how many times it grew."""
    import cv2

    scale = HEIGHT / len(grey)
    size = (max(1, round(grey.shape[1] * scale)), HEIGHT)
    method = cv2.INTER_CUBIC if scale > 1 else cv2.INTER_AREA
    return np.asarray(cv2.resize(grey, size, interpolation=method), np.uint8), scale


def strip_is_dark(page: NDArray[np.uint8]) -> bool:
    """Tell dark ink on bright paper from the reverse, in a strip."""
    darker, brighter = excursions(page)
    return darker >= BRIGHTER * brighter


def strip_marks(page: NDArray[np.uint8], *, dark: bool = True) -> Marks | None:
    """Find the ink of a strip; None where nothing stands off the paper.

    Parameters
    ----------
    page : ndarray of uint8, shape (HEIGHT, W)
        As `enlarge` returns it.
    dark : bool
        True for dark ink on bright paper, False for the reverse.
    """
    import cv2

    soft = cv2.GaussianBlur(page if dark else cv2.bitwise_not(page), (0, 0), _BLUR * len(page))
    contrast, rules = _without_rules(_contrast(np.asarray(soft, np.float32)))
    strong = contrast[contrast > 0.35 * np.percentile(contrast, 99)]
    full = float(np.percentile(strong, 60)) if strong.size else 0.0
    if full < _LEAST:
        return None
    mask = _hysteresis(contrast, _INK * full, _SURE * full)
    crossed = rules > _INK * full  # a stroke across a rule goes on below it
    reach = np.ones((_THICK, 1), np.uint8)
    closed = cv2.morphologyEx(mask, cv2.MORPH_CLOSE, reach)
    mask = np.where(crossed, closed, mask)
    off = np.maximum(contrast, np.where(mask > 0, _INK * full, 0)).round().astype(np.uint8)
    return marks_of(np.asarray(mask, np.uint8), off, threshold=_INK * full)


def _without_rules(
    contrast: NDArray[np.float32],
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Take level lines off that are longer than any stroke; return what is left, and the lines."""
    import cv2

    high, wide = contrast.shape
    length = min(round(_LONG * high), round(0.8 * wide))
    tolerant = cv2.dilate(contrast, np.ones((3, 1), np.uint8))
    runs = cv2.morphologyEx(
        tolerant, cv2.MORPH_OPEN, np.ones((1, length), np.uint8), borderType=cv2.BORDER_REPLICATE
    )
    rules = np.minimum(contrast, runs)
    return np.asarray(contrast - rules, np.float32), np.asarray(rules, np.float32)


def _contrast(soft: NDArray[np.float32]) -> NDArray[np.float32]:
    """How much darker each pixel is than the paper around it."""
    import cv2

    high, wide = soft.shape
    size = (max(1, wide // _COARSE), max(1, high // _COARSE))
    small = np.asarray(cv2.resize(soft, size, interpolation=cv2.INTER_AREA), np.float32)
    side = round(_WINDOW * high / _COARSE) | 1

    def mean(values: NDArray[np.floating]) -> NDArray[np.float32]:
        return np.asarray(
            cv2.blur(values, (side, side), borderType=cv2.BORDER_REPLICATE), np.float32
        )

    paper = mean(small)
    for _ in range(4):
        spread = np.sqrt(mean((small - paper) ** 2))
        bare = (small > paper - _BARE * spread).astype(np.float32)
        weight = mean(bare)
        paper = np.where(weight > 0.05, mean(small * bare) / np.maximum(weight, 0.05), paper)
    level = cv2.resize(paper, (wide, high), interpolation=cv2.INTER_LINEAR)
    return np.asarray(np.clip(level - soft, 0, 255), np.float32)


def _hysteresis(contrast: NDArray[np.float32], low: float, high: float) -> NDArray[np.uint8]:
    """Marks above the low threshold that reach the high one somewhere."""
    import cv2

    count, labels = cv2.connectedComponents((contrast > low).astype(np.uint8), connectivity=8)
    kept = np.zeros(count, dtype=np.uint8)
    kept[np.unique(labels[contrast > high])] = 1
    kept[0] = 0
    return np.asarray(kept[labels], np.uint8)


def strip_components(marks: Marks) -> list[Component]:
    """Marks of a strip that may be digits, broken ones joined."""
    high, wide = marks.labels.shape
    found = [c for c in measure(marks, least=round(_SPECK * high)) if not _is_border(c, high, wide)]
    tallest = max((c.height for c in found), default=0)
    able = [c for c in found if c.height > 0.4 * tallest]
    if not able:
        return []
    ref = Reference(
        contrast=median(c.contrast for c in able),
        height=median(c.height for c in able),
        stroke=median(c.stroke for c in able),
        edge=1.0,
    )
    middle = median(c.centre[1] for c in able)
    joined = join_broken(found, marks.labels, ref)
    return [c for c in joined if _may_be_digit(c, ref, middle)]


def _may_be_digit(c: Component, ref: Reference, middle: float) -> bool:
    """Tell a digit, and digits that touch, from dots, commas and dashes."""
    if c.height < _SMALL * ref.height:
        return False
    if c.height < _DASH * c.stroke and c.width > _FLAT * c.height:
        return False
    if c.height >= _SHORT * ref.height:
        return not (
            c.height < _COMMA * ref.height and c.box[1] > middle and c.width < 0.75 * c.height
        )
    return c.height > _DASH * c.stroke and c.fill < 0.72 and 2 * c.width > c.height


def _is_border(c: Component, high: int, wide: int) -> bool:
    """Whether a mark is a piece of the field's frame."""
    flat = c.height < 0.15 * high and c.width > 3 * c.height
    upright = c.height > 0.95 * high and c.width < 1.7 * c.stroke + 1
    outer = c.box[0] < 0.5 * high or c.right > wide - 0.5 * high
    return flat or (upright and outer)
