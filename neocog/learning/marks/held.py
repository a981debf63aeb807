"""Kinds and fonts that nothing is learned from: to measure rejection with, and for nothing else.

*Fonts*: all that matplotlib ships (DejaVu Sans, Serif and Mono, STIX, Computer Modern), and of
cv2's the triple strokes and the broad script. *Kinds*: Greek and Cyrillic letters, symbols (a
heart, a note, a sum, ...), three digits that touch, triangles and diamonds, combs, spirals, flat
patches of a threshold. Where matplotlib is not installed, only cv2's fonts are drawn.

Letters and signs that are shaped like a digit are left out: O o Q D I l i | / S s Z z B b g q, and
of Greek and Cyrillic those that resemble these or a digit.
"""

from functools import cache
from pathlib import Path

import cv2
import numpy as np
from PIL import ImageFont

from neocog.learning.marks.glyphs import LETTERS, SIGNS, from_outline, from_strokes
from neocog.learning.marks.remains import side_by_side
from neocog.learning.marks.source import FIELD, Draw, Ink, Random, Source, draw_lines, ring, turned

STROKES = ("TRIPLEX", "SCRIPT_COMPLEX")
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


@cache
def _font(path: Path) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(str(path), 60)


def _character(rng: Random, characters: str) -> Ink:
    char, files = characters[rng.integers(len(characters))], font_files()
    if files and rng.random() < 0.75:
        return from_outline(char, _font(files[rng.integers(len(files))]))
    face = getattr(cv2, f"FONT_HERSHEY_{STROKES[rng.integers(len(STROKES))]}")
    return from_strokes(char, face, int(rng.integers(2, 7)))


def letter(rng: Random, source: Source) -> Ink:
    """A letter in a font that is held back."""
    return _character(rng, LETTERS)


def sign(rng: Random, source: Source) -> Ink:
    """A sign in a font that is held back."""
    return _character(rng, SIGNS)


def greek(rng: Random, source: Source) -> Ink:
    """A Greek or Cyrillic letter."""
    return _rich(rng, _GREEK)


def symbol(rng: Random, source: Source) -> Ink:
    """A symbol of a kind that is not learned from."""
    return _rich(rng, _SYMBOLS)


def _rich(rng: Random, characters: str) -> Ink:
    files = font_files(_RICH[:1] if characters is _SYMBOLS else _RICH)
    if not files:
        return _character(rng, LETTERS)
    char = characters[rng.integers(len(characters))]
    return from_outline(char, _font(files[rng.integers(len(files))]))


def triple(rng: Random, source: Source) -> Ink:
    """Three digits that touch."""
    return side_by_side(rng, source, 3)


def polygon(rng: Random, source: Source) -> Ink:
    """A triangle or a diamond with a stroke through it, or doubled."""
    corners = int(rng.integers(3, 5))
    line = ring((0.5, 0.5), 0.5, corners + 1)
    line = turned(line, rng.uniform(0, 0.5))
    inside = rng.random((2, 2))
    return draw_lines(rng, [line, inside] if rng.random() < 0.5 else [line, line[:3] * 0.6 + 0.2])


def comb(rng: Random, source: Source) -> Ink:
    """Three or more strokes side by side, with a back or without."""
    count = int(rng.integers(3, 6))
    lines = [np.array([[x, 0.0], [x, 1.0]]) for x in np.linspace(0, 1, count)]
    if rng.random() < 0.5:
        lines.append(np.array([[0.0, 0.5], [1.0, 0.5]]))
    angle = float(rng.choice([0, np.pi / 2]) + rng.uniform(-0.3, 0.3))
    return draw_lines(rng, [turned(line, angle) for line in lines], int(rng.integers(3, 7)))


def spiral(rng: Random, source: Source) -> Ink:
    """A spiral of two turns or more."""
    t = np.linspace(0.1, 1, 80)
    angle = rng.uniform(0, 2 * np.pi) + rng.choice([-1, 1]) * 2 * np.pi * rng.uniform(2, 3.5) * t
    line = 0.5 + 0.5 * t[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return draw_lines(rng, [line], int(rng.integers(2, 6)))


def patches(rng: Random, source: Source) -> Ink:
    """Square cells, black or white, as a poor print of a grey leaves them."""
    cells = int(rng.integers(4, 11))
    field = (rng.random((cells, cells)) < rng.uniform(0.3, 0.6)).astype(np.float32)
    return np.asarray(cv2.resize(field, (FIELD, FIELD), interpolation=cv2.INTER_NEAREST))


#: Kinds that are held back (of letters and signs, fonts), with their shares.
HELD: dict[Draw, float] = {
    letter: 6, sign: 3, greek: 2, symbol: 2, triple: 1.5,
    polygon: 1, comb: 1, spiral: 1, patches: 1,
}  # fmt: skip
