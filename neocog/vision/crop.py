"""The ink of one box, off its paper, in the form of MNIST's digits."""

import math

import cv2
import numpy as np
from numpy.typing import NDArray

from neocog.vision.normalise import SIDE, normalise
from neocog.vision.settings import SearchSettings

_FINE = 72  # pixels that a larger box is reduced to
_ENOUGH = 400  # pixels of a crop whose paper is looked at


def digit_of_box(grey: NDArray[np.uint8], box: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Cut a digit out of a picture.

    Parameters
    ----------
    grey : ndarray of uint8, shape (H, W)
    box : ndarray, shape (4,)
        Left, top, width, height in pixels.

    Returns
    -------
    ndarray of uint8, shape (28, 28)
        Ink 255, as `neocog.vision.normalise` makes it; all 0 where the box holds no contrast.
    """
    return cut_out(grey, box)[0]


def cut_out(
    grey: NDArray[np.uint8], box: NDArray[np.float32], settings: SearchSettings | None = None
) -> tuple[NDArray[np.uint8], float]:
    """Cut a digit out as `digit_of_box` does; return it and its contrast in grey levels."""
    settings = settings or SearchSettings()
    crop, inner = _cropped(grey, box, settings.margin)
    away = crop - _paper(crop, inner)
    x, y, wide, high = inner
    within = away[y : y + high, x : x + wide]
    if not within.size:
        return np.zeros((SIDE, SIDE), np.uint8), 0.0
    few = int(settings.extreme * within.size)
    ordered = np.partition(within, (few, within.size - 1 - few), axis=None)
    bright, dark = float(ordered[within.size - 1 - few]), -float(ordered[few])
    contrast = max(bright, dark)
    if contrast < 2:
        return np.zeros((SIDE, SIDE), np.uint8), max(0.0, contrast)
    full = (away if bright > dark else -away) / np.float32(contrast)
    ink = np.clip((full - settings.paper) / (settings.ink - settings.paper), 0, 1)
    return normalise(_own(ink, inner, settings)), contrast


def _cropped(
    grey: NDArray[np.uint8], box: NDArray[np.float32], margin: float
) -> tuple[NDArray[np.float32], tuple[int, int, int, int]]:
    """A box with a margin, reduced where it is large; and where the box lies in it."""
    x, y, wide, high = (float(v) for v in box)
    edge = margin * max(wide, high) + 2
    left = min(max(0, int(x - edge)), grey.shape[1] - 1)
    top = min(max(0, int(y - edge)), grey.shape[0] - 1)
    right = min(grey.shape[1], int(np.ceil(x + wide + edge)))
    bottom = min(grey.shape[0], int(np.ceil(y + high + edge)))
    crop = grey[top : max(bottom, top + 1), left : max(right, left + 1)]
    scale = min(1.0, _FINE / max(wide, high))
    if scale < 1:
        size = (max(1, round(crop.shape[1] * scale)), max(1, round(crop.shape[0] * scale)))
        crop = np.asarray(cv2.resize(crop, size, interpolation=cv2.INTER_AREA), np.uint8)
    inner = [max(0, round(v * scale)) for v in (x - left, y - top, wide, high)]
    return crop.astype(np.float32), (inner[0], inner[1], max(1, inner[2]), max(1, inner[3]))


def _paper(crop: NDArray[np.float32], inner: tuple[int, int, int, int]) -> NDArray[np.float32]:
    """The paper's grey: a plane through what lies around the box, without neighbours."""
    high, wide = crop.shape
    x, y, w, h = inner
    step = max(1, round(math.sqrt(crop.size / _ENOUGH)))
    rows, columns = np.arange(0, high, step), np.arange(0, wide, step)
    around = (rows < y)[:, None] | (rows >= y + h)[:, None] | (columns < x) | (columns >= x + w)
    if not around.any():
        around[:] = True
    down, right = np.nonzero(around)
    seen = crop[::step, ::step][around].astype(np.float64)
    design = np.ones((len(seen), 3))
    design[:, 1], design[:, 2] = rows[down] * (2 / high) - 1, columns[right] * (2 / wide) - 1
    plane = np.array([float(np.median(seen)), 0.0, 0.0])
    for _ in range(3):  # Cauchy's weights: neighbours' ink counts less
        off = np.square(seen - design @ plane)
        part = design / (1 + off / max(1.0, float(np.median(off))))[:, None]
        plane = np.linalg.solve(part.T @ design + 1e-6 * np.eye(3), part.T @ seen)
    whole = plane[0] + plane[1] * (np.arange(high) * (2 / high) - 1)[:, None]
    return np.asarray(whole + plane[2] * (np.arange(wide) * (2 / wide) - 1), np.float32)


def _own(
    ink: NDArray[np.float32], inner: tuple[int, int, int, int], settings: SearchSettings
) -> NDArray[np.float32]:
    """Take away marks that lie outside the box for the most part."""
    x, y, wide, high = inner
    count, labels, stats, _ = cv2.connectedComponentsWithStats(
        (ink > settings.part).astype(np.uint8), connectivity=8
    )
    slack = max(1, round(settings.slack * max(wide, high)))
    inside = np.zeros(ink.shape, np.bool_)
    inside[max(0, y - slack) : y + high + slack, max(0, x - slack) : x + wide + slack] = True
    within = np.bincount(labels[inside], minlength=count)
    area = stats[:, cv2.CC_STAT_AREA]
    keep = within > 0.5 * area
    keep[0] = False
    keep &= area >= settings.speck * max(1, int(area[1:].max(initial=1)))
    core = keep[labels]
    near = np.asarray(cv2.dilate(core.astype(np.uint8), np.ones((3, 3), np.uint8))) > 0
    return np.where(near & inside, ink, np.float32(0))
