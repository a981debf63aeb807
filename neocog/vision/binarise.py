"""Ink apart from paper, under uneven light.

The paper's brightness is the mean of a wide window, taken a second time without the ink. What
stands off it is the *contrast*; a mark is ink where its contrast passes a share of the mark's own
full contrast, so that faint and dark writing on one page both keep their true stroke widths.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neocog.vision.rules import remove_border_rules, remove_rules

WINDOW = 0.15
"""Side of the window that averages the paper, as a share of the picture's long side."""

INK_SHARE = 0.42
"""Ink is what passes this share of its mark's full contrast."""

BRIGHTER = 0.4
"""Ink is bright where dark marks stand off the paper less than so many times; see `excursions`."""

_LEAST_WINDOW = 72  # pixels; a strip as high as its digits needs them in the window
_BINS = 32  # of contrast, eight grey levels each, for the percentiles of a mark
_SHARE_MOST = 0.6  # and at most this share, where it must also pass
_OVER_RULE = 1.2  # so many times the contrast of the printed rules
_GAIN = 2.2  # contrasts in the dark are raised at most so many times
_LEAST_INK = 7.0  # least contrast that can be ink, in grey levels
_SPECK = 12  # marks with less pixels than this are dust
_NOISE_ROWS = 150  # the noise is measured in about so many rows
_COARSE = 4  # the paper is averaged in a picture reduced so many times


@dataclass(frozen=True, slots=True)
class Marks:
    """Connected marks of one polarity.

    Attributes
    ----------
    contrast : ndarray of uint8, shape (H, W)
        How far each pixel stands off the paper, in grey levels.
    labels : ndarray of int32, shape (H, W)
        Number of the mark that a pixel belongs to, 0 for paper.
    stats : ndarray of int64, shape (N, 5)
        Left, top, width, height and area of each mark; row 0 is the paper.
    full : ndarray of float32, shape (N,)
        Full contrast of each mark, in grey levels.
    where, owner : ndarray, shape (I,)
        Flat index of every pixel of ink, and the label that it has.
    threshold : float
        Contrast that any ink passes, in grey levels.
    rule : float
        Contrast of the printed rules that were left out, 0 without any.
    bright : float
        Brightness of the paper that contrasts were raised to, 0 when they were not.
    shaded : bool
        Whether shade was taken off.
    """

    contrast: NDArray[np.uint8]
    labels: NDArray[np.int32]
    stats: NDArray[np.int64]
    full: NDArray[np.float32]
    where: NDArray[np.intp]
    owner: NDArray[np.int32]
    threshold: float
    rule: float
    bright: float
    shaded: bool


def noise_level(grey: NDArray[np.uint8]) -> float:
    """Estimate the standard deviation of a picture's noise, in grey levels.

    The median of the absolute second differences knows little of the strokes (Immerkaer 1996,
    doi:10.1006/cviu.1996.0060, with a median for the mean).
    """
    import cv2

    rows = np.ascontiguousarray(grey[:: max(1, grey.shape[0] // _NOISE_ROWS)])
    if rows.shape[1] < 3:
        return 0.0
    kernel = np.array([[1, -2, 1]], dtype=np.float32)
    second = np.abs(np.asarray(cv2.filter2D(rows, cv2.CV_16S, kernel), np.int16))
    counts = np.bincount(second[:, 1:-1].ravel(), minlength=2)
    half = int(np.searchsorted(np.cumsum(counts), counts.sum() / 2))
    return half / (0.6745 * 6**0.5)


def smooth(grey: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], float]:
    """Blur as much as the noise asks for; return the picture and the noise that is left."""
    import cv2

    noise = noise_level(grey)
    if noise < 2.0:
        return grey, noise
    sigma = 0.8 if noise < 6.0 else 1.3 if noise < 14 else 1.8
    blurred = cv2.GaussianBlur(grey, (0, 0), sigma)
    return np.asarray(blurred, dtype=np.uint8), noise / (2 * np.pi**0.5 * sigma)


def find_marks(grey: NDArray[np.uint8], *, dark: bool = True, noise: float = 1.0) -> Marks:
    """Find the connected marks that are darker (or brighter) than their surroundings.

    Parameters
    ----------
    grey : ndarray of uint8, shape (H, W)
        The smoothed page.
    dark : bool
        True for dark ink on bright paper, False for the reverse.
    noise : float
        Standard deviation of the noise in ``grey``.

    Returns
    -------
    Marks
        At the lowest threshold; printed rules are left out.
    """
    import cv2

    ink = grey if dark else cv2.bitwise_not(grey)
    threshold = max(_LEAST_INK, 3.5 * noise)
    contrast, bright = contrast_to_paper(np.asarray(ink, np.uint8), threshold, even=dark)
    mask, rule = remove_rules((contrast > threshold).view(np.uint8), contrast)
    return _marks(mask, contrast, threshold, rule, bright)


def settle_marks(marks: Marks) -> Marks:
    """Keep of each mark what passes a share of its own full contrast."""
    level = marks.contrast.ravel()[marks.where]
    share = marks.full * INK_SHARE
    if marks.rule:
        share = np.maximum(share, np.minimum(_OVER_RULE * marks.rule, _SHARE_MOST * marks.full))
    share = np.maximum(share, marks.threshold)
    share[marks.stats[:, 4] < _SPECK] = 255
    mask = (marks.labels > 0).view(np.uint8)
    mask.ravel()[marks.where[level <= share[marks.owner]]] = 0
    return _marks(mask, marks.contrast, marks.threshold, marks.rule, marks.bright, marks.shaded)


def off_border(marks: Marks) -> Marks:
    """Take out rules along a strip's border.

    They are one with the pattern of the paper until each mark has its own threshold.
    """
    mask, rule = remove_border_rules((marks.labels > 0).view(np.uint8), marks.contrast)
    return relabel(marks, mask, marks.contrast) if rule else marks


def lift_shade(marks: Marks, ink: NDArray[np.uint8], *, broad: float, least: float = 0.0) -> Marks:
    """Measure ink against the shade that it stands in, not against the paper around.

    Shadows, folds, hands and desks are broader than strokes; see `off_shade`.

    Parameters
    ----------
    marks : Marks
        As `find_marks` returns them.
    ink : ndarray of uint8, shape (H, W)
        The page, ink darker than paper.
    broad : float
        Side of the square in pixels; strokes must be narrower.
    least : float
        Contrast that ink must have when the shade is off, in grey levels.

    Returns
    -------
    Marks
    """
    contrast = off_shade(ink, broad, marks.bright)
    ink = (contrast > max(2 * marks.threshold, least)).view(np.uint8)
    ink &= (marks.labels > 0).view(np.uint8)
    return _marks(ink, contrast, marks.threshold, marks.rule, marks.bright, shaded=True)


def off_shade(ink: NDArray[np.uint8], broad: float, bright: float) -> NDArray[np.uint8]:
    """Contrast to the paper as a closing with a square shows it.

    The closing (the brightest place of each square, then the darkest of those) follows every
    slope and edge of the light that is broader than the square, and knows nothing of strokes.

    Parameters
    ----------
    ink : ndarray of uint8, shape (H, W)
        A page, or a part of it, ink darker than paper.
    broad : float
        Side of the square in pixels.
    bright : float
        Brightness that contrasts in the dark are raised to, 0 to leave them.
    """
    import cv2

    side = round(broad) | 1
    paper = cv2.blur(
        cv2.morphologyEx(ink, cv2.MORPH_CLOSE, np.ones((side, side), np.uint8)), (3, 3)
    )
    off = cv2.subtract(paper, ink)
    if bright:
        gain = np.clip(bright / np.maximum(np.arange(256), 1), 1.0, _GAIN)
        off = cv2.multiply(off, gain.astype(np.float32)[paper], dtype=cv2.CV_8U)
    return np.asarray(off, dtype=np.uint8)


def relabel(marks: Marks, mask: NDArray[np.uint8], contrast: NDArray[np.uint8]) -> Marks:
    """Return marks of the same page for another mask of ink and other contrasts."""
    return _marks(mask, contrast, marks.threshold, marks.rule, marks.bright, marks.shaded)


def marks_of(
    mask: NDArray[np.uint8], contrast: NDArray[np.uint8], *, threshold: float, rule: float = 0.0
) -> Marks:
    """Return the connected marks of a mask of ink, with contrasts in grey levels."""
    return _marks(mask, contrast, threshold, rule, 0.0)


def excursions(grey: NDArray[np.uint8]) -> tuple[float, float]:
    """Say how far the darkest and the brightest places stand off the mean around them."""
    import cv2

    height, width = grey.shape
    size = (max(1, width // _COARSE), max(1, height // _COARSE))
    small = cv2.resize(grey, size, interpolation=cv2.INTER_AREA).astype(np.int16)
    side = max(3, round(WINDOW * max(size))) | 1
    off = np.sort((small - cv2.blur(small, (side, side))).ravel())
    few = max(1, off.size // 400)
    return -float(off[few - 1]), float(off[-few])


def contrast_to_paper(
    ink: NDArray[np.uint8], threshold: float, *, even: bool = True
) -> tuple[NDArray[np.uint8], float]:
    """Brightness of the paper less that of the picture, not below zero.

    Ink takes a share of the light that falls on the page; where less light falls the contrast is
    raised (``even``) to what it would be at the page's bright places.

    Returns
    -------
    ndarray of uint8, shape (H, W)
    float
        Brightness of the paper at its bright places, 0 when contrasts were not raised.
    """
    import cv2

    height, width = ink.shape
    size = (max(1, width // _COARSE), max(1, height // _COARSE))
    small = cv2.resize(ink, size, interpolation=cv2.INTER_AREA).astype(np.float32)
    wide = max(WINDOW * max(height, width), min(_LEAST_WINDOW, height, width))
    side = max(3, round(wide / _COARSE)) | 1
    paper = cv2.blur(small, (side, side), borderType=cv2.BORDER_REPLICATE)
    for _ in range(2):
        bare = (small > paper - threshold).astype(np.float32)
        weight = cv2.blur(bare, (side, side), borderType=cv2.BORDER_REPLICATE)
        level = cv2.blur(small * bare, (side, side), borderType=cv2.BORDER_REPLICATE)
        paper = np.where(weight > 0.08, level / np.maximum(weight, 0.08), np.maximum(paper, small))
    bright = float(np.percentile(paper, 90)) if even else 0.0
    gain = np.clip(bright / np.maximum(paper, 1.0), 1.0, _GAIN)
    return _subtracted(ink, np.asarray(paper, np.float32), np.asarray(gain, np.float32)), bright


def _subtracted(
    ink: NDArray[np.uint8], paper: NDArray[np.float32], gain: NDArray[np.float32]
) -> NDArray[np.uint8]:
    """Paper less ink times gain, the two given coarsely."""
    import cv2

    size = ink.shape[::-1]
    level = cv2.resize(paper, size, interpolation=cv2.INTER_LINEAR).round().astype(np.uint8)
    off = cv2.subtract(level, ink)
    if gain.max() > 1.02:
        off = cv2.multiply(off, cv2.resize(gain, size), dtype=cv2.CV_8U)
    return np.asarray(off, dtype=np.uint8)


def _marks(
    mask: NDArray[np.uint8],
    contrast: NDArray[np.uint8],
    threshold: float,
    rule: float,
    bright: float,
    shaded: bool = False,
) -> Marks:
    where, owner, labels, count = _connect(mask)
    full = _full_contrast(owner, contrast.ravel()[where], count)
    stats = _boxes(where, owner, count, labels.shape[1])
    return Marks(contrast, labels, stats, full, where, owner, threshold, rule, bright, shaded)


def _connect(
    mask: NDArray[np.uint8],
) -> tuple[NDArray[np.intp], NDArray[np.int32], NDArray[np.int32], int]:
    """Number the connected marks: where ink is, whose it is, the labels, how many there are."""
    import cv2

    count, found = cv2.connectedComponents(mask, connectivity=8)
    labels = np.asarray(found, dtype=np.int32)
    where = np.flatnonzero(mask.view(np.bool_))
    return where, labels.ravel()[where], labels, count


def _boxes(
    where: NDArray[np.intp], owner: NDArray[np.int32], count: int, width: int
) -> NDArray[np.int64]:
    """Left, top, width, height and area of every mark."""
    rows, columns = np.divmod(where, width)
    low = np.full((count, 2), np.iinfo(np.int64).max)
    high = np.full((count, 2), -1)
    for axis, at in enumerate((columns, rows)):
        np.minimum.at(low[:, axis], owner, at)
        np.maximum.at(high[:, axis], owner, at)
    low[high[:, 0] < 0] = 0
    area = np.bincount(owner, minlength=count)
    return np.column_stack([low, high - low + 1, area]).astype(np.int64)


def _full_contrast(
    owner: NDArray[np.int32], level: NDArray[np.uint8], count: int
) -> NDArray[np.float32]:
    """Return the 85th percentile of each mark's contrast, to eight grey levels."""
    histogram = np.bincount(owner * _BINS + (level >> 3), minlength=count * _BINS)
    upto = histogram.reshape(count, _BINS).cumsum(axis=1)
    enough = upto >= 0.85 * upto[:, -1:]
    return np.asarray(enough.argmax(axis=1) * 8 + 4, dtype=np.float32)
