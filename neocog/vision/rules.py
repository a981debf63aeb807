"""Printed rules taken out of the ink: ruled and squared paper, underlines, form lines.

A rule is thin, nearly straight along the page's sides, and much longer than any stroke. Its pixels
are erased where it runs alone; where a stroke crosses it the stroke stays.
"""

import numpy as np
from numpy.typing import NDArray

_RUN = 26  # a straight run this long, in pixels, may be a piece of a rule
_LONE = 0.6  # length of a single rule, as a share of the page's side along it
_AMONG = 0.16  # length of one of many rules
_MANY = 4  # rules of one direction that make "many"
_THICKEST = 0.009  # thickness of a rule, as a share of the page's long side

Mask = NDArray[np.uint8]


def remove_rules(mask: Mask) -> Mask:
    """Erase the rules from a mask of ink.

    Parameters
    ----------
    mask : ndarray of uint8, shape (H, W)
        1 ink, 0 paper.

    Returns
    -------
    ndarray of uint8, shape (H, W)
        The same array where no rule was found.
    """
    thickest = max(3.5, _THICKEST * max(mask.shape))
    across, thin_across = _rules(mask, thickest)
    upright, thin_upright = _rules(np.ascontiguousarray(mask.T), thickest)
    if across is None and upright is None:
        return mask
    left = mask
    if across is not None:
        left = _erase(left, mask, across, thin_across)
    if upright is not None:
        left = _erase(
            np.ascontiguousarray(left.T), np.ascontiguousarray(mask.T), upright, thin_upright
        ).T
    return np.ascontiguousarray(left)


def _rules(mask: Mask, thickest: float) -> tuple[Mask | None, float]:
    """Find the rules that run along the rows; return their pixels and their thickness."""
    import cv2

    tolerant = cv2.dilate(mask, np.ones((3, 1), np.uint8))
    runs = cv2.morphologyEx(tolerant, cv2.MORPH_OPEN, np.ones((1, _RUN), np.uint8))
    if not runs.any():
        return None, 0.0
    runs = cv2.morphologyEx(runs, cv2.MORPH_CLOSE, np.ones((1, 15), np.uint8))
    _, labels, stats, _ = cv2.connectedComponentsWithStats(runs, connectivity=8)
    width, area = stats[:, 2].astype(float), stats[:, 4].astype(float)
    thickness = area / np.maximum(width, 1) - 2
    thin = (thickness <= thickest) & (width > 14 * np.maximum(thickness, 1))
    thin[0] = False
    among = thin & (width >= _AMONG * mask.shape[1])
    chosen = among if among.sum() >= _MANY else thin & (width >= _LONE * mask.shape[1])
    if not chosen.any():
        return None, 0.0
    rules = chosen.astype(np.uint8)[labels] & mask
    return rules, max(1.0, float(np.median(thickness[chosen])))


def _erase(left: Mask, mask: Mask, rules: Mask, thickness: float) -> Mask:
    """Erase ``rules`` from ``left`` but for the strokes of ``mask`` that cross them."""
    import cv2

    longer = int(np.ceil(1.7 * thickness)) + 2
    strokes = cv2.morphologyEx(mask, cv2.MORPH_OPEN, np.ones((longer, 1), np.uint8))
    gone = rules & (1 - strokes)
    left = left & (1 - gone)
    reach = int(np.ceil(thickness)) + 2
    anchor = np.ones((reach, 1), np.uint8)
    above = cv2.dilate(left, anchor, anchor=(0, reach - 1))
    below = cv2.dilate(left, anchor, anchor=(0, 0))
    return np.asarray(left | (gone & above & below), dtype=np.uint8)
