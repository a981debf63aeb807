"""A sheet of paper without the desk around it, and the desk without its sheets.

A sheet lies aslant in its box, and the desk in the corners costs the search as much as the
writing does: its grain is a thousand marks, its edge a shadow, its cable a 1. Paper is laid over
it, as bright as the sheet's nearest own. On the desk a sheet is a shade or a glare that hides what
is beside it: it is covered with the colour around.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from neocog.live.sheets import Sheet

_SIDE = 64  # long side of the picture in which the paper's brightness is taken, in pixels
_MEDIAN = 21  # writing takes less than half of a square of so many of its pixels
_INK = 24  # grey levels off the paper
_REACHES = 0.14  # share of a sheet's outermost pixels
_RIM = 6  # pixels around a sheet that tell the colour of the desk
_PARTS = 16  # of a pixel, to which outlines are drawn


def without_desk(grey: NDArray[np.uint8], sheet: Sheet) -> NDArray[np.uint8]:
    """Lay paper over what is beside a sheet.

    Parameters
    ----------
    grey : ndarray of uint8, shape (H, W)
        The part of the frame that the sheet's box bounds.
    sheet : Sheet

    Returns
    -------
    ndarray of uint8, shape (H, W)
        The part itself where all of it is paper, and where writing comes so near to the edge of
        the sheet that it would be cut.
    """
    import cv2

    height, width = grey.shape
    shrink = _SIDE / max(height, width)
    size = max(2, round(width * shrink)), max(2, round(height * shrink))
    small = np.asarray(cv2.resize(grey, size, interpolation=cv2.INTER_AREA), np.uint8)
    beside = 1 - _mask(sheet, (size[0] / width, size[1] / height), size)
    beside = np.asarray(cv2.dilate(beside, np.ones((3, 3), np.uint8)), np.uint8)
    if not beside.any() or beside.all():
        return grey
    bare = _paper(small, beside)
    if _reaches_out(small, bare, beside):
        return grey
    paper = cv2.resize(bare, (width, height), interpolation=cv2.INTER_LINEAR)
    cv2.copyTo(grey, _mask(sheet, (1.0, 1.0), (width, height)), paper)
    return np.asarray(paper, dtype=np.uint8)


def without_sheets(
    grey: NDArray[np.uint8], sheets: Sequence[Sheet], corner: tuple[int, int]
) -> NDArray[np.uint8]:
    """Cover the sheets of a part of a frame with the desk around each.

    Parameters
    ----------
    grey : ndarray of uint8, shape (H, W)
    sheets : sequence of Sheet
        They are read by themselves.
    corner : tuple of int
        Column and row of the frame at which the part begins.

    Returns
    -------
    ndarray of uint8, shape (H, W)
        The part itself where there are none.
    """
    bare = grey.copy() if sheets else grey
    for sheet in sheets:
        x, y = sheet.box[0] - corner[0], sheet.box[1] - corner[1]
        x1, y1 = max(x + sheet.box[2], 0), max(y + sheet.box[3], 0)
        x, y = max(x, 0), max(y, 0)
        across = slice(max(x - _RIM, 0), x1 + _RIM)
        down = slice(max(y - _RIM, 0), y1 + _RIM)
        beside = grey[down.start : y, across], grey[y1 : y1 + _RIM, across]
        upright = grey[down, across.start : x], grey[down, x1 : x1 + _RIM]
        rim = np.concatenate([side.ravel() for side in (*beside, *upright)])
        if rim.size:
            bare[y:y1, x:x1] = np.median(rim)
    return bare


def _paper(small: NDArray[np.uint8], beside: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Go on with a sheet beyond its edges, and take off what is written near them."""
    import cv2

    _, nearest = cv2.distanceTransformWithLabels(
        beside, cv2.DIST_L2, 3, labelType=cv2.DIST_LABEL_PIXEL
    )
    level = np.zeros(int(nearest.max()) + 1, np.uint8)
    level[nearest[beside == 0]] = small[beside == 0]
    return np.asarray(cv2.medianBlur(level[nearest], _MEDIAN), dtype=np.uint8)


def _reaches_out(
    small: NDArray[np.uint8], bare: NDArray[np.uint8], beside: NDArray[np.uint8]
) -> bool:
    """Whether what is not paper takes more than a little of a sheet's outermost pixels."""
    import cv2

    rim = np.asarray(cv2.dilate(beside, np.ones((3, 3), np.uint8)) - beside, np.uint8)
    marked = np.asarray(cv2.absdiff(small, bare) > _INK, np.uint8) & rim
    return cv2.countNonZero(marked) > _REACHES * max(cv2.countNonZero(rim), 1)


def _mask(sheet: Sheet, scale: tuple[float, float], size: tuple[int, int]) -> NDArray[np.uint8]:
    """1 on the sheet, 0 beside it, in a picture of its box of a size (width, height)."""
    import cv2

    corner = np.array(sheet.box[:2])
    points = (np.array(sheet.outline) - corner) * scale - 0.5
    mask = np.zeros(size[::-1], np.uint8)
    shift = int(np.log2(_PARTS))
    cv2.fillConvexPoly(mask, (points * _PARTS).round().astype(np.int32), 1, shift=shift)
    return mask
