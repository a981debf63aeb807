"""Made pages, and processes that draw them.

A seed gives the style of a page, a seed and a variation give its pixels.
A page on which a finder was wrong is drawn again by its seed with another variation: the same
kind of page, pen, size and paper, other digits at other places.
"""

from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from neocog.learning.teacher import paper
from neocog.learning.teacher.bank import Bank, load_bank
from neocog.learning.teacher.canvas import IGNORE, Box, Canvas, any_hand
from neocog.learning.teacher.clutter import blots, clutter, strikes
from neocog.learning.teacher.layouts import LAYOUTS
from neocog.learning.teacher.pen import Pen, Rng, any_pen, line_kernel, log_uniform, noise

SIDE = 256
SMALLEST, LARGEST = 10.0, 215.0
"""Heights of digits on a page, in pixels."""

_FADED = 14  # grey levels between ink and paper below which nobody sees a mark
_SMALLEST_PICTURE = 40  # pixels of a side
_CUT = {"single": 0.85, "amount": 0.85}  # of the pages with a layout, else 0.28: a part is shown
_TIGHT = {"single": 0.7, "amount": 1.0}  # of those, else 0.35: just around what is written
_SHOWN = 0.6  # of a box that must lie on the page for its mark to count
_ENLARGED = 0.5  # of the small pictures, twice at most, as `neocog.vision.finder.find` does

Mark = tuple[int, float, float, float, float]
"""Label, left, top, width and height of a mark, in pixels."""


@dataclass(frozen=True, slots=True)
class Page:
    """A picture and what stands on it."""

    image: NDArray[np.uint8]  #: (side, side)
    marks: NDArray[np.float32]
    """(M, 5): label, middle (x, y), width and height in pixels. Labels 0 .. 9 are digits, 10 + k
    the sign `SIGNS[k]`, -1 is neither right nor wrong."""
    extent: tuple[int, int]  #: rows and columns; beyond, pixels are mirrored


_SHARES = {
    "rules": 0.27, "through": 0.12, "folds": 0.12, "stains": 0.1, "sheet": 0.22, "bright": 0.08,
    "surface": 0.07, "clutter": 0.3, "strikes": 0.1, "blots": 0.1,
}  # fmt: skip
"""Shares of pages with rules, the other side showing through, creases, stains, an edge of the
sheet, bright ink on a dark ground, no paper at all (a wall, a board, a monitor), things drawn
beside the digits, crossed-out or underlined digits, spots of ink."""
_SHARES_OF_NOTHING = _SHARES | {"surface": 0.5, "clutter": 1.0}


@dataclass(frozen=True, slots=True)
class Style:
    """What a seed alone decides."""

    layout: str  #: a key of `LAYOUTS`
    high: float  #: height of a digit, in pixels
    pen: Pen
    second: Pen | None  #: another pen that writes on the same page, with its own lines
    amount: int  #: things drawn beside the digits, if there are any
    on: frozenset[str]  #: what of `_SHARES` the page has


def any_style(rng: Rng) -> Style:
    names = list(LAYOUTS)
    layout = names[int(rng.choice(len(names), p=[LAYOUTS[name][1] for name in names]))]
    small = layout in ("lines", "forms") and rng.random() < 0.5
    nothing = layout == "nothing"
    shares = _SHARES_OF_NOTHING if nothing else _SHARES
    return Style(
        layout=layout,
        high=log_uniform(rng, SMALLEST, 60 if small else LARGEST),
        pen=any_pen(rng),
        second=any_pen(rng) if rng.random() < 0.2 else None,
        amount=int(rng.integers(0, 13 if nothing else 7)),
        on=frozenset(name for name, share in shares.items() if rng.random() < share),
    )


def draw_page(bank: Bank, seed: int, variation: int = 0, *, side: int = SIDE, held: bool = False) -> Page:
    """Draw a page of ``side`` (at most 1000) pixels. ``seed`` decides the style, ``variation`` with it all
    else: the same bytes for the same arguments, bank and OpenCV. ``held``: hands of the validation part.
    """
    style = any_style(np.random.default_rng([seed, 0]))
    rng = np.random.default_rng([seed, 1 + variation])
    canvas = ground(bank, style.on, rng, side, held=held)
    _write(canvas, style)
    subject = _on_a_card(canvas) if style.layout == "card" else None
    sizes = [max(mark[3], mark[4]) for mark in canvas.marks if 0 <= mark[0] < 10]
    smallest = min(sizes, default=min(style.high, 60.0))
    picture = photographed(canvas.image, rng, smallest)
    if subject is not None:
        left, top, wide, high = _around(subject, rng, side)
    else:
        left, top, wide, high = _cut(canvas.marks, style.layout, rng, side)
    inner = picture[top : top + high, left : left + wide]
    marks = kept([(m[0], m[1] - left, m[2] - top, *m[3:]) for m in canvas.marks], inner)
    if (factor := min(2.0, side / max(high, wide))) > 1 and rng.random() < _ENLARGED:
        size = int(wide * factor), int(high * factor)
        inner = np.asarray(cv2.resize(inner, size, interpolation=cv2.INTER_CUBIC), np.uint8)
        marks[:, 1:] *= factor
        wide, high = size
    whole = cv2.copyMakeBorder(inner, 0, side - high, 0, side - wide, cv2.BORDER_REFLECT_101)
    return Page(np.asarray(whole, np.uint8), marks, (high, wide))


def ground(bank: Bank, on: frozenset[str], rng: Rng, side: int, *, held: bool = False) -> Canvas:
    """Paper, or another surface, with what of `_SHARES` is on, before anything is written."""
    image = paper.surface(side, rng) if "surface" in on else paper.blank_paper(side, rng)
    if "bright" in on:
        image *= np.float32(rng.uniform(0.08, 0.45))
    bright = "bright" in on or float(image.mean()) < 70
    canvas = Canvas(image, bank, rng, held, bright_ink=bright)
    if "rules" in on:
        paper.rules(image, rng)
    if "through" in on:
        paper.show_through(canvas)
    if "folds" in on:
        paper.folds(image, rng)
    if "stains" in on:
        paper.stains(image, rng)
    if "sheet" in on and "surface" not in on:
        canvas.block(paper.sheet_on(image, paper.surface(side, rng), rng))
    return canvas


def _write(canvas: Canvas, style: Style) -> None:
    rng, pen = canvas.rng, style.pen
    if "blots" in style.on:
        blots(canvas, style.high)
    hand = any_hand(canvas.bank, rng, held=canvas.held)
    LAYOUTS[style.layout][0](canvas, hand, pen, style.high)
    if style.second is not None and style.layout in ("scattered", "lines"):
        LAYOUTS["scattered"][0](canvas, hand, style.second, style.high)
    if "strikes" in style.on:
        strikes(canvas, pen)
    if "clutter" in style.on:
        clutter(canvas, hand, pen, min(style.high, 90), style.amount)


def _on_a_card(canvas: Canvas) -> Box:
    """Let all but a card around the digits be a desk, a wall, a room; return the card's box."""
    rng, side = canvas.rng, canvas.side
    boxes = np.array([mark[1:] for mark in canvas.marks if 0 <= mark[0] < 10]).reshape(-1, 4)
    low, far = (side * (0.5 + sign * rng.uniform(0.08, 0.4, 2)) for sign in (-1, 1))
    if len(boxes):
        high = float(np.median(boxes[:, 3]))
        low = boxes[:, :2].min(axis=0) - high * rng.uniform(0.05, 0.9, 2)
        far = (boxes[:, :2] + boxes[:, 2:]).max(axis=0) + high * rng.uniform(0.05, 0.9, 2)
    card = paper.card_on(canvas.image, paper.surface(side, rng), (*low, *(far - low)), rng)
    canvas.marks[:] = [
        mark
        for mark in canvas.marks
        if 0 <= mark[1] + mark[3] / 2 - card[0] <= card[2] and 0 <= mark[2] + mark[4] / 2 - card[1] <= card[3]
    ]
    return card


def _around(card: Box, rng: Rng, side: int) -> tuple[int, int, int, int]:
    """The part of a page that shows a card and what is around it; see `_cut`."""
    low, size = np.array(card[:2]), np.array(card[2:])
    first = low - size * rng.uniform(-0.03, 0.35, 2)
    last = np.maximum(low + size * (1 + rng.uniform(-0.03, 0.35, 2)), first + _SMALLEST_PICTURE)
    left, top = np.clip(first, 0, side - _SMALLEST_PICTURE).astype(int).tolist()
    right, bottom = np.clip(last, 0, side).astype(int).tolist()
    return left, top, max(right - left, _SMALLEST_PICTURE), max(bottom - top, _SMALLEST_PICTURE)


def _cut(marks: list[Mark], layout: str, rng: Rng, side: int) -> tuple[int, int, int, int]:
    """Left, top, width, height of the part that is the picture: mostly all, at times a digit in a strip."""
    if rng.random() > _CUT.get(layout, 0.28):
        return 0, 0, side, side
    long = log_uniform(rng, _SMALLEST_PICTURE, side)
    short = max(long * rng.uniform(0.25, 1), _SMALLEST_PICTURE)
    wide, high = (long, short) if rng.random() < 0.5 else (short, long)
    x, y = rng.uniform(0, side, 2)
    if marks and rng.random() < _TIGHT.get(layout, 0.35):
        boxes = np.array([mark[1:] for mark in marks])
        low, high_edge = boxes[:, :2].min(axis=0), (boxes[:, :2] + boxes[:, 2:]).max(axis=0)
        x, y = (low + high_edge) / 2
        margin = rng.uniform(-0.12, 0.3) * float(np.median(boxes[:, 3]))
        wide, high = np.maximum(high_edge - low + margin, _SMALLEST_PICTURE)
    elif marks and rng.random() < 0.8:
        _, left, top, w, h = marks[int(rng.integers(len(marks)))]
        wide, high = max(wide, w * rng.uniform(1.05, 1.8)), max(high, h * rng.uniform(1.05, 1.8))
        x = left + w / 2 + rng.normal(0, 0.15) * (wide - w)
        y = top + h / 2 + rng.normal(0, 0.15) * (high - h)
    width, height = round(min(wide, side)), round(min(high, side))
    left = int(np.clip(x - width / 2, 0, side - width))
    return left, int(np.clip(y - height / 2, 0, side - height)), width, height


def kept(marks: list[Mark], picture: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Boxes cut at the page's edge; of what is cut off, tiny or faded away nothing is asked."""
    rows = []
    high_side, wide_side = picture.shape
    smooth = cv2.blur(picture, (3, 3))
    for label, x, y, wide, high in marks:
        left, top = max(x, 0), max(y, 0)
        right, bottom = min(x + wide, wide_side), min(y + high, high_side)
        if right - left < 1 or bottom - top < 1:
            continue
        shown = (right - left) * (bottom - top) / (wide * high)
        small = max(wide, high) < (7 if label < 10 else 2)
        around = smooth[int(max(top - 2, 0)) : int(bottom) + 2, int(max(left - 2, 0)) : int(right) + 2]
        faded = int(around.max()) - int(around.min()) < _FADED
        kind = IGNORE if shown < _SHOWN or small or faded else label
        rows.append((kind, (left + right) / 2, (top + bottom) / 2, right - left, bottom - top))
    return np.array(rows, np.float32).reshape(-1, 5)


def photographed(image: NDArray[np.float32], rng: Rng, smallest: float) -> NDArray[np.uint8]:
    """Photograph a page whose smallest digits are so many pixels high."""
    image = np.clip(image, 0, 255)
    _light(image, rng)
    return _sensor(_lens(np.clip(image, 0, 255), rng, smallest), rng, smallest)


def _light(image: NDArray[np.float32], rng: Rng) -> None:
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
        depth, shade = np.float32(rng.uniform(0.15, 0.65)), np.zeros((side // 2, side // 2), np.float32)
        if rng.random() < 0.75:
            corners = rng.uniform(-0.5, 1.5, (int(rng.integers(3, 6)), 2)) * (side // 2)
            cv2.fillPoly(shade, [cv2.convexHull(corners.astype(np.int32))], 1.0)
        else:  # bars
            step, angle = rng.uniform(8, 60), rng.uniform(0, np.pi)
            half = np.arange(side // 2, dtype=np.float32)
            phase = (np.cos(angle) * half[None] + np.sin(angle) * half[:, None]) / step
            shade[:] = (phase % 1) < rng.uniform(0.3, 0.7)
        shade = np.asarray(cv2.GaussianBlur(shade, (0, 0), log_uniform(rng, 0.5, 14)))
        image *= 1 - depth * np.asarray(cv2.resize(shade, (side, side), interpolation=cv2.INTER_LINEAR))
    if rng.random() < 0.1:
        x, y = rng.uniform(-1, 1, 2)
        reach = rng.uniform(0.08, 0.6)
        spot = np.exp(-((line[None] - x) ** 2 + (line[:, None] - y) ** 2) / np.float32(reach**2))
        image += (255 - image) * np.float32(rng.uniform(0.2, 0.75)) * spot.astype(np.float32)


def _lens(image: NDArray[np.float32], rng: Rng, smallest: float) -> NDArray[np.float32]:
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


def _sensor(image: NDArray[np.float32], rng: Rng, smallest: float) -> NDArray[np.uint8]:
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
        _, file = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, int(rng.integers(12, 95))])
        picture = np.asarray(cv2.imdecode(file, cv2.IMREAD_UNCHANGED), np.uint8)
    return picture


_banks: list[Bank] = []  # of a process that draws


def prepare(bank: Path) -> None:
    """Let this process draw with a bank."""
    cv2.setNumThreads(1)
    _banks.append(load_bank(bank))


def draw_pages(seeds: list[tuple[int, int]], side: int, held: bool) -> list[Page]:
    """Draw pages of seeds and variations in a process that is prepared."""
    return [draw_page(_banks[-1], *seed, side=side, held=held) for seed in seeds]
