"""Made documents: forms, tables, receipts and notes with printed words and handwritten numbers."""

import io
import time
from dataclasses import dataclass

import cv2
import numpy as np
from PIL import Image as Picture
from PIL import ImageDraw, ImageFont

from experiments.reading.made import CELLS, Digits, Labels, Sheet, write_sign
from neocog.learning.pages.page import Image, Rng
from neocog.learning.pages.pen import write_digit

KINDS = ("form", "table", "receipt", "note")
"""Scanned forms and tables are PDF, receipts JPEG, notes HEIC photographs."""

_LABELS = "Name Date Number Customer Account Total Phone Order Item Amount Price Signed".split()
_GOODS = "Bread Milk Tea Coffee Apples Rice Soap Paper Eggs Cheese Pens Water".split()
_DATES = "##.##.#### ##/##/#### ##-##-#### ####-##-##".split()


@dataclass(frozen=True, slots=True)
class Document:
    """The bytes of a file, and what is written: lines of cells, ``""`` where one is empty."""

    data: bytes
    rows: list[list[str]]


@dataclass
class Writer:
    """One hand on one sheet: height of the digits, pen, ink."""

    sheet: Sheet
    digits: Digits
    labels: Labels
    rng: Rng
    high: float
    pen: float
    ink: float

    def write(self, pattern: str, x: float, y: float, *, right: bool = False) -> str:
        """Write a number from (or, with ``right``, up to) x; # is any digit. Return it."""
        covers, text = [], ""
        for char in pattern:
            if char == "#":
                pick = int(self.rng.integers(len(self.digits)))
                char = str(int(self.labels[pick]))
                high = self.high * self.rng.uniform(0.92, 1.08)
                cover = write_digit(self.digits[pick], high, self.pen)
                rise = (self.high - cover.shape[0]) / 2
            else:
                cover, rise = write_sign(char, self.high, self.pen, self.rng)
            covers.append((cover, rise, self.high * self.rng.uniform(0.08, 0.3)))
            text += char
        x -= right * sum(cover.shape[1] + gap for cover, _, gap in covers)
        for cover, rise, gap in covers:
            top = y + rise + self.rng.normal(0, 0.03) * self.high
            self.sheet.lay(cover, int(x), max(0, int(top)), self.ink)
            x += cover.shape[1] + gap
        return text

    def print(self, words: str, x: float, y: float, size: float) -> None:
        """Print words."""
        font = ImageFont.load_default(size)
        cover = Picture.new("L", (max(1, int(font.getlength(words)) + 4), int(1.5 * size)), 0)
        ImageDraw.Draw(cover).text((1, 0), words, fill=255, font=font)
        self.sheet.lay(np.asarray(cover, np.float32) / np.float32(255), int(x), int(y), self.ink)

    def line(self, *points: tuple[float, float], level: float = 120.0) -> None:
        """Rule a line."""
        cv2.polylines(self.sheet.image, [np.array(points, np.int32)], False, level, 2, cv2.LINE_AA)


def form(w: Writer) -> list[list[str]]:
    """Labels, and behind each a number in cells or on a line."""
    rows, y, kinds = [], 160.0, list(CELLS)
    w.print("Application", 120, 60, 48)
    for label in w.rng.permutation(_LABELS)[:8]:
        w.print(label, 100, y + 8, 30)
        if w.rng.random() < 0.5:
            kind, wide = kinds[int(w.rng.integers(len(kinds)))], 1.25 * w.high
            text = ""
            for k in range(int(w.rng.integers(4, 10))):
                x = 380 + k * 1.3 * wide
                CELLS[kind](w.sheet.image, x, y - 8, wide, 1.35 * w.high, 130.0, 2)
                text += w.write("#", x + 0.3 * wide, y)
        else:
            w.line((380, y + 1.25 * w.high), (1100, y + 1.25 * w.high))
            pattern = str(w.rng.choice([*_DATES, "######", "####,##"]))
            text = w.write(pattern, 390 + w.rng.uniform(0, 60), y)
        rows.append([text])
        y += 2.4 * w.high + w.rng.uniform(20, 60)
    return rows


def table(w: Writer) -> list[list[str]]:
    """A ruled table; one cell in eight is empty."""
    count, lines = int(w.rng.integers(3, 6)), int(w.rng.integers(6, 13))
    wide, tall, left, top = 1060 / count, 1.9 * w.high, 90.0, 220.0
    ruled = w.rng.random() < 0.7
    for k in range(count + 1):
        if ruled:
            w.line((left + k * wide, top), (left + k * wide, top + (lines + 1) * tall))
        if k < count:
            w.print(_LABELS[int(w.rng.integers(12))], left + k * wide + 20, top + 0.3 * tall, 28)
    # who fills a table in writes within its cells: a digit takes about 0.9 of its height
    some = [p for p in ("##", "###", "####", "##,##", "###.##") if len(p) * 0.9 * w.high < wide - 60]
    patterns = [str(w.rng.choice(some)) for _ in range(count)]
    rows = []
    for n in range(1, lines + 1):
        y, row = top + n * tall, []
        w.line((left, y), (left + count * wide, y))
        for k, pattern in enumerate(patterns):
            if w.rng.random() < 0.125:
                row.append("")
                continue
            right = left + (k + 1) * wide - w.rng.uniform(15, 45)
            row.append(w.write(pattern, right, y + 0.4 * tall, right=True))
        if any(row):
            rows.append(row)
    w.line((left, top + (lines + 1) * tall), (left + count * wide, top + (lines + 1) * tall))
    return rows


def receipt(w: Writer) -> list[list[str]]:
    """Goods in print, how many and how much by hand."""
    w.print("Market Street Shop", 60, 40, 40)
    rows, y = [], 150.0
    for goods in w.rng.permutation(_GOODS)[: int(w.rng.integers(4, 9))]:
        w.print(goods, 50, y + 4, 30)
        some = w.write("#" * int(w.rng.integers(1, 3)), 330, y)
        price = w.write(str(w.rng.choice(["#,##", "##,##"])), 680, y, right=True)
        rows.append([some, price])
        y += 1.9 * w.high
    w.line((50, y), (680, y))
    w.print("Total", 50, y + 24, 34)
    rows.append(["", w.write("##,##", 680, y + 20, right=True)])
    return rows


def note(w: Writer) -> list[list[str]]:
    """Numbers on plain or ruled paper."""
    rows, y = [], 140.0
    ruled = w.rng.random() < 0.5
    for _ in range(int(w.rng.integers(4, 9))):
        if ruled:
            w.line((0, y + 1.1 * w.high), (1240, y + 1.1 * w.high), level=185.0)
        pattern = str(w.rng.choice(["######", "########", "####", "##.##.####", "###-####"]))
        rows.append([w.write(pattern, w.rng.uniform(90, 240), y)])
        y += w.rng.uniform(1.7, 2.4) * w.high
    return rows


def make(kind: str, digits: Digits, labels: Labels, rng: Rng) -> Document:
    """Make a document of a kind, one of `KINDS`, written with digits (N, 28, 28)."""
    size = {"form": (1240, 1654), "table": (1240, 1654), "receipt": (740, 1240)}
    wide, high = size.get(kind, (1240, 1240))
    sheet = Sheet(np.full((high, wide), rng.uniform(215, 250), np.float32))
    digit = rng.uniform(60, 80) if kind == "note" else rng.uniform(36, 50)
    writer = Writer(sheet, digits, labels, rng, digit, rng.uniform(0.06, 0.11), rng.uniform(10, 80))
    rows = {"form": form, "table": table, "receipt": receipt, "note": note}[kind](writer)
    return Document(_file(kind, sheet.image, rng), rows)


def _file(kind: str, image: Image, rng: Rng) -> bytes:
    high, wide = image.shape
    corners = np.array([(0, 0), (wide, 0), (wide, high), (0, high)], np.float32)
    slant = np.float32(np.tan(np.radians(rng.normal(0, 0.8))))
    moved = corners + corners[:, ::-1] * (slant, -slant)
    if kind in ("note", "receipt"):  # by hand, on a desk
        moved = 0.9 * moved + 0.05 * np.array([wide, high]) + rng.normal(0, 0.012 * wide, (4, 2))
    warp = cv2.getPerspectiveTransform(corners, moved.astype(np.float32))
    desk = float(image[0, 0]) if kind in ("form", "table") else rng.uniform(60, 130)
    image = cv2.warpPerspective(image, warp, (wide, high), borderValue=desk).astype(np.float32)
    if kind in ("note", "receipt"):
        image *= 1 - rng.uniform(0, 0.3) * np.linspace(0, 1, wide, dtype=np.float32)[None]
    soft = cv2.GaussianBlur(image, (0, 0), rng.uniform(0.5, 1.0))
    noisy = np.clip(soft + rng.normal(0, rng.uniform(1, 4), soft.shape), 0, 255).astype(np.uint8)
    picture, stream = Picture.fromarray(noisy).convert("RGB"), io.BytesIO()
    if kind == "note":
        import pillow_heif

        pillow_heif.register_heif_opener()
        picture.save(stream, "HEIF", quality=70)
    elif kind == "receipt":
        picture.save(stream, "JPEG", quality=75)
    else:
        made = time.gmtime(0)  # the same bytes each time
        picture.save(stream, "PDF", resolution=150, creationDate=made, modDate=made)
    return stream.getvalue()
