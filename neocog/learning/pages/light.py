"""What light, folds, the sheet's place and the lens do to a page."""

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from neocog.learning.pages.page import Image, Rng, blurred, places, through_jpeg
from neocog.learning.teacher.pen import line_kernel


def defocus(image: Image, rng: Rng) -> Image:
    """The lens is out of focus: every point becomes a disc."""
    radius = int(rng.integers(3, 9))
    disc = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * radius + 1,) * 2)
    return _spread(image, disc.astype(np.float32))


def motion(image: Image, rng: Rng) -> Image:
    """The camera moved: every point becomes a short line."""
    length = int(rng.integers(9, 19))
    return _spread(image, line_kernel(length, rng.uniform(0, np.pi)).astype(np.float32))


def _spread(image: Image, kernel: Image) -> Image:
    mean = kernel / kernel.sum()
    return np.asarray(cv2.filter2D(image, -1, mean, borderType=cv2.BORDER_REPLICATE), np.float32)


def _shadow(image: Image, outline: NDArray[Any], depth: float, softness: float) -> Image:
    """Darken what lies inside an outline, with a soft edge."""
    inside = np.zeros(image.shape[:2], np.float32)
    cv2.fillPoly(inside, [outline.astype(np.int32)], 1.0)
    return image * (1 - depth * blurred(inside, softness))[:, :, None]


def hand_shadow(image: Image, rng: Rng) -> Image:
    """Shadows of fingers that reach in from below."""
    high, wide = image.shape[:2]
    start = np.array([rng.uniform(0.3, 1) * wide, high * 1.05])
    for finger in range(int(rng.integers(1, 4))):
        angle = rng.uniform(-2.4, -1.2) + 0.25 * finger
        tip = start + np.array([np.cos(angle), np.sin(angle)]) * rng.uniform(0.4, 0.9) * high
        side = np.array([np.sin(angle), -np.cos(angle)]) * rng.uniform(40, 110)
        outline = np.array([start - side, tip - side * 0.7, tip + side * 0.7, start + side])
        image = _shadow(image, outline, rng.uniform(0.25, 0.5), rng.uniform(4, 25))
    return image


def phone_shadow(image: Image, rng: Rng) -> Image:
    """The shadow of the phone that takes the picture."""
    high, wide = image.shape[:2]
    centre = rng.uniform((0.2 * wide, 0.2 * high), (0.8 * wide, 0.8 * high))
    angle = rng.uniform(0, np.pi)
    size = (rng.uniform(0.3, 0.6) * wide, rng.uniform(0.5, 0.9) * wide)
    outline = cv2.boxPoints((centre.tolist(), size, np.degrees(angle)))
    return _shadow(image, outline, rng.uniform(0.3, 0.6), rng.uniform(3, 20))


def glare(image: Image, rng: Rng) -> Image:
    """A lamp is mirrored in the paper: one place is washed out."""
    high, wide = image.shape[:2]
    rows, columns = places(image.shape)
    x, y = rng.uniform(0.2, 0.8) * wide, rng.uniform(0.2, 0.8) * high
    away = np.hypot((columns - x) / rng.uniform(120, 300), (rows - y) / rng.uniform(80, 220))
    return _washed_out(image, rng.uniform(0.35, 0.75) * np.exp(-(away**2)))


def _washed_out(image: Image, glow: NDArray[Any]) -> Image:
    return image + (255 - image) * glow.astype(np.float32)[:, :, None]


def _seen_from(image: Image, shift: NDArray[Any], border: int) -> Image:
    """Move the corners inwards, by shares of the page (4, 2)."""
    high, wide = image.shape[:2]
    square = np.array([(0, 0), (wide, 0), (wide, high), (0, high)], np.float32)
    inward = np.array([(1, 1), (-1, 1), (-1, -1), (1, -1)]) * shift
    target = (square + inward * (wide, high)).astype(np.float32)
    warp = cv2.getPerspectiveTransform(square, target)
    return np.asarray(cv2.warpPerspective(image, warp, (wide, high), borderMode=border), np.float32)


def perspective(image: Image, rng: Rng) -> Image:
    return _seen_from(image, rng.uniform(0, 0.16, (4, 2)), cv2.BORDER_REPLICATE)


def on_desk(image: Image, rng: Rng) -> Image:
    """The sheet lies on a darker desk with a grain; its edges are in the picture."""
    high, wide = image.shape[:2]
    grain = cv2.resize(rng.normal(0, 1, (high // 3, 6)).astype(np.float32), (wide, high))
    desk = np.array(rng.uniform((70, 50, 30), (150, 110, 80)))[None, None] + 9 * grain[:, :, None]
    shift = rng.uniform(0.02, 0.12, (4, 2))
    sheet = _seen_from(image, shift, cv2.BORDER_CONSTANT)
    cover = _seen_from(np.ones((high, wide), np.float32), shift, cv2.BORDER_CONSTANT)[:, :, None]
    return (desk * (1 - cover) + sheet * cover).astype(np.float32)


def crumple(image: Image, rng: Rng) -> Image:
    """Facets of changing brightness with sharp folds between them."""
    high, wide = image.shape[:2]
    points = rng.uniform((0, 0), (wide, high), (int(rng.integers(8, 22)), 2))
    tilt = rng.normal(0, 0.00035, (len(points), 2))
    level = rng.normal(0, 0.05, len(points))
    rows, columns = places(image.shape, 2)
    nearest = np.argmin([(columns - x) ** 2 + (rows - y) ** 2 for x, y in points], axis=0)
    shade = 1 + level[nearest]
    shade += tilt[nearest, 0] * (columns - points[nearest, 0])
    shade += tilt[nearest, 1] * (rows - points[nearest, 1])
    shade = np.clip(blurred(shade.astype(np.float32), 1.2), 0.7, 1.15)
    return image * np.asarray(cv2.resize(shade, (wide, high)), np.float32)[:, :, None]


def folded(image: Image, rng: Rng) -> Image:
    """A sheet folded in four: each part has its own brightness, the folds are dark or bright."""
    high, wide = image.shape[:2]
    x, y = int(rng.uniform(0.35, 0.65) * wide), int(rng.uniform(0.35, 0.65) * high)
    shade = np.ones((high, wide), np.float32)
    for rows in (slice(0, y), slice(y, None)):
        for columns in (slice(0, x), slice(x, None)):
            shade[rows, columns] = rng.uniform(0.72, 1.0)
    shade = blurred(shade, 2.5)
    crease = np.zeros((high, wide), np.float32)
    cv2.line(crease, (x, 0), (x + int(rng.normal(0, 12)), high), 1.0, 3, cv2.LINE_AA)
    cv2.line(crease, (0, y), (wide, y + int(rng.normal(0, 12))), 1.0, 3, cv2.LINE_AA)
    shade += rng.uniform(-0.3, 0.15) * blurred(crease, 1.5)
    return image * shade[:, :, None]


def small_photo(image: Image, rng: Rng) -> Image:
    """A picture that was sent around: 560 pixels wide, then enlarged again."""
    high, wide = image.shape[:2]
    small = cv2.resize(image, (560, 420), interpolation=cv2.INTER_AREA)
    sent = through_jpeg(np.clip(small, 0, 255).astype(np.uint8), 45).astype(np.float32)
    return np.asarray(cv2.resize(sent, (wide, high), interpolation=cv2.INTER_LINEAR), np.float32)


def turned(image: Image, rng: Rng) -> Image:
    """The camera was held askew: lines and digits are turned alike."""
    high, wide = image.shape[:2]
    turn = cv2.getRotationMatrix2D((wide / 2, high / 2), rng.uniform(-12, 12), 0.85)
    moved = cv2.warpAffine(image, turn, (wide, high), borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(moved, np.float32)


def creased(image: Image, rng: Rng) -> Image:
    """Straight creases at any angle: a thin dark or bright line, another brightness beyond it."""
    high, wide = image.shape[:2]
    rows, columns = places(image.shape)
    shade = np.ones((high, wide), np.float32)
    for _ in range(int(rng.integers(1, 4))):
        angle = rng.uniform(0, np.pi)
        x, y = rng.uniform((0.25 * wide, 0.25 * high), (0.75 * wide, 0.75 * high))
        away = (columns - x) * np.sin(angle) - (rows - y) * np.cos(angle)
        depth, sharp = rng.uniform(0, 0.25), rng.uniform(0.8, 3)
        shade *= 1 - depth / (1 + np.exp(np.clip(-away / sharp, -50, 50)))
        shade += rng.uniform(-0.35, 0.2) * np.exp(-((away / rng.uniform(1, 2.6)) ** 2))
    return image * np.clip(shade, 0.3, 1.3)[:, :, None]


def _striped(image: Image, rng: Rng, stripes: NDArray[Any]) -> Image:
    return image * (1 - rng.uniform(0.2, 0.5) * stripes).astype(np.float32)[:, :, None]


def blind_shadow(image: Image, rng: Rng) -> Image:
    """The sun through a window blind: stripes of shadow at one angle."""
    rows, columns = places(image.shape)
    angle = rng.uniform(0, np.pi)
    along = (columns * np.sin(angle) - rows * np.cos(angle)) / rng.uniform(110, 260)
    wave = np.sin(2 * np.pi * (along + rng.uniform()))
    return _striped(image, rng, 1 / (1 + np.exp(-wave * rng.uniform(4, 20))))


def fence_shadow(image: Image, rng: Rng) -> Image:
    """The shadow of a fence: pickets of uneven width with rails across them, lying askew."""
    high, wide = image.shape[:2]
    reach = float(np.hypot(high, wide))
    shade = np.zeros((high, wide), np.float32)
    angle = rng.uniform(0, np.pi)
    along = np.array([np.cos(angle), np.sin(angle)])
    across = np.array([-along[1], along[0]])
    middle = np.array([wide / 2, high / 2])

    def bar(at: float, broad: float, way: NDArray[Any], side: NDArray[Any]) -> None:
        ends = [middle + side * (at + b) + way * e * reach for b, e in
                ((0, -1), (broad, -1), (broad, 1), (0, 1))]  # fmt: skip
        cv2.fillPoly(shade, [np.array(ends).astype(np.int32)], 1.0, cv2.LINE_AA)

    step = rng.uniform(110, 260)
    for at in np.arange(-reach / 2, reach / 2, step):
        bar(at + rng.normal(0, 0.06) * step, step * rng.uniform(0.3, 0.6), along, across)
    for at in rng.uniform(-0.4, 0.4, 2) * high:
        bar(at, rng.uniform(30, 90), across, along)
    return _striped(image, rng, blurred(shade, rng.uniform(1.5, 12)))


def plastic_sleeve(image: Image, rng: Rng) -> Image:
    """A clear sleeve over the sheet: curved bright streaks and an edge that shades the paper."""
    high, wide = image.shape[:2]
    gloss = np.zeros((high, wide), np.float32)
    for _ in range(int(rng.integers(3, 8))):
        start = rng.uniform((0, 0), (wide, high))
        way = np.cumsum(rng.normal(0, 0.25, 30)) + rng.uniform(0, 2 * np.pi)
        points = start + np.cumsum(np.c_[np.cos(way), np.sin(way)] * rng.uniform(8, 22), axis=0)
        strength, width = rng.uniform(0.2, 0.6), int(rng.integers(2, 9))
        cv2.polylines(gloss, [points.astype(np.int32)], False, strength, width, cv2.LINE_AA)
    gloss = blurred(gloss, rng.uniform(1.5, 5))
    edge = np.ones((high, wide), np.float32)
    at = int(rng.uniform(0.03, 0.12) * high)
    edge[:at] = rng.uniform(0.75, 0.92)
    return _washed_out(image * blurred(edge, 1.5)[:, :, None], gloss)
