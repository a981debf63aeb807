"""Made pages of dates, amounts and times for measuring: digits with signs between them."""

import cv2
import numpy as np
from numpy.typing import NDArray

from neocog.learning.pages.forms import Form, photographed
from neocog.learning.pages.pen import write_digit

Rng = np.random.Generator
Image = NDArray[np.float32]

FORMATS = {
    "dates": "#/##/## ##/#/#### #.#.#### ##.#.## ####/##/## ####.##.## #-##-#### ##-##-####",
    "amounts": "##.###,## #.###.###,## #,###.## -#,### +###,# ####,## ###.## =##,## #,##- -###",
    "times": "#:## #:##:## ##:##-##:## ##:##+# ##:##,#",
}
"""What is written on a page of each kind; # is a digit. No training page has one of them."""

# x, y from the top of the digits (0) to their line (1); strokes parted by semicolons
_STROKES = {
    "/": "0.52,-0.1 0.3,0.45 0.0,1.12", "-": "0.02,0.56 0.2,0.52 0.38,0.55", ".": "0.05,0.97",
    ",": "0.08,0.94 0.09,1.04 0.0,1.2", ":": "0.05,0.36;0.05,0.84",
    "+": "0.0,0.56 0.46,0.53;0.22,0.3 0.24,0.8", "=": "0.0,0.44 0.42,0.41;0.03,0.66 0.44,0.64",
}  # fmt: skip
_DOT = 1.6  # width of a dot, in widths of the pen


def make_amounts(
    kind: str, digits: NDArray[np.uint8], labels: NDArray[np.integer], rng: Rng
) -> tuple[NDArray[np.uint8], str, NDArray[np.float32]]:
    """Make one page.

    Parameters
    ----------
    kind : str
        A key of `FORMATS`.
    digits, labels : ndarray
        Digits (N, 28, 28) to write with, and what they are.
    rng : numpy Generator

    Returns
    -------
    ndarray of uint8, shape (H, W)
        The photograph, grey.
    str
        What is written, signs included, lines joined by newlines.
    ndarray of float32, shape (M, 5)
        Label (10 and more: a sign), middle, width and height of each mark.
    """
    form = Form(np.full((480, 720), rng.uniform(175, 245), np.float32))
    high, pen, ink = rng.uniform(28, 80), rng.uniform(0.05, 0.13), rng.uniform(10, 90)
    if rng.random() < 0.4:
        for row in np.arange(rng.uniform(0, 40), 480, rng.uniform(30, 70)):
            level = float(form.image[0, 0]) - rng.uniform(15, 50)
            cv2.line(form.image, (0, int(row)), (720, int(row)), level, int(rng.integers(1, 3)))
    formats, y, slope = FORMATS[kind].split(), rng.uniform(30, 70), rng.normal(0, 0.02)
    for _ in range(int(rng.integers(1, 5))):
        if y + 1.4 * high > 480:
            break
        _write_line(form, str(rng.choice(formats)), y, slope, (high, pen, ink), digits, labels, rng)
        y += high * rng.uniform(1.7, 2.6)
    marks = [(label, x + w / 2, top + h / 2, w, h) for label, x, top, w, h in form.boxes]
    return (
        photographed(form.image, rng),
        "\n".join(form.lines),
        np.array(marks, np.float32).reshape(-1, 5),
    )


def _write_line(
    form: Form, pattern: str, y: float, slope: float, hand: tuple[float, float, float],
    digits: NDArray[np.uint8], labels: NDArray[np.integer], rng: Rng,
) -> None:  # fmt: skip
    high, pen, ink = hand
    x, text = rng.uniform(20, 120), ""
    for char in pattern:
        if char == "#":
            pick = int(rng.integers(len(digits)))
            label, text = int(labels[pick]), text + str(labels[pick])
            cover = write_digit(digits[pick], high * rng.uniform(0.92, 1.08), pen)
            rise = (high - cover.shape[0]) / 2
        else:
            label, text = 10 + list(_STROKES).index(char), text + char
            cover, rise = _sign(char, high, pen, rng)
        top = y + slope * x + rise + rng.normal(0, 0.03) * high
        left, top, (tall, wide) = int(x), max(0, int(top)), cover.shape
        place = form.image[top : top + tall, left : left + wide]
        if place.shape != cover.shape:
            break  # the sheet ends
        place[:] += (np.float32(ink) - place) * cover
        form.boxes.append((label, left, top, wide, tall))
        x += wide + high * rng.uniform(0.08, 0.35)
    form.lines.append(text[: len(form.boxes) - sum(map(len, form.lines))])


def _sign(char: str, high: float, pen: float, rng: Rng) -> tuple[Image, float]:
    """Cover of a sign, cropped, and how far its top lies below the top of the digits."""
    field, fine = np.zeros((240, 160), np.uint8), 100.0
    wide = pen * fine
    for stroke in _STROKES[char].split(";"):
        known = np.array([point.split(",") for point in stroke.split()], np.float64)
        at = (known + rng.normal(0, 0.025, known.shape)) * fine + (40, 60)
        if len(at) == 1:
            middle = at[0].round().astype(int).tolist()
            cv2.circle(field, middle, max(2, round(wide * _DOT / 2)), 255, -1, cv2.LINE_AA)
        cv2.polylines(field, [at.astype(np.int32)], False, 255, max(2, round(wide)), cv2.LINE_AA)
    size = (max(2, round(160 * high / fine)), max(2, round(240 * high / fine)))
    method = cv2.INTER_AREA if high < fine else cv2.INTER_CUBIC
    cover = np.asarray(cv2.resize(field, size, interpolation=method)).astype(np.float32)
    cover /= np.float32(255)
    rows, columns = np.flatnonzero(cover.max(1) > 0.2), np.flatnonzero(cover.max(0) > 0.2)
    cut = cover[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return cut, float(rows[0]) - 60 * high / fine
