"""From a box of a picture to a digit in the form of MNIST's.

Ink is what stands off the paper around the box.

MNIST fits a digit into 20 x 20 pixels, keeping its shape, and lays it into 28 x 28 so that its
centre of mass is the centre of the field (LeCun et al. 1998, doi:10.1109/5.726791). A pen much
finer or broader than those of MNIST is brought nearer to them (see `SearchSettings`).
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocog.vision.weigh import SearchSettings

SIDE = 28
BOX = 20

_FINE = 4  # working pixels per pixel of the result while strokes are widened or thinned
_ENLARGED = 64  # pixels that coarse pictures are enlarged to
_REDUCED = 72  # pixels that a larger box is reduced to before its ink is told
_ENOUGH = 400  # pixels of a crop whose paper is looked at
_HALF = 0.499  # symmetric digits of even size fall on one side whatever their last bit

Ink = NDArray[np.float32]


def normalise(
    ink: NDArray[Any], *, stroke: float | None = None, settings: SearchSettings | None = None
) -> NDArray[np.uint8]:
    """Bring one digit into the form of MNIST's.

    Parameters
    ----------
    ink : ndarray of float, shape (h, w)
        Amount of ink, 0 paper to 1 full ink; the digit may lie anywhere in it.
    stroke : float, optional
        Stroke width in pixels of ``ink``; measured when it is not given.
    settings : SearchSettings, optional
        Which strokes are widened and thinned.

    Returns
    -------
    ndarray of uint8, shape (28, 28)
        Ink 255 on 0, at most 20 pixels high and wide, the centre of mass within half a pixel
        of row 14, column 14. All 0 without ink.
    """
    patch = _crop(np.asarray(ink, dtype=np.float32))
    if patch is None:
        return np.zeros((SIDE, SIDE), dtype=np.uint8)
    width = stroke_width(patch) if stroke is None else stroke
    scale = BOX * _FINE / max(patch.shape)
    patch = _resize(patch, BOX * _FINE)
    patch = _adjust_stroke(patch, width * scale, settings or SearchSettings())
    patch = _resize(patch, BOX)
    dark = patch[patch > 0.15]
    full = float(np.sort(dark)[int(0.85 * dark.size)]) if dark.size else 1.0
    return _centre(np.clip(patch / max(full, 0.3), 0.0, 1.0))


def stroke_width(ink: NDArray[Any]) -> float:
    """Return the mean stroke width: twice the area of the ink over the length of its edge.

    Parameters
    ----------
    ink : ndarray of float, shape (h, w)
        Amount of ink, 0 to 1.

    Returns
    -------
    float
        Pixels; 0 without ink.
    """
    body = np.zeros((ink.shape[0] + 2, ink.shape[1] + 2), np.bool_)
    body[1:-1, 1:-1] = np.asarray(ink) > 0.5
    area = int(np.count_nonzero(body))
    if not area:
        return 0.0
    sides = np.count_nonzero(body[1:] ^ body[:-1]) + np.count_nonzero(body[:, 1:] ^ body[:, :-1])
    return 2.0 * area / (sides * np.pi / 4)  # an edge at any angle counts 4/pi sides per pixel


def _crop(ink: Ink) -> Ink | None:
    rows = np.flatnonzero(ink.max(axis=1, initial=0.0) > 0.3)
    columns = np.flatnonzero(ink.max(axis=0, initial=0.0) > 0.3)
    if not rows.size or not columns.size:
        return None
    return ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def _resize(patch: Ink, side: int) -> Ink:
    """Scale so that the longer side is ``side``; areas are averaged when shrinking."""
    import cv2

    height, width = patch.shape
    scale = side / max(height, width)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    method = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(patch, size, interpolation=method), dtype=np.float32)


def _adjust_stroke(patch: Ink, width: float, settings: SearchSettings) -> Ink:
    """Widen or thin strokes of ``width`` fine pixels that are far from MNIST's."""
    import cv2

    thin = width < settings.thin * _FINE
    if not thin and width <= settings.thick * _FINE:
        return patch
    goal = (settings.widened if thin else settings.thinned) * _FINE
    reach = round(abs(goal - width))
    if reach < 1:
        return patch
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (reach + 1, reach + 1))
    padded = cv2.copyMakeBorder(patch, reach, reach, reach, reach, cv2.BORDER_CONSTANT, value=0)
    changed = cv2.dilate(padded, kernel) if goal > width else cv2.erode(padded, kernel)
    cropped = _crop(np.asarray(changed, dtype=np.float32))
    return patch if cropped is None else cropped


def _centre(patch: Ink) -> NDArray[np.uint8]:
    """Lay ``patch`` into the field by its centre of mass, as far as it fits."""
    height, width = patch.shape
    mass = float(patch.sum())
    field = np.zeros((SIDE, SIDE), dtype=np.uint8)
    if mass <= 0:
        return field
    row = float(patch.sum(axis=1) @ np.arange(height)) / mass
    column = float(patch.sum(axis=0) @ np.arange(width)) / mass
    top = min(max(math.floor(SIDE / 2 - row + _HALF), 0), SIDE - height)
    left = min(max(math.floor(SIDE / 2 - column + _HALF), 0), SIDE - width)
    field[top : top + height, left : left + width] = (patch * 255).round().astype(np.uint8)
    return field


def isolated_digit(grey: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Bring a picture of one digit to MNIST's form.

    A picture whose border is brighter than its middle tone is taken for dark ink on paper and
    turned round; a 28x28 picture is taken to be in MNIST's form otherwise.

    Parameters
    ----------
    grey : (H, W) ndarray of uint8

    Returns
    -------
    (28, 28) ndarray of uint8
        Ink 255 on 0.
    """
    border = np.concatenate([grey[0], grey[-1], grey[:, 0], grey[:, -1]])
    low, high = float(grey.min()), float(grey.max())
    ink: NDArray[np.uint8] = 255 - grey if float(np.median(border)) > (low + high) / 2.0 else grey
    if ink.shape == (SIDE, SIDE):
        return ink
    if high <= low:
        return np.zeros((SIDE, SIDE), np.uint8)
    stretched = (ink.astype(np.float32) - float(ink.min())) / (high - low)
    return normalise(enlarged(stretched))


def enlarged(ink: NDArray[np.float32]) -> NDArray[np.float32]:
    """Enlarge a coarse picture by cubic interpolation, which keeps its strokes apart."""
    import cv2

    factor = _ENLARGED // max(ink.shape)
    if factor < 2:
        return ink
    fine = cv2.resize(np.pad(ink, 1), None, fx=factor, fy=factor, interpolation=cv2.INTER_CUBIC)
    return np.clip(fine, 0.0, 1.0).astype(np.float32)


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
        Ink 255, as `normalise` makes it; all 0 where the box holds no contrast.
    """
    return cut_out(grey, box)[0]


def cut_out(
    grey: NDArray[np.uint8], box: NDArray[np.float32], settings: SearchSettings | None = None
) -> tuple[NDArray[np.uint8], float]:
    """Cut a digit out as `digit_of_box` does; return it and its contrast in grey levels."""
    settings = settings or SearchSettings()
    crop, inner = _box_of(grey, box, settings.margin)
    away = crop - _paper(crop, inner)
    x, y, wide, high = inner
    down, right = int(settings.rim * high), int(settings.rim * wide)
    within = away[y + down : y + high - down, x + right : x + wide - right]
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
    return normalise(_own(ink, inner, settings), settings=settings), contrast


def _box_of(
    grey: NDArray[np.uint8], box: NDArray[np.float32], margin: float
) -> tuple[NDArray[np.float32], tuple[int, int, int, int]]:
    """A box with a margin, reduced where it is large; and where the box lies in it."""
    import cv2

    x, y, wide, high = (float(v) for v in box)
    edge = margin * max(wide, high) + 2
    left = min(max(0, int(x - edge)), grey.shape[1] - 1)
    top = min(max(0, int(y - edge)), grey.shape[0] - 1)
    right = min(grey.shape[1], int(np.ceil(x + wide + edge)))
    bottom = min(grey.shape[0], int(np.ceil(y + high + edge)))
    crop = grey[top : max(bottom, top + 1), left : max(right, left + 1)]
    scale = min(1.0, _REDUCED / max(wide, high))
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
    plane = np.array([_median(seen), 0.0, 0.0])
    for _ in range(3):  # Cauchy's weights: neighbours' ink counts less
        off = np.square(seen - design @ plane)
        part = design / (1 + off / max(1.0, _median(off)))[:, None]
        plane = np.linalg.solve(part.T @ design + 1e-6 * np.eye(3), part.T @ seen)
    whole = plane[0] + plane[1] * (np.arange(high) * (2 / high) - 1)[:, None]
    return np.asarray(whole + plane[2] * (np.arange(wide) * (2 / wide) - 1), np.float32)


def _median(values: NDArray[np.float64]) -> float:
    """The same as NumPy's, five times as quick for a few hundred values."""
    half = len(values) // 2
    middle = np.partition(values, (half - 1 + len(values) % 2, half))
    return float(middle[half] + middle[half - 1 + len(values) % 2]) / 2


def _own(
    ink: NDArray[np.float32], inner: tuple[int, int, int, int], settings: SearchSettings
) -> NDArray[np.float32]:
    """Take away marks that lie outside the box for the most part.

    What holds most of the ink in the box stays: a digit may touch the outline of its cell.
    """
    import cv2

    x, y, wide, high = inner
    count, labels, stats, _ = cv2.connectedComponentsWithStats(
        (ink > settings.part).astype(np.uint8), connectivity=8
    )
    slack = max(1, round(settings.slack * max(wide, high)))
    inside = np.zeros(ink.shape, np.bool_)
    inside[max(0, y - slack) : y + high + slack, max(0, x - slack) : x + wide + slack] = True
    within = np.bincount(labels[inside], minlength=count)
    area = stats[:, cv2.CC_STAT_AREA]
    keep = (within > 0.5 * area) | (within > 0.5 * within[1:].sum())
    keep[0] = False
    keep &= area >= settings.speck * max(1, int(area[1:].max(initial=1)))
    core = keep[labels]
    near = np.asarray(cv2.dilate(core.astype(np.uint8), np.ones((3, 3), np.uint8))) > 0
    return np.where(near & inside, ink, np.float32(0))
