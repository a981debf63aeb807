"""Draw a line of a number: one hand a line, signs in their place and size, digits that touch.

What comes out is ink, 64 rows high; :mod:`neocog.learning.drawing.photo` adds paper, light and a camera.
"""

from collections.abc import Sequence
from itertools import pairwise

import cv2
import numpy as np
from numpy.typing import NDArray

from neocog.learning.allographs import allograph
from neocog.learning.drawing.hands import Hands, Rng
from neocog.learning.drawing.texts import any_text
from neocog.learning.teacher.pen import LETTERS, Cover, any_pen, any_word, ink, noise, shape

ROWS = 64
"""Rows of a drawn strip."""
_HIGH = 56.0  # of a digit, before its strip is cut out
_FIELD, _BASE, _MARGIN = 240, 150, 160  # rows of the field, its baseline, columns before the first character
_FAR = 10**4

_PLAIN = [c for c in LETTERS if c not in "OoIlSsZzBbqgxXDQ"]  # letters that no hand takes for a digit
_SLIM = ".,:-="  # signs under or over which no digit may slip
_SMALL = {"x": 0.62, "+": 0.75, "=": 0.8, "*": 0.6}
_NEGATIVE = 0.1
"""Share of lines that hold no number: their answer is empty."""
_IN_FRAMES = 0.25  # of lines of digits alone
_CURSIVE = {
    letter: np.array([[int(at[0]) / 9, (3 - int(at[1])) / 3] for at in points.split()], np.float32)
    for letter, points in {
        "a": "86 46 15 13 43 85 86 84 93",
        "b": "04 49 39 33 53 75 55 85",
        "c": "75 46 15 13 43 84",
        "d": "86 46 15 13 43 85 89 84 93",
        "e": "04 55 66 46 24 33 63 84",
        "f": "04 69 49 40 31 53 84",
        "g": "86 46 15 13 43 85 86 81 50 31 94",
        "h": "04 49 39 33 35 56 75 73 94",
        "i": "04 36 33 43 64",
        "j": "05 56 51 30 11 64",
        "k": "04 49 39 33 35 66 54 83 94",
        "l": "04 58 49 29 24 43 64",
        "m": "05 26 23 25 46 53 55 76 83 94",
        "n": "05 26 23 25 56 73 94",
        "o": "46 15 13 43 75 46 55 85",
        "p": "05 26 20 26 56 65 43 24 84",
        "r": "05 26 36 56 53 84",
        "s": "04 46 55 63 33 84",
        "t": "04 38 33 43 64",
        "u": "05 23 43 66 63 84",
        "v": "05 26 43 66 96",
        "w": "05 23 43 55 63 76 96",
        "x": "05 26 63 94",
        "y": "05 26 34 64 76 61 40 21 84",
        "z": "05 26 66 23 63 50 31 84",
    }.items()
}  # joined letters: 0 the baseline, 1 that of small letters, up negative
_FRAMES = ("cells", "boxes", "boxes", "rings", "brackets", "corners", "under", "ticks", "fields")

Strokes = list[NDArray[np.float32]]
Point = NDArray[np.float32]


class Hand:
    """One writer with one pen: draws characters as covers of ink, the same style of each along the line."""

    def __init__(self, hands: Hands, rng: Rng, *, mixed: bool = False) -> None:
        self.hands, self.rng = hands, rng
        usual = rng.random() < 0.8
        far = 1.6 if rng.random() < 0.2 else 0.9  # tangents: 58 and 42 degrees
        self.slant = rng.normal(0.12, 0.2) if usual else rng.uniform(-0.35, far)
        self.wide = float(np.exp(rng.normal(-0.04, 0.16)))
        self.pen = any_pen(rng)
        self.width = max(1.3, _HIGH * min(self.pen.width, 0.16))
        self.by_pen = rng.random() < 0.45
        self.in_style = rng.random() < (0.5 if self.by_pen else 0.16)
        self.styles: dict[int, int] = {}
        one = rng.random() < (0.0 if mixed else 0.8)
        if self.by_pen:
            self.own = hands.pens[rng.integers(len(hands.pens))] if one else hands.every
        else:
            shares = np.array([each.share for each in hands.sets.values()])
            chosen = list(hands.sets.values())[int(rng.choice(len(shares), p=shares / shares.sum()))]
            self.pictures = chosen
            self.own = chosen.writers[rng.integers(len(chosen.writers))] if one else chosen.every
            self.level, self.soft = rng.uniform(0.2, 0.62), rng.uniform(2.5, 6)
            self.width = 0.0  # that of the first picture's strokes
        self.slash = (rng.uniform(0.9, 1.5), rng.uniform(0.2, 0.75), rng.uniform(-0.1, 0.25))
        self.dash = (rng.uniform(0.2, 0.75), rng.uniform(0.4, 0.62))
        self.dot = rng.uniform(0.8, 1.7)
        self.comma = (rng.uniform(0.16, 0.36), rng.uniform(0.02, 0.22))
        self.curl = rng.random() < 0.5
        self.form: dict[str, tuple[float, float]] = {}

    def character(self, char: str, high: float) -> tuple[Cover, int, int, Point | None, Point | None]:
        """Draw a character, the baseline at 0: its cover, left, top, and the ends of its path if any."""
        digit, rng = char.isdigit(), self.rng
        if not self.by_pen and self.width == 0:
            self.width = self._measured(high)
        if not self.by_pen and digit and len(char) == 1 and not (self.in_style and rng.random() < 0.5):
            cover, left, top = self._pictured(int(char), high)
            return cover, left, top, None, None
        width = self.width if digit else self.width * rng.uniform(0.75, 1.25)
        if char in ".:":
            width = max(0.06 * high, self.width * self.dot * rng.uniform(0.85, 1.15))
        return self.drawn(self.digit(char, high) if digit else self.sign(char, high), width)

    def drawn(self, strokes: Strokes, width: float) -> tuple[Cover, int, int, Point | None, Point | None]:
        """Draw strokes, slanted about the baseline."""
        lean = np.array([self.slant, 0], np.float32)
        moved = [s - s[:, 1:] * lean for s in strokes]
        cover, left, top = ink(moved, max(1.0, width), self.pen, self.rng)
        return cover, left, top, moved[0][0], moved[-1][-1]

    def digit(self, char: str, high: float) -> Strokes:
        """Strokes of a digit, or of ``00`` in one go: (n, 2), the baseline at 0, up negative, upright."""
        rng, hands = self.rng, self.hands
        if char == "00":
            t = np.linspace(0, 4 * np.pi, 60)
            x = rng.uniform(0.5, 0.8) * np.clip(t - 1.5 * np.pi, 0, 0.9 * np.pi) / (0.9 * np.pi) * 1.1
            r = rng.uniform(0.24, 0.4) * self.wide
            size = np.where(t > 2 * np.pi, rng.uniform(0.8, 1), 1)
            line = np.stack([x + r - r * np.sin(t + 0.5), -0.5 - 0.5 * np.cos(t + 0.5) * size], 1)
            return [(line * high).astype(np.float32)]
        d = int(char)
        if self.in_style and rng.random() < 0.8 and hands.styles[d]:
            if d not in self.styles:
                self.styles[d] = int(rng.choice(hands.styles[d]))
            raw: Sequence[NDArray[np.floating]] = allograph(d, self.styles[d], rng)
        else:
            pool = (self.own.get(d) if self.by_pen else None) or hands.every[d]
            raw = hands.strokes.lines(pool[rng.integers(len(pool))])
        every = np.concatenate(raw)
        low, up = every.min(0), every.max(0)
        side = max(up[1] - low[1], (up[0] - low[0]) * 0.75, 1e-3)
        size = np.array([self.wide * high, high]) / side
        return [((line - [low[0], up[1]]) * size).astype(np.float32) for line in raw]

    def sign(self, char: str, high: float) -> Strokes:
        """Strokes of a sign, as those of a digit of that height."""
        rng = self.rng

        def about(spread: float = 0.03) -> float:
            return float(rng.normal(0, spread))

        if char == "÷":
            lines = [
                [[0, -0.5], [0.45, -0.5 + about()]],
                *([[0.22, y], [0.24, y + 0.02]] for y in (-0.74, -0.26)),
            ]
        elif char == "/":
            tall, lean, sink = self.slash
            lines = [[[lean + about(), sink - tall], [about(), sink]]]
        elif char == "-":
            long, at = self.dash
            lines = [[[0, about() - at], [long * (1 + about(0.1)), about() - at]]]
        elif char == ".":
            y = about()
            lines = [[[0, y], [rng.uniform(0, 0.05), y + about(0.02)]]]
        elif char == ":":
            upper = -rng.uniform(0.35, 0.6)
            lines = [[[0, y], [0.02, y + about(0.01)]] for y in (about() - 0.08, upper)]
        elif char == ",":
            (long, back), top = self.comma, about() - 0.03
            if self.curl:
                lines = [[[0.03, top], [0.08, top + 0.03], [0.06, top + long * 0.6], [-back, top + long]]]
            else:
                lines = [[[0.05, top], [0.05 - back, top + long]]]
        else:
            form, cuts = shape(char)
            if char not in self.form:
                self.form[char] = _SMALL.get(char, 1.0) * rng.uniform(0.75, 1.15), rng.normal(0, 0.05)
            size, lift = self.form[char]
            points = (form - [0, 1]) * size
            if char in "+=*":
                points[:, 1] -= (1 - size) / 2 + lift
            if char in "()":
                points = points * [rng.uniform(0.6, 1.1), rng.uniform(1, 1.3)] + [0, 0.12]
            points = points + rng.normal(0, 0.02, points.shape)
            return [(points[a:b] * high).astype(np.float32) for a, b in pairwise(cuts)]
        return [(np.array(line) * high).astype(np.float32) for line in lines]

    def letter(self, char: str, high: float) -> Strokes:
        form, cuts = shape(char)
        points = (form - [0, 1]) * high
        points = points + self.rng.normal(0, high / 56, form.shape)
        return [points[a:b].astype(np.float32) for a, b in pairwise(cuts)]

    def _measured(self, high: float) -> float:
        """Width of the strokes of this hand's pictures: signs are written with the same pen."""
        cover, *_ = self._pictured(int(self.rng.integers(10)), high)
        depth = cv2.distanceTransform((cover > 0.5).astype(np.uint8), cv2.DIST_L2, 3)
        ridge = depth[depth > 0.6 * depth.max()]
        return float(np.clip(2 * ridge.mean() * self.rng.uniform(0.8, 1.1), 1.3, 0.17 * _HIGH))

    def _pictured(self, d: int, high: float) -> tuple[Cover, int, int]:
        """Draw a digit of a set of pictures, slanted, as hard and as wide of stroke as the hand's."""
        rng = self.rng
        pool = self.own.get(d) or self.pictures.every[d]
        glyph = self.pictures.images[pool[rng.integers(len(pool))]]
        rows, cols = np.flatnonzero(glyph.max(1) > 60), np.flatnonzero(glyph.max(0) > 60)
        y0, y1, x0, x1 = rows[0], rows[-1] + 1, cols[0], cols[-1] + 1
        scale = high / max(y1 - y0, (x1 - x0) * 0.75)
        across, tall, lean = scale * self.wide, scale * (y1 - y0), self.slant * 0.9
        shift = max(0.0, -lean * tall) + 3
        move = [[across, -lean * scale, shift - across * x0 + lean * scale * y1], [0, scale, 3 - scale * y0]]
        size = (int(across * (x1 - x0) + abs(lean * tall)) + 6, int(tall) + 6)
        cover = cv2.warpAffine(glyph, np.array(move, np.float32), size, flags=cv2.INTER_CUBIC)
        cover = np.clip((cover.astype(np.float32) / 255 - self.level) * self.soft + 0.5, 0, 1)
        if self.pen.grain and rng.random() < 0.5:
            rough = noise(cover.shape, rng) + 0.7 * self.pen.grain + 0.3
            cover *= np.clip(1 - 2.2 * self.pen.grain * rough, 0.1, 1)
        return np.asarray(cover, np.float32), -int(shift), 3 - size[1]


def draw_line(
    hands: Hands, rng: Rng, *, kind: str | None = None, negatives: bool = True, mixed: bool = False,
    touching: bool = True,
) -> tuple[NDArray[np.uint8], str]:  # fmt: skip
    """Draw a line: its ink (64, w) uint8, 255 where a stroke is, and its text, empty where it is no number.

    ``kind``: one of :data:`neocog.learning.drawing.texts.KINDS`; ``mixed``: each digit is any writer's.
    """
    while True:
        negative = negatives and rng.random() < _NEGATIVE
        text = "" if negative else any_text(rng, kind)
        hand = Hand(hands, rng, mixed=mixed)
        shown = _no_number(rng) if negative else text
        for sign in "÷" * text.count("÷"):  # no character of ours: any of four, so that none is sure
            text = text.replace(sign, "+-:/"[rng.integers(4)], 1)
        framed = text.isdigit() and len(text) < 14 and rng.random() < _IN_FRAMES
        framed |= not shown and rng.random() < 0.6
        line = _Line(hand, len(shown) + 4 * framed)
        if framed:
            fits = line.fill(text)
        elif negative and rng.random() < 0.4:
            fits = line.join(shown)
        else:
            fits = line.write(shown, letters=negative, touching=touching)
        if fits:
            return line.strip(text), text


def draw_sign(hands: Hands, rng: Rng, char: str) -> tuple[NDArray[np.uint8], float]:
    """Draw one sign as it stands among digits, alone: its ink (64, w) uint8 and the column of its middle."""
    while True:
        line = _Line(Hand(hands, rng), 1)
        if line.write(char, letters=False):
            above, below = (0.3 - 0.2 * rng.random(2)) * _HIGH
            rows = slice(int(_BASE - _HIGH - above), int(_BASE + below))
            columns = np.flatnonzero(line.field.max(0) > 0.3)
            first, last = int(columns[0]), int(columns[-1])
            cut = line.field[rows, first - 80 : last + 80]
            size = (round(cut.shape[1] * ROWS / len(cut)), ROWS)
            strip = np.asarray(cv2.resize(cut, size, interpolation=cv2.INTER_AREA))
            middle = (80 + (last - first) / 2) * ROWS / len(cut)
            return np.clip(strip * 255, 0, 255).astype(np.uint8), middle


def _any_letters(rng: Rng) -> str:
    return "".join(rng.choice([*_CURSIVE], int(rng.integers(3, 10))))


def _no_number(rng: Rng) -> str:
    kind = rng.random()
    if kind < 0.15:
        return ""
    if kind < 0.5:
        return "".join(rng.choice(_PLAIN, int(rng.integers(2, 9))))
    word = any_word(rng)
    unlike = "" if len(word) > 3 else "OoIlxX"  # a word tells its letters from digits
    return "".join(c if c in LETTERS and c not in unlike else "e" for c in word)


class _Line:
    """The field of ink that a line is written on."""

    def __init__(self, hand: Hand, count: int) -> None:
        self.hand, self.rng = hand, hand.rng
        self.field = np.zeros((_FIELD, int(count * _HIGH * 1.9 + 500)), np.float32)
        self.edge = np.full(_FIELD, -_FAR)  # column of the last ink of each row
        self.top: list[float] = []
        self.foot: list[float] = []
        self.left: float | None = None
        self.loose = 0.0
        self.ends: list[tuple[int, int]] = []  # columns of each character
        self.frames: list[tuple[float, float]] = []  # and of each frame, filled or not

    def write(self, shown: str, *, letters: bool, touching: bool = True) -> bool:
        """Write characters from left to right; False if one does not fit."""
        rng, hand = self.rng, self.hand
        ways = [rng.uniform(*way) for way in ((-0.12, 0.03), (0.02, 0.2), (0.2, 0.75), (0.75, 1.6))]
        self.loose = float(rng.choice(ways, p=[0.37, 0.45, 0.14, 0.04]))
        large = rng.uniform(1.25, 1.6) if rng.random() < 0.05 else 1.0  # of the first digit
        spaced, touch = rng.uniform(0.55, 1.1) + max(self.loose, 0), rng.random() < 0.5 and touching
        wave, small = rng.normal(0, 0.03), rng.random() < 0.15
        cents = shown.rfind("," if "," in shown else ".")
        raised = rng.random() < 0.1 and cents > 0 and len(shown) - cents == 3
        twins, ties = hand.by_pen and rng.random() < 0.25, hand.by_pen and touching and rng.random() < 0.4
        last: Point | None = None
        k, gap, x = 0, 0.0, float(_MARGIN)
        while k < len(shown):
            char = shown[k]
            if char == " ":
                gap += spaced * _HIGH * rng.uniform(0.9, 1.2)
                last, k = None, k + 1
                continue
            if twins and shown[k : k + 2] == "00":
                char = "00"
            size = _HIGH * float(np.clip(rng.normal(1, 0.07), 0.72, 1.3))
            size *= large if k == 0 and char.isdigit() else 1
            if small and char == "0":
                size *= rng.uniform(0.42, 0.8)
            lift = rng.normal(0, 0.04) * _HIGH + wave * (x - _MARGIN)
            if raised and k > cents:
                size, lift = size * 0.65, lift - 0.38 * _HIGH
            if letters:
                cover, left, above, begin, end = hand.drawn(hand.letter(char, 0.95 * size), hand.width or 5)
            else:
                cover, left, above, begin, end = hand.character(char, size)
            y = int(_BASE + lift + above)
            if y < 0 or y + len(cover) > _FIELD:
                return False
            slim = char in _SLIM or (k > 0 and shown[k - 1] in _SLIM)
            column = self._column(cover, y, slim, gap)
            want = (self.loose + rng.normal(0, 0.05)) * _HIGH
            if slim or (k > 0 and shown[k - 1] == "/"):
                want = max(want, rng.uniform(0.04, 0.25) * _HIGH)
            elif not gap and not touch:
                want = max(want, 2.0)
            if self.left is None:
                at = _MARGIN
            else:
                at = round(column + want + gap)
                if not gap:  # a digit does not stand behind the one before it
                    first = 0.55 * cover.shape[1] + _profile(cover, left=True).min()
                    at = round(max(at, self.edge.max() - first))
            if not self._put(cover, at, y):
                return False
            origin = np.array([at - left, _BASE + lift])
            tied = ties and not gap and char.isdigit()
            if tied and last is not None and begin is not None and rng.random() < 0.5:
                self._tie(last, begin + origin)
            last = None if end is None else end + origin
            self.left = float(at) if self.left is None else self.left
            self.ends.append((at, at + cover.shape[1]))
            gap, x, k = 0.0, float(self.edge.max()), k + len(char)
            if char.isdigit() or letters:
                self.top.append(y + 3.0)
                self.foot.append(y + len(cover) - 3.0)
        return True

    def join(self, word: str) -> bool:
        """Write a word in joined letters, some of which may fill the strip; False if it does not fit."""
        rng, hand = self.rng, self.hand
        small = _HIGH * rng.uniform(0.35, 1.0)  # height of small letters
        wide = rng.uniform(0.6, 1.1)
        strokes, at = list[NDArray[np.float32]](), 0.0
        for part in word.lower().split() or [_any_letters(rng)]:
            path = list[NDArray[np.float32]]()
            for char in part:
                letter = _CURSIVE.get(char, _CURSIVE["e"])
                moved = (letter + rng.normal(0, 0.05, letter.shape)) * [wide, 1] + [at, 0]
                path.append(moved.astype(np.float32))
                if char in "ij" and rng.random() < 0.8:
                    strokes.append(np.array([[at + 0.3, -1.5], [at + 0.33, -1.5]], np.float32))
                if char in "tf" and rng.random() < 0.8:
                    strokes.append(np.array([[at, -1.2], [at + 0.6, -1.25]], np.float32))
                at += letter[:, 0].max() * wide
            whole, count = np.concatenate(path), 5
            along = np.linspace(0, len(whole) - 1, count * len(whole))
            curve = np.stack([np.interp(along, np.arange(len(whole)), axis) for axis in whole.T], 1)
            smooth = cv2.GaussianBlur(curve, (1, 9), 0, borderType=cv2.BORDER_REPLICATE)
            strokes.insert(0, smooth.astype(np.float32))
            at += rng.uniform(0.4, 1.0)
        strokes = [(stroke * small).astype(np.float32) for stroke in strokes]
        cover, _, above, *_ = hand.drawn(strokes, hand.width or 5)
        if not self._put(cover, _MARGIN, int(_BASE + above)):
            return False
        self.left = float(_MARGIN)
        self.top.append(_BASE - small * rng.choice([1, 1, 2]))
        self.foot.append(_BASE + small * rng.choice([0, 0, 1]))
        return True

    def fill(self, digits: str) -> bool:
        """Write digits into frames, some of which stay empty; False if one does not fit."""
        rng, hand = self.rng, self.hand
        pitch, across = rng.uniform(0.85, 1.9) * _HIGH, rng.uniform(0.75, 1.0)
        slots = list(digits)
        for _ in range(int(rng.integers(1, 4)) if rng.random() < 0.4 or not digits else 0):
            slots.insert(int(rng.integers(len(slots) + 1)), "")
        for k, char in enumerate(slots):
            left = _MARGIN + k * pitch
            self.frames.append((left, left + pitch * across))
            if not char:
                continue
            size = _HIGH * float(np.clip(rng.normal(0.97, 0.09), 0.7, 1.3))
            cover, _, above, *_ = hand.character(char, size)
            y = int(_BASE + rng.normal(0, 0.06) * _HIGH + above)
            at = round(left + (pitch * across - cover.shape[1]) / 2 + rng.normal(0, 0.08) * pitch)
            if y < 0 or y + len(cover) > _FIELD or not self._put(cover, at, y):
                return False
            self.ends.append((at, at + cover.shape[1]))
            self.top.append(y + 3.0)
            self.foot.append(y + len(cover) - 3.0)
        self.left = float(min(_MARGIN, self.ends[0][0] if self.ends else _MARGIN))
        return True

    def _framed(self, top: float, foot: float) -> Cover:
        """Draw the frames of one kind: full ink where a line is."""
        rng, rules = self.rng, np.zeros_like(self.field)
        kind, width = str(rng.choice(_FRAMES)), int(np.exp(rng.uniform(0, np.log(9))))
        spare = rng.uniform(0.05, 0.5, 2) * _HIGH
        y0, y1 = top - spare[0], foot + spare[1]
        lean = rng.uniform(-0.4, 0.4) * (y1 - y0) if rng.random() < 0.15 else 0.0
        dashed, double = rng.random() < 0.12, rng.random() < 0.1
        part = rng.uniform(0.15, 0.35) * (y1 - y0)  # of corners, brackets and ticks

        def draw(*way: tuple[float, float]) -> None:
            points = [np.array([x + lean * ((y0 + y1) / 2 - y) / (y1 - y0), y]) for x, y in way]
            for a, b in pairwise(points):
                pieces = max(1, int(np.hypot(*(b - a)) / 9)) if dashed else 1
                for k in range(pieces):
                    ends = [a + (b - a) * k / pieces, a + (b - a) * (k + (0.5 if dashed else 1)) / pieces]
                    (u, v), (w, z) = np.round(ends).astype(int).tolist()
                    cv2.line(rules, (u, v), (w, z), 1.0, width, cv2.LINE_AA)

        first, last = self.frames[0][0], self.frames[-1][1]
        for at, (x0, x1) in enumerate(self.frames):
            if kind == "cells":
                x1 = self.frames[at + 1][0] if at + 1 < len(self.frames) else x1
                draw((x0, y0), (x0, y1))
                if at + 1 == len(self.frames):
                    draw((x1, y0), (x1, y1))
            elif kind == "rings":
                middle = int((x0 + x1) / 2), int((y0 + y1) / 2)
                size = int((x1 - x0) / 2), int((y1 - y0) / 2)
                cv2.ellipse(rules, middle, size, 0, 0, 360, 1.0, width, cv2.LINE_AA)
            elif kind == "brackets":
                draw((x0 + part / 2, y0), (x0, y0), (x0, y1), (x0 + part / 2, y1))
                draw((x1 - part / 2, y0), (x1, y0), (x1, y1), (x1 - part / 2, y1))
            elif kind == "corners":
                for x, inward in ((x0, part), (x1, -part)):
                    for y, down in ((y0, part), (y1, -part)):
                        draw((x + inward, y), (x, y), (x, y + down))
            elif kind == "under":
                draw((x0, y1), (x1, y1))
            elif kind == "ticks":
                draw((x0, y1 - part), (x0, y1), (x1, y1), (x1, y1 - part))
            else:
                draw((x0, y0), (x1, y0), (x1, y1), (x0, y1), (x0, y0))
                if kind == "fields":
                    grey = rng.uniform(0.08, 0.28)
                    inside = rules[int(y0) : int(y1), int(x0) : int(x1)]
                    np.maximum(inside, grey, out=inside)
                elif double:
                    x0, y2, x1, y3 = np.add(
                        (x0, y0, x1, y1), (width + rng.uniform(2, 5)) * np.array([1, 1, -1, -1])
                    )
                    draw((x0, y2), (x1, y2), (x1, y3), (x0, y3), (x0, y2))
        if kind == "cells":
            for y in (y0, y1)[: int(rng.integers(0, 3))]:
                draw((first, y), (last, y))
        return rules

    def _caption(self, left: float, right: float, top: float, foot: float) -> None:
        """Print a word in small letters over or under the line; an end of the strip may cut it."""
        rng, size = self.rng, self.rng.uniform(0.25, 0.6)
        word = any_word(rng) + " " + any_word(rng)
        high = cv2.getTextSize(word, cv2.FONT_HERSHEY_SIMPLEX, size, 1)[0][1]
        far = rng.uniform(0.3, 0.55) * _HIGH
        row = top - far if rng.random() < 0.4 else foot + far + high
        at, letters = (
            (int(rng.uniform(left - 0.5 * _HIGH, right)), int(row)),
            np.zeros(self.field.shape, np.uint8),
        )
        cv2.putText(letters, word, at, cv2.FONT_HERSHEY_SIMPLEX, size, 255, 1, cv2.LINE_AA)
        np.maximum(self.field, letters / np.float32(255), out=self.field)

    def _column(self, cover: Cover, y: int, slim: bool, gap: float) -> float:
        """Column at which a cover would touch what stands before it."""
        own = _profile(cover, left=True)
        reach = 24 if slim else 7  # rows above and below count as well: none slips under another
        edge = cv2.dilate(self.edge[:, None].astype(np.float32), np.ones((2 * reach + 1, 1)))[:, 0]
        between = own - edge[y : y + len(own)]
        nearest = float(between.min(initial=_FAR))
        return -nearest if nearest < _FAR / 2 else float(self.edge.max() - own.min())

    def _put(self, cover: Cover, column: int, row: int) -> bool:
        high, wide = cover.shape
        if row < 0 or column < 0 or row + high > len(self.field) or column + wide > self.field.shape[1]:
            return False
        part = self.field[row : row + high, column : column + wide]
        np.maximum(part, cover, out=part)
        edge = self.edge[row : row + high]
        np.maximum(edge, _profile(cover, left=False) + column, out=edge)
        return True

    def _tie(self, a: Point, b: Point) -> None:
        """Join the end of one digit's path with the beginning of the next."""
        rng = self.rng
        middle = (a + b) / 2 + [0, rng.uniform(0, 0.3) * _HIGH]
        t = np.linspace(0, 1, 9)[:, None]
        self._polyline((1 - t) ** 2 * a + 2 * t * (1 - t) * middle + t**2 * b, rng.uniform(0.5, 1))

    def _polyline(self, path: NDArray[np.floating], share: float = 1.0) -> None:
        points, width = np.round(path * 8).astype(np.int32), max(1, int((self.hand.width or 4) * share))
        cv2.polylines(self.field, [points], False, 1.0, width, cv2.LINE_AA, 3)

    def strip(self, text: str) -> NDArray[np.uint8]:
        """Add what else is on such a line and cut the strip out of the field."""
        rng, high = self.rng, _HIGH
        left = float(_MARGIN if self.left is None else self.left)
        right = float(self.edge.max()) if self.top else left + high * rng.uniform(0.5, 4)
        top, foot = min(self.top, default=_BASE - high), max(self.foot, default=float(_BASE))
        if text and rng.random() < 0.06:
            left, right = self._beside(left, right, "x" in text)
        if rng.random() < 0.14:
            self._neighbours(left, right, top, foot)
        if not text and rng.random() < 0.3:
            for _ in range(int(rng.integers(1, 4))):  # a scribble
                way = np.cumsum(rng.normal(0, 0.5 * high, (int(rng.integers(4, 20)), 2)), 0)
                self._polyline(way * [1.2, 0.3] + [(left + right) / 2, _BASE - high / 2])
        if rng.random() < (0.3 if self.frames else 0.05):
            self._caption(left, right, top, foot)
        if self.frames:
            left, right = min(left, self.frames[0][0]), max(right, self.frames[-1][1])
            field = self.field * rng.uniform(0.5, 1)  # a frame may be darker than the writing
            field = np.maximum(field, self._framed(top, foot) * rng.uniform(0.35, 1))
            above, below = rng.uniform(-0.03, 0.9, 2) * high
        else:
            field = np.maximum(self.field, self._rules(left, right, top, foot) * rng.uniform(0.3, 1))
            above, below = rng.uniform(-0.03, 0.5, 2) * high
        tight = rng.random(2) < 0.3  # the cut may touch the ink
        before, after = np.where(tight, rng.uniform(-0.06, 0.1, 2), rng.uniform(0.02, 1.0, 2)) * high
        cut = field[
            max(0, int(top - above)) : int(foot + below), max(0, int(left - before)) : int(right + after)
        ]
        size = (max(16, round(cut.shape[1] * ROWS / len(cut))), ROWS)
        strip = cv2.resize(cut, size, interpolation=cv2.INTER_AREA if len(cut) > ROWS else cv2.INTER_LINEAR)
        return np.asarray(np.clip(np.asarray(strip) * 255, 0, 255), np.uint8)

    def _beside(self, left: float, right: float, letters: bool) -> tuple[float, float]:
        """Write a unit behind the number or a currency before it: neither is read. Its new ends."""
        rng, hand, high = self.rng, self.hand, _HIGH
        if rng.random() < 0.35:
            points, cuts = shape(str(rng.choice(["S", "E", "L"])))
            bar = [[0.33, -0.15], [0.33, 1.15]] if rng.random() < 0.7 else [[-0.1, 0.5], [0.7, 0.5]]
            lines = [points[a:b] for a, b in pairwise(cuts)] + [np.array(bar, np.float32)]
            strokes = [((line - [0, 1]) * high).astype(np.float32) for line in lines]
            cover, _, above, *_ = hand.drawn(strokes, hand.width)
            before = int(left - cover.shape[1] - rng.uniform(0.1, 0.4) * high)
            return (float(before), right) if self._put(cover, before, int(_BASE + above)) else (left, right)
        if letters:
            return left, right
        at = right + rng.uniform(0.3, 0.8) * high
        for char in any_word(rng)[:3]:
            if char in _PLAIN:
                cover, _, above, *_ = hand.drawn(hand.letter(char, 0.9 * high), hand.width)
                if self._put(cover, int(at), int(_BASE + above)):
                    at = right = int(at) + cover.shape[1] + 3.0
        return left, right

    def _neighbours(self, left: float, right: float, top: float, foot: float) -> None:
        """Ends of strokes of the lines above and below."""
        rng, high = self.rng, _HIGH
        for row, way in ((top - rng.uniform(0.2, 0.5) * high, -1), (foot + rng.uniform(0.2, 0.5) * high, 1)):
            if rng.random() < 0.6:
                for x in rng.uniform(left, right, int(rng.integers(1, 5))):
                    ends = [[x, row + 0.2 * way * high], [x + rng.normal(0, 0.2) * high, row]]
                    self._polyline(np.array(ends))

    def _rules(self, left: float, right: float, top: float, foot: float) -> Cover:
        """Printed rules under and over the line, walls of a cell, a comb between digits."""
        rng, high = self.rng, _HIGH
        rules = np.zeros_like(self.field)
        rows, columns = rules.shape

        def draw(x0: float, y0: float, x1: float, y1: float, width: int) -> None:
            cv2.line(rules, (int(x0), int(y0)), (int(x1), int(y1)), 1.0, width, cv2.LINE_AA)

        if rng.random() < 0.3:
            for _ in range(int(rng.integers(1, 3))):
                rows_at = [top - rng.uniform(0, 0.3) * high, foot + rng.uniform(-0.08, 0.3) * high]
                row = float(rng.choice(rows_at))
                draw(0, row, columns, row + rng.normal(0, 0.02) * columns, int(rng.integers(1, 4)))
        if rng.random() < 0.16:
            for x in (left - rng.uniform(0.1, 0.5) * high, right + rng.uniform(0.08, 0.5) * high):
                if rng.random() < 0.6:
                    draw(x, 0, x + rng.normal(0, 0.02) * rows, rows, int(rng.integers(1, 4)))
        if rng.random() < 0.25 and self.loose > 0.15 and self.ends:  # a cell for each character
            first, last = self.ends[0][0], self.ends[-1][1]
            between = [(a[1] + b[0]) / 2 for a, b in pairwise(self.ends)]
            spare = rng.uniform(0.15, 0.4, 4) * high
            walls = [first - spare[0], *between, last + spare[1]]
            above, below, width = top - spare[2], foot + spare[3], int(rng.integers(1, 4))
            for x in walls:
                draw(x, above, x + rng.normal(0, 1), below, width)
            for row in (above, below)[: int(rng.integers(0, 3))]:
                draw(walls[0], row, walls[-1], row + rng.normal(0, 2), width)
        if rng.random() < 0.04:  # around the whole number
            across, tall = (right - left) / 2 + rng.uniform(0.2, 0.6) * high, rng.uniform(0.65, 0.95) * high
            middle, size = (int((left + right) / 2), int((top + foot) / 2)), (int(across), int(tall))
            if rng.random() < 0.5:
                cv2.ellipse(rules, middle, size, 0, 0, 360, 1.0, int(rng.integers(1, 4)), cv2.LINE_AA)
            else:
                (x, y), (w, h) = middle, size
                cv2.rectangle(
                    rules, (x - w, y - h), (x + w, y + h), 1.0, int(rng.integers(1, 4)), cv2.LINE_AA
                )
        if rng.random() < 0.05 and self.loose > 0.2:
            for x in np.arange(left - 0.3 * high, right + high, high * rng.uniform(0.9, 1.4)):
                draw(x, foot - rng.uniform(0, 0.3) * high, x, rows, 1)
        return rules


def _profile(cover: Cover, *, left: bool) -> NDArray[np.int64]:
    """Column of the outermost ink of each row, or far away."""
    dark = cover > 0.35
    if left:
        return np.where(dark.any(1), dark.argmax(1), _FAR)
    return np.where(dark.any(1), cover.shape[1] - 1 - dark[:, ::-1].argmax(1), -_FAR)
