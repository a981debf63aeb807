"""Draw a line of a number: one hand a line, signs in their place and size, digits that touch."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from neocog.learning.drawing import glyphs
from neocog.learning.drawing.fields import Cover, Rng, add_ink, arc, inked, of_height
from neocog.learning.drawing.glyphs import LETTERS, SHAPES, any_word, shape
from neocog.learning.drawing.hands import Drawn, Hand, Hands
from neocog.learning.drawing.pen import log_uniform
from neocog.learning.drawing.texts import any_text

ROWS = 64  #: of a drawn strip
_HIGH = 56.0  # of a digit, before its strip is cut out
_FAR = 10**4

_PLAIN = [c for c in LETTERS if c not in "OoIlSsZzBbqgxXDQ"]  # letters that no hand takes for a digit
_SLIM = ".,:-="  # signs under or over which no digit may slip
_NEGATIVE = 0.12  # of the lines hold no number: their answer is empty
_SEGMENTED = 0.06  # of the lines, besides those of hands that always do, have digits as displays show them
_IN_PRINT = 0.12  # of the lines in no frames stand beside print: it is not read
_IN_FRAMES = 0.25  # of lines of digits alone
_FRAMES = ("cells", "boxes", "boxes", "rings", "polygons", "brackets", "corners", "under", "ticks", "fields")

Path = tuple[NDArray[np.floating[Any]], float]  #: a line (n, 2) and how wide it is


class Frames:
    """Printed frames of one kind around digits ``high`` pixels high."""

    def __init__(self, rng: Rng, high: float, *, thick: float = 9) -> None:
        self.kind = str(rng.choice(_FRAMES))
        self.width = max(1, int(log_uniform(rng, 1, thick) * high / _HIGH))
        self.spare = rng.uniform(0.05, 0.5, 2) * high
        self.lean = rng.uniform(-0.4, 0.4) if rng.random() < 0.15 else 0.0
        self.dashed, self.twice = rng.random() < 0.12, float(rng.uniform(2, 5) * (rng.random() < 0.1))
        self.part = rng.uniform(0.15, 0.35)  # of corners, brackets and ticks
        self.corners, self.closed = int(rng.integers(5, 9)), int(rng.integers(0, 3))
        self.grey = rng.uniform(0.08, 0.28)
        if self.kind == "cells" and not self.closed:  # walls alone reach beyond the digits, as no 1 does
            self.spare = np.maximum(self.spare, 0.2 * high)

    def paths(self, spans: list[tuple[float, float]], top: float, foot: float) -> list[Path]:
        """Lines of frames that reach over ``spans`` of columns, and over digits from ``top`` to ``foot``."""
        y0, y1 = top - self.spare[0], foot + self.spare[1]
        found, part = list[Path](), self.part * (y1 - y0)

        def draw(*way: tuple[float, float]) -> None:
            points = np.array(way, float)
            points[:, 0] += self.lean * ((y0 + y1) / 2 - points[:, 1])
            if not self.dashed:
                found.append((points, self.width))
                return
            for a, b in pairwise(points):
                at = np.linspace(a, b, 2 * max(1, int(np.hypot(*(b - a)) / 9 / max(self.width, 1))) + 1)
                found.extend((at[k : k + 2], self.width) for k in range(0, len(at) - 1, 2))

        for at, (x0, x1) in enumerate(spans):
            last = at + 1 == len(spans)
            middle, size = np.array([x0 + x1, y0 + y1]) / 2, np.array([x1 - x0, y1 - y0]) / 2
            if self.kind == "cells":
                x1 = x1 if last else spans[at + 1][0]
                for x in (x0, x1) if last else (x0,):
                    draw((x, y0), (x, y1))
                for y in (y0, y1)[: self.closed]:
                    draw((x0, y), (x1, y))
            elif self.kind in ("rings", "polygons"):
                turn = np.linspace(0, 2 * np.pi, 37 if self.kind == "rings" else self.corners) + 0.3
                draw(*map(tuple, middle + size * arc(turn)))
            elif self.kind in SHAPES["frames"]:
                for way in SHAPES["frames"][self.kind]:
                    draw(*(((x0, x1)[c] + dx * part, (y0, y1)[r] + dy * part) for c, r, dx, dy in way))
            else:
                for less in (0, self.twice + self.width) if self.twice else (0,):
                    u0, v0, u1, v1 = x0 + less, y0 + less, x1 - less, y1 - less
                    draw((u0, v0), (u1, v0), (u1, v1), (u0, v1), (u0, v0))
        return found


class Row:
    """Characters that a hand writes from left to right; the first one stands at ``left``, on row ``base``."""

    def __init__(self, hand: Hand, high: float = _HIGH) -> None:
        self.hand, self.rng, self.high = hand, hand.rng, high
        self.base, self.start, self.loose = 2.7 * high, 2.9 * high, 0.0
        self.left: float | None = None
        self.items: list[tuple[str, Cover, int, int]] = []  # a character, its ink, where that begins
        self.ties: list[Path] = []
        self.edge = np.full(int(4.3 * high), -_FAR)  # column of the last ink of each row
        self.top, self.foot = list[float](), list[float]()
        self.ends: list[tuple[int, int]] = []  # columns of each character
        self.spans: list[tuple[float, float]] = []  # and of each frame, filled or not
        self.printed = False  # nothing is written; print stands on both sides

    @property
    def begin(self) -> float:
        return self.start if self.left is None else self.left

    @property
    def right(self) -> float:
        return float(self.edge.max()) if self.items else self.start

    def write(self, shown: str, *, letters: bool = False, touching: bool = True, twins: bool = True) -> bool:
        """Write characters from left to right; False if one does not fit. ``twins``: 00 may be one stroke."""
        rng, hand, high = self.rng, self.hand, self.high
        ways = [rng.uniform(*way) for way in ((-0.12, 0.03), (0.02, 0.2), (0.2, 0.75), (0.75, 1.6))]
        self.loose = float(rng.choice(ways, p=[0.37, 0.45, 0.14, 0.04]))
        large = rng.uniform(1.25, 1.6) if rng.random() < 0.05 else 1.0  # of the first digit
        spaced, touch = rng.uniform(0.55, 1.1) + max(self.loose, 0), rng.random() < 0.5 and touching
        wave, small = rng.normal(0, 0.03), rng.random() < 0.15
        cents = shown.rfind("," if "," in shown else ".")
        raised = rng.random() < 0.1 and cents > 0 and len(shown) - cents == 3
        twins, ties = twins and hand.by_pen and rng.random() < 0.25, touching and rng.random() < 0.4
        last: NDArray[np.float32] | None = None
        k, gap, x = 0, 0.0, self.start
        while k < len(shown):
            char = shown[k]
            if char == " ":
                gap += spaced * high * rng.uniform(0.9, 1.2)
                last, k = None, k + 1
                continue
            if twins and shown[k : k + 2] == "00":
                char = "00"
            size = high * float(np.clip(rng.normal(1, 0.07), 0.72, 1.3))
            size *= large if k == 0 and char.isdigit() else 1
            if small and char == "0":
                size *= rng.uniform(0.42, 0.8)
            lift = rng.normal(0, 0.04) * high + wave * (x - self.start)
            if raised and k > cents:
                size, lift = size * 0.65, lift - 0.38 * high
            drawn = hand.letter(char, 0.95 * size) if letters else hand.character(char, size)
            y = int(self.base + lift + drawn.top)
            if y < 0 or y + len(drawn.cover) > len(self.edge):
                return False
            slim = char in _SLIM or (k > 0 and shown[k - 1] in _SLIM)
            want = (self.loose + rng.normal(0, 0.05)) * high
            if slim or (k > 0 and shown[k - 1] == "/"):
                want = max(want, rng.uniform(0.04, 0.25) * high)
            elif not gap and not touch:
                want = max(want, high / 28)
            at = round(self.start)
            if self.left is not None:
                at = round(self._column(drawn.cover, y, slim) + want + gap)
                if not gap:  # a digit does not stand behind the one before it
                    first = 0.55 * drawn.cover.shape[1] + _profile(drawn.cover, left=True).min()
                    at = round(max(at, self.edge.max() - first))
            if not self._put("" if letters else char, drawn.cover, at, y):
                return False
            origin = np.array([at - drawn.left, self.base + lift])
            tied = ties and not gap and char.isdigit() and rng.random() < 0.5
            if tied and last is not None and drawn.begin is not None:  # to the end of the digit before it
                a, b, t = last, drawn.begin + origin, np.linspace(0, 1, 9)[:, None]
                middle = (a + b) / 2 + [0, rng.uniform(0, 0.3) * high]
                way = (1 - t) ** 2 * a + 2 * t * (1 - t) * middle + t**2 * b
                self.scratch(way, rng.uniform(0.5, 1))
            last = None if drawn.end is None else drawn.end + origin
            self.left = float(at) if self.left is None else self.left
            self.ends.append((at, at + drawn.cover.shape[1]))
            gap, x, k = 0.0, float(max(self.edge.max(), at)), k + len(char)
            if char.isdigit() or letters:
                self._within(y, drawn.cover)
        return True

    def join(self, words: str) -> bool:
        """Write words in joined letters, the small ones up to a digit's height; False if one does not fit."""
        high = self.high * self.rng.uniform(0.6, 1.7)
        for word in words.split() or ["e"]:
            if not self._beside(self.hand.word(word, high), high, 0.2, 0.6):
                return False
        small = 0.5 * high
        self.top.append(self.base - small * self.rng.choice([1, 1, 2]))
        self.foot.append(self.base + small * self.rng.choice([0, 0, 1]))
        return True

    def sketch(self) -> bool:
        """Draw things beside each other; False if one does not fit."""
        rng, high = self.rng, self.high
        for _ in range(int(rng.integers(1, 4))):
            lines = glyphs.any_drawing(rng, but=2)
            size = high * rng.uniform(0.8, 1.5)
            drawn = self.hand.drawn([(line - [0, 1]) * size for line in lines], self.hand.measure() * high)
            if not self._beside(drawn, high, 0.3):
                return False
            self._within(int(self.base + drawn.top), drawn.cover)
        return True

    def _beside(self, drawn: Drawn, high: float, gap: float, most: float = 0.0) -> bool:
        far = self.rng.uniform(gap, most) if self.left is not None and most else gap
        at = round(self.start if self.left is None else self.right + high * far)
        self.left = self.start
        return self._put("", drawn.cover, at, int(self.base + drawn.top))

    def fill(self, slots: list[str], pitch: float, across: float) -> bool:
        """Write a digit, a letter or nothing into frames, ``across`` of a pitch wide; False if it fails."""
        rng, hand, high = self.rng, self.hand, self.high
        for k, char in enumerate(slots):
            left = self.start + k * pitch
            self.spans.append((left, left + pitch * across))
            if not char:
                continue
            size = high * float(np.clip(rng.normal(0.97, 0.09), 0.7, 1.3))
            drawn = hand.letter(char, size) if char.isalpha() else hand.character(char, size)
            y = int(self.base + rng.normal(0, 0.06) * high + drawn.top)
            wide = drawn.cover.shape[1]
            at = round(left + (pitch * across - wide) / 2 + rng.normal(0, 0.08) * pitch)
            if not self._put("" if char.isalpha() else char, drawn.cover, at, y):
                return False
            self.ends.append((at, at + wide))
            self._within(y, drawn.cover)
        self.left = float(min(self.start, self.ends[0][0] if self.ends else self.start))
        return True

    def _within(self, y: int, cover: Cover) -> None:
        self.top.append(y + 3.0)
        self.foot.append(y + len(cover) - 3.0)

    def _column(self, cover: Cover, y: int, slim: bool) -> float:  # where a cover touches what stands before
        own = _profile(cover, left=True)
        # rows above and below count: none slips under another
        reach = round((0.43 if slim else 0.125) * self.high)
        edge = cv2.dilate(self.edge[:, None].astype(np.float32), np.ones((2 * reach + 1, 1)))[:, 0]
        nearest = float((own - edge[y : y + len(own)]).min(initial=_FAR))
        return -nearest if nearest < _FAR / 2 else float(self.edge.max() - own.min())

    def _put(self, char: str, cover: Cover, column: int, row: int) -> bool:
        if row < 0 or column < 0 or row + len(cover) > len(self.edge):
            return False
        self.items.append((char, cover, column, row))
        edge = self.edge[row : row + len(cover)]
        np.maximum(edge, _profile(cover, left=False) + column, out=edge)
        return True

    def scratch(self, path: NDArray[np.floating[Any]], share: float = 1.0) -> None:
        self.ties.append((path, max(1.0, self.hand.measure() * self.high * share)))

    def beside(self, *, letters: bool) -> None:
        """Write a unit behind the number or a currency before it: neither is read."""
        rng, hand, high = self.rng, self.hand, self.high
        if rng.random() < 0.35:
            bar = [[0.33, -0.15], [0.33, 1.15]] if rng.random() < 0.7 else [[-0.1, 0.5], [0.7, 0.5]]
            lines = [*shape(str(rng.choice(["S", "E", "L"])))[0], np.array(bar, np.float32)]
            drawn = hand.drawn([(line - [0, 1]) * high for line in lines], hand.measure() * high)
            before = int(self.begin - drawn.cover.shape[1] - rng.uniform(0.1, 0.4) * high)
            if self._put("", drawn.cover, before, int(self.base + drawn.top)):
                self.left = float(before)
        elif letters:
            at, unit = self.right + rng.uniform(0.15, 0.8) * high, any_word(rng)[:3]
            if rng.random() < 0.4:
                drawns = [hand.word(unit.lower(), high)]
            else:
                drawns = [hand.letter(char, 0.9 * high) for char in unit if char in _PLAIN]
            for drawn in drawns:
                self._put("", drawn.cover, int(at), int(self.base + drawn.top))
                at += drawn.cover.shape[1] + 0.05 * high

    def field(self) -> Cover:
        """The ink of all of it."""
        wide = max(self.right, *(span[1] for span in self.spans), self.start) + 5 * self.high
        field = np.zeros((len(self.edge), int(wide)), np.float32)
        for _, cover, column, row in self.items:
            add_ink(field, cover, column, row)
        trace(field, self.ties)
        return field


def trace(field: Cover, paths: list[Path]) -> None:
    for path, width in paths:
        at = np.round(path * 8).astype(np.int32)
        cv2.polylines(field, [at], False, 1.0, max(1, int(width)), cv2.LINE_AA, 3)


def draw_line(
    hands: Hands, rng: Rng, *, kind: str | None = None, negatives: bool = True, few: float = 0.0
) -> tuple[NDArray[np.uint8], str]:
    """Draw a line: its ink (64, w) uint8, and its text, empty where it is none; ``kind`` of `texts.KINDS`.
    ``few``: share of lines of one to three digits, by any pen and mostly with room around them.
    """
    while True:
        negative = negatives and rng.random() < _NEGATIVE
        lone = few > 0 and not negative and rng.random() < few
        text = "" if negative else any_text(rng, "few" if lone else kind)
        shown = _no_number(rng) if negative else text
        for sign in "÷" * text.count("÷"):  # no character of ours: any of four, so that none is sure
            text = text.replace(sign, "+-:/"[rng.integers(4)], 1)
        framed = text.isdigit() and len(text) < 14 and rng.random() < _IN_FRAMES
        framed |= not shown and rng.random() < 0.6
        hand = Hand(hands, rng)
        hand.segmented |= rng.random() < _SEGMENTED
        if lone:  # with a marker or chalk at times, as slanted as any
            if rng.random() < 0.4:
                hand.width = float(rng.uniform(0.12, 0.22))
                if not hand.by_pen:
                    hand.level = float(rng.uniform(0.06, 0.2))
            if rng.random() < 0.15:
                hand.pen = replace(hand.pen, grain=float(rng.uniform(0.1, 0.5)))
            if rng.random() < 0.3:
                hand.slant = float(rng.uniform(-0.6, 1.0))
        row = Row(hand)
        if framed:
            slots = list(text)
            for _ in range(int(rng.integers(1, 4)) if rng.random() < 0.4 or not text else 0):
                slots.insert(int(rng.integers(len(slots) + 1)), "")
            fits = row.fill(slots, rng.uniform(0.85, 1.9) * _HIGH, rng.uniform(0.75, 1.0))
        elif negative and rng.random() < 0.25:
            row.printed = fits = True
        elif negative and rng.random() < 0.6:
            fits = row.join(shown) if rng.random() < 0.7 else row.sketch()
        else:
            fits = row.write(shown, letters=negative)
        if fits:
            return _strip(row, text, roomy=lone), text


def _no_number(rng: Rng) -> str:
    kind = rng.random()
    if kind < 0.15:
        return ""
    if kind < 0.5:
        return "".join(rng.choice(_PLAIN, int(rng.integers(2, 9))))
    word = any_word(rng)
    unlike = "" if len(word) > 3 else "OoIlxX"  # a word tells its letters from digits
    return "".join(c if c in LETTERS and c not in unlike else "e" for c in word)


def _strip(row: Row, text: str, *, roomy: bool = False) -> NDArray[np.uint8]:
    """Add what else is on such a line and cut the strip out of its field."""
    rng, high = row.rng, _HIGH
    if text and rng.random() < 0.06:
        row.beside(letters="x" not in text)
    left = row.begin
    right = row.right if row.top else left + high * rng.uniform(0.5, 4)
    top, foot = min(row.top, default=row.base - high), max(row.foot, default=row.base)
    if rng.random() < 0.14:  # ends of strokes of the lines above and below
        for at, way in ((top - rng.uniform(0.2, 0.5) * high, -1), (foot + rng.uniform(0.2, 0.5) * high, 1)):
            for x in rng.uniform(left, right, int(rng.integers(1, 5))) if rng.random() < 0.6 else ():
                row.scratch(np.array([[x, at + 0.2 * way * high], [x + rng.normal(0, 0.2) * high, at]]))
    if not text and rng.random() < 0.3:
        for _ in range(int(rng.integers(1, 4))):  # a scribble
            path = np.cumsum(rng.normal(0, 0.5 * high, (int(rng.integers(4, 20)), 2)), 0)
            row.scratch(path * [1.2, 0.3] + np.array([(left + right) / 2, row.base - high / 2]))
    field = row.field()
    if rng.random() < (0.3 if row.spans else 0.05):
        _caption(field, rng, left, right, top, foot)
    sides = [False, False]
    if row.printed or (text and not row.spans and rng.random() < _IN_PRINT):
        sides = [row.printed or one > 0 for one in rng.permutation([1, int(rng.random() < 0.3)])]
        size, base = log_uniform(rng, 0.5, 1.1) * high, row.base + rng.normal(0, 0.05) * high
        gap, dark = rng.uniform(0.2, 0.9) * size, np.float32(rng.uniform(0.5, 1))
        for side in (k for k in range(2) if sides[k]):
            cover, rise = glyphs.printed(f"{any_word(rng)} {any_word(rng)}", size, rng)
            x = round(left - gap - cover.shape[1]) if side == 0 else round(right + gap)
            add_ink(field, dark * cover, x, max(0, round(base) + rise))
    rules = np.zeros_like(field)
    if row.spans:
        left, right = min(left, row.spans[0][0]), max(right, row.spans[-1][1])
        frames = Frames(rng, high)
        if len(row.ends) < len(row.spans):  # walls around nothing would be 1s
            frames.closed = max(frames.closed, 1)
        trace(rules, frames.paths(row.spans, top, foot))
        if frames.kind == "fields":
            for x0, x1 in row.spans:
                inside = rules[int(top - frames.spare[0]) : int(foot + frames.spare[1]), int(x0) : int(x1)]
                np.maximum(inside, frames.grey, out=inside)
        field *= np.float32(rng.uniform(0.5, 1))  # a frame may be darker than the writing
    else:
        trace(rules, _rules(row, left, right, top, foot, rules.shape))
    above, below = rng.uniform(-0.03, 0.9 if row.spans else 0.5, 2) * high
    field = np.maximum(field, rules * np.float32(rng.uniform(0.35 if row.spans else 0.3, 1)))
    tight = rng.random(2) < 0.3  # the cut may touch the ink
    before, after = np.where(tight, rng.uniform(-0.06, 0.1, 2), rng.uniform(0.02, 1.0, 2)) * high
    if roomy and rng.random() < 0.75:  # the reader leaves a digit's height where nothing stands
        before, after = np.where(rng.random(2) < 0.5, 1.0, rng.uniform(0.3, 2.4, 2)) * high
    seen = rng.uniform(0.5, 4 if row.printed else 1.3, 2) * high
    before, after = np.where(sides, seen, (before, after))
    first, last = max(0, int(left - before)), int(right + after)
    if roomy and rng.random() < 0.15 and min(before, after) > 0.25 * high:  # an end of what stands beside
        other = row.hand.character(str(rng.integers(10)), high).cover
        other = other[:, : max(1, int(rng.uniform(0.05, 0.2) * other.shape[1]))]
        other = other[:, :: int(rng.choice([-1, 1]))]
        y = int(row.base - high + rng.normal(0, 0.1) * high)
        add_ink(field, other, first if rng.random() < 0.5 else last - other.shape[1], y)
    cut = field[max(0, int(top - above)) : int(foot + below), first : max(first + 4, last)]
    return np.asarray(np.clip(of_height(cut, ROWS) * 255, 0, 255), np.uint8)


def _caption(field: Cover, rng: Rng, left: float, right: float, top: float, foot: float) -> None:
    """Print a word in small letters over or under the line; an end of the strip may cut it."""
    size, word = rng.uniform(0.25, 0.6), f"{any_word(rng)} {any_word(rng)}"
    high = cv2.getTextSize(word, cv2.FONT_HERSHEY_SIMPLEX, size, 1)[0][1]
    far = rng.uniform(0.3, 0.55) * _HIGH
    row = top - far if rng.random() < 0.4 else foot + far + high
    at = int(rng.uniform(left - 0.5 * _HIGH, right)), int(row)
    letters = np.zeros(field.shape, np.uint8)
    cv2.putText(letters, word, at, cv2.FONT_HERSHEY_SIMPLEX, size, 255, 1, cv2.LINE_AA)
    add_ink(field, inked(letters), 0, 0)


def _rules(row: Row, left: float, right: float, top: float, foot: float, size: tuple[int, ...]) -> list[Path]:
    """Printed rules under and over the line, walls of a cell, a comb between digits."""
    rng, high, (rows, columns), found = row.rng, row.high, size, list[Path]()

    def draw(x0: float, y0: float, x1: float, y1: float, width: int = 0) -> None:
        found.append((np.array([[x0, y0], [x1, y1]]), width or int(rng.integers(1, 4))))

    if rng.random() < 0.3:
        for _ in range(int(rng.integers(1, 3))):
            y = float(rng.choice([top - rng.uniform(0, 0.3) * high, foot + rng.uniform(-0.08, 0.3) * high]))
            draw(0, y, columns, y + rng.normal(0, 0.02) * columns)
    if rng.random() < 0.16:
        for x in (left - rng.uniform(0.1, 0.5) * high, right + rng.uniform(0.08, 0.5) * high):
            if rng.random() < 0.6:
                draw(x, 0, x + rng.normal(0, 0.02) * rows, rows)
    if rng.random() < 0.25 and row.loose > 0.15 and row.ends:  # a frame for each character
        between = [(a[1] + b[0]) / 2 for a, b in pairwise(row.ends)]
        ends = row.ends[0][0] - rng.uniform(0.15, 0.4) * high, row.ends[-1][1] + rng.uniform(0.15, 0.4) * high
        found += Frames(rng, high, thick=4).paths([*pairwise([ends[0], *between, ends[1]])], top, foot)
    if rng.random() < 0.04:  # around the whole number
        spare = rng.uniform(0.2, 0.6, 2) * high
        found += Frames(rng, high, thick=4).paths([(left - spare[0], right + spare[1])], top, foot)
    return found


def _profile(cover: Cover, *, left: bool) -> NDArray[np.int64]:
    """Column of the outermost ink of each row, or far away."""
    dark = cover > 0.35 * cover.max(initial=0)  # thin strokes are pale
    outer = dark.argmax(1) if left else cover.shape[1] - 1 - dark[:, ::-1].argmax(1)
    return np.where(dark.any(1), outer, _FAR if left else -_FAR)
