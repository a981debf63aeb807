"""Pens from a hard pencil to a broad marker."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Line = NDArray[np.float32]
Cover = NDArray[np.float32]
Rng = np.random.Generator

_SHIFT = 4  # OpenCV's coordinates count in sixteenths of a pixel
_NOISE_SIDE = 1024


@dataclass(frozen=True, slots=True)
class Pen:
    """What a page, or a part of it, is written with."""

    width: float  #: of a stroke, as a share of the height of a digit
    contrast: float  #: share of the way from the paper's grey to the ink's, 0 .. 1
    pressure: float = 0.0  #: how much the width changes along a stroke, as a share
    nib: float = 1.0  #: how flat the tip is: 1 is round, 0.3 is a broad nib
    angle: float = 0.8  #: of a flat tip, in radians
    grain: float = 0.0  #: share of the ink that the paper does not take: pencil, chalk
    hollow: bool = False  #: whether it draws the outlines of broad strokes alone


def log_uniform(rng: Rng, low: float, high: float) -> float:
    """Draw a number whose logarithm is uniform."""
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def any_pen(rng: Rng, *, least: float = 1 / 60, most: float = 1 / 5) -> Pen:
    width = log_uniform(rng, least, most)
    if rng.random() < 0.5:
        width = float(np.clip(rng.uniform(0.04, 0.13), least, most))
    contrast = rng.uniform(0.14, 0.45) if rng.random() < 0.18 else rng.uniform(0.4, 0.97)
    pressure = rng.uniform(0, 0.5) if rng.random() < 0.4 else 0.0
    nib = rng.uniform(0.3, 0.7) if rng.random() < 0.12 else 1.0
    angle, grain = rng.uniform(0, np.pi), rng.uniform(0.05, 0.4) if rng.random() < 0.2 else 0.0
    return Pen(width, contrast, pressure, nib, angle, grain, width > 0.09 and rng.random() < 0.05)


def ink(lines: Sequence[Line], width: float, pen: Pen, rng: Rng) -> tuple[Cover, int, int]:
    """Draw strokes (n, 2), (x, y), ``width`` pixels wide: cover by ink (h, w), its column and row."""
    zoom = 4 if width < 1.5 else 2 if width < 5 else 1
    edge = width * (1 + pen.pressure) / 2 + 1.5
    whole = np.concatenate(lines)
    low, high = np.floor(whole.min(axis=0) - edge), np.ceil(whole.max(axis=0) + edge)
    wide, tall = (high - low).astype(int).tolist()
    field = np.zeros((tall * zoom, wide * zoom), np.uint8)
    fine = width * zoom * pen.nib
    scale, origin = np.float32(zoom * (1 << _SHIFT)), low.astype(np.float32)
    centre = (zoom - 1) / 2 * (1 << _SHIFT)
    for line in lines:
        points = ((line - origin) * scale + centre).astype(np.int32)
        _stroke(field, points, fine, pen.pressure, rng)
    if pen.nib < 1:
        tip = line_kernel(max(1, round(width * zoom)), pen.angle)
        field = np.asarray(cv2.dilate(field, tip), np.uint8)
    if pen.hollow and fine > 7:
        rim = 2 * max(1, round(fine / 10)) + 1
        field = field - np.asarray(cv2.erode(field, np.ones((rim, rim), np.uint8)), np.uint8)
    if zoom > 1:
        field = np.asarray(cv2.resize(field, (wide, tall), interpolation=cv2.INTER_AREA), np.uint8)
    cover = field.astype(np.float32) * np.float32(min(1.0, max(fine, 0.35)) / 255)
    if pen.grain:  # ink that rough paper does not take
        rough = noise(cover.shape, rng)
        cover *= np.clip(1 - 2.2 * pen.grain * (rough + 0.7 * pen.grain + 0.3), 0.1, 1)
    return cover, int(low[0]), int(low[1])


def _stroke(field: Any, points: Any, width: float, pressure: float, rng: Rng) -> None:
    if pressure < 0.05 or len(points) < 4:
        cv2.polylines(field, [points], False, 255, max(1, round(width)), cv2.LINE_AA, _SHIFT)
        return
    parts = min(len(points) - 1, 5)
    bounds = np.linspace(0, len(points) - 1, parts + 1).astype(int).tolist()
    phase, turns = rng.uniform(0, 6.3), rng.uniform(0.5, 2)
    for k in range(parts):
        swell = 1 + pressure * np.sin(phase + turns * 2 * np.pi * k / parts)
        piece = points[bounds[k] : bounds[k + 1] + 1]
        thick = max(1, round(width * swell))
        cv2.polylines(field, [piece], False, 255, thick, cv2.LINE_AA, _SHIFT)


def line_kernel(side: int, angle: float) -> NDArray[np.uint8]:
    """Return a field (side, side) with a line of ones through its middle."""
    kernel = np.zeros((side, side), np.uint8)
    middle = (side - 1) / 2
    way = np.array([np.cos(angle), np.sin(angle)]) * middle
    a, b = ((middle + sign * way).round().astype(int).tolist() for sign in (-1, 1))
    cv2.line(kernel, a, b, 1, 1)
    return kernel


@cache
def _noise_field() -> NDArray[np.float32]:
    return np.random.default_rng(1).standard_normal((_NOISE_SIDE, _NOISE_SIDE), np.float32)


def noise(shape: tuple[int, ...], rng: Rng) -> NDArray[np.float32]:
    """Return a window, turned by chance, of one fixed field of normal noise: much the quickest."""
    if max(shape) >= _NOISE_SIDE:
        times = [-(-side // _NOISE_SIDE) for side in shape]
        return np.tile(_noise_field(), times)[: shape[0], : shape[1]]
    y = int(rng.integers(_NOISE_SIDE - shape[0] + 1))
    x = int(rng.integers(_NOISE_SIDE - shape[1] + 1))
    way = int(rng.integers(4))
    window = _noise_field()[y : y + shape[0], x : x + shape[1]]
    return window[:: -1 if way & 1 else 1, :: -1 if way & 2 else 1]


def octaves(shape: tuple[int, ...], cells: Sequence[int], fall: float, rng: Rng) -> NDArray[np.float32]:
    """Return a sum (H, W) of smooth noises by size of cells, each ``fall`` times the last."""
    total, weight = np.zeros(shape, np.float32), 1.0
    for cell in cells:
        count = tuple(side // cell + 3 for side in shape)
        size = (count[1] * cell, count[0] * cell)
        large = cv2.resize(noise(count, rng), size, interpolation=cv2.INTER_LINEAR)
        total += np.float32(weight) * np.asarray(large)[cell : cell + shape[0], cell : cell + shape[1]]
        weight *= fall
    return total
