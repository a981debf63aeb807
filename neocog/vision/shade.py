"""Writing freed from what is too large to be a digit: shade, stains, folds, tape that run into it.

Where a digit lies in shade that has an edge, both are one mark, and its size tells that it is no
digit. Such a mark gets a second look: what is broader than strokes is taken off it, and of the
rest only what stands out like the page's writing is kept, so that the digits come loose.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from neocog.vision.binarise import INK_SHARE, Marks, off_shade, relabel
from neocog.vision.components import Component, join
from neocog.vision.filters import BROADEST_STROKE, TALLEST, WIDEST, Reference

_BROAD = 4.5  # what is broader than so many strokes is no stroke
_LEAST_SIDE = 9  # pixels


def broader(ref: Reference) -> float:
    """Return the side in pixels of a square that is broader than the strokes of a page."""
    return max(_BROAD * ref.stroke, _LEAST_SIDE)


def oversized(components: Sequence[Component], ref: Reference) -> list[Component]:
    """Return the marks that are too large, or of too broad strokes, to be digits of the page."""
    return [
        c
        for c in components
        if c.height > TALLEST * ref.height
        or c.width > WIDEST * ref.height
        or (c.stroke > BROADEST_STROKE * ref.stroke and c.height > ref.height)
    ]


def set_free(
    marks: Marks, large: Sequence[Component], ref: Reference, ink: NDArray[np.uint8]
) -> Marks:
    """Break marks up that are too large to be digits, into what may be writing.

    Parameters
    ----------
    marks : Marks
    large : sequence of Component
        Those to break up; all others stay as they are.
    ref : Reference
        What the page's writing is like.
    ink : ndarray of uint8, shape (H, W)
        The page, ink darker than paper.

    Returns
    -------
    Marks
    """
    side = round(broader(ref)) | 1
    x, y, width, height = join(large).box
    window = np.s_[max(y - side, 0) : y + height + side, max(x - side, 0) : x + width + side]
    chosen = np.zeros(len(marks.stats), dtype=np.uint8)
    chosen[[label for c in large for label in c.labels]] = 1
    inside = chosen[marks.labels[window]]
    contrast = marks.contrast.copy()
    part = contrast[window]
    lit = off_shade(ink[window], side, marks.bright)
    part[inside > 0] = lit[inside > 0]
    mask = (marks.labels > 0).view(np.uint8)
    mask[window][(inside > 0) & (part <= max(INK_SHARE * ref.contrast, marks.threshold))] = 0
    return relabel(marks, mask, contrast)
