"""Ink apart from paper, under uneven light.

The paper's brightness is the mean of a wide window, taken a second time without the ink. What
stands off it is the *contrast*; a mark is ink where its contrast passes a share of the mark's own
full contrast, so that faint and dark writing on one page both keep their true stroke widths.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neocog.vision.rules import remove_rules

WINDOW = 0.15
"""Side of the window that averages the paper, as a share of the picture's long side."""

_BINS = 32  # of contrast, eight grey levels each, for the percentiles of a mark
_SHARE = 0.42  # ink is what passes this share of its mark's full contrast
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
    stats : ndarray of int32, shape (N, 5)
        Left, top, width, height and area of each mark; row 0 is the paper.
    full : ndarray of float32, shape (N,)
        Full contrast of each mark, in grey levels.
    noise : float
        Standard deviation of the contrast's noise, in grey levels.
    """

    contrast: NDArray[np.uint8]
    labels: NDArray[np.int32]
    stats: NDArray[np.int32]
    full: NDArray[np.float32]
    noise: float


def noise_level(grey: NDArray[np.uint8]) -> float:
    """Estimate the standard deviation of a picture's noise, in grey levels.

    The median of the absolute second differences knows little of the strokes (Immerkaer 1996,
    doi:10.1006/cviu.1996.0060, with a median for the mean).
    """
    small = grey[::2].astype(np.int16)
    second = small[:, :-2] - 2 * small[:, 1:-1] + small[:, 2:]
    if second.size == 0:
        return 0.0
    counts = np.bincount(np.abs(second).ravel(), minlength=2)
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


def find_marks(
    grey: NDArray[np.uint8], *, dark: bool = True, noise: float = 1.0, floor: float = 7.0
) -> Marks:
    """Find the connected marks that are darker (or brighter) than their surroundings.

    Parameters
    ----------
    grey : ndarray of uint8, shape (H, W)
        The smoothed page.
    dark : bool
        True for dark ink on bright paper, False for the reverse.
    noise : float
        Standard deviation of the noise in ``grey``.
    floor : float
        Least contrast that can be ink, in grey levels.

    Returns
    -------
    Marks
    """
    import cv2

    ink = grey if dark else cv2.bitwise_not(grey)
    threshold = max(floor, 3.5 * noise)
    contrast = _contrast(np.asarray(ink, dtype=np.uint8), threshold)
    first = remove_rules((contrast > threshold).view(np.uint8))
    labels, stats = _connect(first)
    full = _full_contrast(contrast, labels, len(stats))
    share = np.maximum(full * _SHARE, threshold)
    share[stats[:, 4] < 12] = 255
    second = contrast > share.astype(np.float32)[labels]
    labels, stats = _connect(second.view(np.uint8) & first)
    full = _full_contrast(contrast, labels, len(stats))
    return Marks(contrast, labels, stats, full, noise)


def _contrast(ink: NDArray[np.uint8], threshold: float) -> NDArray[np.uint8]:
    """Brightness of the paper less that of the picture, not below zero."""
    import cv2

    height, width = ink.shape
    size = (max(1, width // _COARSE), max(1, height // _COARSE))
    small = cv2.resize(ink, size, interpolation=cv2.INTER_AREA).astype(np.float32)
    side = max(3, round(WINDOW * max(height, width) / _COARSE)) | 1
    paper = cv2.blur(small, (side, side), borderType=cv2.BORDER_REPLICATE)
    for _ in range(2):
        bare = (small > paper - threshold).astype(np.float32)
        weight = cv2.blur(bare, (side, side), borderType=cv2.BORDER_REPLICATE)
        level = cv2.blur(small * bare, (side, side), borderType=cv2.BORDER_REPLICATE)
        paper = np.where(weight > 0.08, level / np.maximum(weight, 0.08), np.maximum(paper, small))
    full_size = cv2.resize(paper, (width, height), interpolation=cv2.INTER_LINEAR)
    return np.asarray(cv2.subtract(full_size.round().astype(np.uint8), ink), dtype=np.uint8)


def _connect(mask: NDArray[np.uint8]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    import cv2

    _, labels, stats, _ = cv2.connectedComponentsWithStats(mask, connectivity=8)
    return np.asarray(labels, dtype=np.int32), np.asarray(stats, dtype=np.int32)


def _full_contrast(
    contrast: NDArray[np.uint8], labels: NDArray[np.int32], count: int
) -> NDArray[np.float32]:
    """Return the 85th percentile of each mark's contrast, to eight grey levels."""
    where = np.flatnonzero(labels)
    mark, level = labels.ravel()[where], contrast.ravel()[where] >> 3
    histogram = np.bincount(mark * _BINS + level, minlength=count * _BINS)
    upto = histogram.reshape(count, _BINS).cumsum(axis=1)
    enough = upto >= 0.85 * upto[:, -1:]
    return np.asarray(enough.argmax(axis=1) * 8 + 4, dtype=np.float32)
