"""Pens from a hard pencil to a broad marker, and signs and letters as strokes that they draw."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain

import cv2
import numpy as np
from numpy.typing import NDArray

Line = NDArray[np.float32]
Cover = NDArray[np.float32]
Rng = np.random.Generator

_SHIFT = 4  # OpenCV's coordinates count in sixteenths of a pixel
_NOISE_SIDE = 1024


@dataclass(frozen=True, slots=True)
class Pen:
    """What a page, or a part of it, is written with."""

    width: float  #: of a stroke, as a share of the height of a digit
    contrast: float  #: share of the way from the paper's grey to the ink's, 0 .. 1
    pressure: float = 0.0  #: how much the width changes along a stroke, as a share
    nib: float = 1.0  #: how flat the tip is: 1 is round, 0.3 is a broad nib
    angle: float = 0.8  #: of a flat tip, in radians
    grain: float = 0.0  #: share of the ink that the paper does not take: pencil, chalk


def log_uniform(rng: Rng, low: float, high: float) -> float:
    """Draw a number whose logarithm is uniform."""
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def any_pen(rng: Rng) -> Pen:
    width = log_uniform(rng, 1 / 60, 1 / 5)
    if rng.random() < 0.5:
        width = float(rng.uniform(0.04, 0.13))
    contrast = rng.uniform(0.14, 0.45) if rng.random() < 0.18 else rng.uniform(0.4, 0.97)
    return Pen(
        width=width,
        contrast=float(contrast),
        pressure=float(rng.uniform(0, 0.5)) if rng.random() < 0.4 else 0.0,
        nib=float(rng.uniform(0.3, 0.7)) if rng.random() < 0.12 else 1.0,
        angle=float(rng.uniform(0, np.pi)),
        grain=float(rng.uniform(0.05, 0.4)) if rng.random() < 0.2 else 0.0,
    )


def ink(lines: Sequence[Line], width: float, pen: Pen, rng: Rng) -> tuple[Cover, int, int]:
    """Draw strokes (n, 2), (x, y), ``width`` pixels wide: cover by ink (h, w), its column and row."""
    zoom = 4 if width < 1.5 else 2 if width < 5 else 1
    edge = width * (1 + pen.pressure) / 2 + 1.5
    whole = np.concatenate(lines)
    low, high = np.floor(whole.min(axis=0) - edge), np.ceil(whole.max(axis=0) + edge)
    wide, tall = (high - low).astype(int).tolist()
    field = np.zeros((tall * zoom, wide * zoom), np.uint8)
    fine = width * zoom * pen.nib
    scale, origin = np.float32(zoom * (1 << _SHIFT)), low.astype(np.float32)
    centre = (zoom - 1) / 2 * (1 << _SHIFT)
    for line in lines:
        points = ((line - origin) * scale + centre).astype(np.int32)
        _stroke(field, points, fine, pen.pressure, rng)
    if pen.nib < 1:
        tip = line_kernel(max(1, round(width * zoom)), pen.angle)
        field = np.asarray(cv2.dilate(field, tip), np.uint8)
    if zoom > 1:
        field = np.asarray(cv2.resize(field, (wide, tall), interpolation=cv2.INTER_AREA), np.uint8)
    cover = field.astype(np.float32) * np.float32(min(1.0, max(fine, 0.35)) / 255)
    if pen.grain:  # ink that rough paper does not take
        rough = noise(cover.shape, rng)
        cover *= np.clip(1 - 2.2 * pen.grain * (rough + 0.7 * pen.grain + 0.3), 0.1, 1)
    return cover, int(low[0]), int(low[1])


def _stroke(
    field: NDArray[np.uint8], points: NDArray[np.int32], width: float, pressure: float, rng: Rng
) -> None:
    if pressure < 0.05 or len(points) < 4:
        cv2.polylines(field, [points], False, 255, max(1, round(width)), cv2.LINE_AA, _SHIFT)
        return
    parts = min(len(points) - 1, 5)
    bounds = np.linspace(0, len(points) - 1, parts + 1).astype(int).tolist()
    phase, turns = rng.uniform(0, 6.3), rng.uniform(0.5, 2)
    for k in range(parts):
        swell = 1 + pressure * np.sin(phase + turns * 2 * np.pi * k / parts)
        piece = points[bounds[k] : bounds[k + 1] + 1]
        thick = max(1, round(width * swell))
        cv2.polylines(field, [piece], False, 255, thick, cv2.LINE_AA, _SHIFT)


def line_kernel(side: int, angle: float) -> NDArray[np.uint8]:
    """Return a field (side, side) with a line of ones through its middle."""
    kernel = np.zeros((side, side), np.uint8)
    middle = (side - 1) / 2
    way = np.array([np.cos(angle), np.sin(angle)]) * middle
    a, b = ((middle + sign * way).round().astype(int).tolist() for sign in (-1, 1))
    cv2.line(kernel, a, b, 1, 1)
    return kernel


@cache
def _noise_field() -> NDArray[np.float32]:
    return np.random.default_rng(1).standard_normal((_NOISE_SIDE, _NOISE_SIDE), np.float32)


def noise(shape: tuple[int, ...], rng: Rng) -> NDArray[np.float32]:
    """Return a window, turned by chance, of one fixed field of normal noise: much the quickest."""
    if max(shape) >= _NOISE_SIDE:
        times = [-(-side // _NOISE_SIDE) for side in shape]
        return np.tile(_noise_field(), times)[: shape[0], : shape[1]]
    y = int(rng.integers(_NOISE_SIDE - shape[0] + 1))
    x = int(rng.integers(_NOISE_SIDE - shape[1] + 1))
    way = int(rng.integers(4))
    window = _noise_field()[y : y + shape[0], x : x + shape[1]]
    return window[:: -1 if way & 1 else 1, :: -1 if way & 2 else 1]


def octaves(side: int, cells: Sequence[int], fall: float, rng: Rng) -> NDArray[np.float32]:
    """Return a sum (side, side) of smooth noises by size of cells, each ``fall`` times the last."""
    total, weight = np.zeros((side, side), np.float32), 1.0
    for cell in cells:
        count = side // cell + 3
        size = (count * cell, count * cell)
        large = cv2.resize(noise((count, count), rng), size, interpolation=cv2.INTER_LINEAR)
        total += np.float32(weight) * np.asarray(large)[cell : cell + side, cell : cell + side]
        weight *= fall
    return total


# --- signs and letters ----------------------------------------------------------------------------

_SIGN_LINES = {
    "/": "06-40", "-": "03-33", ".": "16-16", ",": "16-07", ":": "12-12 15-15", "+": "03-43 21-25",
    "=": "02-42 04-44", "(": "20-02-04-26", ")": "00-22-24-06", "x": "01-45 41-05",
    "*": "02-44 42-04 21-25", "%": "06-50 00-10-11-01-00 45-55-56-46-45", "÷": "03-43 21-21 25-25",
    "#": "10-06 30-26 02-42 04-44",
}  # fmt: skip

# columns 0 .. 6, rows 0 (top of capitals) .. 6 (baseline) .. 8; strokes parted by spaces
_LETTER_LINES = {
    "A": "06-20-46 14-34", "B": "00-06 00-30-41-32-03 03-34-45-36-06",
    "C": "41-30-10-01-05-16-36-45", "D": "00-06 00-20-42-44-26-06", "E": "40-00-06-46 03-33",
    "F": "40-00-06 03-33", "G": "41-30-10-01-05-16-36-45-43-23", "H": "00-06 40-46 03-43",
    "I": "00-40 20-26 06-46", "J": "40-45-36-16-05", "K": "00-06 40-03-46", "L": "00-06-46",
    "M": "06-00-24-40-46", "N": "06-00-46-40", "O": "20-01-05-26-45-41-20",
    "P": "00-06 00-30-41-42-33-03", "Q": "20-01-05-26-45-41-20 24-47",
    "R": "00-06 00-30-41-42-33-03 23-46", "S": "41-30-10-01-13-33-45-36-16-05", "T": "00-40 20-26",
    "U": "00-05-16-36-45-40", "V": "00-26-40", "W": "00-16-22-36-50", "X": "00-46 40-06",
    "Y": "00-23-40 23-26", "Z": "00-40-06-46", "a": "42-22-03-05-26-45-42 42-45-56",
    "b": "00-06 03-22-43-45-26-05", "c": "43-32-12-03-05-16-36-45", "d": "40-46 43-22-03-05-26-45",
    "e": "04-44-43-22-03-05-26-45", "f": "41-30-21-26 12-42", "g": "43-22-03-05-26-45 42-47-38-18",
    "h": "00-06 03-22-42-46", "i": "22-26 20-20", "j": "32-37-18-07 30-30", "k": "00-06 32-04-36",
    "l": "20-25-36", "m": "02-06 03-12-23-26 23-32-43-46", "n": "02-06 03-22-42-46",
    "o": "22-03-05-26-45-43-22", "p": "02-08 03-22-43-45-26-05", "q": "43-22-03-05-26-45 42-48",
    "r": "02-06 04-12-32", "s": "42-12-03-24-45-36-06", "t": "20-25-36-45 02-42",
    "u": "02-05-16-36-45 42-46", "v": "02-26-42", "w": "02-16-23-36-52", "y": "02-25 42-08",
    "z": "02-42-06-46", "ä": "42-22-03-05-26-45-42 42-45-56 10-10 30-30",
    "ß": "06-01-20-31-23-44-36-16", "д": "12-06-46-42-12 07-06 47-46", "ж": "02-46 42-06 22-26",
    "я": "42-12-03-14-44 42-46 24-06", "α": "52-25-06-04-22-33-56", "π": "02-52 12-16 42-46",
    "Σ": "40-00-23-06-46", "Ω": "06-16-03-10-40-53-46-56",
}  # fmt: skip

LETTERS = "".join(_LETTER_LINES)

LIKE_DIGITS = "OoIlSsZzBbqgDQYyJjTtViGCcUuLePp"
"""Letters that, alone, may be a digit of some hand: they are written in words only."""


@cache
def shape(character: str) -> tuple[Line, list[int]]:
    """Strokes of a sign or a letter: points (n, 2), 0 .. 1 from top to baseline, and where they begin."""
    strokes = (_SIGN_LINES.get(character) or _LETTER_LINES[character]).split()
    points = [[(int(at[0]), int(at[1])) for at in stroke.split("-")] for stroke in strokes]
    cuts = np.cumsum([0, *map(len, points)]).tolist()
    return np.array(list(chain(*points)), np.float32) / np.float32(6), cuts


_VOWELS, _CONSONANTS = "aeiou", "bcdfghklmnprstvwxz"


def any_word(rng: Rng, characters: str | None = None) -> str:
    """Make up a word of 2 to 9 letters, in small letters, capitals or both."""
    count = int(rng.integers(2, 10))
    kind = rng.random()
    if characters is not None and kind < 0.3:
        return "".join(characters[int(rng.integers(len(characters)))] for _ in range(count))
    first = int(rng.integers(2))
    letters = [(_VOWELS, _CONSONANTS)[(k + first) % 2] for k in range(count)]
    word = "".join(some[int(rng.integers(len(some)))] for some in letters)
    return word.upper() if kind > 0.8 else word.capitalize() if kind > 0.5 else word
