"""Marks to learn from: letters and signs, drawings, spots, and what digits leave behind.

What they are drawn from comes first, and how a drawing is varied as a hand varies it.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from neocog.learning import drawings
from neocog.learning.drawings import Line, turned
from neocog.vision.normalise import BOX, SIDE, WIDENED, normalise

Ink = NDArray[np.floating[Any]]
Digits = NDArray[np.uint8]
Random = np.random.Generator

FIELD = 96  # side of the field that marks are drawn in
AS_WRITTEN = 0.4  # share of what is learned whose strokes keep their width

#: Letters that pass for no digit; without O o Q D I l i S s Z z B b g q P p.
LETTERS = "ACEFGHJKLMNRTUVWXYacdefhjkmnrtuvwxy"
#: Signs that pass for no digit; without | / and dots.
SIGNS = '+-=*#&%@?<>()[]{}~^:;"$!_'
#: Strokes of a pen (cv2's fonts after A. V. Hershey, 1967), to learn from.
STROKES = ("SIMPLEX", "PLAIN", "DUPLEX", "COMPLEX", "COMPLEX_SMALL", "SCRIPT_SIMPLEX")
#: Halves of digits that are no other digit: label, and True for the upper half.
_HALVES = ((0, True), (0, False), (2, False), (3, True), (3, False), (4, True), (5, False))


class Source:
    """Digits (N, 28, 28) uint8 to break or to join, and what they are."""

    def __init__(self, digits: Digits, labels: NDArray[np.int64]) -> None:
        self._digits = digits
        self._own = [np.flatnonzero(labels == label) for label in range(10)]

    def digit(self, rng: Random, label: int | None = None) -> Ink:
        """Return a digit, ink 0 .. 1; one of any label where there is none of this."""
        own: NDArray[np.int64] = np.arange(len(self._digits))
        if label is not None and len(self._own[label]):
            own = self._own[label]
        ink: Ink = self._digits[own[rng.integers(len(own))]].astype(np.float32) / 255
        return ink


#: Draws one mark: ink 0 .. 1 on a field of any size.
Draw = Callable[[Random, Source], Ink]


def blank() -> NDArray[np.uint8]:
    return np.zeros((FIELD, FIELD), np.uint8)


def inked(field: NDArray[np.uint8]) -> Ink:
    return field.astype(np.float32) / 255


def draw_lines(
    rng: Random, lines: Sequence[Line], angle: float = 0.0, pens: tuple[int, int] = (3, 11)
) -> Ink:
    """Draw open lines, coordinates 0 .. 1, by a pen of ``pens`` (least width, most + 1) pixels."""
    field, pen = blank(), int(rng.integers(*pens))
    for line in lines:
        place = turned(line, angle) if angle else line
        points = np.round((0.15 + 0.7 * place) * FIELD).astype(np.int32)
        cv2.polylines(field, [points], False, 255, pen, cv2.LINE_AA)
    return inked(field)


def inside(ink: NDArray[np.float32]) -> NDArray[np.float32] | None:
    """Return the part of a field that holds its ink; None if there is none."""
    rows, columns = (np.flatnonzero((ink > 0.3).any(axis=axis)) for axis in (1, 0))
    if not len(rows):
        return None
    return ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def as_written(ink: Ink) -> Digits:
    """Bring ink into MNIST's form as sets of digits do, its strokes as wide as they are."""
    body = inside(ink.astype(np.float32))
    long = max((ink if body is None else body).shape)
    return normalise(ink, stroke=WIDENED / BOX * long)


def by_hand(ink: Ink, rng: Random, strength: float = 1.0) -> Ink:
    """Slant, stretch, turn and bend a drawing (FIELD, FIELD); letters stay legible up to 1."""
    angle = strength * rng.normal(0, 0.12)
    shear, wide = strength * rng.normal(0, 0.2), np.exp(strength * rng.normal(0, 0.18))
    cos, sin = np.cos(angle), np.sin(angle)
    turn = np.array([[cos, -sin], [sin, cos]]) @ np.array([[wide, -shear], [0, 1 / wide]])
    bend = strength * rng.normal(0, 2.6, (2, 5, 5)).astype(np.float32)
    right, down = (cv2.resize(part, (FIELD, FIELD), interpolation=cv2.INTER_CUBIC) for part in bend)
    middle = (FIELD - 1) / 2
    rows, columns = np.mgrid[0:FIELD, 0:FIELD].astype(np.float32) - np.float32(middle)
    inverse = np.linalg.inv(turn).astype(np.float32)
    x = inverse[0, 0] * columns + inverse[0, 1] * rows + middle + right
    y = inverse[1, 0] * columns + inverse[1, 1] * rows + middle + down
    moved = cv2.remap(ink.astype(np.float32), x.astype(np.float32), y.astype(np.float32), cv2.INTER_LINEAR)
    bent, grown = np.asarray(moved, np.float32), int(rng.integers(-2, 4))
    if not grown:
        return bent
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * abs(grown) + 1,) * 2)
    if grown > 0:
        return np.asarray(cv2.dilate(bent, kernel), np.float32)
    thin = np.asarray(cv2.erode(bent, kernel), np.float32)
    return thin if thin.sum() > 0.5 * bent.sum() else bent


def from_strokes(char: str, face: int, pen: int) -> Ink:
    """Draw a character of one of cv2's fonts."""
    field = blank()
    (wide, high), _ = cv2.getTextSize(char, face, 1.0, 1)
    size = 55 / max(wide, high, 1)
    start = (int((FIELD - size * wide) / 2), int((FIELD + size * high) / 2))
    cv2.putText(field, char, start, face, size, 255, pen, cv2.LINE_AA)
    return inked(field)


def from_outline(char: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont) -> Ink:
    picture = Image.new("L", (FIELD, FIELD))
    ImageDraw.Draw(picture).text((FIELD / 2, FIELD / 2), char, fill=255, font=font, anchor="mm")
    return np.asarray(picture, dtype=np.float32) / 255


_own_font = cache(partial(ImageFont.load_default, 60))


def _character(rng: Random, characters: str) -> Ink:
    char = characters[rng.integers(len(characters))]
    if rng.random() < 0.2:
        return from_outline(char, _own_font())
    face = getattr(cv2, f"FONT_HERSHEY_{STROKES[rng.integers(len(STROKES))]}")
    if rng.random() < 0.2:
        face |= cv2.FONT_ITALIC
    return from_strokes(char, face, int(rng.integers(2, 8)))


def letter(rng: Random, source: Source) -> Ink:
    """A letter that no digit resembles."""
    return by_hand(_character(rng, LETTERS), rng, rng.choice([0.3, 1.0, 1.4]))


def sign(rng: Random, source: Source) -> Ink:
    """A sign, or an operator."""
    return by_hand(_character(rng, SIGNS), rng, rng.choice([0.3, 1.0]))


def word(rng: Random, source: Source) -> Ink:
    """Two to four letters that touch."""
    letters = [letter(rng, source) for _ in range(int(rng.integers(2, 5)))]
    out = np.zeros((FIELD, FIELD * len(letters)), np.float32)
    at = 0
    for part in map(_columns, letters):
        if not part.shape[1]:
            continue
        at = max(0, at - int(rng.integers(0, 8)))
        out[:, at : at + part.shape[1]] = np.maximum(out[:, at : at + part.shape[1]], part)
        at += part.shape[1]
    return out


def side_by_side(rng: Random, source: Source, count: int) -> Ink:
    """Digits that touch or overlap a little."""
    out = np.zeros((SIDE + 8, 4), np.float32)
    for _ in range(count):
        digit = _columns(source.digit(rng))
        if not digit.shape[1]:
            continue
        digit = np.roll(np.pad(digit, ((4, 4), (0, 0))), rng.integers(-3, 4), axis=0)
        overlap = min(int(rng.integers(0, 4)), digit.shape[1] // 3)
        wide = np.zeros((len(out), out.shape[1] + digit.shape[1] - overlap), np.float32)
        wide[:, : out.shape[1]] = out
        wide[:, -digit.shape[1] :] = np.maximum(wide[:, -digit.shape[1] :], digit)
        out = wide
    return out


def part_of_next(rng: Random, source: Source) -> Ink:
    """A digit with a part of its neighbour, as a cut at the wrong place leaves it."""
    part = _columns(source.digit(rng))
    for _ in range(20):  # to a digit that is broad enough to be known by a part of it
        if part.shape[1] >= 10:
            break
        part = _columns(source.digit(rng))
    part = part[:, : round(part.shape[1] * rng.uniform(0.4, 0.65))]
    whole = _columns(source.digit(rng))
    gap = np.zeros((SIDE, int(rng.integers(0, 2))), np.float32)
    joined = np.concatenate([whole, gap, part], axis=1)
    return joined if rng.random() < 0.5 else np.concatenate([part, gap, whole], axis=1)


def _columns(digit: Ink) -> Ink:
    columns = np.flatnonzero(digit.max(axis=0) > 0.3)
    return digit[:, columns[0] : columns[-1] + 1] if columns.size else digit[:, :0]


def piece(rng: Random, source: Source) -> Ink:
    """The upper or lower half of a digit."""
    label, upper = _HALVES[rng.integers(len(_HALVES))]
    digit = source.digit(rng, label)
    rows = np.flatnonzero(digit.max(axis=1) > 0.3)
    if not rows.size:
        return digit
    cut = rows[0] + round((rows[-1] - rows[0]) * rng.uniform(0.4, 0.6))
    return digit[:cut] if upper else digit[cut:]


def struck(rng: Random, source: Source) -> Ink:
    """A digit struck out by a cross or by several strokes."""
    large = cv2.resize(source.digit(rng), (84, 84), interpolation=cv2.INTER_LINEAR)
    field = np.round(255 * large).astype(np.uint8)
    pen = int(rng.integers(4, 9))
    if rng.random() < 0.4:
        ends = [((8, 10), (76, 74)), ((76, 10), (8, 74))]
    else:
        rows = np.linspace(18, 66, int(rng.integers(2, 5))).astype(int)
        tilt = rng.integers(-22, 23)
        ends = [((4, int(row + tilt)), (80, int(row - tilt))) for row in rows]
    for start, end in ends:
        a, b = (np.array(point) + rng.integers(-5, 6, 2) for point in (start, end))
        cv2.line(field, a.tolist(), b.tolist(), 255, pen, cv2.LINE_AA)
    return inked(field)


def blot(rng: Random, source: Source) -> Ink:
    """A filled spot, round or ragged."""
    angle = np.linspace(0, 2 * np.pi, 24, endpoint=False)
    radius = 0.3 + rng.uniform(0, 0.12) * rng.normal(size=24)
    stretch = rng.uniform(0.4, 1.0)
    points = 0.5 + radius[:, None] * np.stack([np.cos(angle), stretch * np.sin(angle)], axis=1)
    field = blank()
    cv2.fillPoly(field, [np.round(points * FIELD).astype(np.int32)], 255, cv2.LINE_AA)
    turn = cv2.getRotationMatrix2D((FIELD / 2, FIELD / 2), rng.uniform(0, 180), 1.0)
    return inked(np.asarray(cv2.warpAffine(field, turn, (FIELD, FIELD))))


def specks(rng: Random, source: Source) -> Ink:
    field = blank()
    for _ in range(int(rng.integers(3, 14))):
        x, y = rng.integers(10, FIELD - 10, 2).tolist()
        cv2.circle(field, (x, y), int(rng.integers(2, 9)), 255, -1, cv2.LINE_AA)
    return inked(field)


def paper(rng: Random, source: Source) -> Ink:
    """Rough paper, cut at a threshold: patches of every size, in a stripe at times."""
    cells = rng.integers(4, 18, 2) if rng.random() < 0.5 else np.repeat(rng.integers(4, 18), 2)
    rough = np.zeros((FIELD, FIELD), np.float32)
    for octave in range(int(rng.integers(1, 4))):
        coarse = rng.normal(size=tuple(cells * 2**octave)).astype(np.float32)
        large = cv2.resize(coarse, (FIELD, FIELD), interpolation=cv2.INTER_CUBIC)
        rough += np.asarray(large, np.float32) / np.float32(1.7**octave)
    return np.asarray(np.clip(3 * (rough - rng.uniform(0.2, 0.9)), 0, 1), np.float32)


def noise(rng: Random, source: Source) -> Ink:
    """Grains without order, thick in the middle or everywhere."""
    grains = rng.random((32, 32)).astype(np.float32)
    if rng.random() < 0.5:
        line = np.abs(np.arange(32) - 15.5) / rng.uniform(6, 16)
        grains *= np.clip(1.3 - np.hypot(line[:, None], line), 0, 1).astype(np.float32)
    field = cv2.resize(grains, (FIELD, FIELD), interpolation=cv2.INTER_LINEAR)
    return np.asarray(np.clip(rng.uniform(1, 5) * (field - rng.uniform(0, 0.7)), 0, 1), np.float32)


def _drawn(drawing: drawings.Drawing, pens: tuple[int, int] = (3, 11), by_hand_of: float = 0.0) -> Draw:
    """Draw with a pen of a width in pixels (see `draw_lines`), as by a hand of a strength."""

    def draw(rng: Random, source: Source) -> Ink:
        ink = draw_lines(rng, drawing(rng), pens=pens)
        return by_hand(ink, rng, by_hand_of) if by_hand_of else ink

    return draw


#: Kinds to learn from, with their shares; ``experiments/accuracy/reject.py`` of commit bfe9938 measures it.
KINDS: dict[str, tuple[Draw, float]] = {
    "letter": (letter, 7), "sign": (sign, 3.5), "word": (word, 1.5),
    "pair": (partial(side_by_side, count=2), 3), "part_of_next": (part_of_next, 1),
    "piece": (piece, 1), "struck": (struck, 0.7),
    "scribble": (_drawn(drawings.scribble), 1.5), "zigzag": (_drawn(drawings.zigzag, (2, 7)), 1),
    "cross": (_drawn(drawings.cross, by_hand_of=0.7), 1.5), "bar": (_drawn(drawings.bar), 1),
    "polygon": (_drawn(drawings.polygon), 1.2),
    "crossed_ring": (_drawn(drawings.crossed_ring, by_hand_of=0.6), 0.6),
    "figure": (_drawn(drawings.figure, (3, 9)), 1.5),
    "arrow": (_drawn(drawings.arrow, by_hand_of=0.5), 0.8),
    "tick": (_drawn(drawings.tick, by_hand_of=0.6), 0.5),
    "box": (_drawn(drawings.box, (2, 8)), 0.8), "face": (_drawn(drawings.face, (2, 6), 0.8), 0.6),
    "plant": (_drawn(drawings.plant, (2, 7)), 0.8),
    "blot": (blot, 0.8), "specks": (specks, 0.8), "paper": (paper, 0.8), "noise": (noise, 0.6),
}  # fmt: skip
