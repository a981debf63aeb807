"""Marks that are no digits, in the form of isolated digits: what planes of US4 learn to reject.

Letters and signs of fonts that cv2 and Pillow carry, strokes, spots, pieces and pairs of digits
(:mod:`neocog.learning.marks`), drawn as ink and brought to 28 x 28 as found ink is. What is shaped like a
digit (O o Q D I l i | / S s Z z B b g q P p) is left out. Other kinds and fonts are held out to measure
rejection with: all fonts that matplotlib ships, and of cv2's the triple strokes and the broad script.
"""

from functools import cache, partial
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import ImageFont

from neocog.errors import UsageError
from neocog.learning.blocks import in_blocks
from neocog.learning.marks import (
    AS_WRITTEN,
    FIELD,
    KINDS,
    LETTERS,
    SIGNS,
    Digits,
    Draw,
    Ink,
    Random,
    Source,
    as_written,
    draw_lines,
    from_outline,
    from_strokes,
    side_by_side,
)  # fmt: skip
from neocog.vision.normalise import SIDE, normalise

_BLOCK = 5000
_LEAST = 25 * 255  # a picture with less ink is drawn again

_STROKES = ("TRIPLEX", "SCRIPT_COMPLEX")  # of the fonts of cv2
#: Beginnings of the names of matplotlib's text fonts, and of those with Greek and symbols.
_TEXT = ("DejaVuSans", "DejaVuSerif", "STIXGeneral", "cmr", "cmss", "cmtt", "cmti", "cmb")
_RICH = ("DejaVuSans.", "DejaVuSans-", "DejaVuSerif.", "DejaVuSerif-")
_GREEK = "ΓΔΛΞΠΣΨΩαπψλμωκηχЖШЩЦЮФЛДИЫмнптшд"
_SYMBOLS = "♥♣♠♪♫∑√∞≠≈±×÷€§¶←→↔↻☺☂☎✂★☆♀♂⌘"


@cache
def font_files(beginnings: tuple[str, ...] = _TEXT) -> tuple[Path, ...]:
    """Outline fonts that matplotlib ships; none where it is not installed."""
    try:
        import matplotlib
    except ImportError:
        return ()
    files = sorted(Path(matplotlib.get_data_path(), "fonts", "ttf").glob("*.ttf"))
    return tuple(path for path in files if path.name.startswith(beginnings))


_font = cache(partial(ImageFont.truetype, size=60))


def _character(rng: Random, source: Source, characters: str) -> Ink:
    char, files = characters[rng.integers(len(characters))], font_files()
    if files and rng.random() < 0.75:
        return from_outline(char, _font(files[rng.integers(len(files))]))
    face = getattr(cv2, f"FONT_HERSHEY_{_STROKES[rng.integers(len(_STROKES))]}")
    return from_strokes(char, face, int(rng.integers(2, 7)))


def _rich(rng: Random, source: Source, characters: str) -> Ink:
    """A character that only some fonts have."""
    files = font_files(_RICH[:1] if characters is _SYMBOLS else _RICH)
    if not files:
        return _character(rng, source, LETTERS)
    char = characters[rng.integers(len(characters))]
    return from_outline(char, _font(files[rng.integers(len(files))]))


def star(rng: Random, source: Source) -> Ink:
    """A star of five points or more: its outline, or drawn in one go."""
    points = int(rng.choice([5, 7, 9]))
    if rng.random() < 0.5:
        angle = np.arange(2 * points + 1) * np.pi / points
        radius = np.where(np.arange(2 * points + 1) % 2, rng.uniform(0.2, 0.3), 0.5)
    else:
        angle, radius = np.arange(points + 1) * 4 * np.pi / points, np.full(points + 1, 0.5)
    line = 0.5 + radius[:, None] * np.stack([np.sin(angle), -np.cos(angle)], axis=1)
    return draw_lines(rng, [line], rng.uniform(-0.3, 0.3), (2, 7))


def hatch(rng: Random, source: Source) -> Ink:
    """Strokes both ways: a grid without a border."""
    across, down = (int(v) for v in rng.integers(2, 5, 2))
    lines = [np.array([[x, 0.0], [x, 1.0]]) for x in np.linspace(0.15, 0.85, across)]
    lines += [np.array([[0.0, y], [1.0, y]]) for y in np.linspace(0.15, 0.85, down)]
    return draw_lines(rng, lines, rng.uniform(-0.6, 0.6), (2, 6))


def knot(rng: Random, source: Source) -> Ink:
    """A figure of Lissajous, of three loops or more."""
    t = np.linspace(0, 2 * np.pi, 120)
    across, down = ((2, 3), (3, 4), (3, 2), (1, 4), (4, 3))[rng.integers(5)]
    x = 0.5 + 0.5 * np.sin(across * t + rng.uniform(0.3, 1.2))
    line = np.stack([x, 0.5 + 0.5 * np.sin(down * t)], axis=1)
    return draw_lines(rng, [line], pens=(2, 6))


def cloud(rng: Random, source: Source) -> Ink:
    """A closed line of five bows or more."""
    bows = int(rng.integers(5, 9))
    t = np.linspace(0, 2 * np.pi, 120)
    radius = 0.34 + rng.uniform(0.08, 0.16) * np.abs(np.sin(bows * t / 2))
    way = np.stack([np.cos(t), rng.uniform(0.6, 1) * np.sin(t)], axis=1)
    return draw_lines(rng, [0.5 + radius[:, None] * way], pens=(2, 7))


def comb(rng: Random, source: Source) -> Ink:
    """Three or more strokes side by side, with a back or without."""
    count = int(rng.integers(3, 6))
    lines = [np.array([[x, 0.0], [x, 1.0]]) for x in np.linspace(0, 1, count)]
    if rng.random() < 0.5:
        lines.append(np.array([[0.0, 0.5], [1.0, 0.5]]))
    angle = float(rng.choice([0, np.pi / 2]) + rng.uniform(-0.3, 0.3))
    return draw_lines(rng, lines, angle, (3, 7))


def spiral(rng: Random, source: Source) -> Ink:
    """A spiral of two turns or more."""
    t = np.linspace(0.1, 1, 80)
    angle = rng.uniform(0, 2 * np.pi) + rng.choice([-1, 1]) * 2 * np.pi * rng.uniform(2, 3.5) * t
    line = 0.5 + 0.5 * t[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return draw_lines(rng, [line], pens=(2, 6))


def patches(rng: Random, source: Source) -> Ink:
    """Square cells, black or white, as a poor print of a grey leaves them."""
    cells = int(rng.integers(4, 11))
    field = (rng.random((cells, cells)) < rng.uniform(0.3, 0.6)).astype(np.float32)
    return np.asarray(cv2.resize(field, (FIELD, FIELD), interpolation=cv2.INTER_NEAREST))


#: Kinds that are held out (of letters and signs, fonts), with their shares.
HELD: dict[str, tuple[Draw, float]] = {
    "letter": (partial(_character, characters=LETTERS), 6),
    "sign": (partial(_character, characters=SIGNS), 3),
    "greek": (partial(_rich, characters=_GREEK), 2),  # and Cyrillic
    "symbol": (partial(_rich, characters=_SYMBOLS), 2),
    "triple": (partial(side_by_side, count=3), 1.5),
    "comb": (comb, 0.7), "hatch": (hatch, 0.7), "star": (star, 0.7), "spiral": (spiral, 0.7),
    "knot": (knot, 0.7), "cloud": (cloud, 0.7), "patches": (patches, 0.7),
}  # fmt: skip


def negatives(
    count: int, digits: Digits, labels: NDArray[np.int64], *, seed: int, held: bool = False, jobs: int = 1
) -> tuple[Digits, NDArray[np.int64], tuple[str, ...]]:
    """Draw marks that are no digits, (count, 28, 28) uint8; their kinds, (count,), and names.

    Digits (N, 28, 28) with their labels are broken and joined; UsageError if there are none. The same seed
    gives the same marks on any number of processes (``jobs``). ``held`` draws the held-out kinds and fonts.
    """
    if not len(digits):
        raise UsageError("got no digits, expected some to break and join")
    source = Source(digits, labels)
    parts = in_blocks(_block, count, _BLOCK, source, seed, held, jobs=jobs)
    marks, kind = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return marks, kind, tuple(HELD if held else KINDS)


def _block(source: Source, seed: int, held: bool, number: int, size: int) -> tuple[Digits, NDArray[np.int64]]:
    draws, often = zip(*(HELD if held else KINDS).values(), strict=True)
    shares = np.array(often)
    rng = np.random.default_rng([seed, int(held), 11, *[number] * (number > 0)])
    kind = rng.choice(len(draws), size=size, p=shares / shares.sum())
    marks = np.zeros((size, SIDE, SIDE), np.uint8)
    for i, k in enumerate(kind):
        for _ in range(20):
            ink = draws[k](rng, source)
            other_form = not held and rng.random() < AS_WRITTEN
            marks[i] = as_written(ink) if other_form else normalise(ink)
            if marks[i].sum() > _LEAST:
                break
    return marks, kind.astype(np.int64)
