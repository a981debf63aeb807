"""Marks that are no digits, in the form of isolated digits: what planes of US4 learn to reject.

Letters and signs in fonts that packages ship, scribbles, crosses, bars, pairs and pieces of
digits, blots, specks. Each is drawn as ink and brought to 28 x 28 by the same function that
brings found ink there. Letters, signs and pieces that pass for a digit (O, l, /, ...) are left
out. Kinds and fonts fall into two parts: one to learn from, one *held back* to measure with.
The same seed gives the same pictures where the same fonts are installed.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from neocog.errors import UsageError
from neocog.vision.normalise import SIDE, normalise

Ink = NDArray[np.floating[Any]]
Digits = NDArray[np.uint8]
Random = np.random.Generator
Draw = Callable[[Random, "Source"], Ink]

LETTERS = "ACEFHKLMNPRTUVWXcefhkmnprtuvwx"
SIGNS = '+-=*#&%@?<{}~^:;"$'
_FIELD = 96  # side of the field that marks are drawn in
_LEAST = 25 * 255  # a picture with less ink is drawn again
_HERSHEY = (
    "SIMPLEX", "PLAIN", "DUPLEX", "COMPLEX", "COMPLEX_SMALL", "SCRIPT_SIMPLEX",
)  # fmt: skip
_HERSHEY_HELD = ("TRIPLEX", "SCRIPT_COMPLEX")
#: Beginnings of the files of matplotlib's fonts that letters are learned from, and held back.
_FILES = ("DejaVuSans", "cmr", "cmss", "cmtt")
_FILES_HELD = ("DejaVuSerif", "STIXGeneral", "cmti")


class Source:
    """What marks are drawn from: digits to break or to join, and fonts.

    Parameters
    ----------
    digits : ndarray of uint8, shape (N, 28, 28)
    labels : ndarray of int, shape (N,)
    held : bool
        Fonts that are held back, or those to learn from.
    """

    def __init__(self, digits: Digits, labels: NDArray[np.int64], *, held: bool) -> None:
        self.digits, self.held = digits, held
        self.own = [np.flatnonzero(labels == label) for label in range(10)]
        names = _HERSHEY_HELD if held else _HERSHEY
        self.strokes = [getattr(cv2, f"FONT_HERSHEY_{name}") for name in names]
        self.outlines = [
            path for path in _font_files() if path.name.startswith(_FILES_HELD if held else _FILES)
        ]

    def digit(self, rng: Random, label: int | None = None) -> Ink:
        """Return a digit, ink 0 .. 1."""
        own = np.arange(len(self.digits)) if label is None else self.own[label]
        if not len(own):
            own = np.arange(len(self.digits))
        ink: Ink = self.digits[own[rng.integers(len(own))]].astype(np.float32) / 255
        return ink


@cache
def _font_files() -> tuple[Path, ...]:
    """Outline fonts that matplotlib ships; none where it is not installed."""
    try:
        import matplotlib
    except ImportError:
        return ()
    return tuple(sorted(Path(matplotlib.get_data_path(), "fonts", "ttf").glob("*.ttf")))


# --- letters and signs ----------------------------------------------------------------------------


def _character(rng: Random, source: Source, characters: str) -> Ink:
    char = characters[rng.integers(len(characters))]
    if source.outlines and rng.random() < 0.6:
        path = source.outlines[rng.integers(len(source.outlines))]
        return _from_outline(char, path)
    return _from_strokes(char, rng, source)


def _from_outline(char: str, path: Path) -> Ink:
    font = _font(path)
    picture = Image.new("L", (_FIELD, _FIELD))
    ImageDraw.Draw(picture).text((_FIELD / 2, _FIELD / 2), char, fill=255, font=font, anchor="mm")
    return np.asarray(picture, dtype=np.float32) / 255


@cache
def _font(path: Path) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(str(path), 60)


def _from_strokes(char: str, rng: Random, source: Source) -> Ink:
    face = int(source.strokes[rng.integers(len(source.strokes))])
    field = np.zeros((_FIELD, _FIELD), np.uint8)
    (wide, high), _ = cv2.getTextSize(char, face, 1.0, 1)
    size = 55 / max(wide, high, 1)
    pen = int(rng.integers(2, 8))
    start = (int((_FIELD - size * wide) / 2), int((_FIELD + size * high) / 2))
    cv2.putText(field, char, start, face, size, 255, pen, cv2.LINE_AA)
    return field.astype(np.float32) / 255


def letter(rng: Random, source: Source) -> Ink:
    """A letter that no digit resembles."""
    return _character(rng, source, LETTERS)


def sign(rng: Random, source: Source) -> Ink:
    """A sign, or an operator."""
    return _character(rng, source, SIGNS)


# --- made of digits -------------------------------------------------------------------------------


def pair(rng: Random, source: Source) -> Ink:
    """Two digits that touch."""
    return _side_by_side(rng, source, 2)


def triple(rng: Random, source: Source) -> Ink:
    """Three digits that touch."""
    return _side_by_side(rng, source, 3)


def _side_by_side(rng: Random, source: Source, count: int) -> Ink:
    out = np.zeros((SIDE + 8, 4), np.float32)
    for _ in range(count):
        digit = source.digit(rng)
        columns = np.flatnonzero(digit.max(axis=0) > 0.3)
        if not columns.size:
            continue
        digit = digit[:, columns[0] : columns[-1] + 1]
        digit = np.roll(np.pad(digit, ((4, 4), (0, 0))), rng.integers(-3, 4), axis=0)
        overlap = min(int(rng.integers(0, 4)), digit.shape[1])
        wide = np.zeros((len(out), out.shape[1] + digit.shape[1] - overlap), np.float32)
        wide[:, : out.shape[1]] = out
        wide[:, -digit.shape[1] :] = np.maximum(wide[:, -digit.shape[1] :], digit)
        out = wide
    return out


#: Halves of digits that are no other digit: label, and True for the upper half.
_HALVES = ((0, True), (0, False), (2, False), (3, True), (3, False), (4, True), (5, False))


def piece(rng: Random, source: Source) -> Ink:
    """The upper or lower half of a digit."""
    label, upper = _HALVES[rng.integers(len(_HALVES))]
    digit = source.digit(rng, label)
    rows = np.flatnonzero(digit.max(axis=1) > 0.3)
    if not rows.size:
        return digit
    cut = rows[0] + round((rows[-1] - rows[0]) * rng.uniform(0.4, 0.6))
    return digit[:cut] if upper else digit[cut:]


# --- strokes --------------------------------------------------------------------------------------


def _lines(rng: Random, lines: list[NDArray[np.float64]], pen: int | None = None) -> Ink:
    """Draw open lines, coordinates 0 .. 1."""
    field = np.zeros((_FIELD, _FIELD), np.uint8)
    pen = int(rng.integers(3, 11)) if pen is None else pen
    for line in lines:
        points = np.round((0.15 + 0.7 * line) * _FIELD).astype(np.int32)
        cv2.polylines(field, [points], False, 255, pen, cv2.LINE_AA)
    return field.astype(np.float32) / 255


def _turned(line: NDArray[np.float64], angle: float) -> NDArray[np.float64]:
    cos, sin = np.cos(angle), np.sin(angle)
    turned: NDArray[np.float64] = (line - 0.5) @ np.array([[cos, sin], [-sin, cos]]) + 0.5
    return turned


def scribble(rng: Random, source: Source) -> Ink:
    """One stroke with more turns than a digit has."""
    points = rng.random((int(rng.integers(7, 12)), 2))
    if rng.random() < 0.6:  # curved
        t = np.linspace(0, len(points) - 1, 60)
        near = np.clip(1 - np.abs(t[:, None] - np.arange(len(points))) / 1.2, 0, None) ** 1.5
        points = near @ points / near.sum(axis=1, keepdims=True)
    return _lines(rng, [points])


def cross(rng: Random, source: Source) -> Ink:
    """Two strokes across each other, a T, an L or a star."""
    level = np.array([[0, 0.5], [1, 0.5]])
    shapes = [
        [level, level[:, ::-1]],
        [np.array([[0, 0], [1, 0]]), np.array([[0.5, 0], [0.5, 1]])],
        [np.array([[0.1, 0], [0.1, 1], [0.9, 1]])],
        [_turned(level, k * np.pi / 3) for k in range(3)],
    ]
    which = int(rng.integers(len(shapes)))
    angle = rng.uniform(-0.25, 0.25) + (np.pi / 4) * (which == 0 and rng.random() < 0.5)
    lines = [line + rng.normal(0, 0.02, line.shape) for line in shapes[which]]
    return _lines(rng, [_turned(line, angle) for line in lines])


def bar(rng: Random, source: Source) -> Ink:
    """A level stroke, a wave or two strokes: dashes, rules and underlines."""
    x = np.linspace(0, 1, 30)
    wave = rng.uniform(0, 0.12) * np.sin(rng.uniform(0, 14) * x + rng.uniform(0, 6))
    line = np.stack([x, 0.5 + wave], axis=1)
    below = line + np.array([0, rng.uniform(0.15, 0.4)])
    lines = [line] if rng.random() < 0.6 else [line, below]
    angle = rng.uniform(-0.4, 0.4)
    return _lines(rng, [_turned(line, angle) for line in lines])


def frame(rng: Random, source: Source) -> Ink:
    """A box, a triangle or a diamond with a stroke through it."""
    corners = int(rng.integers(3, 5))
    angle = np.arange(corners + 1) * 2 * np.pi / corners + rng.uniform(0, 0.5)
    line = 0.5 + 0.5 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    inside = rng.random((2, 2))
    return _lines(rng, [line, inside] if rng.random() < 0.5 else [line, line[:3] * 0.6 + 0.2])


def comb(rng: Random, source: Source) -> Ink:
    """Three or more strokes side by side, with a back or without."""
    count = int(rng.integers(3, 6))
    lines = [np.array([[x, 0.0], [x, 1.0]]) for x in np.linspace(0, 1, count)]
    if rng.random() < 0.5:
        lines.append(np.array([[0.0, 0.5], [1.0, 0.5]]))
    angle = rng.choice([0, np.pi / 2]) + rng.uniform(-0.3, 0.3)
    return _lines(rng, [_turned(line, float(angle)) for line in lines], int(rng.integers(3, 7)))


# --- spots ----------------------------------------------------------------------------------------


def blot(rng: Random, source: Source) -> Ink:
    """A filled spot, round or ragged."""
    angle = np.linspace(0, 2 * np.pi, 24, endpoint=False)
    radius = 0.3 + rng.uniform(0, 0.12) * rng.normal(size=24)
    middle, stretch = 0.5, rng.uniform(0.6, 1.0)
    points = middle + radius[:, None] * np.stack([np.cos(angle), stretch * np.sin(angle)], axis=1)
    field = np.zeros((_FIELD, _FIELD), np.uint8)
    cv2.fillPoly(field, [np.round(points * _FIELD).astype(np.int32)], 255, cv2.LINE_AA)
    turn = cv2.getRotationMatrix2D((_FIELD / 2, _FIELD / 2), rng.uniform(0, 180), 1.0)
    turned = cv2.warpAffine(field, turn, (_FIELD, _FIELD))
    return np.asarray(turned, dtype=np.float32) / 255


def specks(rng: Random, source: Source) -> Ink:
    """Several dots."""
    field = np.zeros((_FIELD, _FIELD), np.uint8)
    for _ in range(int(rng.integers(3, 14))):
        x, y = rng.integers(10, _FIELD - 10, 2).tolist()
        cv2.circle(field, (x, y), int(rng.integers(2, 9)), 255, -1, cv2.LINE_AA)
    return field.astype(np.float32) / 255


def texture(rng: Random, source: Source) -> Ink:
    """Rough paper, cut at a threshold: patches without a line."""
    cells = int(rng.integers(5, 16))
    coarse = rng.normal(size=(cells, cells)).astype(np.float32)
    rough = cv2.resize(coarse, (_FIELD, _FIELD), interpolation=cv2.INTER_CUBIC)
    field = np.clip(3 * (np.asarray(rough, np.float32) - rng.uniform(0.3, 0.9)), 0, 1)
    return np.asarray(field, np.float32)


#: Kinds to learn from, with their shares; the others are held back.
KINDS: dict[Draw, float] = {
    letter: 4, sign: 2, pair: 3, piece: 1, scribble: 2, cross: 1, bar: 1.5, blot: 1, specks: 1,
}  # fmt: skip
#: Kinds (and, of letters and signs, fonts) that nothing is learned from.
HELD: dict[Draw, float] = {letter: 3, sign: 2, triple: 1, frame: 1, comb: 1, texture: 1}


def negatives(
    count: int, digits: Digits, labels: NDArray[np.int64], *, seed: int, held: bool = False
) -> tuple[Digits, NDArray[np.int64], tuple[str, ...]]:
    """Draw marks that are no digits.

    Parameters
    ----------
    count : int
        How many.
    digits, labels : ndarray
        Digits (N, 28, 28) uint8 and what they are, to break and to join.
    seed : int
        The same gives the same marks.
    held : bool
        Draw the kinds and fonts that are held back.

    Returns
    -------
    marks : ndarray of uint8, shape (count, 28, 28)
    kind : ndarray of int64, shape (count,)
        Number of the kind of each.
    names : tuple of str
        Names of the kinds.

    Raises
    ------
    UsageError
        If there are no digits.
    """
    if not len(digits):
        raise UsageError("no digits came; wanted some to break and to join")
    kinds = HELD if held else KINDS
    draws, shares = list(kinds), np.array(list(kinds.values()))
    source = Source(digits, labels, held=held)
    rng = np.random.default_rng([seed, int(held), 11])
    kind = rng.choice(len(draws), size=count, p=shares / shares.sum())
    marks = np.zeros((count, SIDE, SIDE), np.uint8)
    for i, k in enumerate(kind):
        for _ in range(20):
            marks[i] = normalise(draws[k](rng, source))
            if marks[i].sum() > _LEAST:
                break
    return marks, kind.astype(np.int64), tuple(draw.__name__ for draw in draws)
