"""From the drawn page to the picture of it: light, shadow, lens, sensor, file."""

import cv2
import numpy as np
from numpy.typing import NDArray

from neocog.learning.pages.page import through_jpeg
from neocog.learning.teacher.pen import Rng, line_kernel, log_uniform, noise

Image = NDArray[np.float32]


def light(image: Image, rng: Rng) -> None:
    """Light that falls off, shadows with soft or hard edges, spots of glare."""
    side = len(image)
    line = np.linspace(-1, 1, side, dtype=np.float32)
    if rng.random() < 0.6:
        a, b = rng.normal(0, 0.22, 2)
        field = 1 + np.float32(a) * line[None] + np.float32(b) * line[:, None]
        if rng.random() < 0.4:
            c = np.float32(rng.uniform(0, 0.3))
            field = field - c * (line[None] ** 2 + line[:, None] ** 2) / 2
        image *= np.clip(field, 0.25, 1.6)
    if rng.random() < 0.3:
        image *= 1 - np.float32(rng.uniform(0.15, 0.65)) * _shadow(side, rng)
    if rng.random() < 0.1:
        x, y = rng.uniform(-1, 1, 2)
        reach = rng.uniform(0.08, 0.6)
        spot = np.exp(-((line[None] - x) ** 2 + (line[:, None] - y) ** 2) / np.float32(reach**2))
        image += (255 - image) * np.float32(rng.uniform(0.2, 0.75)) * spot.astype(np.float32)


def _shadow(side: int, rng: Rng) -> Image:
    half = side // 2
    shade = np.zeros((half, half), np.float32)
    if rng.random() < 0.75:
        corners = rng.uniform(-0.5, 1.5, (int(rng.integers(3, 6)), 2)) * half
        cv2.fillPoly(shade, [cv2.convexHull(corners.astype(np.int32))], 1.0)
    else:  # bars
        step, angle = rng.uniform(8, 60), rng.uniform(0, np.pi)
        line = np.arange(half, dtype=np.float32)
        phase = (np.cos(angle) * line[None] + np.sin(angle) * line[:, None]) / step
        shade[:] = (phase % 1) < rng.uniform(0.3, 0.7)
    blurred = cv2.GaussianBlur(shade, (0, 0), log_uniform(rng, 0.5, 14))
    return np.asarray(cv2.resize(blurred, (side, side), interpolation=cv2.INTER_LINEAR), np.float32)


def lens(image: Image, rng: Rng, smallest: float) -> Image:
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


def sensor(image: Image, rng: Rng, smallest: float) -> NDArray[np.uint8]:
    """Few pixels, noise, a tone curve, sharpening, JPEG; dark on bright or bright on dark."""
    side = len(image)
    if rng.random() < 0.2 and smallest > 14:
        share = max(rng.uniform(0.35, 1), 10 / smallest)
        small = max(16, round(side * share))
        down = cv2.resize(image, (small, small), interpolation=cv2.INTER_AREA)
        way = cv2.INTER_NEAREST if rng.random() < 0.15 else cv2.INTER_LINEAR
        image = np.asarray(cv2.resize(down, (side, side), interpolation=way), np.float32)
    if rng.random() < 0.15:
        soft = cv2.GaussianBlur(image, (0, 0), rng.uniform(0.8, 2.5))
        image = image + np.float32(rng.uniform(0.3, 1.8)) * (image - soft)
    if rng.random() < 0.3:
        gamma = np.float32(np.exp(rng.normal(0, 0.35)))
        image = np.float32(255) * (np.clip(image, 0, 255) / np.float32(255)) ** gamma
    if rng.random() < 0.12:
        image = np.float32(255) - image
    strength = log_uniform(rng, 0.3, 9)
    grain = noise((side, side), rng)
    if rng.random() < 0.3:
        soft = cv2.GaussianBlur(grain, (0, 0), 0.8)
        grain = np.asarray(soft, np.float32) * np.float32(1.6)
    image = image + np.float32(strength) * grain
    if rng.random() < 0.12:  # a dark picture
        image = image * np.float32(rng.uniform(0.15, 0.5)) + np.float32(rng.uniform(0, 30))
    picture = np.clip(image, 0, 255).astype(np.uint8)
    if rng.random() < 0.45:
        picture = through_jpeg(picture, int(rng.integers(12, 95)))
    return picture
