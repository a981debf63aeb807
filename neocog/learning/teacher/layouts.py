"""Where digits stand: lines, scattered, one large, cards, forms with boxes, amounts, sums."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from neocog.learning.strokes import rounded
from neocog.learning.teacher.canvas import Box, Canvas, Hand
from neocog.learning.teacher.paper import fine_pattern
from neocog.learning.teacher.pen import LETTERS, LIKE_DIGITS, Pen, Rng, any_word, log_uniform
from neocog.vision.finder import SIGNS

FORMATS = """
    ##/##/#### ##/##/## #/##/#### ##/#### #,## ##,##
    ##.##.## ##.##.#### ##-##-## ####-##-## ##:## ##:##:## #,## ###,## #.###,##
    ##.## #+# ##+##=## #-#=# #x#=## #÷# (##) -## +## ##% #*# ###-### =### #/# ##/## ###/## #.#
    (###)###-#### #=# ###= #(#+#) #####- *###* #:# -#.## #% #x## ##.### /### #####/- ##=
    #####= ##+#-# #####-- #,### ##,- =###.###= ###.- #.###.- ####.= #x#+#/# ##/#-# #/#/## *#.###.-
    ##.###= ##÷#= #-#-# ###x## ##/## ####/## ##/##/##/## ##/### #/##/#### ###/### ##,# #,# ###,###
    ##/## ##,##,## #/#
""".split()
"""What amounts, dates, times and sums look like; # is a digit."""

AMOUNTS = """
    ### #### ##### ###### ####### #.### ##.### ###.### #.###.### ##,## #00 #000 ##00 #0000 ##000
    #00000 #.000
    ##.000 ##.#00 ###.000 #.000.000 ##0.000 #0.000 ##00= #.000= *##.000* -##.###- #####.-
    =##.###= #000.- ###.###= //##.### ##.###// =#.#00= *###.###*
""".split()
"""What is written into the field of a cheque's amount."""

_SLASHED = [text for text in FORMATS if "/" in text]
_SLASHES = 0.4  # of what looks like a date or an amount, has slashes
_LEANING_ONES, _LEAN = 0.2, 0.5  # of the numbers without a slash; most that their ones lean more
_FIRST = np.log10(1 + 1 / np.arange(1, 10))
"""Probabilities of the first digit of an amount, 1 to 9 (Newcomb and Benford's law)."""
_JOINED = 0.12  # of the numbers, some of whose digits a stroke joins

Image = NDArray[np.float32]
Points = NDArray[np.floating[Any]]
Layout = Callable[[Canvas, Hand, Pen, float], None]


def _any_format(rng: Rng) -> str:
    return str(rng.choice(_SLASHED if rng.random() < _SLASHES else FORMATS))


def write_line(canvas: Canvas, text: str, at: tuple[float, float], high: float, hand: Hand,
               pen: Pen, *, gap: float, angle: float = 0.0,
               restless: float = 0.05, joined: float = _JOINED) -> float:  # fmt: skip
    """Write characters from (x, y) on, y the middle of the line (``#``: any digit); return where it ends.

    ``gap`` and ``restless`` (of heights and rows) are shares of the height; ``joined`` is a probability.
    """
    rng, (x, y), begin = canvas.rng, at, at[0]
    slope = np.tan(angle)
    joins = rng.random() < joined
    quick = rng.random() < joined  # small flat zeros, strokes that end far out
    zero, flat = (rng.uniform(0.4, 1.0), rng.uniform(0.9, 1.9)) if quick else (1.0, 1.0)
    low = rng.uniform(-0.3, 1.0)
    if "/" not in text and rng.random() < _LEANING_ONES:
        hand = replace(hand, ones=rng.uniform(0, _LEAN), scans=hand.scans[:0])
    for letter in text:
        if letter == " ":
            x += high * rng.uniform(0.4, 1.2)
            continue
        own = high * np.exp(rng.normal(0, restless))
        level = y + slope * (x - begin) + rng.normal(0, restless * high)
        if x > canvas.side + high:
            break
        if letter == "#" or letter.isdigit():
            tool = hand
            if letter == "0" and quick:
                tool = replace(hand, wide=hand.wide * flat, scans=hand.scans[:0])
                level, own = level + 0.5 * low * (1 - zero) * own, own * zero
            label = None if letter == "#" else int(letter)
            box = canvas.digit(label, x, level, own, tool, pen, angle, left=True)
            wide = box[2] if box else 0.0
            if quick and box and rng.random() < 0.12:
                _flourish(canvas, box, own, pen)
            if joins and box and rng.random() < 0.5:
                _join(canvas, box, own, pen)
        else:
            wide = canvas.shape(letter, x, level, own, hand, pen, angle, letter=text.isalpha())
            canvas.take(x, level - own / 2, max(wide, 1), own)
        x += wide + high * (gap + abs(rng.normal(0, 0.06)))
    return x


def _join(canvas: Canvas, box: Box, high: float, pen: Pen) -> None:
    """A stroke from a digit's right side into what comes next, as quick hands write 00."""
    rng = canvas.rng
    x, y, wide, tall = box
    begin = (x + 0.7 * wide, y + rng.uniform(0, 1) * tall)
    end = (x + wide + rng.uniform(0.05, 0.5) * high, begin[1] + rng.normal(0, 0.15) * tall)
    canvas.draw([np.array([begin, end], np.float32)], pen, high)


def _flourish(canvas: Canvas, box: Box, high: float, pen: Pen) -> None:
    """A stroke that goes on far beyond the digit, from its top to the right or from its foot."""
    rng = canvas.rng
    x, y, wide, tall = box
    up = rng.random() < 0.7
    begin = np.array([x + 0.8 * wide, y + 0.1 * tall] if up else [x + 0.3 * wide, y + 0.9 * tall])
    way = np.array([rng.uniform(0.3, 1.3), rng.uniform(-0.7, 0.2)]) * (1 if up else -1) * high
    middle = begin + way / 2 + rng.normal(0, 0.12 * high, 2)
    canvas.draw([rounded(np.array([begin, middle, begin + way], np.float32), 2)], pen, high)


def lines(canvas: Canvas, hand: Hand, pen: Pen, high: float) -> None:
    """Lines of numbers, at times with words and signs between them."""
    rng, side = canvas.rng, canvas.side
    kind = rng.random()
    angle = rng.normal(0, 0.03 if kind < 0.7 else 0.22) if kind < 0.92 else rng.uniform(-0.8, 0.8)
    near = rng.random()  # most digits stand apart, some nearly touch, some do
    low, up = ((0.08, 0.4) if near < 0.55 else (0.4, 1.2) if near < 0.67
               else (-0.1, 0.08) if near < 0.94 else (-0.3, 0))  # fmt: skip
    gap, restless = float(rng.uniform(low, up)), rng.uniform(0.02, 0.12)
    words, formats = rng.random() < 0.2, rng.random() < 0.5
    y = rng.uniform(0.3, 1.2) * high + (rng.uniform(0, 0.6) * side if rng.random() < 0.5 else 0)
    for _ in range(int(rng.integers(1, 9))):
        if y - 0.3 * high > side:
            break
        x = rng.uniform(-0.6, 2.0) * high if high < side / 3 else rng.uniform(-0.1, 0.3) * side
        while x < side:
            text = _any_format(rng) if formats and rng.random() < 0.6 else "#" * int(rng.integers(1, 9))
            if words and rng.random() < 0.5:
                text = any_word(rng, LETTERS)
            row = y + np.tan(angle) * (x - side / 2)
            x = write_line(canvas, text, (x, row), high, hand, pen, gap=gap, angle=angle, restless=restless)
            x += high * rng.uniform(0.5, 2.5)
            if rng.random() < 0.35:
                break
        y += high * rng.uniform(1.15, 2.4)


def amount(canvas: Canvas, hand: Hand, pen: Pen, high: float) -> None:
    """One line across a patterned field, quickly written: most digits touch, many are joined."""
    rng, side = canvas.rng, canvas.side
    first = str(1 + rng.choice(9, p=_FIRST))
    text, gap = str(rng.choice(AMOUNTS)).replace("#", first, 1), rng.uniform(-0.25, 0.15)
    high = float(np.clip(high, 14, max(18, 1.8 * side / len(text))))
    fine_pattern(canvas.image, rng)
    angle = rng.normal(0, 0.05)
    if rng.random() < 0.4:
        hand = replace(hand, slant=float(rng.uniform(0.1, 1.0)), scans=hand.scans[:0])
    y = side * rng.uniform(0.3, 0.7)
    x = max(0.0, side / 2 - 0.35 * high * len(text)) * rng.uniform(0.2, 1)
    x = write_line(canvas, text, (x, y), high, hand, pen, gap=gap, angle=angle, joined=0.5,
                   restless=rng.uniform(0.02, 0.2))  # fmt: skip
    if rng.random() < 0.4:  # dashes and flourishes behind it, so that nothing can be added
        at = np.array([x, y]) + high * rng.uniform([0, -0.4], [0.4, 0.4])
        count = int(rng.integers(2, 6))
        step = high * np.stack([rng.uniform(0.1, 0.6, count), rng.normal(0, 0.25, count)], axis=1)
        path = rounded((at + np.cumsum(step, axis=0)).astype(np.float32), int(rng.integers(0, 3)))
        canvas.draw([path], pen, high)


def scattered(canvas: Canvas, hand: Hand, pen: Pen, high: float) -> None:
    """Digits of several sizes anywhere, at times of several pens, few of them touching."""
    rng, side = canvas.rng, canvas.side
    spread, other = rng.uniform(0.05, 0.6), rng.random() < 0.4
    touching = rng.random() < 0.15
    second = Pen(pen.width * float(np.exp(rng.normal(0, 0.6))), float(rng.uniform(0.12, 0.95)))
    for _ in range(int(rng.integers(1, 26))):
        own = float(np.clip(high * np.exp(rng.normal(0, spread)), 8, 0.9 * side))
        x, y = rng.uniform(0, side, 2)
        room = own * (0.35 if touching else 0.6)
        if not canvas.free(x - room, y - room, 2 * room, 2 * room):
            continue
        tool = second if other and rng.random() < 0.4 else pen
        if rng.random() < 0.18:
            sign = SIGNS[int(rng.integers(len(SIGNS)))]
            canvas.shape(sign, x - 0.3 * own, y, own, hand, tool)
        else:
            canvas.digit(None, x, y, own, hand, tool)


def single(canvas: Canvas, hand: Hand, pen: Pen, high: float) -> None:
    """One digit, or two, of any size; mostly the picture is cut around it."""
    rng, side = canvas.rng, canvas.side
    own = float(np.clip(high, 12, 0.85 * side))
    x, y = np.clip(rng.normal(0.5, 0.12, 2), 0.2, 0.8) * side
    if rng.random() < 0.2:
        own *= 0.6
        write_line(canvas, "##", (0.15 * side, y), own, hand, pen, gap=rng.uniform(0, 0.2))
    else:
        one = rng.random() < 0.4  # a stroke alone is a one, if it is anything
        canvas.digit(1 if one else None, x, y, own, hand, pen, bars=0.75)


def card(canvas: Canvas, hand: Hand, pen: Pen, high: float) -> None:
    """A number, mostly of one to three digits, that is to fill a card; or a word, or nothing."""
    rng, side = canvas.rng, canvas.side
    kind = rng.random()
    count = int(rng.integers(1, 4) if rng.random() < 0.8 else rng.integers(4, 9))
    own = float(np.clip(high, 14, min(0.6, 0.95 / count) * side))
    if kind < 0.1:
        return
    text = any_word(rng, LETTERS)[: count + 1] if kind < 0.2 else "#" * count
    write_line(
        canvas, text, (side / 2 - 0.42 * own * len(text), side * rng.normal(0.5, 0.03)), own, hand,
        pen, gap=rng.uniform(-0.05, 0.35), angle=rng.normal(0, 0.05),
    )  # fmt: skip


def forms(canvas: Canvas, hand: Hand, pen: Pen, high: float) -> None:
    """Rows of boxes, combs and cells with a digit in each; some stay empty."""
    rng, side = canvas.rng, canvas.side
    cells = _Cells(canvas, high)
    off, empty = rng.uniform(0.02, 0.22), rng.uniform(0, 0.8)
    y = rng.uniform(-0.3, 0.5) * cells.high
    if rng.random() < 0.5:
        y += rng.uniform(0, 0.6) * side
    row_gap = 0.0 if rng.random() < 0.4 else rng.uniform(0.1, 1.5) * cells.high
    letters = rng.random() < 0.15
    for _ in range(int(rng.integers(1, 8))):
        if y > side:
            break
        x = rng.uniform(-0.5, 1.0) * cells.wide
        count = int(rng.integers(1, 14))
        if rng.random() < 0.3 and canvas.bank.faces:
            face, size = int(rng.integers(canvas.bank.faces)), min(0.5 * cells.high, 30)
            x += canvas.print_word(any_word(rng), x, y + 0.3 * cells.high, size, face, 0.8) + 5
        if cells.kind == "field":
            wide = count * cells.wide * 0.6
            cells.outline(canvas.image, "field", x, y, wide, cells.high, cells.thick, rng)
            text = "#" * max(1, count - 1) if rng.random() < 0.6 else _any_format(rng)
            if rng.random() > empty * 0.6:
                at = (x + 0.2 * high, y + cells.high * rng.uniform(0.4, 0.6))
                write_line(canvas, text, at, high, hand, pen, gap=rng.uniform(0, 0.2))
            count = 0
        for number in range(count):
            if x > side:
                break
            top = y + cells.slope * x
            cells.draw(canvas.image, x, top, rng)
            if rng.random() > empty:
                column = x + cells.wide * rng.normal(0.5, 0.5 * off) + 0.5 * cells.lean
                row = top + cells.high * rng.normal(0.5, 0.5 * off)
                _fill(canvas, hand, pen, (column, row), high, letters=letters)
            x += cells.wide + cells.gap
            if number % 3 == 2 and rng.random() < 0.1:
                x += 0.5 * cells.wide
        y += cells.high + row_gap


def _fill(canvas: Canvas, hand: Hand, pen: Pen, at: tuple[float, float], high: float, *,
          letters: bool) -> None:  # fmt: skip
    """Write a digit into a cell, seldom a dash or, on some forms, a letter."""
    rng, (column, row) = canvas.rng, at
    if letters and rng.random() < 0.5:
        letter = any_word(rng, LETTERS)[0]
        if letter not in LIKE_DIGITS and letter in LETTERS:
            canvas.shape(letter, column - 0.3 * high, row, high, hand, pen, letter=True)
    elif rng.random() < 0.04:
        canvas.shape("-", column - 0.2 * high, row, high, hand, pen)
    else:
        own = high * float(np.exp(rng.normal(0, 0.08)))
        canvas.digit(None, column, row, own, hand, pen)


class _Cells:
    """The cells of a form for digits of a height, in pixels of the page."""

    def __init__(self, canvas: Canvas, digit: float) -> None:
        rng = canvas.rng
        self.high = digit * rng.uniform(0.9, 1.9)
        self.wide = self.high * rng.uniform(0.5, 1.3)
        self.kind, self.second = rng.choice(list(_CELLS), 2, p=list(_CELLS.values())).tolist()
        self.gap = 0.0 if rng.random() < 0.6 else rng.uniform(0.05, 0.5) * self.wide
        self.lean = rng.normal(0, 0.25) * self.high if rng.random() < 0.25 else 0.0
        self.slope = np.tan(rng.normal(0, 0.03))
        self.level = float(canvas.image.mean()) * rng.uniform(0.05, 0.85)
        self.thick = max(1, round(self.high * log_uniform(rng, 0.012, 0.09)))
        self.twice = rng.random() < 0.2 and self.second not in ("field", "filled")
        self.more = rng.uniform(-0.15, 0.15) * self.high  # how much larger the second outline is
        self.form = int(rng.integers(1 << 31)) if rng.random() < 0.8 else None  # all are alike

    def draw(self, image: Image, x: float, y: float, rng: Rng) -> None:
        """Draw the outline of one cell, or two side by side."""
        draws = rng if self.form is None else np.random.default_rng(self.form)
        if self.twice:
            more, thick = self.more, max(1, self.thick // 2)
            wide, high = self.wide + 2 * more, self.high + 2 * more
            self.outline(image, self.second, x - more, y - more, wide, high, thick, draws)
        self.outline(image, self.kind, x, y, self.wide, self.high, self.thick, draws)

    def outline(self, image: Image, kind: str, x: float, y: float, wide: float, high: float,
                thick: int, rng: Rng) -> None:  # fmt: skip
        lean = 0.0 if kind == "field" else self.lean
        corner = np.array([(lean, 0), (wide + lean, 0), (wide, high), (0, high)])
        corner = corner + np.stack([x - corner[:, 1] * self.slope, y + corner[:, 0] * self.slope], 1)
        ring = np.concatenate([corner, corner[:1]])
        paths = [ring]
        if kind == "polygon":
            paths = [_polygon(wide, high, rng) + corner.mean(axis=0)]
        elif kind == "pieces":
            paths = _pieces(corner, rng)
        elif kind == "comb":
            up = 0.3 * corner[:2] + 0.7 * corner[[3, 2]]
            paths = [np.array([up[0], corner[3], corner[2], up[1]])]
        elif kind == "dashed":
            counts = [max(2, int(np.hypot(*(b - a)) / 6)) for a, b in pairwise(ring)]
            paths = [dash for (a, b), count in zip(pairwise(ring), counts, strict=True)
                     for dash in np.linspace(a, b, 2 * count).reshape(count, 2, 2)]  # fmt: skip
        elif kind == "filled":
            level = float(np.clip(image.mean() * 1.05, 0, 255))
            cv2.fillPoly(image, [(corner * 16).astype(np.int32)], level, cv2.LINE_AA, 4)
        points = [(path * 16).astype(np.int32) for path in paths]
        cv2.polylines(image, points, False, self.level, thick, cv2.LINE_AA, 4)


_CELLS = {
    "box": 0.3, "comb": 0.12, "dashed": 0.07, "filled": 0.07, "field": 0.1, "polygon": 0.17,
    "pieces": 0.17,
}  # fmt: skip
"""Kinds of cells, and the share of forms that have each; a field is one box for a whole number."""


def _polygon(wide: float, high: float, rng: Rng) -> Points:
    """A cell with cut corners, or round."""
    turn = (np.arange(count := int(rng.integers(5, 11))) + 0.5) * 2 * np.pi / count
    reach = rng.uniform(1 - (uneven := rng.uniform(0, 0.1)), 1 + uneven, (count, 1))
    ring = np.stack([wide * np.cos(turn), high * np.sin(turn)], axis=1) * reach / 2
    bent = rounded(np.concatenate([ring, ring[:1]]).astype(np.float32), int(rng.integers(0, 3)))
    return np.concatenate([bent, bent[:1]])


def _pieces(corner: Points, rng: Rng) -> list[Points]:
    """Some of the outline, each side or around its corners, mostly mirrored."""
    way = np.concatenate([corner, corner, corner[:1]])
    pieces = [(at, at + rng.uniform(0.1, 1.5)) for at in rng.uniform(0, 4, rng.integers(1, 4))]
    if rng.random() < 0.6:
        pieces += [((1 - b) % 4, (1 - b) % 4 + b - a) for a, b in pieces]
    paths = []
    for a, b in pieces:
        at = np.concatenate([[a], np.arange(np.floor(a) + 1, np.ceil(b)), [b]])
        paths.append(np.stack([np.interp(at, np.arange(9), way[:, k]) for k in (0, 1)], axis=1))
    return paths


def letters(canvas: Canvas, hand: Hand, pen: Pen, high: float) -> None:
    """Words by hand or in a typeface, no digits."""
    rng, side = canvas.rng, canvas.side
    printed = canvas.bank.faces > 0 and rng.random() < 0.45
    cursive, joined = rng.random(2) < (0.4, 0.3)
    high = min(max(high, 11 if printed else 16), side / 3)
    face = int(rng.integers(canvas.bank.faces)) if printed else 0
    characters = LETTERS if rng.random() < 0.5 else None
    y, angle = rng.uniform(0, high), rng.normal(0, 0.05)
    gap = rng.uniform(-0.05, 0.2)
    while y < side:
        x = rng.uniform(-high, high)
        while x < side:
            word = any_word(rng, characters)
            row = y + np.tan(angle) * x
            if printed:
                x += canvas.print_word(word, x, row, high, face, pen.contrast)
                word = ""
            for letter in word:
                wide = canvas.shape(letter, x, row, high, hand, pen, angle, cursive=cursive, letter=True)
                if joined:
                    _join(canvas, (x, row - high / 2, wide, high), high, pen)
                x += wide + gap * high
            x += high * rng.uniform(0.3, 1)
            if rng.random() < 0.15:
                break
        y += high * rng.uniform(1.2, 2.2)


def nothing(canvas: Canvas, hand: Hand, pen: Pen, high: float) -> None:
    """Leave the page as it is."""


LAYOUTS: dict[str, tuple[Layout, float]] = {
    "lines": (lines, 0.19), "amount": (amount, 0.11), "scattered": (scattered, 0.11),
    "single": (single, 0.12), "card": (card, 0.10), "forms": (forms, 0.14),
    "letters": (letters, 0.15), "nothing": (nothing, 0.08),
}  # fmt: skip
"""Each layout and the share of pages that have it."""
