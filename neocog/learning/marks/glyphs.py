"""Letters and signs, in fonts that cv2 and Pillow carry, written as by hand."""

from functools import cache

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from neocog.learning.marks.source import FIELD, Ink, Random, Source, blank, by_hand, inked

#: Letters that pass for no digit; without O o Q D I l i S s Z z B b g q.
LETTERS = "ACEFGHJKLMNPRTUVWXYacdefhjkmnprtuvwxy"
#: Signs that pass for no digit; without | / and dots.
SIGNS = '+-=*#&%@?<>()[]{}~^:;"$!_'
#: Strokes of a pen (cv2's fonts after A. V. Hershey, 1967), to learn from.
STROKES = ("SIMPLEX", "PLAIN", "DUPLEX", "COMPLEX", "COMPLEX_SMALL", "SCRIPT_SIMPLEX")


def from_strokes(char: str, face: int, pen: int) -> Ink:
    """Draw a character of one of cv2's fonts."""
    field = blank()
    (wide, high), _ = cv2.getTextSize(char, face, 1.0, 1)
    size = 55 / max(wide, high, 1)
    start = (int((FIELD - size * wide) / 2), int((FIELD + size * high) / 2))
    cv2.putText(field, char, start, face, size, 255, pen, cv2.LINE_AA)
    return inked(field)


def from_outline(char: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont) -> Ink:
    """Draw a character of an outline font."""
    picture = Image.new("L", (FIELD, FIELD))
    ImageDraw.Draw(picture).text((FIELD / 2, FIELD / 2), char, fill=255, font=font, anchor="mm")
    return np.asarray(picture, dtype=np.float32) / 255


@cache
def _own_font() -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """The font in Pillow."""
    return ImageFont.load_default(60)


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
    for ink in letters:
        columns = np.flatnonzero(ink.max(axis=0) > 0.3)
        if not columns.size:
            continue
        part = ink[:, columns[0] : columns[-1] + 1]
        at = max(0, at - int(rng.integers(0, 8)))
        out[:, at : at + part.shape[1]] = np.maximum(out[:, at : at + part.shape[1]], part)
        at += part.shape[1]
    return out
