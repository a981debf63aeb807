"""Draws forms: layouts with printed fields, sheets that hands fill in, scans and photographs of them."""

from dataclasses import dataclass, replace
from typing import Any

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from experiments.sheets.measure import _WORDS as WORDS
from neocog.learning.drawing.hands import Hand, Hands
from neocog.learning.drawing.line import Row
from neocog.learning.drawing.paper import photographed

MM = 200 / 25.4  # pixels of a blank sheet
WIDE, HIGH = round(210 * MM), round(297 * MM)
KINDS = ("box", "box", "comb", "line", "shade")
Rng = np.random.Generator


@dataclass(frozen=True, slots=True)
class Drawn:
    """A layout: its blank sheet, its page of form.json, and the kind of frame and cells of each field."""

    blank: np.ndarray
    fields: list[dict[str, Any]]
    frames: list[tuple[str, int]]


def texts(rng: Rng, valid: list[str]) -> dict[str, str]:
    """What a sheet says: all rules hold."""
    cents = rng.integers(100, 90000, 3)
    first = int(rng.integers(1000, 99990))
    luhn = "".join(map(str, rng.integers(0, 10, 7)))
    odd = [2 * int(c) - 9 * (int(c) > 4) for c in luhn[::-1][::2]]
    luhn += str(-(sum(odd) + sum(map(int, luhn[::-1][1::2]))) % 10)
    said = {"date": f"{rng.integers(1, 29):02d}.{rng.integers(1, 13):02d}.20{rng.integers(10, 40)}"}
    said |= {"meter": str(rng.choice(valid)), "account": luhn}
    said |= {name: f"{c // 100},{c % 100:02d}" for name, c in zip("abc", cents.tolist(), strict=True)}
    said |= {"total": f"{cents.sum() // 100},{cents.sum() % 100:02d}"}
    said |= {f"row {k + 1}": str(first + k) for k in range(3)}
    said |= {"count": str(rng.integers(10 ** int(rng.integers(1, 6)))), "year": str(rng.integers(1900, 2100))}
    said["note"] = "" if rng.random() < 0.6 else str(rng.integers(1000))
    return said


def layout(rng: Rng, valid: list[str], *, worded: Rng | None = None, moved: float = 0.0) -> Drawn:
    """Draw a layout with the fields of `texts`; other editions have other words, or rows ``moved`` by mm."""
    image = Image.new("L", (WIDE, HIGH), 255)
    pen, ink = ImageDraw.Draw(image), int(rng.integers(0, 70))
    size = rng.uniform(2.6, 3.6) * MM
    font, large = ImageFont.load_default(size), ImageFont.load_default(2.2 * size)
    own = np.random.default_rng(rng.integers(2**32))
    worded = worded or own

    def words(count: int) -> str:
        return " ".join(map(str, worded.choice(WORDS, count)))

    pen.text((18 * MM, rng.uniform(10, 20) * MM), words(3).title(), ink, large)
    for k in range(int(rng.integers(1, 4))):
        pen.text((18 * MM, 34 * MM + 1.4 * k * size), words(12), ink, font)
    more: dict[str, dict[str, Any]] = {
        "date": {"pattern": "DD.MM.YYYY"}, "meter": {"valid": valid},
        "account": {"rule": "luhn", "pattern": "#" * 8}, "total": {"rule": "sum of a, b, c"},
        "row 2": {"rule": "increases by one"}, "row 3": {"rule": "increases by one"},
        "year": {"pattern": "####", "required": True},
    }  # fmt: skip
    names = list(texts(rng, valid))
    fields, frames = dict[str, dict[str, Any]](), dict[str, tuple[str, int]]()
    order, step = list(rng.permutation(names)), rng.uniform(21, 27) * MM
    order = sorted(order, key=lambda n: names.index(n) if str(n).startswith("row") else -1)
    shared, high = str(rng.choice(KINDS)), rng.uniform(7.5, 11) * MM
    for k, name in enumerate(map(str, order)):
        x, y = (18 + 95 * (k % 2)) * MM, 62 * MM + (k // 2) * step + rng.uniform(0, 2) * MM
        y += moved * MM if k // 2 >= len(order) // 4 else 0
        kind = shared if rng.random() < 0.6 else str(rng.choice(KINDS))
        cells = {"date": 10, "account": 8, "meter": 6, "year": 4, "count": 5, "note": 3}.get(name, 7)
        kind = "box" if kind == "comb" and name in "date a b c total".split() else kind
        wide = cells * rng.uniform(0.62, 0.8) * high if kind == "comb" else rng.uniform(45, 75) * MM
        label = words(2).capitalize() + ":"
        pen.text((x, y - 1.35 * size), label, ink, font)
        box = (x, y, x + min(wide, 82 * MM), y + high)
        stroke = int(rng.integers(1, 4))
        if kind == "line":
            pen.line((box[0], box[3], box[2], box[3]), ink, stroke)
        else:
            pen.rectangle(box, 225 if kind == "shade" else None, None if kind == "shade" else ink, stroke)
        for c in range(1, cells if kind == "comb" else 1):
            at = box[0] + (box[2] - box[0]) * c / cells
            pen.line((at, box[1] + (0.5 * high if shared == "comb" else 0), at, box[3]), ink, stroke)
        frames[name] = kind, cells
        share = [box[0] / WIDE, box[1] / HIGH, (box[2] - box[0]) / WIDE, high / HIGH]
        fields[name] = {"name": name, "box": [round(v, 5) for v in share], **more.get(name, {})}
    y = 62 * MM + (len(order) + 1) // 2 * step + 4 * MM
    for k in range(int(rng.integers(2, 5))):
        pen.text((18 * MM, y + 1.4 * k * size), words(11), ink, font)
    return Drawn(np.asarray(image), [fields[name] for name in names], [frames[name] for name in names])


def written(hand: Hand, high: float, text: str) -> tuple[np.ndarray, float]:
    """Ink, 0 .. 1, of a text whose digits are so high, and the row of it that they stand on."""
    for _ in range(9):
        row = Row(hand, high)
        if row.write(text, touching=False, twins=False):
            break
    field = row.field()
    rows, columns = np.nonzero(field > 0.2)
    ink = field[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
    return ink, min(row.base - rows.min(), len(ink))


def fitted(ink: tuple[np.ndarray, float], wide: float) -> tuple[np.ndarray, float]:
    """Ink, and the row that it stands on, at most so wide."""
    cover, base = ink
    if (factor := wide / cover.shape[1]) >= 1:
        return ink
    return cv2.resize(cover, None, fx=factor, fy=factor, interpolation=cv2.INTER_AREA), base * factor


def fill(
    drawn: Drawn, said: dict[str, str], hands: Hands, rng: Rng, *, stamp: bool = False, beyond: str = "",
    crossed: str = "",
) -> np.ndarray:  # fmt: skip
    """A sheet, greys (H, W), in one hand; field ``beyond`` crosses its box, ``crossed`` has a digit out."""
    sheet, hand, dark = drawn.blank.astype(np.float32), Hand(hands, rng), rng.uniform(0.55, 0.95)
    hand.segmented = False  # as displays write, with the segments that are off
    hand.pen = replace(hand.pen, hollow=False)  # outlines of digits, and half of them filled

    def lay(cover: np.ndarray, x: float, y: float) -> None:
        left, top = max(0, int(x)), max(0, int(y))
        place = sheet[top : top + len(cover), left : left + cover.shape[1]]
        cover = cover[: len(place), : place.shape[1]]
        np.minimum(place, 255 * (1 - dark * cover), out=place)

    for field, (kind, cells) in zip(drawn.fields, drawn.frames, strict=True):
        text = said[field["name"]]
        x, y, wide, high = (v * s for v, s in zip(field["box"], (WIDE, HIGH) * 2, strict=True))
        tall = high * rng.uniform(0.5, 0.78)
        low = high * rng.uniform(0.06, 0.22) * (1 if kind != "line" else rng.uniform(-0.2, 0.5))
        if kind == "comb":
            for k, char in enumerate(text):
                cover, base = fitted(written(hand, min(tall, 1.1 * wide / cells), char), wide / cells)
                left = x + wide * (k + 0.5) / cells - cover.shape[1] / 2 + rng.normal(0, 1)
                lay(cover, left, y + high - low - base)
        elif text:
            cover, base = fitted(written(hand, tall, text), 0.96 * wide)
            left = x + rng.uniform(0.02, 0.3) * max(0, wide - cover.shape[1]) + 3
            top = y + high - low - base
            if field["name"] == beyond:
                left = x + wide - cover.shape[1] * rng.uniform(0.5, 0.8)
            lay(cover, left, top)
            if field["name"] == crossed:
                digit, angle = cover.shape[1] / len(text), rng.choice([0, 0.7, 0.9]) + rng.normal(0, 0.1)
                size = 2 * len(cover)
                stroke, half = np.zeros((size, size), np.float32), 0.75 * len(cover)
                along = half * np.array([np.cos(angle), -np.sin(angle)])
                begin, end = (np.round(len(cover) + k * along).astype(int).tolist() for k in (-1, 1))
                broad = max(2, round(0.08 * len(cover)))
                cv2.line(stroke, begin, end, 1.0, broad, cv2.LINE_AA)
                k = int(rng.integers(len(text)))
                lay(stroke, left + digit * (k + 0.5) - size / 2, top - len(cover) / 2)
    if stamp:
        x, y, angle = rng.uniform(0.3, 0.8) * WIDE, rng.uniform(0.3, 0.8) * HIGH, rng.uniform(-30, 30)
        mask = Image.new("L", (WIDE, HIGH), 0)
        pen = ImageDraw.Draw(mask)
        pen.ellipse((x - 130, y - 130, x + 130, y + 130), None, 255, 5)
        pen.text((x - 100, y - 20), "RECEIVED", 255, ImageFont.load_default(40))
        cover = np.asarray(mask.rotate(angle, center=(x, y)), np.float32) / 255
        sheet = np.minimum(sheet, 255 - 120 * cover)
    return sheet


def scanned(sheet: np.ndarray, rng: Rng) -> np.ndarray:
    """A scan: turned a little, another resolution, paper and noise."""
    factor = rng.choice([150, 200, 300]) / 200
    size = round(factor * WIDE), round(factor * HIGH)
    way = cv2.getRotationMatrix2D((WIDE / 2, HIGH / 2), rng.normal(0, 1.2), 1)
    way = way + np.c_[np.zeros((2, 2)), rng.normal(0, 2 * MM, 2)]
    soft = cv2.warpAffine(sheet, way, (WIDE, HIGH), flags=cv2.INTER_CUBIC, borderValue=255)
    soft = cv2.resize(soft, size, interpolation=cv2.INTER_AREA if factor < 1 else cv2.INTER_CUBIC)
    soft = cv2.GaussianBlur(soft, (0, 0), rng.uniform(0.4, 0.9) * max(1, factor))
    grain = rng.normal(0, rng.uniform(0.5, 6), soft.shape)
    return np.asarray(np.clip(soft * rng.uniform(0.86, 1) + grain, 0, 255), np.uint8)


def photo(sheet: np.ndarray, rng: Rng) -> np.ndarray:
    """A photograph: perspective, a desk around, curl, light and focus."""
    factor = rng.uniform(0.75, 1.4)
    wide, high = round(1.12 * factor * WIDE), round(1.12 * factor * HIGH)
    corners = np.array([[0, 0], [WIDE, 0], [WIDE, HIGH], [0, HIGH]], np.float32)
    to = (corners - (WIDE / 2, HIGH / 2)) * factor + (wide / 2, high / 2)
    to = (to + rng.normal(0, 0.02 * wide, (4, 2))).astype(np.float32)
    way = cv2.getPerspectiveTransform(corners, to)
    y, x = np.mgrid[:HIGH, :WIDE].astype(np.float32)
    bend = np.float32(rng.normal(0, 2.0)) * np.sin(x / WIDE * np.pi * np.float32(rng.uniform(0.5, 2)))
    bent = cv2.remap(sheet, x, y + bend, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    desk = float(rng.uniform(30, 190))
    image = cv2.warpPerspective(bent, way, (wide, high), flags=cv2.INTER_LINEAR, borderValue=desk)
    return photographed(np.asarray(image, np.float32), rng, 5 * MM * factor, inverted=0.0)
