"""A camera or a scanner: light, focus, sensor."""

import cv2
import numpy as np
from numpy.typing import NDArray

from neocog.learning.drawing.pen import Rng, line_kernel, log_uniform, noise

Image = NDArray[np.float32]


def photographed(
    image: Image, rng: Rng, smallest: float, *, inverted: float = 0.12, page: int = 1
) -> NDArray[np.uint8]:
    """Photograph a page (H, W), or a strip of one that is ``page`` times as high.

    Its smallest digits have so many pixels; ``inverted``: share of dark pages.
    """
    image = np.clip(image, 0, 255)
    if page == 1:
        _light(image, rng)
    else:
        high, wide = image.shape
        side = max(page * high, wide)
        light = np.full((side // 4, side // 4), 100, np.float32)
        _light(light, rng)
        y, x = int(rng.integers(side - high + 1)), int(rng.integers(side - wide + 1))
        light = np.asarray(cv2.resize(light, (side, side), interpolation=cv2.INTER_LINEAR))
        image *= light[y : y + high, x : x + wide] / np.float32(100)
    image = _lens(np.clip(image, 0, 255), rng, smallest)
    return _sensor(np.float32(255) - image if rng.random() < inverted else image, rng, smallest)


def _light(image: Image, rng: Rng) -> None:
    """Light that falls off, shadows with soft or hard edges, spots of glare."""
    high, wide = image.shape
    column, row = (np.linspace(-1, 1, side, dtype=np.float32) for side in (wide, high))
    if rng.random() < 0.6:
        a, b = rng.normal(0, 0.22, 2)
        field = 1 + np.float32(a) * column[None] + np.float32(b) * row[:, None]
        if rng.random() < 0.4:
            field = field - np.float32(rng.uniform(0, 0.15)) * (column[None] ** 2 + row[:, None] ** 2)
        image *= np.clip(field, 0.25, 1.6)
    if rng.random() < 0.3:
        depth, shade = np.float32(rng.uniform(0.15, 0.65)), np.zeros((high // 2, wide // 2), np.float32)
        if rng.random() < 0.75:
            corners = rng.uniform(-0.5, 1.5, (int(rng.integers(3, 6)), 2)) * shade.shape[::-1]
            cv2.fillPoly(shade, [cv2.convexHull(corners.astype(np.int32))], 1.0)
        else:  # bars
            step, angle = rng.uniform(8, 60), rng.uniform(0, np.pi)
            x, y = (np.arange(side // 2, dtype=np.float32) for side in (wide, high))
            across = (np.cos(angle) * x[None] + np.sin(angle) * y[:, None]) / step
            shade[:] = across % 1 < rng.uniform(0.3, 0.7)
        shade = np.asarray(cv2.GaussianBlur(shade, (0, 0), log_uniform(rng, 0.5, 14)))
        image *= 1 - depth * np.asarray(cv2.resize(shade, (wide, high), interpolation=cv2.INTER_LINEAR))
    if rng.random() < 0.1:
        x, y = rng.uniform(-1, 1, 2)
        reach = rng.uniform(0.08, 0.6)
        spot = np.exp(-((column[None] - x) ** 2 + (row[:, None] - y) ** 2) / np.float32(reach**2))
        image += (255 - image) * np.float32(rng.uniform(0.2, 0.75)) * spot.astype(np.float32)


def _lens(image: Image, rng: Rng, smallest: float) -> Image:
    """Blur by focus or motion, as far as marks of ``smallest`` pixels stay legible."""
    kind = rng.random()
    if kind < 0.55:
        most = min(0.09 * smallest, 6.0)
        sigma = rng.uniform(0.3, max(0.5, most)) if rng.random() < 0.5 else rng.uniform(0.3, 0.9)
        return np.asarray(cv2.GaussianBlur(image, (0, 0), sigma), np.float32)
    if kind >= 0.75:
        return image
    if kind < 0.65:  # a disc, as a lens out of focus gives
        reach = max(1, round(rng.uniform(0.3, 1) * min(0.16 * smallest, 9)))
        kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * reach + 1,) * 2)
    else:
        reach = max(2, round(rng.uniform(0.3, 1) * min(0.28 * smallest, 21)))
        kernel = line_kernel(reach | 1, rng.uniform(0, np.pi))
    return np.asarray(cv2.filter2D(image, -1, kernel / np.float32(kernel.sum())), np.float32)


def _sensor(image: Image, rng: Rng, smallest: float) -> NDArray[np.uint8]:
    """Few pixels, noise, a tone curve, sharpening, JPEG; ink and paper exchanged; a fax."""
    size = image.shape[::-1]
    if rng.random() < 0.2 and smallest > 14:
        share = max(rng.uniform(0.35, 1), 10 / smallest)
        small = tuple(max(16, round(side * share)) for side in size)
        down = cv2.resize(image, small, interpolation=cv2.INTER_AREA)
        way = cv2.INTER_NEAREST if rng.random() < 0.15 else cv2.INTER_LINEAR
        image = np.asarray(cv2.resize(down, size, interpolation=way), np.float32)
    if rng.random() < 0.15:
        soft = cv2.GaussianBlur(image, (0, 0), rng.uniform(0.8, 2.5))
        image = image + np.float32(rng.uniform(0.3, 1.8)) * (image - soft)
    if rng.random() < 0.3:
        gamma = np.float32(np.exp(rng.normal(0, 0.35)))
        image = np.float32(255) * (np.clip(image, 0, 255) / np.float32(255)) ** gamma
    grain = noise(image.shape, rng)
    if rng.random() < 0.3:
        grain = np.asarray(cv2.GaussianBlur(grain, (0, 0), 0.8), np.float32) * np.float32(1.6)
    image = image + np.float32(log_uniform(rng, 0.3, 9)) * grain
    if rng.random() < 0.12:  # a dark picture
        image = image * np.float32(rng.uniform(0.15, 0.5)) + np.float32(rng.uniform(0, 30))
    picture = np.clip(image, 0, 255).astype(np.uint8)
    if rng.random() < 0.08 and picture.mean() > 120:  # a fax
        near = np.asarray(cv2.blur(picture, (61, 61)), np.float32)
        picture = (picture > rng.uniform(0.75, 0.95) * near).astype(np.uint8) * 255
    if rng.random() < 0.45:
        _, file = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, int(rng.integers(12, 95))])
        picture = np.asarray(cv2.imdecode(file, cv2.IMREAD_UNCHANGED), np.uint8)
    return np.asarray(picture)
