"""A page while it is drawn: its grey, what is taken, and the marks that stand on it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import cv2
import numpy as np
from numpy.typing import NDArray

from neocog.learning.allographs import allograph, styles_of
from neocog.learning.strokes import rounded
from neocog.learning.teacher.bank import GLYPHS, Bank
from neocog.learning.teacher.pen import Cover, Line, Pen, Rng, ink, shape
from neocog.vision.finder import SIGNS

SIGN = 10
"""Label of the first sign; those of digits are 0 .. 9."""

IGNORE = -1
"""Label of a place that is neither right nor wrong: cut off, crossed out, ambiguous."""

Box = tuple[float, float, float, float]
"""Left, top, width, height, in pixels."""

_CELL = 4  # pixels of a cell of the map of what is taken
_LEAST_STEP, _LEAST_OVER_TEXTURE = 9, 0.8  # grey levels and shares of their standard deviation
_GROWN = {".": (1.0, 1.0), "-": (0.5, 1.4)}
_BOWED = {"/": (0.03, 0.95, 1.7, 0.25, 0.9), ",": (0.57, 0.1, 0.5, 0.0, 0.9)}
"""Middle below that of the digits, least and most height and lean (beyond that of the hand, columns
per row) of a sign of one bowed stroke."""
_BARS = 0.25  # of the ones, written as one straight stroke
_STYLED = 0.12  # of the digits of a writer, written in a style of `neocog.learning.allographs`
_BOW = 0.06  # standard deviation of `Hand.bow`, and half as much from mark to mark
_UPRIGHT = 0.75  # of the writers; all others lean, some as much as a slash


@dataclass(frozen=True, slots=True)
class Hand:
    """How one writer writes: which digits, how slanted, how steady."""

    pool: NDArray[np.int64]  #: digits of the bank that this hand takes
    scans: NDArray[np.int64]  #: scans that are laid down as they are; none: all strokes are drawn
    slant: float  #: columns per row
    turn: float  #: radians
    wide: float  #: a factor
    unsteady: float  #: standard deviation of slant, turn and log width from mark to mark
    tremor: float  #: standard deviation of the points, as a share of the height
    bow: NDArray[np.float32]
    """How strokes bend (3, 2): a point at (x, y) from the middle moves by (x y, x^2, y^2) @ bow, to
    the right and down; all lengths are in half heights of the digit."""
    styles: dict[int, int]  #: digits that are written as allographs, and in which style
    ones: float = 0.0  #: columns per row that the ones lean more than the others


def any_hand(bank: Bank, rng: Rng, *, held: bool) -> Hand:
    """Choose a writer: one set of digits, a slant, a width."""
    pools = bank.pools[held]
    pool = pools[0] if rng.random() < 0.45 else pools[int(rng.integers(len(pools)))]
    scans = bank.scan_pools[held]
    if rng.random() < 0.75:
        scans = scans[:0]
    upright = len(scans) or rng.random() < _UPRIGHT  # scans stay as they are
    return Hand(
        pool=pool,
        scans=scans,
        slant=float(rng.normal(0, 0.15) if upright else rng.uniform(-0.4, 0.9)),
        turn=float(rng.normal(0, 0.05)),
        wide=float(np.exp(rng.normal(0, 0.16))),
        unsteady=float(rng.uniform(0.02, 0.1)),
        tremor=float(rng.uniform(0, 0.012)),
        bow=rng.normal(0, _BOW, (3, 2)).astype(np.float32),
        styles={digit: int(rng.integers(styles_of(digit))) for digit in range(10) if rng.random() < _STYLED},
    )


@dataclass
class Canvas:
    image: NDArray[np.float32]  #: grey levels, (side, side)
    bank: Bank
    rng: Rng
    held: bool = False  #: whether it is written by the hands of the validation part
    bright_ink: bool = False
    marks: list[tuple[int, float, float, float, float]] = field(default_factory=list)
    """Label (see `IGNORE` and `SIGN`), left, top, width and height of each, in pixels."""

    def __post_init__(self) -> None:
        count = -(-self.side // _CELL)
        self._taken = np.zeros((count, count), np.bool_)

    @property
    def side(self) -> int:
        return len(self.image)

    def free(self, x: float, y: float, wide: float, high: float) -> bool:
        """Whether nothing stands in a box yet; what lies outside the page is free."""
        return not self._cells(x, y, wide, high).any()

    def take(self, x: float, y: float, wide: float, high: float) -> None:
        self._cells(x, y, wide, high)[:] = True

    def _cells(self, x: float, y: float, wide: float, high: float) -> NDArray[np.bool_]:
        rows = slice(max(0, int(y) // _CELL), max(0, int(y + high) // _CELL + 1))
        columns = slice(max(0, int(x) // _CELL), max(0, int(x + wide) // _CELL + 1))
        return self._taken[rows, columns]

    def block(self, mask: NDArray[np.bool_]) -> None:
        """Let nothing be written where ``mask`` (side, side) is true."""
        count = len(self._taken)
        small = cv2.resize(mask.astype(np.uint8), (count, count), interpolation=cv2.INTER_AREA)
        self._taken |= np.asarray(small) > 0

    def lay(self, cover: Cover, x: int, y: int, contrast: float) -> None:
        """Lay ink over the page, cut at its edge: darker, or brighter with ``bright_ink``."""
        part, place = _overlap(cover, self.image, x, y)
        place += (np.float32(255 if self.bright_ink else 8) - place) * (part * np.float32(contrast))

    def _seen(self, cover: Cover, x: int, y: int, contrast: float) -> bool:
        """Whether ink will stand off what it is laid on: its texture, and a few grey levels."""
        part, place = _overlap(cover, self.image, x, y)
        inked = part > 0.5 * part.max(initial=0)
        if not inked.any():
            return False
        off = np.abs((255 if self.bright_ink else 8) - place[inked]) * part[inked] * contrast
        return float(off.mean()) > max(_LEAST_STEP, _LEAST_OVER_TEXTURE * float(place.std()))

    def draw(self, lines: Sequence[Line], pen: Pen, high: float, *, least: float = 0.4,
             vary: bool = False) -> tuple[Cover, int, int]:  # fmt: skip
        """Draw strokes as in digits ``high`` pixels high; return their cover, column and row."""
        cover, left, top = ink(lines, max(pen.width * high, least), pen, self.rng)
        self.lay(cover, left, top, pen.contrast * (self.rng.uniform(0.9, 1.0) if vary else 1))
        return cover, left, top

    def digit(self, label: int | None, x: float, y: float, high: float, hand: Hand, pen: Pen,
              angle: float = 0.0, *, left: bool = False,
              bars: float = _BARS) -> Box | None:  # fmt: skip
        """Write a digit, or any, whose middle (with ``left``: left) is at (x, y), ``high`` pixels high, at
        an angle; return its box, if any. ``bars`` is the share of ones that are one straight stroke.
        """
        rng, bank = self.rng, self.bank
        if len(hand.scans) and high < 130:
            index = self._one_of(hand.scans, bank.scan_labels, label)
            cover = _scan(bank.scans[index], high, hand)
            column = round(x if left else x - cover.shape[1] / 2)
            row = round(y - cover.shape[0] / 2)
            written = int(bank.scan_labels[index])
        else:
            index = self._one_of(hand.pool, bank.labels, label)
            written = int(bank.labels[index])
            if written in hand.styles:
                lines = allograph(written, hand.styles[written], rng)
            else:
                lines = [path.astype(np.float32) for path in bank.paths(index)]
                if written == 1 and rng.random() < bars:  # one stroke, nearly straight
                    column = 500 + np.cumsum(rng.normal(0, 25, 3))
                    bar = np.stack([column, [0, rng.uniform(300, 700), 1000]], axis=1)
                    lines = [bar.astype(np.float32)]
                elif written == 1:
                    lines = _straightened(lines, rng)
            if written == 1:
                hand = replace(hand, slant=hand.slant + hand.ones)
            lines = self._placed(lines, x, y, high, hand, angle)
            if left:
                begin = min(float(line[:, 0].min()) for line in lines) - pen.width * high / 2
                lines = [line + np.array([x - begin, 0], np.float32) for line in lines]
            cover, column, row = ink(lines, max(pen.width * high, 0.4), pen, rng)
        contrast = pen.contrast * float(rng.uniform(0.9, 1.0))
        seen = self._seen(cover, column, row, contrast)
        self.lay(cover, column, row, contrast)
        return self._marked(written if seen else IGNORE, cover, column, row)

    def shape(self, character: str, x: float, y: float, high: float, hand: Hand, pen: Pen,
              angle: float = 0.0, *, cursive: bool = False,
              letter: bool = False) -> float:  # fmt: skip
        """Write a sign or a letter, its left at x, capitals' middle at y; return its width. ``cursive`` joins
        two strokes; ``letter`` says that it is no sign though one looks like it (x).
        """
        rng = self.rng
        sign = character in SIGNS and not letter
        points, cuts = shape(character)
        bowed = sign and character in _BOWED
        if bowed:
            points = _bow(character, hand, rng)
            cuts = [0, len(points)]
        elif sign:
            middle = points.mean(axis=0)
            grown = np.float32(rng.uniform(*_GROWN.get(character, (0.8, 1.3))))
            points = middle + (points - middle) * grown
        if cursive and len(cuts) > 2:
            cuts = [cuts[0], *cuts[2:]]
        shake = np.float32(0.03 if sign else 0.055)
        points = points + rng.standard_normal(points.shape, np.float32) * shake
        stretch = np.float32(hand.wide * np.exp(rng.normal(0, 0.25 if sign else 0.08)))
        slant = np.float32(0 if bowed else hand.slant + rng.normal(0, hand.unsteady))
        wide = float(points[:, 0].max()) * float(stretch) * high
        cos, sin = np.float32(np.cos(angle)), np.float32(np.sin(angle))
        px = (points[:, 0] * stretch + (0.5 - points[:, 1]) * slant) * np.float32(high)
        py = (points[:, 1] - 0.5) * np.float32(high)
        points = np.stack([x + px * cos - py * sin, y + px * sin + py * cos], axis=1)
        placed = [rounded(points.astype(np.float32)[a:b], 2) for a, b in pairwise(cuts)]
        cover, left, top = self.draw(placed, pen, high, vary=True)
        if sign:
            self._marked(SIGN + SIGNS.index(character), cover, left, top)
        return wide

    def print_word(self, word: str, x: float, y: float, high: float, face: int, contrast: float,
                   mirror: bool = False) -> float:  # fmt: skip
        """Print a word in a typeface, its ascender at row y; return its width in pixels."""
        scale = high / 44
        begin = x
        for letter in word:
            if letter not in GLYPHS:
                x += 0.3 * high
                continue
            glyph, top = self.bank.glyph(face, letter)
            size = (max(1, round(glyph.shape[1] * scale)), max(1, round(glyph.shape[0] * scale)))
            method = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
            small = cv2.resize(glyph, size, interpolation=method).astype(np.float32) / 255
            cover = np.asarray(small[:, ::-1] if mirror else small, np.float32)
            self.lay(cover, int(x), int(y + top * scale), contrast)
            x += size[0] + 0.07 * high
        return x - begin

    def crossed(self, x: float, y: float, wide: float, high: float) -> None:
        """Make what is marked in a box neither right nor wrong."""
        for index, (label, left, top, w, h) in enumerate(self.marks):
            inside = x <= left + w / 2 <= x + wide and y <= top + h / 2 <= y + high
            if inside and label >= 0:
                self.marks[index] = (IGNORE, left, top, w, h)

    def _one_of(self, pool: NDArray[np.int64], labels: NDArray[np.uint8], label: int | None) -> int:
        for _ in range(60 if label is not None else 1):
            index = int(pool[int(self.rng.integers(len(pool)))])
            if labels[index] == label:
                break
        return index

    def _placed(
        self, lines: list[Line], x: float, y: float, high: float, hand: Hand, angle: float
    ) -> list[Line]:
        """Strokes of a digit, in this hand, about (x, y) on the page."""
        rng, points = self.rng, np.concatenate(lines)
        low, top = points.min(axis=0), points.max(axis=0)
        tall = max(float(top[1] - low[1]), 0.6 * float(top[0] - low[0]), 1.0)
        scale = high / tall
        wobble = rng.normal(0, hand.unsteady, 3)
        turn, slant = angle + hand.turn + wobble[0], hand.slant + wobble[1]
        wide = hand.wide * np.exp(wobble[2])
        cos, sin = np.cos(turn) * scale, np.sin(turn) * scale
        matrix = np.array([[cos * wide, sin * wide], [-cos * slant - sin, cos - sin * slant]], np.float32)
        off = points - (low + top) / 2
        u, v = (off * np.float32(2 / tall)).T
        bow = hand.bow + rng.normal(0, _BOW / 2, (3, 2)).astype(np.float32)
        off += np.stack([u * v, u * u, v * v], axis=1) @ bow * np.float32(tall / 2)
        placed = off @ matrix + np.array([x, y], np.float32)
        if hand.tremor:
            placed += rng.standard_normal(placed.shape, np.float32) * np.float32(hand.tremor * high)
        ends = np.cumsum([len(line) for line in lines])[:-1]
        return [rounded(part, 2 if high > 60 else 1) for part in np.split(placed, ends)]

    def _marked(self, label: int, cover: Cover, left: int, top: int) -> Box | None:
        """Note the mark's tight box."""
        dark = cover > max(0.4 * float(cover.max(initial=0)), 0.02)
        rows, columns = np.flatnonzero(dark.any(1)), np.flatnonzero(dark.any(0))
        if not rows.size:
            return None
        box = (
            float(left + columns[0]), float(top + rows[0]),
            float(columns[-1] - columns[0] + 1), float(rows[-1] - rows[0] + 1),
        )  # fmt: skip
        self.marks.append((label, *box))
        self.take(*box)
        return box


def _overlap(cover: Cover, image: Cover, x: int, y: int) -> tuple[Cover, Cover]:
    """A cover at column x, row y, cut at the image's edge, and the part of the image below it."""
    x0, y0 = max(x, 0), max(y, 0)
    place = image[y0 : max(y + cover.shape[0], 0), x0 : max(x + cover.shape[1], 0)]
    return cover[y0 - y :, x0 - x :][: place.shape[0], : place.shape[1]], place


def _scan(scan: NDArray[np.uint8], high: float, hand: Hand) -> Cover:
    rows, columns = np.flatnonzero(scan.max(1) > 60), np.flatnonzero(scan.max(0) > 60)
    crop = scan[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    scale = high / max(crop.shape[0], 0.6 * crop.shape[1])
    wide = max(2, round(crop.shape[1] * scale * hand.wide))
    size = (wide, max(2, round(crop.shape[0] * scale)))
    method = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    large = np.asarray(cv2.resize(crop.astype(np.float32), size, interpolation=method))
    if scale > 2:
        large = (large - 127) * np.float32(min(scale / 2, 4)) + 127
    return np.asarray(np.clip(large / np.float32(255), 0, 1), np.float32)


def _bow(character: str, hand: Hand, rng: Rng) -> Line:
    """A slash or a comma, 0 .. 1 from the digits' top to their foot; it leans more than they do."""
    middle, low, high, least, most = _BOWED[character]
    tall = rng.uniform(low, high)
    lean = rng.uniform(least, most) + max(hand.slant, 0) * rng.uniform(0.7, 1)
    t = np.linspace(0, 1, 5)
    x = tall * (lean * (1 - t) + rng.normal(0, 0.06) * np.sin(np.pi * t))
    y = 0.5 + middle + rng.normal(0, 0.07) + tall * (t - 0.5)
    return np.stack([x - x.min(), y], axis=1).astype(np.float32)


def _straightened(lines: list[Line], rng: Rng) -> list[Line]:
    """A one that leans less by itself, so that mostly its hand tells how it leans."""
    points = np.concatenate(lines)
    middle = points.mean(axis=0)
    off = points - middle
    lean = float((off[:, 0] * off[:, 1]).mean() / max(float((off[:, 1] ** 2).mean()), 1.0))
    share = np.array([lean * rng.uniform(0.5, 1), 0], np.float32)
    return [line - share * (line[:, 1:] - middle[1]) for line in lines]
