"""Printed rules taken out of the ink: ruled and squared paper, underlines, form lines.

A rule is thin, nearly straight along the page's sides, and much longer than any stroke. Its pixels
are erased where it runs alone; where a stroke crosses it the stroke stays.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

_RUN = 26  # a straight run this long, in pixels, may be a piece of a rule
_DARKER = 1.3  # what is so many times darker than the rules is ink over them
_EVERY = 4  # rules are told from every fourth column
_LONE = 0.6  # length of a single rule, as a share of the page's side along it
_AMONG = 0.16  # length of one of many rules
_MANY = 4  # rules of one direction that make "many"
_BEND = 0.015  # a rule's middle third is off the others by at most this share of its length
_SKEW = 0.06  # rules of one page differ in slope by at most so much
_THICKEST = 0.009  # thickness of a rule, as a share of the page's long side
_STRIP = 0.5  # a picture lower than this share of its width may be one line of writing
_BORDER = 0.22  # what is nearer to a strip's border than this share of its height runs along it

Mask = NDArray[np.uint8]


def is_strip(page: tuple[int, ...]) -> bool:
    """Whether a picture (height, width) is so low that it may be one line of writing."""
    high, wide = page
    return high < _STRIP * wide


def remove_rules(mask: Mask, contrast: Mask) -> tuple[Mask, float]:
    """Erase the rules from a mask of ink.

    Parameters
    ----------
    mask : ndarray of uint8, shape (H, W)
        1 ink, 0 paper.
    contrast : ndarray of uint8, shape (H, W)
        How far each pixel stands off the paper, in grey levels.

    Returns
    -------
    ndarray of uint8, shape (H, W)
        The same array where no rule was found.
    float
        Full contrast of the rules, in grey levels; 0 without any.
    """
    left, across = _without_rules(mask, mask, contrast)
    if is_strip(mask.shape):  # strokes are as long as any rule across a strip
        return left, across
    turned, upright = _without_rules(_turned(left), _turned(mask), _turned(contrast))
    return (_turned(turned) if upright else left), max(across, upright)


def remove_border_rules(mask: Mask, contrast: Mask) -> tuple[Mask, float]:
    """Erase the rules that run along the upper and lower border only; as `remove_rules`."""
    inner = round(_BORDER * len(mask))
    outer = mask.copy()
    outer[inner : len(mask) - inner] = 0
    return _without_rules(mask, outer, contrast)


def _turned(picture: Mask) -> Mask:
    import cv2

    return np.asarray(cv2.transpose(picture), dtype=np.uint8)


def _without_rules(left: Mask, mask: Mask, contrast: Mask) -> tuple[Mask, float]:
    """Erase from ``left`` the rules of ``mask`` that run along its rows."""
    rules, thickness = _rules(mask, max(5.0, _THICKEST * max(mask.shape)))
    if rules is None:
        return left, 0.0
    level = float(np.percentile(contrast[rules > 0], 75))
    rules[contrast > _DARKER * level] = 0
    return _erase(left, mask, rules, thickness), level


def _rules(mask: Mask, thickest: float) -> tuple[Mask | None, float]:
    """Find the rules that run along the rows; return their pixels and their thickness."""
    import cv2

    tolerant = cv2.dilate(mask, np.ones((3, 1), np.uint8))
    runs = cv2.morphologyEx(tolerant, cv2.MORPH_OPEN, np.ones((1, _RUN), np.uint8))
    if cv2.countNonZero(runs) < _LONE * mask.shape[1]:
        return None, 0.0
    runs = cv2.morphologyEx(runs, cv2.MORPH_CLOSE, np.ones((1, 15), np.uint8))
    sparse = np.ascontiguousarray(runs[:, ::_EVERY])
    _, coarse, stats, _ = cv2.connectedComponentsWithStats(sparse, connectivity=8)
    width, area = stats[:, 2] * float(_EVERY), stats[:, 4] * float(_EVERY)
    thickness = area / np.maximum(width, 1) - 2
    thin = (thickness <= thickest) & (width > 14 * np.maximum(thickness, 1))
    thin[0] = False
    among = thin & (width >= _AMONG * mask.shape[1])
    if among.any():
        among &= _straight(np.asarray(coarse, dtype=np.intp), stats, among)
        thin &= among
    chosen = among if among.sum() >= _MANY else thin & (width >= _LONE * mask.shape[1])
    if not chosen.any():
        return None, 0.0
    long: Mask = chosen.astype(np.uint8)[np.asarray(coarse, dtype=np.intp)]
    rules: Mask = np.repeat(long, _EVERY, axis=1)[:, : mask.shape[1]]
    return np.asarray(rules & mask, dtype=np.uint8), max(1.0, float(np.median(thickness[chosen])))


def _straight(
    coarse: NDArray[np.intp], stats: NDArray[Any], among: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Tell which lines are straight and run like most of the others: those of a drawing do not."""
    rows, columns = np.nonzero(among[coarse])
    label = coarse[rows, columns]
    third = np.minimum(3 * (columns - stats[label, 0]) // np.maximum(stats[label, 2], 1), 2)
    count = np.bincount(3 * label + third, minlength=3 * len(among)).reshape(-1, 3)
    total = np.bincount(3 * label + third, weights=rows, minlength=3 * len(among)).reshape(-1, 3)
    level = total / np.maximum(count, 1)
    width = np.maximum(stats[:, 2], 1) * float(_EVERY)
    bend = np.abs(level[:, 1] - (level[:, 0] + level[:, 2]) / 2)
    slope = (level[:, 2] - level[:, 0]) / (2 / 3 * width)
    usual = float(np.median(slope[among]))
    return np.asarray((bend <= 1.5 + _BEND * width) & (np.abs(slope - usual) <= _SKEW))


def _erase(left: Mask, mask: Mask, rules: Mask, thickness: float) -> Mask:
    """Erase ``rules`` from ``left`` but for the strokes of ``mask`` that cross them."""
    import cv2

    longer = int(np.ceil(1.7 * thickness)) + 2
    strokes = cv2.morphologyEx(mask, cv2.MORPH_OPEN, np.ones((longer, 1), np.uint8))
    gone: Mask = np.where(strokes > 0, 0, rules).astype(np.uint8)
    left = np.where(gone > 0, 0, left).astype(np.uint8)
    reach = int(np.ceil(thickness)) + 2
    anchor = np.ones((reach, 1), np.uint8)
    above = cv2.dilate(left, anchor, anchor=(0, reach - 1))
    below = cv2.dilate(left, anchor, anchor=(0, 0))
    return np.asarray(np.where((gone > 0) & (above > 0) & (below > 0), 1, left), dtype=np.uint8)
