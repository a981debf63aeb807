"""Made pages for measuring alone: forms, dates and amounts, words.

No page that the finder learns from has one of these outlines, formats or typefaces, and they are
written with digits that it did not learn from.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image as Picture
from PIL import ImageDraw, ImageFont

from neocog.errors import InputError
from neocog.learning.pages.conditions import FACES
from neocog.learning.pages.drawn import WORDS
from neocog.learning.pages.page import Image, Rng
from neocog.learning.pages.pen import write_digit

Digits = NDArray[np.uint8]
Labels = NDArray[np.integer]
#: Grey photograph (H, W); what is written; label (10 and more: a sign), middle, width and height of
#: each mark, (M, 5).
Made = tuple[NDArray[np.uint8], str, NDArray[np.float32]]
#: Draws a cell: image, left, top, width, height, grey level, width of its lines.
Cell = Callable[[Image, float, float, float, float, float, int], None]


@dataclass
class Sheet:
    """A page while it is written: grey (H, W), what is written, and (label, box) of each mark."""

    image: Image
    lines: list[str] = field(default_factory=list)
    boxes: list[tuple[int, float, float, float, float]] = field(default_factory=list)

    def made(self, rng: Rng) -> Made:
        """Return the photograph, the text and the marks."""
        marks = [(label, x + w / 2, y + h / 2, w, h) for label, x, y, w, h in self.boxes]
        rows = np.array(marks, np.float32).reshape(-1, 5)
        return photographed(self.image, rng), "\n".join(self.lines), rows

    def lay(self, cover: Image, left: int, top: int, ink: float) -> bool:
        """Lay ink over the page, cut at its edge; False where it was cut."""
        h, w = cover.shape
        place = self.image[max(top, 0) : top + h, max(left, 0) : left + w]
        place += (np.float32(ink) - place) * cover[: place.shape[0], : place.shape[1]]
        return place.shape == cover.shape


def photographed(image: Image, rng: Rng) -> NDArray[np.uint8]:
    """Light that falls off, a little blur, noise and JPEG."""
    high, wide = image.shape
    fall = 1 - rng.uniform(0, 0.25) * np.linspace(0, 1, wide, dtype=np.float32)[None]
    soft = cv2.GaussianBlur(image * fall, (0, 0), rng.uniform(0.5, 1.1))
    noisy = np.clip(soft + rng.normal(0, rng.uniform(1, 4), (high, wide)), 0, 255).astype(np.uint8)
    _, file = cv2.imencode(".jpg", noisy, [cv2.IMWRITE_JPEG_QUALITY, int(rng.integers(60, 95))])
    return np.asarray(cv2.imdecode(file, cv2.IMREAD_GRAYSCALE), np.uint8)


# --- forms: digits in cells of twelve layouts -----------------------------------------------------


def _line(im: Image, points: list[tuple[float, float]], level: float, pen: int,
          kind: int = cv2.LINE_8) -> None:  # fmt: skip
    cv2.polylines(im, [np.array(points, np.int32)], False, level, pen, kind)


def _box(im: Image, x: float, y: float, w: float, h: float, level: float, pen: int) -> None:
    cv2.rectangle(im, (int(x), int(y)), (int(x + w), int(y + h)), level, pen)


def _rounded(im: Image, x: float, y: float, w: float, h: float, level: float, pen: int) -> None:
    k, (a, b, c, d) = int(0.2 * min(w, h)), (int(x), int(y), int(x + w), int(y + h))
    for p, q in (((a + k, b), (c - k, b)), ((a + k, d), (c - k, d)),
                 ((a, b + k), (a, d - k)), ((c, b + k), (c, d - k))):  # fmt: skip
        cv2.line(im, p, q, level, pen, cv2.LINE_AA)
    for middle, turn in (((a + k, b + k), 180), ((c - k, b + k), 270),
                         ((c - k, d - k), 0), ((a + k, d - k), 90)):  # fmt: skip
        cv2.ellipse(im, middle, (k, k), turn, 0, 90, level, pen, cv2.LINE_AA)


def _circle(im: Image, x: float, y: float, w: float, h: float, level: float, pen: int) -> None:
    middle, r = (int(x + w / 2), int(y + h / 2)), int(0.56 * max(w, h))
    cv2.circle(im, middle, r, level, pen, cv2.LINE_AA)


def _brackets(im: Image, x: float, y: float, w: float, h: float, level: float, pen: int) -> None:
    for side, way in ((x, 0.15 * w), (x + w, -0.15 * w)):
        points = [(side + way, y), (side, y), (side, y + h), (side + way, y + h)]
        _line(im, points, level, pen, cv2.LINE_AA)


def _underscore(im: Image, x: float, y: float, w: float, h: float, level: float, pen: int) -> None:
    _line(im, [(x + 0.08 * w, y + h), (x + 0.92 * w, y + h)], level, pen, cv2.LINE_AA)


def _ticks(im: Image, x: float, y: float, w: float, h: float, level: float, pen: int) -> None:
    for side in (x, x + w):
        _line(im, [(side, y), (side, y + 0.18 * h)], level, pen)
        _line(im, [(side, y + 0.82 * h), (side, y + h)], level, pen)
    for row in (y, y + h):
        _line(im, [(x, row), (x + w, row)], level, pen)


def _double(im: Image, x: float, y: float, w: float, h: float, level: float, pen: int) -> None:
    for off in (0, 2 * pen + 1):
        low, high = (int(x - off), int(y - off)), (int(x + w + off), int(y + h + off))
        cv2.rectangle(im, low, high, level, pen)


def _shaded(im: Image, x: float, y: float, w: float, h: float, level: float, pen: int) -> None:
    a, b = (int(x), int(y)), (int(x + w), int(y + h))
    cv2.rectangle(im, (a[0] - 4, a[1] - 4), (b[0] + 4, b[1] + 4), 190.0, -1)
    cv2.rectangle(im, a, b, 245.0, -1)


def _heavy(im: Image, x: float, y: float, w: float, h: float, level: float, pen: int) -> None:
    _box(im, x, y, w, h, level, pen)
    _line(im, [(x, y + h), (x + w, y + h)], level, 3 * pen)


def _captioned(im: Image, x: float, y: float, w: float, h: float, level: float, pen: int) -> None:
    _box(im, x, y, w, h, level, pen)
    sheet, words = Picture.new("L", (max(8, int(w)), 12), 0), "dmyhk"[int(x) % 5] * 2
    ImageDraw.Draw(sheet).text((1, 0), words, fill=255, font=ImageFont.load_default(10))
    cover = np.asarray(sheet, np.float32) / 255
    top, left = max(0, int(y) - 13), max(0, int(x))
    Sheet(im).lay(cover, left, top, 60)


def _corners(im: Image, x: float, y: float, w: float, h: float, level: float, pen: int) -> None:
    for cx, across in ((x, 0.22 * w), (x + w, -0.22 * w)):
        for cy, down in ((y, 0.22 * h), (y + h, -0.22 * h)):
            _line(im, [(cx + across, cy), (cx, cy), (cx, cy + down)], level, pen, cv2.LINE_AA)


def _dots(im: Image, x: float, y: float, w: float, h: float, level: float, pen: int) -> None:
    for t in np.linspace(0, 1, 10):
        for px, py in ((x + t * w, y), (x + t * w, y + h), (x, y + t * h), (x + w, y + t * h)):
            cv2.circle(im, (int(px), int(py)), pen, level, -1, cv2.LINE_AA)


def _slanted(im: Image, x: float, y: float, w: float, h: float, level: float, pen: int) -> None:
    lean = 0.18 * h
    points = [(x + lean, y), (x + w + lean, y), (x + w - lean, y + h), (x - lean, y + h)]
    cv2.polylines(im, [np.array(points, np.int32)], True, level, pen, cv2.LINE_AA)


CELLS: dict[str, Cell] = {
    "rounded": _rounded, "circles": _circle, "brackets": _brackets, "underscores": _underscore,
    "ticks": _ticks, "double": _double, "shaded": _shaded, "heavy": _heavy, "captioned": _captioned,
    "corners": _corners, "dots": _dots, "slanted": _slanted,
}  # fmt: skip
"""The layouts of cells by name."""


def make_form(layout: str, digits: Digits, labels: Labels, rng: Rng) -> Made:
    """Make a form with cells of a layout, a key of `CELLS`, written with digits (N, 28, 28)."""
    sheet = Sheet(np.full((720, 960), rng.uniform(190, 245), np.float32))
    high = rng.uniform(30, 80)
    tall, wide = high * rng.uniform(1.15, 1.6), high * rng.uniform(0.9, 1.3)
    level, line = rng.uniform(20, 170), int(rng.integers(1, 4))
    gap = 0.0 if layout in ("ticks", "heavy") else rng.uniform(0.12, 0.45) * wide
    if layout == "circles":
        gap = 0.35 * wide + 0.2 * tall
    pen, ink = rng.uniform(0.05, 0.13), rng.uniform(10, 90)
    y = rng.uniform(40, 90)
    while y + tall < 690 and len(sheet.lines) < 5:
        x, text = rng.uniform(40, 120), ""
        for _ in range(int(rng.integers(4, 11))):
            if x + wide > 930:
                break
            CELLS[layout](sheet.image, x, y, wide, tall, level, line)
            if rng.random() < 0.85:
                pick = int(rng.integers(len(digits)))
                cover = write_digit(digits[pick], high * rng.uniform(0.9, 1.08), pen)
                h, w = cover.shape
                left = int(x + (wide - w) / 2 + rng.normal(0, 0.05) * wide)
                top = int(y + (tall - h) / 2 + rng.normal(0, 0.05) * tall)
                sheet.lay(cover, left, top, ink)
                sheet.boxes.append((int(labels[pick]), left, top, w, h))
                text += str(int(labels[pick]))
            x += wide + gap
        if text:
            sheet.lines.append(text)
        y += tall * rng.uniform(1.5, 2.2)
    return sheet.made(rng)


# --- dates, amounts and times: digits with signs between them -------------------------------------

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


def make_amounts(kind: str, digits: Digits, labels: Labels, rng: Rng) -> Made:
    """Make a page of a kind, a key of `FORMATS`, written with digits (N, 28, 28)."""
    sheet = Sheet(np.full((480, 720), rng.uniform(175, 245), np.float32))
    high, pen, ink = rng.uniform(28, 80), rng.uniform(0.05, 0.13), rng.uniform(10, 90)
    if rng.random() < 0.4:
        for row in np.arange(rng.uniform(0, 40), 480, rng.uniform(30, 70)):
            level = float(sheet.image[0, 0]) - rng.uniform(15, 50)
            _line(sheet.image, [(0, row), (720, row)], level, int(rng.integers(1, 3)))
    formats, y, slope = FORMATS[kind].split(), rng.uniform(30, 70), rng.normal(0, 0.02)
    for _ in range(int(rng.integers(1, 5))):
        if y + 1.4 * high > 480:
            break
        pattern = str(rng.choice(formats))
        _write_amount(sheet, pattern, y, slope, (high, pen, ink), digits, labels, rng)
        y += high * rng.uniform(1.7, 2.6)
    return sheet.made(rng)


def _write_amount(
    sheet: Sheet, pattern: str, y: float, slope: float, hand: tuple[float, float, float],
    digits: Digits, labels: Labels, rng: Rng,
) -> None:  # fmt: skip
    high, pen, ink = hand
    x, text = rng.uniform(20, 120), ""
    for char in pattern:
        if char == "#":
            pick = int(rng.integers(len(digits)))
            label, char = int(labels[pick]), str(labels[pick])
            cover = write_digit(digits[pick], high * rng.uniform(0.92, 1.08), pen)
            rise = (high - cover.shape[0]) / 2
        else:
            label = 10 + list(_STROKES).index(char)
            cover, rise = write_sign(char, high, pen, rng)
        top = max(0, int(y + slope * x + rise + rng.normal(0, 0.03) * high))
        left, (tall, wide) = int(x), cover.shape
        if left + wide > sheet.image.shape[1] or top + tall > sheet.image.shape[0]:
            break  # the sheet ends
        sheet.lay(cover, left, top, ink)
        sheet.boxes.append((label, left, top, wide, tall))
        text += char
        x += wide + high * rng.uniform(0.08, 0.35)
    sheet.lines.append(text)


def write_sign(char: str, high: float, pen: float, rng: Rng) -> tuple[Image, float]:
    """Cover of a sign, cropped, and how far its top lies below the top of the digits."""
    sheet, fine = np.zeros((240, 160), np.uint8), 100.0
    wide = pen * fine
    for stroke in _STROKES[char].split(";"):
        known = np.array([point.split(",") for point in stroke.split()], np.float64)
        at = (known + rng.normal(0, 0.025, known.shape)) * fine + (40, 60)
        if len(at) == 1:
            middle = at[0].round().astype(int).tolist()
            cv2.circle(sheet, middle, max(2, round(wide * _DOT / 2)), 255, -1, cv2.LINE_AA)
        cv2.polylines(sheet, [at.astype(np.int32)], False, 255, max(2, round(wide)), cv2.LINE_AA)
    size = (max(2, round(160 * high / fine)), max(2, round(240 * high / fine)))
    method = cv2.INTER_AREA if high < fine else cv2.INTER_CUBIC
    cover = np.asarray(cv2.resize(sheet, size, interpolation=method)).astype(np.float32)
    cover /= np.float32(255)
    rows, columns = np.flatnonzero(cover.max(1) > 0.2), np.flatnonzero(cover.max(0) > 0.2)
    cut = cover[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return cut, float(rows[0]) - 60 * high / fine


# --- words: letters that are no digits, by hand and printed ---------------------------------------


def faces(folder: Path) -> dict[str, list[Path]]:
    """Files of `FACES` in a folder, by kind; kinds without any are left out."""
    files = {file.stem: file for file in sorted(folder.glob("*.[to]tf"))}
    found = {kind: [files[name] for name in names.split() if name in files]
             for kind, names in FACES.items()}  # fmt: skip
    return {kind: some for kind, some in found.items() if some}


def make_letters(face: Path, rng: Rng) -> tuple[NDArray[np.uint8], str]:
    """Make a page of words in a typeface, each a little off its line: photograph and text.

    Raises
    ------
    InputError
        If the typeface cannot be read.
    """
    size = int(rng.integers(24, 80))
    try:
        font = ImageFont.truetype(BytesIO(face.read_bytes()), size)
    except OSError:
        raise InputError(f"{face} cannot be read as a font") from None
    sheet = Picture.new("L", (960, 720), 0)
    draw, words, y = ImageDraw.Draw(sheet), list[str](), rng.uniform(20, 60)
    while y + 1.3 * size < 720 and sum(map(len, words)) < 50:
        x = rng.uniform(20, 100)
        while True:
            word = str(rng.choice(WORDS))
            case = rng.random()
            word = word.upper() if case > 0.85 else word.capitalize() if case > 0.6 else word
            wide = float(font.getlength(word))
            if len(word) < 2 or x + wide > 930:
                break
            draw.text((x, y + rng.normal(0, 0.04 * size)), word, fill=255, font=font)
            words.append(word)
            x += wide + size * rng.uniform(0.3, 0.7)
        y += size * rng.uniform(1.3, 1.9)
    cover = np.asarray(sheet, np.float32) / 255
    if rng.random() < 0.5:  # the line of a broader pen
        cover = np.asarray(cv2.dilate(cover, np.ones((2, 2), np.uint8)), np.float32)
    paper = rng.uniform(175, 245)
    image = paper + (rng.uniform(10, 90) - paper) * cover
    return photographed(image.astype(np.float32), rng), " ".join(words)
