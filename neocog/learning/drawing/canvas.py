"""A page while it is drawn: its grey, how it is turned, what is taken, and the marks that stand on it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from neocog.learning.drawing.fields import Cover, Rng, add_ink, inked, resized, rotation, shared
from neocog.learning.drawing.glyphs import Face
from neocog.learning.drawing.hands import Drawn, Hand
from neocog.learning.drawing.line import Path, Row
from neocog.learning.drawing.pen import ink
from neocog.vision.finder import SIGNS

SIGN = 10  #: label of the first sign; those of digits are 0 .. 9.

IGNORE = -1  #: label of a place that is neither right nor wrong: cut off, crossed out, printed, ambiguous

Box = tuple[float, float, float, float]  #: left, top, width, height, in pixels

Mark = tuple[int, float, float, float, float]  #: label, left, top, width and height of a mark, in pixels


_NUMBERS = {*"0123456789", *SIGNS} - {"x"}
_CELL = 4  # pixels of a cell of the map of what is taken
# How a digit and what is around it correlate with where its ink lies, from which on neocog-small reads half
# as many as of clear ones: 0.4 to 0.45 for digits of 7 to 12, of 12 to 20 and of more pixels (3 623 digits of
# pages 5000 to 5699); and contrast in grey levels, below which it reads hardly any.
_CLEAR, _FAINT = 0.42, 4.0


@dataclass
class Canvas:
    """An image on which a sheet of ``wide`` x ``high`` pixels lies, turned about its middle."""

    image: NDArray[np.float32]  #: grey levels, (H, W)
    rng: Rng
    faces: list[Face] = field(default_factory=list)
    written: list[Face] = field(default_factory=list)  #: that look as if written by hand; for letters only
    bright_ink: bool = False
    turn: float = 0.0  #: radians
    marks: list[Mark] = field(default_factory=list)

    def __post_init__(self) -> None:
        rows, columns = self.image.shape
        self._turn = rotation(-self.turn)  # of rows (x, y)
        cos, sin = abs(self._turn[0])
        self.wide, self.high = cos * columns + sin * rows, sin * columns + cos * rows
        self.covered: Cover = np.zeros(self.image.shape, np.float32)
        self._taken = np.zeros((-(-rows // _CELL), -(-columns // _CELL)), np.bool_)
        self._shift = np.array([columns, rows]) / 2 - np.array([self.wide, self.high]) / 2 @ self._turn

    @property
    def side(self) -> float:
        return float(min(self.wide, self.high))

    def at(self, points: NDArray[Any]) -> NDArray[np.float64]:
        """Where points of the sheet are in the image, (n, 2)."""
        return np.asarray(points @ self._turn + self._shift, np.float64)

    def _cells(self, low: NDArray[Any], far: NDArray[Any]) -> NDArray[np.bool_]:
        x0, y0 = np.maximum(low // _CELL, 0).astype(int)
        x1, y1 = np.maximum(far // _CELL + 1, 0).astype(int)
        return self._taken[y0:y1, x0:x1]

    def _box(self, x: float, y: float, wide: float, high: float) -> NDArray[np.bool_]:
        middle, half = self.at(np.array([x + wide / 2, y + high / 2])), np.array([wide, high]) / 2
        return self._cells(middle - half, middle + half)

    def free(self, x: float, y: float, wide: float, high: float) -> bool:
        """Whether nothing stands in a box yet; what lies outside the image is free."""
        return not self._box(x, y, wide, high).any()

    def take(self, x: float, y: float, wide: float, high: float) -> None:
        self._box(x, y, wide, high)[:] = True

    def block(self, mask: NDArray[np.bool_]) -> None:
        """Let nothing be written where ``mask`` (H, W) is true."""
        size = self._taken.shape[::-1]
        self._taken |= np.asarray(cv2.resize(mask.astype(np.uint8), size, interpolation=cv2.INTER_AREA)) > 0

    def _ink(self, cover: Cover, column: int, row: int, contrast: float) -> None:
        place, part = shared(self.image, cover, column, row)
        place += (np.float32(255 if self.bright_ink else 8) - place) * (part * np.float32(contrast))
        add_ink(self.covered, cover, column, row)

    def lay(self, cover: Cover, x: float, y: float, contrast: float, label: int | None = None) -> None:
        """Lay ink on the sheet, its left top at (x, y); note it as a mark."""
        if self.turn:
            high, wide = cover.shape
            corners = self.at(np.array([(x, y), (x + wide, y), (x, y + high), (x + wide, y + high)]))
            low, far = np.floor(corners.min(0)), np.ceil(corners.max(0)) + 1
            if (far < 0).any() or (low > self.image.shape[::-1]).any():
                return
            matrix = np.c_[self._turn.T, corners[0] - low]
            cover = np.asarray(cv2.warpAffine(cover, matrix, (far - low).astype(int).tolist()), np.float32)
            x, y = low.tolist()
        column, row = round(x), round(y)
        self._ink(cover, column, row, contrast)
        if label is None:
            return
        dark = cover > max(0.4 * float(cover.max(initial=0)), 0.02)
        left, top, wide, high = cv2.boundingRect(dark.astype(np.uint8))
        if wide:
            low = np.array([column + left, row + top])
            self.marks.append((label, float(low[0]), float(low[1]), float(wide), float(high)))
            self._cells(low, np.add(low, (wide, high)))[:] = True

    def draw(self, lines: list[NDArray[Any]], hand: Hand, width: float) -> None:
        """Draw strokes on the sheet with a hand's pen, ``width`` pixels wide."""
        moved = [self.at(line).astype(np.float32) for line in lines]
        self._ink(*ink(moved, max(0.45, width), hand.pen, self.rng), hand.pen.contrast)

    def rule(self, paths: Sequence[Path], level: float) -> None:
        """Print lines on the sheet."""
        for path, width in paths:
            at = (self.at(path) * 16).astype(np.int32)
            cv2.polylines(self.image, [at], False, level, max(1, round(width)), cv2.LINE_AA, 4)

    def write(self, row: Row, x: float, y: float) -> float:
        """Lay a row down, its first character at x and its baseline at y; return where it ends."""
        contrast, left = row.hand.pen.contrast, row.begin
        for char, cover, column, top in row.items:
            label = None if not char else int(char) if char.isdigit() else SIGN + SIGNS.index(char)
            place = (x + column - left, y + top - row.base)
            self.lay(cover, *place, contrast * self.rng.uniform(0.9, 1.0), label)
            if label is None:
                self.take(*place, cover.shape[1], len(cover))
        for path, width in row.ties:
            self.draw([path - [left - x, row.base - y]], row.hand, width)
        return float(x + row.right - left)

    def put(self, hand: Hand, drawn: Drawn, x: float, y: float) -> float:
        """Lay what is no number with its left at x and its baseline at y; return where it ends."""
        self.lay(drawn.cover, x, y + drawn.top, hand.pen.contrast)
        self.take(x, y + drawn.top, drawn.cover.shape[1], len(drawn.cover))
        return x + int(drawn.cover.shape[1])

    def print_word(
        self, word: str, x: float, y: float, high: float, face: Face, contrast: float, *, mirror: bool = False
    ) -> float:
        """Print a word, its ascender at row y; return its width. Its digits and signs are to be ignored."""
        scale, begin = high / 44, x
        for letter in word:
            if letter == " ":
                x += 0.3 * high
                continue
            glyph, top = face.picture(letter)
            size = (max(1, round(glyph.shape[1] * scale)), max(1, round(glyph.shape[0] * scale)))
            cover = inked(resized(glyph, size))
            label = IGNORE if letter in _NUMBERS and not mirror else None
            self.lay(cover[:, ::-1] if mirror else cover, x, y + top * scale, contrast, label)
            x += size[0] + 0.07 * high
        return x - begin

    def kept(self, picture: NDArray[np.uint8], left: int = 0, top: int = 0) -> NDArray[np.float32]:
        """Marks (M, 5) of a part of the page, cut at its edge; label `IGNORE` of what is hardly seen."""
        rows, (high_side, wide_side) = [], picture.shape
        covered = self.covered[top:, left:][:high_side, :wide_side]
        for label, x, y, wide, high in self.marks:
            x0, y0 = max(x - left, 0), max(y - top, 0)
            x1, y1 = min(x - left + wide, wide_side), min(y - top + high, high_side)
            if x1 - x0 < 1 or y1 - y0 < 1:
                continue
            shown = (x1 - x0) * (y1 - y0) / (wide * high)
            small, edge = max(wide, high) < (7 if label < 10 else 2), round(2 + 0.1 * max(wide, high))
            around = np.s_[max(int(y0) - edge, 0) : int(y1) + edge, max(int(x0) - edge, 0) : int(x1) + edge]
            seen = shown >= 0.6 and not small and _clear(picture[around], covered[around])
            rows.append((label if seen else IGNORE, (x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0))
        return np.array(rows, np.float32).reshape(-1, 5)

    def crossed(self, x: float, y: float, wide: float, high: float) -> None:
        """Make what is marked in a box of the image neither right nor wrong."""
        for index, (label, left, top, w, h) in enumerate(self.marks):
            if label >= 0 and x <= left + w / 2 <= x + wide and y <= top + h / 2 <= y + high:
                self.marks[index] = (IGNORE, left, top, w, h)


def _clear(picture: NDArray[np.uint8], covered: Cover) -> bool:
    """Whether ink can be told from the paper around it."""
    ink, bare = picture[covered > 0.5 * covered.max()], picture[covered < 0.05]
    if not ink.size or not bare.size or abs(float(ink.mean()) - float(bare.mean())) < _FAINT:
        return False
    grey, cover = picture - picture.mean(dtype=np.float32), covered - covered.mean()
    return float(abs(np.vdot(grey, cover))) > _CLEAR * float(np.linalg.norm(grey) * np.linalg.norm(cover))
