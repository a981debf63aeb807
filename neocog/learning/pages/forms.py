"""Made forms for measuring: digits in cells of twelve layouts, and amounts with signs.

No page that the finder learns from has one of these outlines, and they are written with digits
that it did not learn from.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import cv2
import numpy as np
from numpy.typing import NDArray

from neocog.learning.pages.pen import write_digit

Rng = np.random.Generator
Image = NDArray[np.float32]
Cell = Callable[[Image, float, float, float, float, float, int], None]


@dataclass
class Form:
    """A form while it is filled in.

    Attributes
    ----------
    image : ndarray of float32, shape (H, W)
    lines : list of str
        What is written, signs included.
    boxes : list of (label, left, top, width, height)
    """

    image: Image
    lines: list[str] = field(default_factory=list)
    boxes: list[tuple[int, float, float, float, float]] = field(default_factory=list)


def _round_box(im: Image, x: float, y: float, w: float, h: float, level: float, pen: int) -> None:
    r = 0.2 * min(w, h)
    a, b, c, d = int(x), int(y), int(x + w), int(y + h)
    k = int(r)
    for p, q in (((a + k, b), (c - k, b)), ((a + k, d), (c - k, d)),
                 ((a, b + k), (a, d - k)), ((c, b + k), (c, d - k))):  # fmt: skip
        cv2.line(im, p, q, level, pen, cv2.LINE_AA)
    for (u, v), turn in (
        ((a + k, b + k), 180),
        ((c - k, b + k), 270),
        ((c - k, d - k), 0),
        ((a + k, d - k), 90),
    ):
        cv2.ellipse(im, (u, v), (k, k), turn, 0, 90, level, pen, cv2.LINE_AA)


def _circle(im: Image, x: float, y: float, w: float, h: float, level: float, pen: int) -> None:
    middle, r = (int(x + w / 2), int(y + h / 2)), int(0.56 * max(w, h))
    cv2.circle(im, middle, r, level, pen, cv2.LINE_AA)


def _brackets(im: Image, x: float, y: float, w: float, h: float, level: float, pen: int) -> None:
    for side, way in ((x, 1), (x + w, -1)):
        points = [
            (side + way * 0.15 * w, y),
            (side, y),
            (side, y + h),
            (side + way * 0.15 * w, y + h),
        ]
        cv2.polylines(im, [np.array(points, np.int32)], False, level, pen, cv2.LINE_AA)


def _underscore(im: Image, x: float, y: float, w: float, h: float, level: float, pen: int) -> None:
    cv2.line(
        im,
        (int(x + 0.08 * w), int(y + h)),
        (int(x + 0.92 * w), int(y + h)),
        level,
        pen,
        cv2.LINE_AA,
    )


def _ticks(im: Image, x: float, y: float, w: float, h: float, level: float, pen: int) -> None:
    for side in (x, x + w):
        cv2.line(im, (int(side), int(y)), (int(side), int(y + 0.18 * h)), level, pen)
        cv2.line(im, (int(side), int(y + 0.82 * h)), (int(side), int(y + h)), level, pen)
    cv2.line(im, (int(x), int(y)), (int(x + w), int(y)), level, pen)
    cv2.line(im, (int(x), int(y + h)), (int(x + w), int(y + h)), level, pen)


def _double(im: Image, x: float, y: float, w: float, h: float, level: float, pen: int) -> None:
    for off in (0, 2 * pen + 1):
        cv2.rectangle(
            im, (int(x - off), int(y - off)), (int(x + w + off), int(y + h + off)), level, pen
        )


def _shaded(im: Image, x: float, y: float, w: float, h: float, level: float, pen: int) -> None:
    a, b = (int(x), int(y)), (int(x + w), int(y + h))
    cv2.rectangle(im, (a[0] - 4, a[1] - 4), (b[0] + 4, b[1] + 4), 190.0, -1)
    cv2.rectangle(im, a, b, 245.0, -1)


def _heavy(im: Image, x: float, y: float, w: float, h: float, level: float, pen: int) -> None:
    cv2.rectangle(im, (int(x), int(y)), (int(x + w), int(y + h)), level, pen)
    cv2.line(im, (int(x), int(y + h)), (int(x + w), int(y + h)), level, 3 * pen)


def _captioned(im: Image, x: float, y: float, w: float, h: float, level: float, pen: int) -> None:
    from PIL import Image as Picture
    from PIL import ImageDraw, ImageFont

    cv2.rectangle(im, (int(x), int(y)), (int(x + w), int(y + h)), level, pen)
    sheet = Picture.new("L", (max(8, int(w)), 12), 0)
    ImageDraw.Draw(sheet).text(
        (1, 0), "dmyhk"[int(x) % 5] * 2, fill=255, font=ImageFont.load_default(10)
    )
    cover = np.asarray(sheet, np.float32) / 255
    top, left = max(0, int(y) - 13), max(0, int(x))
    place = im[top : top + 12, left : left + cover.shape[1]]
    part = cover[: place.shape[0], : place.shape[1]]
    place += (60 - place) * part


def _corners(im: Image, x: float, y: float, w: float, h: float, level: float, pen: int) -> None:
    for cx, sx in ((x, 1), (x + w, -1)):
        for cy, sy in ((y, 1), (y + h, -1)):
            points = [(cx + sx * 0.22 * w, cy), (cx, cy), (cx, cy + sy * 0.22 * h)]
            cv2.polylines(im, [np.array(points, np.int32)], False, level, pen, cv2.LINE_AA)


def _dots(im: Image, x: float, y: float, w: float, h: float, level: float, pen: int) -> None:
    for t in np.linspace(0, 1, 10):
        for px, py in ((x + t * w, y), (x + t * w, y + h), (x, y + t * h), (x + w, y + t * h)):
            cv2.circle(im, (int(px), int(py)), pen, level, -1, cv2.LINE_AA)


def _slanted(im: Image, x: float, y: float, w: float, h: float, level: float, pen: int) -> None:
    lean = 0.18 * h
    points = [(x + lean, y), (x + w + lean, y), (x + w - lean, y + h), (x - lean, y + h)]
    cv2.polylines(im, [np.array(points, np.int32)], True, level, pen, cv2.LINE_AA)


CELLS: dict[str, Cell] = {
    "rounded": _round_box, "circles": _circle, "brackets": _brackets, "underscores": _underscore,
    "ticks": _ticks, "double": _double, "shaded": _shaded, "heavy": _heavy, "captioned": _captioned,
    "corners": _corners, "dots": _dots, "slanted": _slanted,
}  # fmt: skip
"""The layouts of cells by name."""


def make_form(
    layout: str, digits: NDArray[np.uint8], labels: NDArray[np.integer], rng: Rng
) -> tuple[NDArray[np.uint8], str, NDArray[np.float32]]:
    """Make one form.

    Parameters
    ----------
    layout : str
        A key of `CELLS`.
    digits, labels : ndarray
        Digits (N, 28, 28) to write with, and what they are.
    rng : numpy Generator

    Returns
    -------
    ndarray of uint8, shape (H, W)
        The photograph, grey.
    str
        Its digits in reading order, lines joined by newlines.
    ndarray of float32, shape (M, 5)
        Label, middle, width and height of each digit.
    """
    form = Form(np.full((720, 960), rng.uniform(190, 245), np.float32))
    high = rng.uniform(30, 80)
    cell_high, cell_wide = high * rng.uniform(1.15, 1.6), high * rng.uniform(0.9, 1.3)
    level, pen = rng.uniform(20, 170), int(rng.integers(1, 4))
    gap = 0.0 if layout in ("ticks", "heavy") else rng.uniform(0.12, 0.45) * cell_wide
    if layout == "circles":
        gap = 0.35 * cell_wide + 0.2 * cell_high
    thick, ink = rng.uniform(0.05, 0.13), rng.uniform(10, 90)
    y = rng.uniform(40, 90)
    while y + cell_high < 690 and len(form.lines) < 5:
        x, text = rng.uniform(40, 120), ""
        for _ in range(int(rng.integers(4, 11))):
            if x + cell_wide > 930:
                break
            CELLS[layout](form.image, x, y, cell_wide, cell_high, level, pen)
            if rng.random() < 0.85:
                text += str(
                    _write(form, digits, labels, x, y, cell_wide, cell_high, high, thick, ink, rng)
                )
            x += cell_wide + gap
        if text:
            form.lines.append(text)
        y += cell_high * rng.uniform(1.5, 2.2)
    marks = [(label, x + w / 2, y + h / 2, w, h) for label, x, y, w, h in form.boxes]
    return (
        photographed(form.image, rng),
        "\n".join(form.lines),
        np.array(marks, np.float32).reshape(-1, 5),
    )


def _write(
    form: Form, digits: NDArray[np.uint8], labels: NDArray[np.integer], x: float, y: float,
    wide: float, tall: float, high: float, pen: float, ink: float, rng: Rng,
) -> int:  # fmt: skip
    pick = int(rng.integers(len(digits)))
    cover = write_digit(digits[pick], high * rng.uniform(0.9, 1.08), pen)
    h, w = cover.shape
    left = int(x + (wide - w) / 2 + rng.normal(0, 0.05) * wide)
    top = int(y + (tall - h) / 2 + rng.normal(0, 0.05) * tall)
    place = form.image[max(top, 0) : top + h, max(left, 0) : left + w]
    part = cover[: place.shape[0], : place.shape[1]]
    place += (np.float32(ink) - place) * part
    form.boxes.append((int(labels[pick]), left, top, w, h))
    return int(labels[pick])


def photographed(image: Image, rng: Rng) -> NDArray[np.uint8]:
    """Light that falls off, a little blur, noise and JPEG."""
    high, wide = image.shape
    fall = 1 - rng.uniform(0, 0.25) * np.linspace(0, 1, wide, dtype=np.float32)[None]
    soft = cv2.GaussianBlur(image * fall, (0, 0), rng.uniform(0.5, 1.1))
    noisy = np.clip(soft + rng.normal(0, rng.uniform(1, 4), (high, wide)), 0, 255).astype(np.uint8)
    _, file = cv2.imencode(".jpg", noisy, [cv2.IMWRITE_JPEG_QUALITY, int(rng.integers(60, 95))])
    return np.asarray(cv2.imdecode(file, cv2.IMREAD_GRAYSCALE), np.uint8)
