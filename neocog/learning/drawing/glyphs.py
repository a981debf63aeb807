"""Digits, signs, letters, words and drawings as the strokes of a pen: (n, 2), (x, y), y down.

`shapes.json` holds them, set down by hand, not traced from any picture; `held.json` what only measures.
Other scripts are the outlines of a typeface, thinned to the path of a pen. Drawings are of a few strokes that
are no digits, with coordinates from 0 to about 1.
"""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import cast

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from neocog.learning.drawing.fields import Rng, arc, inked, rotation
from neocog.learning.drawing.pen import Line, rounded, trace

SHAPES = json.loads(Path(__file__).with_name("shapes.json").read_text(encoding="utf-8"))
#: what only measures
HELD_OUT = json.loads(Path(__file__).with_name("held.json").read_text(encoding="utf-8"))

_SEGMENTS = "abcdef bc abged abgcd fgbc afgcd afgedc abc abcdefg abcdfg".split()
LETTERS = "".join(SHAPES["letters"])
_VOWELS, _CONSONANTS = "aeiou", "bcdfghklmnprstvwxz"

_ENDS = {"latin": (0x61, 0x7B), "hebrew": (0x5D0, 0x5EB), "georgian": (0x10D0, 0x10F1),
         "greek": (0x3B1, 0x3CA), "cyrillic": (0x430, 0x450), "armenian": (0x561, 0x587)}  # fmt: skip
SCRIPTS = {name: "".join(map(chr, range(*ends))) for name, ends in _ENDS.items()}
SCRIPTS["arabic"] = "".join(map(chr, (*range(0x628, 0x63B), *range(0x641, 0x64B))))

_EM = 44


def strokes_of(form: str) -> list[Line]:
    """Return the strokes that a row of tokens stands for, in columns and rows."""
    return [np.array([(int(at[0]), int(at[1:])) for at in stroke.split("-")], np.float32)
            for stroke in form.split()]  # fmt: skip


@cache
def shape(character: str) -> list[list[Line]]:
    """Return the forms of a sign or a letter: strokes, 0 .. 1 from the top of capitals to the baseline."""
    forms = SHAPES["signs"].get(character) or [SHAPES["letters"][character]]
    return [[line / np.float32(6) for line in strokes_of(form)] for form in forms]


@cache
def _styles(digit: int) -> list[list[Line]]:
    return [strokes_of(form) for kind in ("digits", "rare") for form in SHAPES[kind][digit]]


def styles_of(digit: int, *, rare: bool = False) -> int:
    """How many styles a digit has; rare ones come after the others."""
    return len(_styles(digit)) if rare else len(SHAPES["digits"][digit])


def any_allograph(rng: Rng) -> tuple[int, int]:
    """Choose a digit and one of its styles; all styles are as likely."""
    counts = np.array([styles_of(digit) for digit in range(10)])
    digit = int(rng.choice(10, p=counts / counts.sum()))
    return digit, int(rng.integers(counts[digit]))


def allograph(digit: int, style: int, rng: Rng) -> list[Line]:
    """Draw a digit in a style: its strokes, the digit about 6 high."""
    return [rounded(shaken(line, 0.24, rng), 3) for line in _styles(digit)[style]]


def segments(digit: int, rng: Rng) -> list[Line]:
    """Draw a digit of up to seven straight strokes, as a display shows it, 2 high."""
    gap, loose = rng.uniform(-0.05, 0.14), rng.uniform(0, 0.05)
    every = dict(zip("abcdefg", strokes_of("00-10 10-11 11-12 02-12 01-02 00-01 01-11"), strict=True))
    ends = [every[one] for one in _SEGMENTS[digit]]
    return [shaken(line + gap * (line.mean(0) - line), loose, rng) for line in ends]


def shaken(line: Line, much: float, rng: Rng) -> Line:
    return np.asarray(line + rng.normal(0, much, line.shape), np.float32)


def alike_word(rng: Rng) -> str:
    """Make up a word in which two of three letters look like digits."""
    kinds = ("lsbgqz", "oi", "aehkmnrtuw")
    word = "".join(str(rng.choice(list(kinds[k % 3]))) for k in rng.permutation(3).tolist() * 3)
    word, kind = word[: int(rng.integers(4, 10))], rng.random()
    return word.upper() if kind > 0.65 else word.capitalize() if kind > 0.5 else word


def any_word(rng: Rng, characters: str | None = None) -> str:
    """Make up a word of 2 to 9 letters, in small letters, capitals or both."""
    count, kind = int(rng.integers(2, 10)), rng.random()
    if characters is not None and kind < 0.3:
        return "".join(rng.choice(list(characters), count))
    first = int(rng.integers(2))
    word = "".join(str(rng.choice(list((_VOWELS, _CONSONANTS)[(k + first) % 2]))) for k in range(count))
    return word.upper() if kind > 0.8 else word.capitalize() if kind > 0.5 else word


class Running:
    """One writer's running hand: loops, ascenders and descenders of one size, letters that hang together."""

    def __init__(self, rng: Rng) -> None:
        self.rng, self.wide = rng, np.exp(rng.normal(0, 0.25))
        self.up, self.down = rng.uniform(0.6, 1.3), rng.uniform(0.5, 1.3)
        self.lifts, self.loose = rng.choice([0, 0.1, 0.4]), rng.uniform(0.04, 0.16)
        self.round, self.body = int(rng.integers(1, 4)), 1.0
        self.own, self.style = dict[str, Line](), 0.0  # how far its letters are from those of the copybook

    def word(self, word: str) -> list[Line]:
        """Return the strokes of a word, 1 from the top of capitals to the baseline, which is at 0."""
        rng, x, path, lines = self.rng, 0.0, list[Line](), list[Line]()

        def lift() -> None:
            if path:
                lines.append(rounded(np.concatenate(path), self.round))
                path.clear()

        for letter in word:
            if letter not in SHAPES["joined"]:
                lift()
                own = [line * 6 + np.array([x, 0], np.float32) for line in shape(letter)[0]]
                lines += [rounded(shaken(line, 2 * self.loose, rng), 2) for line in own]
                x += max(float(line[:, 0].max()) for line in own) - x + 0.6
                continue
            first, *rest = strokes_of(SHAPES["joined"][letter])
            if self.style and letter not in self.own:
                far = rng.normal(0, self.style, first.shape) * [1, 0.6]
                self.own[letter] = (first + far).astype(np.float32)
            joined, *others = (shaken(line, self.loose, rng) for line in (self.own.get(letter, first), *rest))
            path.append(joined + np.array([x, 0], np.float32))
            lines += [other + np.array([x, 0], np.float32) for other in others]
            x += float(joined[-1, 0]) + rng.uniform(-0.3, 0.6)
            if rng.random() < self.lifts:
                lift()
        lift()
        for line in lines:  # ascenders and descenders
            row = line[:, 1] - 6
            outer = np.minimum(row + 3, 0) * self.up + np.maximum(row, 0) * self.down
            level = np.clip(row, -3, 0) * self.body + outer
            line[:] = np.stack([line[:, 0] * self.wide, level], 1) / 6
        return lines


def printed(words: str, high: float, rng: Rng) -> tuple[NDArray[np.float32], int]:
    """Print words with capitals so many pixels high: their ink (h, w), and its top below the baseline."""
    if rng.random() < 0.5:
        font = cast(ImageFont.FreeTypeFont, ImageFont.load_default(high / 0.72))
        return shown(font, words, anchor="ls")
    face, thick = int(rng.choice([0, 1, 2, 3, 4])), max(1, round(high * rng.uniform(0.05, 0.16)))
    face |= cv2.FONT_ITALIC * int(rng.random() < 0.15)
    (wide, above), below = cv2.getTextSize(words, face, high / 21, thick)
    field, top = np.zeros((above + below + thick, wide + thick), np.uint8), -above - thick // 2
    cv2.putText(field, words, (0, -top), face, high / 21, 255, thick, cv2.LINE_AA)
    return inked(field), top


def shown(font: ImageFont.FreeTypeFont, words: str, anchor: str = "la") -> tuple[NDArray[np.float32], int]:
    """Words in a font (h, w), ink 1, and their top below the ascender, or another of Pillow's anchors."""
    left, top, right, bottom = (int(v) for v in font.getbbox(words, anchor=anchor))
    sheet = Image.new("L", (max(1, right - left), max(1, bottom - top)), 0)
    ImageDraw.Draw(sheet).text((-left, -top), words, fill=255, font=font, anchor=anchor)
    return inked(np.asarray(sheet)), top


class Face:
    """A typeface, from a file or Pillow's own: characters as pictures, and as strokes of a pen."""

    def __init__(self, file: Path | None = None) -> None:
        own = ImageFont.truetype(file, _EM) if file else ImageFont.load_default(_EM)
        self.font = cast(ImageFont.FreeTypeFont, own)
        self._none = bytes(self.font.getmask("\u0378"))  # what it shows for a character that it lacks
        self.scripts = [name for name, own in SCRIPTS.items() if all(map(self.has, own))]
        self._pictures: dict[str, tuple[NDArray[np.uint8], int]] = {}
        self._strokes: dict[str, list[Line]] = {}

    def has(self, character: str) -> bool:
        return bytes(self.font.getmask(character)) != self._none

    def picture(self, character: str) -> tuple[NDArray[np.uint8], int]:
        """Return a character (h, w), ink 255, and its top below the ascender; 44 pixels are an em."""
        if character not in self._pictures:
            cover, top = shown(self.font, character)
            self._pictures[character] = (255 * cover + 0.5).astype(np.uint8), top
        return self._pictures[character]

    def strokes(self, character: str) -> list[Line]:
        """Return a character as a pen would write it, 1 from ascender to baseline, which is at 0."""
        if character not in self._strokes:
            picture, top = self.picture(character)
            side, down = max(picture.shape) + 4, np.array([0, top - self.font.getmetrics()[0]])
            field = np.zeros((side, side), np.uint8)
            field[2 : 2 + len(picture), 2 : 2 + picture.shape[1]] = picture
            found = [(line * (side / 84) - 2 + down) / (0.72 * _EM) for line in trace(field)]
            self._strokes[character] = [line.astype(np.float32) for line in found]
        return self._strokes[character]

    def any_word(self, rng: Rng, script: str) -> str:
        """Make up a word of 3 to 9 letters of a script."""
        return "".join(rng.choice(list(SCRIPTS[script]), int(rng.integers(3, 10))))


Curve = NDArray[np.float64]


def turned(line: Curve, angle: float) -> Curve:
    """Turn a line about (0.5, 0.5)."""
    return np.asarray((line - 0.5) @ rotation(-angle) + 0.5, np.float64)


def curve(points: Curve, count: int = 40) -> Curve:
    """Round the corners of a line: a mean of its points that moves along it."""
    at = np.linspace(0, len(points) - 1, count)
    near = np.clip(1 - np.abs(at[:, None] - np.arange(len(points))) / 1.2, 0, None) ** 1.5
    return np.asarray(near @ points / near.sum(axis=1, keepdims=True), np.float64)


def form(rng: Rng) -> list[Curve]:
    """One of the things that people draw beside numbers, at any angle now and then."""
    round_ = rng.random() < 0.35
    forms = SHAPES["round" if round_ else "sharp"]
    lines = strokes_of(forms[rng.integers(len(forms))])
    if round_:
        lines = [rounded(line, 3) for line in lines]
    angle = rng.normal(0, 0.15) if rng.random() < 0.7 else rng.uniform(0, 6.3)
    return [turned((line + rng.normal(0, 0.15, line.shape)) / 6, angle) for line in lines]


def scribble(rng: Rng) -> list[Curve]:
    """One stroke with more turns than a digit has."""
    points = rng.random((int(rng.integers(7, 12)), 2))
    return [curve(points, 60) if rng.random() < 0.6 else points]


def zigzag(rng: Rng) -> list[Curve]:
    """Back and forth, as a word is blotted out."""
    count = int(rng.integers(6, 14))
    x = np.linspace(0, 1, count) + rng.normal(0, 0.03, count)
    y = 0.5 + rng.uniform(0.15, 0.5) * np.where(np.arange(count) % 2, 1, -1)
    line = np.stack([x, y + rng.normal(0, 0.05, count)], axis=1)
    line = curve(line, 80) if rng.random() < 0.5 else line
    return [turned(line, rng.uniform(-0.8, 0.8))]


def bar(rng: Rng) -> list[Curve]:
    """A level stroke, a wave or two strokes: dashes, rules and underlines."""
    x = np.linspace(0, 1, 30)
    wave = rng.uniform(0, 0.12) * np.sin(rng.uniform(0, 14) * x + rng.uniform(0, 6))
    line = np.stack([x, 0.5 + wave], axis=1)
    below = line + np.array([0, rng.uniform(0.15, 0.4)])
    lines, angle = [line] if rng.random() < 0.6 else [line, below], rng.uniform(-0.4, 0.4)
    return [turned(line, angle) for line in lines]


def polygon(rng: Rng) -> list[Curve]:
    """Three to six corners, not round: plain, doubled or with a stroke inside."""
    corners = int(rng.choice([3, 3, 4, 4, 5, 6]))
    angle = 2 * np.pi * (np.arange(corners) + rng.uniform(-0.15, 0.15, corners)) / corners
    line = 0.5 + 0.5 * rng.uniform(0.75, 1, (corners, 1)) * arc(angle)
    line = turned(np.concatenate([line, line[:1]]), rng.uniform(0, 2 * np.pi))
    inside = rng.random()
    if inside < 0.25:
        return [line, rng.random((2, 2))]
    return [line, 0.5 + rng.uniform(0.4, 0.7) * (line - 0.5)] if inside < 0.5 else [line]


def figure(rng: Rng) -> list[Curve]:
    """Three to five lines, arcs, rings and angles in disorder."""
    lines: list[Curve] = []
    for _ in range(int(rng.integers(3, 6))):
        kind, middle = rng.random(), rng.uniform(0.1, 0.9, 2)
        if kind < 0.3:
            lines.append(rng.random((2, 2)))
        elif kind < 0.55:
            lines.append(curve(rng.random((3, 2)), 16))
        elif kind < 0.8:
            radius, high, angle = rng.uniform(0.08, 0.3), rng.uniform(0.6, 1.5), np.linspace(0, 2 * np.pi, 24)
            lines.append(middle + radius * (arc(angle) * [1, high]))
        else:
            lines.append(middle + rng.uniform(-0.4, 0.4, (3, 2)))
    return lines


def closed(rng: Rng) -> list[Curve]:
    """A smooth closed curve: a leaf, a cloud, a blob."""
    angle = np.linspace(0, 2 * np.pi, 40)
    order = np.arange(2, 7)[:, None]
    wave = rng.normal(size=(5, 1)) / order * np.cos(order * angle + rng.uniform(0, 7, (5, 1)))
    radius = 0.4 * (1 + rng.uniform(0.1, 0.9) * wave.sum(axis=0))
    return [0.5 + np.stack([radius * np.cos(angle), rng.uniform(0.3, 1) * radius * np.sin(angle)], axis=1)]


def branch(rng: Rng) -> list[Curve]:
    """A plant: each branch gives off two or three."""
    lines, ends = [], [(np.array([0.5, 1.0]), -np.pi / 2, 0.4)]
    for _ in range(int(rng.integers(4, 14))):
        at, way, long = ends.pop(0)
        bend = way + rng.normal(0, 0.3)
        middle = at + 0.5 * long * arc(way)
        end = middle + 0.5 * long * arc(bend)
        lines.append(curve(np.array([at, middle, end]), 6))
        for _ in range(int(rng.integers(1, 4))):
            ends.append((end, way + rng.normal(0, 0.7), long * rng.uniform(0.5, 0.9)))
    return lines


def doodle(rng: Rng) -> list[Curve]:
    """Loops that run along, as a pen is tried out: a spring, a wave, a spiral."""
    t = np.linspace(0, 2 * np.pi * rng.uniform(2, 9), 120)
    along, size = rng.uniform(0.02, 0.3), np.linspace(1, rng.uniform(0.2, 1.2), 120)
    x = 0.3 * size * np.cos(t) * rng.uniform(0, 1) + along * t / 2
    y = 0.5 + rng.uniform(0.2, 0.5) * size * np.sin(t * rng.choice([1, 1, 2]) + rng.uniform(0, 3))
    line = np.stack([x, y + rng.normal(0, 0.02, 120)], axis=1)
    return [turned(line, rng.normal(0, 0.3))]


def music(rng: Rng) -> list[Curve]:
    """A staff, 1 high, with a clef, notes, rests and bars; up to ten times as long."""
    long, skew = rng.uniform(2, 10), rng.normal(0, 0.02)
    staff = [np.array([[0, y], [long, y + skew]]) for y in np.linspace(0, 1, 5)]
    lines = staff if rng.random() < 0.85 else []
    if rng.random() < 0.5:
        clef = strokes_of("37-28-48-41-50-61-34-46-66-64-44")[0] / [10, 5] - [0, 0.2]
        lines.append(curve(clef + rng.normal(0, 0.03, (11, 2)), 40))
    x, up, head = 0.9, rng.random() < 0.7, rng.uniform(0.1, 0.16)
    ends: list[tuple[float, float]] = []
    while x < long:
        kind, y = rng.random(), rng.uniform(-0.1, 1.1)
        if kind < 0.12:
            lines.append(np.array([[x, 0], [x, 1]]))
        elif kind < 0.2:
            rest = np.array([[0, 0.2], [0.15, 0.4], [0, 0.55], [0.15, 0.7], [0, 0.9]])
            lines.append(curve(rest + np.array([x, 0]), 16))
        else:
            turns = 1 if kind < 0.4 else 4  # open or filled
            t = np.linspace(0, 2 * np.pi * turns, 12 * turns)
            reach = head * np.linspace(1, 0.15 if turns > 1 else 1, len(t))
            right = reach * np.cos(t)
            lines.append(np.stack([x + 1.3 * right, y + reach * np.sin(t) - 0.3 * right], 1))
            foot = (x + (1.3 if up else -1.3) * head, y + (-0.85 if up else 0.85) * rng.uniform(0.8, 1.1))
            if kind > 0.28:
                lines.append(np.array([(foot[0], y), foot]))
                ends.append(foot)
            if kind > 0.9:
                lines.append(np.array([foot, (foot[0] + 0.2, foot[1] + (0.3 if up else -0.3))]))
            elif kind > 0.7 and len(ends) > 1:
                lines.append(np.array(ends[-2:]))
        x += rng.uniform(0.35, 0.9)
    return lines


DRAWINGS: tuple[Callable[[Rng], list[Curve]], ...] = (
    *(form,) * 8, scribble, scribble, polygon, bar, zigzag, figure, figure, figure, branch, branch,
    doodle, doodle, closed, closed,
)  # fmt: skip


def any_drawing(rng: Rng, *, but: int = 0) -> list[Curve]:
    """Draw one of `DRAWINGS` ``but`` for the last ones: a closed curve may be a 0."""
    return DRAWINGS[int(rng.integers(len(DRAWINGS) - but))](rng)
