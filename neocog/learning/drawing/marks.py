"""Digits, and marks that are none, as the reader hands them to the digit network: (28, 28), ink 255.

A digit of a set is written anew by the path of its pen where that is known, or bent as by another hand; some
are drawn in other styles. They are seen as they are, by few pixels, or by a camera and cut by the reader.
Held-out kinds and fonts measure rejection: matplotlib's, and of cv2's the triple strokes and broad script.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache, partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from neocog.errors import UsageError
from neocog.learning.drawing import glyphs
from neocog.learning.drawing.bank import drawers
from neocog.learning.drawing.fields import Rng, add_ink, arc, inked, resized, rotation
from neocog.learning.drawing.glyphs import Running, allograph, any_allograph, any_word, shape, turned
from neocog.learning.drawing.paper import blank_paper, photographed
from neocog.learning.drawing.pen import any_pen, fitted, ink, rounded
from neocog.learning.mix import Mix
from neocog.vision.crops import digit_of_box
from neocog.vision.normalise import BOX, SIDE, WIDENED, enlarged, normalise, stroke_width

Ink = NDArray[np.float32]
Digits = NDArray[np.uint8]
Strokes = Sequence[NDArray[Any]]

FIELD = 96  # side of the field that a mark is drawn in
_HIGH = 64  # long side of a digit in it
_BLOCK, _HELD_BLOCK = 2000, 5000
_LEAST = 25 * 255  # a picture with less ink is drawn again

LETTERS = "ACEFGHJKLMNRTUVWXYacdefhjkmnrtuvwxy"  # without O o Q D I l i S s Z z B b g q P p, like digits
SIGNS = '+-=*#&%@?<>()[]{}~^:;"$!_'  # without | / and dots
# halves of digits that are no other digit: label, and True for the upper half
_HALVES = ((0, True), (0, False), (2, False), (3, True), (3, False), (4, True), (5, False))

# how often each is done; see ``experiments/learning/finetune.py`` of commit bfe9938, which measured them
_DRAWN = 0.2  # an allograph is drawn in place of a digit that was written
_BY_PATH, _BENT = 0.8, 0.6  # written anew by the path of the pen, where it is known; other scans bent
_STRETCHED = 0.06  # stretched to its box, as some forms' cells are
_COARSE, _CLEAN = 0.2, 0.4  # seen by coarse scanners; as it is; the rest is seen by cameras
_CROWDED = 0.25  # of these, with a rule or a piece of a digit beside it
_AS_WRITTEN = 0.4  # of what is learned whose strokes keep their width
_GRIDS = (8, 9, 10, 11, 12, 14, 16, 16, 20)  # pixels a side of coarse scanners
_WITHIN = 4  # a coarse pixel is the mean of so many fine ones, squared


class Source:
    """Digits (N, 28, 28) uint8 to break or to join, and what they are."""

    def __init__(self, digits: Digits, labels: NDArray[np.int64]) -> None:
        self._digits = digits
        self._own = [np.flatnonzero(labels == label) for label in range(10)]

    def digit(self, rng: Rng, label: int | None = None) -> Ink:
        """Return a digit, ink 0 .. 1; one of any label where there is none of this."""
        own: NDArray[np.int64] = np.arange(len(self._digits))
        if label is not None and len(self._own[label]):
            own = self._own[label]
        return inked(self._digits[own[rng.integers(len(own))]])


Draw = Callable[[Rng, Source], Ink]


def inside(ink: Ink) -> Ink:
    x, y, wide, high = cv2.boundingRect((ink > 0.3).astype(np.uint8))
    return ink[y : y + high, x : x + wide] if wide else ink


def as_written(ink: Ink) -> Digits:
    """Bring ink into MNIST's form as sets of digits do, its strokes as wide as they are."""
    return normalise(ink, stroke=WIDENED / BOX * max(inside(ink).shape))


def written(lines: Strokes, rng: Rng) -> Ink:
    """Write strokes (n, 2) by another hand and pen: ink 1, (FIELD, FIELD)."""
    if len(lines) > 1 and rng.random() < 0.35:  # each stroke is turned, stretched and moved about its middle
        lines = [(line - line.mean(0)) @ (np.eye(2) + rng.normal(0, 0.07, (2, 2))) + line.mean(0)
                 + rng.normal(0, 0.03, 2) * np.ptp(line, 0).max() for line in lines]  # fmt: skip
    lines, angle, wide = fitted(lines), rng.normal(0, 0.1), np.exp(rng.normal(0, 0.16))
    turn = rotation(angle) @ np.array([[wide, -rng.normal(0, 0.18)], [0, 1 / wide]])
    waves, phases, reach = rng.normal(0, 4, (3, 2)), rng.uniform(0, 6.3, 3), rng.normal(0, 0.02, (3, 2))
    loose = rng.normal(0, 0.05, (2, 2)) if rng.random() < 0.4 else np.zeros((2, 2))  # of its ends
    ends = [np.exp(-8 * np.linspace([0, 1], [1, 0], len(line))) for line in lines]
    bent = [line @ turn.T + end @ loose for line, end in zip(lines, ends, strict=True)]
    times = int(rng.integers(3))
    moved = fitted([rounded(line + np.sin(line @ waves.T + phases) @ reach, times) for line in bent])
    pen, field = any_pen(rng, most=1 / 6), np.zeros((FIELD, FIELD), np.float32)
    place = [(FIELD * (0.5 + 0.7 * line)).astype(np.float32) for line in moved]
    add_ink(field, *ink(place, 0.7 * FIELD * pen.width, pen, rng))
    return field


def by_hand(ink: Ink, rng: Rng, strength: float = 1.0) -> Ink:
    """Slant, stretch, turn and bend a drawing (FIELD, FIELD); letters stay legible up to 1."""
    angle, shear = strength * rng.normal(0, [0.12, 0.2])
    wide = np.exp(strength * rng.normal(0, 0.18))
    inverse = np.linalg.inv(rotation(angle) @ np.array([[wide, -shear], [0, 1 / wide]]))
    bend = (strength * rng.normal(0, 2.6, (2, 5, 5))).astype(np.float32)
    right, down = (cv2.resize(part, (FIELD, FIELD), interpolation=cv2.INTER_CUBIC) for part in bend)
    y, x = np.mgrid[0:FIELD, 0:FIELD].astype(np.float32) - np.float32((FIELD - 1) / 2)
    (a, b), (c, d) = inverse.astype(np.float32)
    middle = np.float32((FIELD - 1) / 2)
    bent = cv2.remap(ink, a * x + b * y + middle + right, c * x + d * y + middle + down, cv2.INTER_LINEAR)
    return _pen(np.asarray(bent, np.float32), 2 * int(rng.integers(-2, 4)))


def _pen(ink: Ink, more: float) -> Ink:
    """Widen (or thin, where negative) every stroke by so many pixels, within the same field."""
    reach = round(abs(more))
    if not reach:
        return ink
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (reach + 1, reach + 1))
    changed = np.asarray(cv2.dilate(ink, kernel) if more > 0 else cv2.erode(ink, kernel), np.float32)
    return changed if changed.sum() > 0.5 * ink.sum() and changed.max() > 0.5 else ink


def _of_side(ink: Ink, side: int) -> Ink:
    """Enlarge or shrink so that the longer side is ``side``."""
    scale = side / max(ink.shape)
    size = [max(1, round(length * scale)) for length in ink.shape[::-1]]
    return np.asarray(np.clip(resized(ink, size, cv2.INTER_CUBIC), 0, 1), np.float32)


def _seen(ink: Ink, rng: Rng, source: Source) -> Digits:
    """As it is, by a coarse scanner or by a camera; then in MNIST's form."""
    body, how = inside(ink), rng.random()
    if rng.random() < _STRETCHED:
        side = max(body.shape)
        body = resized(body, (max(body.shape[1], side // 2), side))
    if how > _COARSE + _CLEAN:
        return _photographed(body, rng, source)
    if how < _COARSE:
        fine = (pixels := int(rng.choice(_GRIDS))) * _WITHIN  # seen by few pixels, enlarged
        body = _of_side(body, fine - int(rng.integers(0, _WITHIN)))
        body = _pen(body, max(rng.uniform(-0.03, 0.03) * fine, 0.8 * _WITHIN - stroke_width(body)))
        if rng.random() < 0.7:
            body = (body > rng.uniform(0.4, 0.6)).astype(np.float32)
        field = np.zeros((fine, fine), np.float32)
        top, left = ((fine - np.array(body.shape)) * rng.uniform(0.3, 0.7, 2)).astype(int)
        field[top : top + body.shape[0], left : left + body.shape[1]] = body
        seen = field.reshape(pixels, _WITHIN, pixels, _WITHIN).mean(axis=(1, 3))
        body = enlarged(np.asarray(np.round(seen * 16) / 16 if rng.random() < 0.5 else seen, np.float32))
    return as_written(body) if rng.random() < _AS_WRITTEN else normalise(body)


def _photographed(ink: Ink, rng: Rng, source: Source) -> Digits:
    """On paper, at times with a rule or a piece of a digit beside it, before a camera; cut out."""
    size = int(rng.integers(14, 71))
    body = _of_side(ink, size)
    (high, wide), room = body.shape, size // 2 + 4
    field = np.pad(body, room)
    if rng.random() < _CROWDED:
        gap = int(rng.uniform(0.03, 0.3) * size) + 1
        if rng.random() < 0.5:  # a rule below or above
            row = room + high + gap if rng.random() < 0.6 else room - gap
            tilt = int(rng.integers(-2, 3))
            ends = (0, row - tilt), (field.shape[1], row + tilt)
            cv2.line(field, *ends, rng.uniform(0.5, 1), max(1, size // 20))
        elif (other := inside(source.digit(rng))).max() > 0.3:
            add_ink(field, _of_side(other, size), room + wide + gap, room)
    image = blank_paper(field.shape, rng)
    image *= 1 - np.float32(rng.uniform(0.35, 0.97)) * field
    picture = photographed(image, rng, size)
    jitter = rng.normal(0, 0.04, 4) * size
    return digit_of_box(picture, (np.array([room, room, wide, high]) + jitter).astype(np.float32))


def _in_blocks(work: Callable[..., Any], count: int, block: int, *given: Any, jobs: int) -> Any:
    """Join the arrays that ``work(*given, number, size)`` returns for each block of ``count``."""
    sizes = [min(block, count - first) for first in range(0, count, block)] or [0]
    whole, jobs = partial(work, *given), min(jobs, len(sizes))
    with drawers(jobs, cv2.setNumThreads, 1) if jobs > 1 else nullcontext() as pool:
        parts = (pool.map if pool else map)(whole, range(len(sizes)), sizes)
        return map(np.concatenate, zip(*parts, strict=True))


def variants(count: int, mix: Mix, *, seed: int = 0, jobs: int = 1) -> tuple[Digits, NDArray[np.int64]]:
    """Return variants (count, 28, 28) of digits, drawn by the sets' weights, and what they are."""
    return tuple(_in_blocks(_variants, count, _BLOCK, mix, seed, jobs=jobs))


def _variants(mix: Mix, seed: int, number: int, size: int) -> tuple[Digits, NDArray[np.int64]]:
    rng = np.random.default_rng([seed, 11, number])
    made, answers = np.zeros((size, 28, 28), np.uint8), np.zeros(size, np.int64)
    sources = [Source(hand.digits.images, hand.digits.labels) for hand in mix.hands]
    for place, (which, at) in enumerate(zip(*mix.draw(size, rng), strict=True)):
        hand = mix.hands[which]
        answers[place] = hand.digits.labels[at]
        if rng.random() < _DRAWN:
            answers[place], style = any_allograph(rng)
            drawn = written(allograph(int(answers[place]), style, rng), rng)
        elif hand.strokes is not None and hand.rows is not None and rng.random() < _BY_PATH:
            drawn = written(hand.strokes.lines(int(hand.rows[at])), rng)
        else:
            drawn, body = np.zeros((FIELD, FIELD), np.float32), inside(inked(hand.digits.images[at]))
            if body.max() > 0.3:  # into the middle of the field, its long side _HIGH
                large = _of_side(body, _HIGH)
                top, left = ((FIELD - side) // 2 for side in large.shape)
                drawn[top : top + large.shape[0], left : left + large.shape[1]] = large
            if rng.random() < _BENT:
                drawn = by_hand(drawn, rng, 0.6)
        if drawn.max() < 0.5:
            made[place], answers[place] = hand.digits.images[at], hand.digits.labels[at]
            continue
        for _ in range(4):
            made[place] = _seen(drawn, rng, sources[which])
            if made[place].sum() > _LEAST:
                break
        else:
            made[place] = as_written(drawn)
    return made, answers


def negatives(
    count: int, digits: Digits, labels: NDArray[np.int64], *, seed: int, held: bool = False, jobs: int = 1
) -> tuple[Digits, NDArray[np.int64], tuple[str, ...]]:
    """Draw marks that are no digits, (count, 28, 28) uint8; their kinds, (count,), and names.

    Digits with their labels are broken and joined; UsageError if there are none. The same seed gives the same
    marks on any number of processes (``jobs``). ``held`` draws the held-out kinds and fonts.
    """
    if not len(digits):
        raise UsageError("got no digits, expected some to break and join")
    marks, kind = _in_blocks(_negatives, count, _HELD_BLOCK, Source(digits, labels), seed, held, jobs=jobs)
    return marks, kind, tuple(HELD if held else KINDS)


def _negatives(source: Source, seed: int, held: bool, number: int, size: int) -> tuple[Digits, Any]:
    draws, often = zip(*(HELD if held else KINDS).values(), strict=True)
    shares = np.array(often)
    rng = np.random.default_rng([seed, int(held), 11, *[number] * (number > 0)])
    kind = rng.choice(len(draws), size=size, p=shares / shares.sum())
    marks = np.zeros((size, SIDE, SIDE), np.uint8)
    for i, k in enumerate(kind):
        for _ in range(20):
            drawn = draws[k](rng, source)
            marks[i] = normalise(drawn) if held else _seen(drawn, rng, source)
            if marks[i].sum() > _LEAST:
                break
    return marks, kind.astype(np.int64)


@cache
def _own_print(char: str) -> Ink:
    return printed(char, ImageFont.load_default(60))


def letter(rng: Rng, source: Source) -> Ink:
    """A letter that no digit resembles, by a pen or in print."""
    char = LETTERS[rng.integers(len(LETTERS))]
    return written(shape(char)[0], rng) if rng.random() < 0.7 else by_hand(_own_print(char), rng)


def sign(rng: Rng, source: Source) -> Ink:
    """A sign, or an operator, by a pen or in print."""
    char = SIGNS[rng.integers(len(SIGNS))]
    if char in "+=*#%()" and rng.random() < 0.7:
        forms = shape(char)
        return written(forms[rng.integers(len(forms))], rng)
    return by_hand(_own_print(char), rng, rng.choice([0.3, 1.0]))


def printed(char: str, font: Any) -> Ink:
    picture = Image.new("L", (FIELD, FIELD))
    ImageDraw.Draw(picture).text((FIELD / 2, FIELD / 2), char, fill=255, font=font, anchor="mm")
    return inked(np.asarray(picture))


def side_by_side(rng: Rng, source: Source, count: int) -> Ink:
    """Digits that touch or overlap a little."""
    out = np.zeros((SIDE + 8, 4), np.float32)
    for _ in range(count):
        digit = _columns(source.digit(rng))
        if not digit.shape[1]:
            continue
        digit = np.roll(np.pad(digit, ((4, 4), (0, 0))), rng.integers(-3, 4), axis=0)
        overlap = min(int(rng.integers(0, 4)), digit.shape[1] // 3)
        out = np.pad(out, ((0, 0), (0, digit.shape[1] - overlap)))
        add_ink(out, digit, out.shape[1] - digit.shape[1], 0)
    return out


def part_of_next(rng: Rng, source: Source) -> Ink:
    """A digit with a part of its neighbour, as a cut at the wrong place leaves it."""
    for _ in range(20):  # to a digit that is broad enough to be known by a part of it
        part = _columns(source.digit(rng))
        if part.shape[1] >= 10:
            break
    part = part[:, : round(part.shape[1] * rng.uniform(0.4, 0.65))]
    gap = np.zeros((SIDE, int(rng.integers(0, 2))), np.float32)
    both = [_columns(source.digit(rng)), gap, part]
    return np.concatenate(both if rng.random() < 0.5 else both[::-1], axis=1)


def _columns(digit: Ink) -> Ink:
    x, _, wide, _ = cv2.boundingRect((digit > 0.3).astype(np.uint8))
    return digit[:, x : x + wide]


def piece(rng: Rng, source: Source) -> Ink:
    """The upper or lower half of a digit."""
    label, upper = _HALVES[rng.integers(len(_HALVES))]
    digit = source.digit(rng, label)
    _, top, _, high = cv2.boundingRect((digit > 0.3).astype(np.uint8))
    cut = top + round((high - 1) * rng.uniform(0.4, 0.6)) if high else 0
    return digit[:cut] if upper and cut else digit[cut:]


def struck(rng: Rng, source: Source) -> Ink:
    """A digit struck out by a cross or by several strokes."""
    field = resized(source.digit(rng), (84, 84))
    rows, tilt = np.linspace(18, 66, int(rng.integers(2, 5))), rng.integers(-22, 23)
    ends = [((4, row + tilt), (80, row - tilt)) for row in rows]
    if rng.random() < 0.4:
        ends = [((8, 10), (76, 74)), ((76, 10), (8, 74))]
    for both in ends:
        a, b = (np.array(both) + rng.integers(-5, 6, (2, 2))).astype(int).tolist()
        cv2.line(field, a, b, 1.0, int(rng.integers(4, 9)), cv2.LINE_AA)
    return field


def spots(rng: Rng, source: Source) -> Ink:
    """A ragged spot, or some specks."""
    field = np.zeros((FIELD, FIELD), np.uint8)
    if rng.random() < 0.5:
        angle = np.linspace(0, 2 * np.pi, 24, endpoint=False)
        radius = FIELD * (0.3 + rng.uniform(0, 0.12) * rng.normal(size=24))
        points = arc(angle) * [1, rng.uniform(0.4, 1.0)]
        points = 48 + (turned(points + 0.5, rng.uniform(0, np.pi)) - 0.5) * radius[:, None]
        cv2.fillPoly(field, [np.round(points).astype(np.int32)], 255, cv2.LINE_AA)
        return inked(field)
    for _ in range(int(rng.integers(3, 14))):
        at = rng.integers(10, FIELD - 10, 2).tolist()
        cv2.circle(field, at, int(rng.integers(2, 9)), 255, -1, cv2.LINE_AA)
    return inked(field)


def rough(rng: Rng, source: Source) -> Ink:
    """Rough paper, cut at a threshold: patches of every size, in a stripe at times; or grains."""
    cells = rng.integers(4, 30, 2) if rng.random() < 0.5 else np.repeat(rng.integers(4, 18), 2)
    field = np.zeros((FIELD, FIELD), np.float32)
    for octave in range(int(rng.integers(1, 4))):
        coarse = rng.normal(size=tuple(cells * 2**octave)).astype(np.float32)
        large = cv2.resize(coarse, (FIELD, FIELD), interpolation=cv2.INTER_CUBIC)
        field += np.asarray(large, np.float32) / np.float32(1.7**octave)
    return np.asarray(np.clip(3 * (field - rng.uniform(0.2, 0.9)), 0, 1), np.float32)


# ``experiments/accuracy/reject.py`` of commit bfe9938 measured the shares
KINDS: dict[str, tuple[Draw, float]] = {
    "letter": (letter, 7), "sign": (sign, 3.5),
    "word": (lambda rng, _: written(Running(rng).word(any_word(rng).lower()[:4]), rng), 1.5),
    "drawing": (lambda rng, _: written(glyphs.any_drawing(rng, but=4), rng), 12),  # a doodle measures
    "pair": (partial(side_by_side, count=2), 3), "part_of_next": (part_of_next, 1), "piece": (piece, 1),
    "struck": (struck, 0.7), "spots": (spots, 1.6), "rough": (rough, 1.4),
}  # fmt: skip
"""Kinds to learn from, with their shares."""

_STROKES = ("TRIPLEX", "SCRIPT_COMPLEX")  # of the fonts of cv2
# beginnings of the names of matplotlib's text fonts, of those with Greek, and with symbols
_TEXT = ("DejaVuSans", "DejaVuSerif", "STIXGeneral", "cmr", "cmss", "cmtt", "cmti", "cmb")
_RICH, _RICHEST = ("DejaVuSans.", "DejaVuSans-", "DejaVuSerif.", "DejaVuSerif-"), ("DejaVuSans.",)
_GREEK = "ΓΔΛΞΠΣΨΩαπψλμωκηχЖШЩЦЮФЛДИЫмнптшд"
_SYMBOLS = "♥♣♠♪♫∑√∞≠≈±×÷€§¶←→↔↻☺☂☎✂★☆♀♂⌘"


@cache
def _fonts(beginnings: tuple[str, ...]) -> list[ImageFont.FreeTypeFont]:
    """Outline fonts that matplotlib ships; none where it is not installed."""
    try:
        import matplotlib
    except ImportError:
        return []
    files = sorted(Path(matplotlib.get_data_path(), "fonts", "ttf").glob("*.ttf"))
    return [ImageFont.truetype(path, 60) for path in files if path.name.startswith(beginnings)]


def _character(rng: Rng, source: Source, characters: str, names: tuple[str, ...] = _TEXT) -> Ink:
    """A character of a font of such names; of a font of text, it may be one of cv2's."""
    fonts, text = _fonts(names), names is _TEXT
    if not fonts and not text:
        return _character(rng, source, LETTERS)
    char = characters[rng.integers(len(characters))]
    if fonts and (not text or rng.random() < 0.75):
        return printed(char, fonts[rng.integers(len(fonts))])
    face = getattr(cv2, f"FONT_HERSHEY_{_STROKES[rng.integers(len(_STROKES))]}")
    field, pen = np.zeros((FIELD, FIELD), np.uint8), int(rng.integers(2, 7))
    (wide, high), _ = cv2.getTextSize(char, face, 1.0, 1)
    size = 55 / max(wide, high, 1)
    start = (int((FIELD - size * wide) / 2), int((FIELD + size * high) / 2))
    cv2.putText(field, char, start, face, size, 255, pen, cv2.LINE_AA)
    return inked(field)


def _figure(rng: Rng, source: Source, kind: str) -> Ink:
    """An open drawing of lines, coordinates 0 .. 1, by a pen of any width."""
    t, angle, pens = np.linspace(0, 2 * np.pi, 120), 0.0, (2, 6)
    if kind == "star":  # of five points or more: its outline, or drawn in one go
        points = int(rng.choice([5, 7, 9]))
        if rng.random() < 0.5:
            way = np.arange(2 * points + 1) * np.pi / points
            radius = np.where(np.arange(2 * points + 1) % 2, rng.uniform(0.2, 0.3), 0.5)
        else:
            way, radius = np.arange(points + 1) * 4 * np.pi / points, np.full(points + 1, 0.5)
        lines: list[NDArray[Any]] = [0.5 + radius[:, None] * np.stack([np.sin(way), -np.cos(way)], axis=1)]
        angle, pens = rng.uniform(-0.3, 0.3), (2, 7)
    elif kind == "hatch":  # strokes both ways: a grid without a border
        across, down = (int(v) for v in rng.integers(2, 5, 2))
        lines = [np.array([[x, 0.0], [x, 1.0]]) for x in np.linspace(0.15, 0.85, across)]
        lines += [np.array([[0.0, y], [1.0, y]]) for y in np.linspace(0.15, 0.85, down)]
        angle = rng.uniform(-0.6, 0.6)
    elif kind == "knot":  # a figure of Lissajous, of three loops or more
        across, down = ((2, 3), (3, 4), (3, 2), (1, 4), (4, 3))[rng.integers(5)]
        x = 0.5 + 0.5 * np.sin(across * t + rng.uniform(0.3, 1.2))
        lines = [np.stack([x, 0.5 + 0.5 * np.sin(down * t)], axis=1)]
    elif kind == "cloud":  # a closed line of five bows or more
        bows = int(rng.integers(5, 9))
        radius = 0.34 + rng.uniform(0.08, 0.16) * np.abs(np.sin(bows * t / 2))
        way = arc(t) * [1, rng.uniform(0.6, 1)]
        lines, pens = [0.5 + radius[:, None] * way], (2, 7)
    elif kind == "comb":  # three or more strokes side by side, with a back or without
        count = int(rng.integers(3, 6))
        lines = [np.array([[x, 0.0], [x, 1.0]]) for x in np.linspace(0, 1, count)]
        if rng.random() < 0.5:
            lines.append(np.array([[0.0, 0.5], [1.0, 0.5]]))
        angle, pens = float(rng.choice([0, np.pi / 2]) + rng.uniform(-0.3, 0.3)), (3, 7)
    else:  # a spiral of two turns or more
        t = np.linspace(0.1, 1, 80)
        turn = rng.uniform(0, 2 * np.pi) + rng.choice([-1, 1]) * 2 * np.pi * rng.uniform(2, 3.5) * t
        lines = [0.5 + 0.5 * t[:, None] * arc(turn)]
    field, pen = np.zeros((FIELD, FIELD), np.uint8), int(rng.integers(*pens))
    for line in lines:
        place = turned(line, angle) if angle else line
        at = np.round((0.15 + 0.7 * place) * FIELD).astype(np.int32)
        cv2.polylines(field, [at], False, 255, pen, cv2.LINE_AA)
    return inked(field)


def _patches(rng: Rng, source: Source) -> Ink:  # square cells, as a poor print of a grey leaves them
    cells = int(rng.integers(4, 11))
    field = (rng.random((cells, cells)) < rng.uniform(0.3, 0.6)).astype(np.float32)
    return resized(field, (FIELD, FIELD), cv2.INTER_NEAREST)


HELD: dict[str, tuple[Draw, float]] = {
    "letter": (partial(_character, characters=LETTERS), 6),
    "sign": (partial(_character, characters=SIGNS), 3),
    "greek": (partial(_character, characters=_GREEK, names=_RICH), 2),  # and Cyrillic
    "symbol": (partial(_character, characters=_SYMBOLS, names=_RICHEST), 2),
    "triple": (partial(side_by_side, count=3), 1.5),
    **{kind: (partial(_figure, kind=kind), 0.7) for kind in "comb hatch star spiral knot cloud".split()},
    "patches": (_patches, 0.7),
}
"""Kinds that are held out (of letters and signs, fonts), with their shares."""
