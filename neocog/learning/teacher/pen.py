"""Pens: strokes drawn at any size, from a hard pencil to a broad marker."""

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

Line = NDArray[np.float32]
Cover = NDArray[np.float32]
Rng = np.random.Generator

THINNEST, BROADEST = 1 / 60, 1 / 5
"""Width of a stroke as a share of the digit's height."""

_SHIFT = 4  # OpenCV's coordinates count in sixteenths of a pixel


@dataclass(frozen=True, slots=True)
class Pen:
    """What a page, or a part of it, is written with.

    Attributes
    ----------
    width : float
        Of a stroke, as a share of the height of a digit.
    contrast : float
        Share of the way from the paper's grey to the ink's, 0 .. 1.
    pressure : float
        How much the width changes along a stroke, as a share.
    nib : float
        How flat the tip is: 1 is round, 0.3 is a broad nib.
    angle : float
        Of a flat tip, in radians.
    grain : float
        Share of the ink that the paper does not take: pencil, chalk, a dry marker.
    """

    width: float
    contrast: float
    pressure: float = 0.0
    nib: float = 1.0
    angle: float = 0.8
    grain: float = 0.0


def any_pen(rng: Rng) -> Pen:
    """Choose a pen: pencil, ball pen, felt pen, marker, nib."""
    width = float(np.exp(rng.uniform(np.log(THINNEST), np.log(BROADEST))))
    if rng.random() < 0.5:
        width = float(rng.uniform(0.04, 0.13))
    contrast = rng.uniform(0.14, 0.45) if rng.random() < 0.18 else rng.uniform(0.4, 0.97)
    return Pen(
        width=width,
        contrast=float(contrast),
        pressure=float(rng.uniform(0, 0.5)) if rng.random() < 0.4 else 0.0,
        nib=float(rng.uniform(0.3, 0.7)) if rng.random() < 0.12 else 1.0,
        angle=float(rng.uniform(0, np.pi)),
        grain=float(rng.uniform(0.05, 0.4)) if rng.random() < 0.2 else 0.0,
    )


def rounded(line: Line, times: int = 1) -> Line:
    """Cut the corners of a line (Chaikin 1974), its ends stay."""
    for _ in range(times):
        if len(line) < 3:
            return line
        out = np.empty((2 * len(line), 2), np.float32)
        out[0], out[-1] = line[0], line[-1]
        step = 0.25 * (line[1:] - line[:-1])
        out[1:-1:2] = line[:-1] + step
        out[2:-1:2] = line[1:] - step
        line = out
    return line


def ink(lines: Sequence[Line], width: float, pen: Pen, rng: Rng) -> tuple[Cover, int, int]:
    """Draw strokes.

    Parameters
    ----------
    lines : sequence of ndarray of float32, shape (n, 2)
        Points (x, y) in pixels of the page.
    width : float
        Of the strokes, in pixels.
    pen : Pen
        For pressure, nib and grain; its own width is not looked at.
    rng : numpy Generator

    Returns
    -------
    ndarray of float32, shape (h, w)
        Cover by ink, 0 .. 1.
    int, int
        Column and row of its upper left pixel on the page.
    """
    zoom = 4 if width < 1.5 else 2 if width < 5 else 1
    edge = width * (1 + pen.pressure) / 2 + 1.5
    whole = np.concatenate(lines)
    low, high = np.floor(whole.min(axis=0) - edge), np.ceil(whole.max(axis=0) + edge)
    wide, tall = (high - low).astype(int).tolist()
    field = np.zeros((tall * zoom, wide * zoom), np.uint8)
    fine = width * zoom * (pen.nib if pen.nib < 1 else 1)
    scale, origin = np.float32(zoom * (1 << _SHIFT)), low.astype(np.float32)
    centre = (zoom - 1) / 2 * (1 << _SHIFT)
    for line in lines:
        points = ((line - origin) * scale + centre).astype(np.int32)
        _stroke(field, points, fine, pen.pressure, rng)
    if pen.nib < 1:
        field = _flat_tip(field, width * zoom, pen.angle)
    if zoom > 1:
        field = np.asarray(cv2.resize(field, (wide, tall), interpolation=cv2.INTER_AREA), np.uint8)
    cover = field.astype(np.float32) * np.float32(min(1.0, max(fine, 0.35)) / 255)
    if pen.grain:
        cover *= _grain(cover.shape, pen.grain, rng)
    return cover, int(low[0]), int(low[1])


def _stroke(
    field: NDArray[np.uint8], points: NDArray[np.int32], width: float, pressure: float, rng: Rng
) -> None:
    if pressure < 0.05 or len(points) < 4:
        thick = max(1, round(width))
        cv2.polylines(field, [points], False, 255, thick, cv2.LINE_AA, _SHIFT)
        return
    parts = min(len(points) - 1, 5)
    bounds = np.linspace(0, len(points) - 1, parts + 1).astype(int).tolist()
    phase, turns = rng.uniform(0, 6.3), rng.uniform(0.5, 2)
    for k in range(parts):
        swell = 1 + pressure * np.sin(phase + turns * 2 * np.pi * k / parts)
        thick = max(1, round(width * swell))
        piece = points[bounds[k] : bounds[k + 1] + 1]
        cv2.polylines(field, [piece], False, 255, thick, cv2.LINE_AA, _SHIFT)


def _flat_tip(field: NDArray[np.uint8], width: float, angle: float) -> NDArray[np.uint8]:
    reach = max(1, round(width))
    kernel = np.zeros((reach, reach), np.uint8)
    middle, arm = (reach - 1) / 2, (reach - 1) / 2
    dx, dy = arm * np.cos(angle), arm * np.sin(angle)
    ends = [(round(middle + s * dx), round(middle + s * dy)) for s in (-1, 1)]
    cv2.line(kernel, ends[0], ends[1], 1, 1)
    return np.asarray(cv2.dilate(field, kernel), np.uint8)


def _grain(shape: tuple[int, ...], share: float, rng: Rng) -> Cover:
    """Ink that rough paper does not take."""
    rough = noise(shape, rng)
    kept = np.clip(1 - 2.2 * share * (rough + 0.7 * share + 0.3), 0.1, 1)
    return np.asarray(kept, np.float32)


_BANK: dict[int, NDArray[np.float32]] = {}
_BANK_SIDE = 1024


def noise(shape: tuple[int, ...], rng: Rng) -> NDArray[np.float32]:
    """Return a window, turned by chance, of one fixed field of normal noise: much the quickest."""
    if 0 not in _BANK:
        made = np.random.default_rng(1).standard_normal((_BANK_SIDE, _BANK_SIDE), np.float32)
        _BANK[0] = made
    if max(shape) >= _BANK_SIDE:
        times = [-(-side // _BANK_SIDE) for side in shape]
        return np.tile(_BANK[0], times)[: shape[0], : shape[1]]
    y = int(rng.integers(_BANK_SIDE - shape[0] + 1))
    x = int(rng.integers(_BANK_SIDE - shape[1] + 1))
    way = int(rng.integers(4))
    window = _BANK[0][y : y + shape[0], x : x + shape[1]]
    return window[:: -1 if way & 1 else 1, :: -1 if way & 2 else 1]


def octaves(side: int, cells: Sequence[int], fall: float, rng: Rng) -> NDArray[np.float32]:
    """Sum of smooth noise at several sizes of cells (pixels), each ``fall`` times the one before.

    Returns
    -------
    ndarray of float32, shape (side, side)
    """
    total = np.zeros((side, side), np.float32)
    weight = 1.0
    for cell in cells:
        count = side // cell + 3
        coarse = noise((count, count), rng)
        size = count * cell
        large = np.asarray(cv2.resize(coarse, (size, size), interpolation=cv2.INTER_LINEAR))
        total += np.float32(weight) * large[cell : cell + side, cell : cell + side]
        weight *= fall
    return total
