"""Digits, signs, letters and words as the strokes of a pen: (n, 2), (x, y), y down.

Styles of digits are what other schools teach and the sets hardly have; they were set down by hand, not traced
from any picture. Other scripts are the outlines of a typeface, thinned to the path of a pen.
"""

from functools import cache
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from neocog.learning.drawing.strokes import rounded, trace

Line = NDArray[np.float32]
Rng = np.random.Generator

_STYLES = (
    # column and row of each point, rows from 0 (top) to 6 (foot) or 7; strokes are parted by
    # spaces, styles by bars
    "20-01-04-26-45-42-20 | 30-11-03-15-26-45-42-30-10 | 30-11-03-15-36-44-41"
    " | 31-11-03-15-36-44-42-30-12-23 | 20-01-04-26-45-42-20-32-50 | 20-01-04-26-45-42-20 50-06",
    "40-06 | 30-26 | 04-30-26 | 03-20-26 | 06-30-36 | 02-20-26 06-46 | 12-30-24-26-36",
    "23-12-01-20-41-43-15-06-05-15-36-46 | 33-13-01-20-41-44-26-06-05-25-46"
    " | 33-12-01-20-41-43-25-06-15-46 | 14-02-10-30-42-34-15-05-14-26-46"
    " | 34-14-02-10-30-42-44-26-06-15-46 | 24-03-01-10-30-42-34-16-05-14-25-46"
    " | 01-10-30-41-43-15-06-04-15-36-46 | 01-20-41-42-05-06-46 | 10-40-24-06-46"
    " | 22-11-20-41-33-06-46-47",
    "00-40-22-43-45-26-05 | 01-20-41-32-12-22-33-45-26-05 | 01-10-30-41-22-43-46-27-07"
    " | 10-40-13-33-44-36-16",
    "10-03-43 40-46 | 30-04-44 30-36 | 20-03-43 42-27 | 00-02-13-33-42 40-47"
    " | 10-02-03-33-43 31-37 | 10-04-44 21-37",
    "40-10-03-12-33-45-26-05 | 10-03-12-33-45-26-05 10-50 | 10-12-32-44-36-06 10-40-60"
    " | 50-20-13-23-34-36-16 | 10-13-33-45-26-05 11-30-60",
    "30-12-04-16-36-44-33-14 | 10-04-16-36-44-33-04 | 40-20-03-15-26-45-33-13-15 | 20-02-05-26-44-33-14-06",
    "00-40-16 13-43 | 00-40-16 | 02-00-40-33-26 | 02-00-20-40-23-17 03-43 | 01-10-30-50-16 | 00-30-41-42-26",
    "41-20-01-12-33-45-26-05-14-32-41 | 20-01-22-41-20 22-04-26-44-22"
    " | 50-20-01-12-33-45-26-05-14-40 | 22-11-20-31-22-04-26-44-22 | 30-10-11-34-26-15-14-31-30",
    "16-12-10-30-41-33-13 | 16-13-11-20-40-42-33-12 | 17-12-20-41-32-12"
    " | 17-13-11-20-40-42-33-23"
    " | 41-30-10-02-13-33-41-45-36-16-05 | 41-20-01-02-13-33-41-46"
    " | 31-10-01-13-32-30-26 | 30-10-02-13-32-41-30-36-47",
)
"""Styles of each digit, 0 to 9; the first of a 9 are like a P."""

_RARE = (
    "30-10-02-04-16-36-44-42-30-41-60 | 10-02-04-16-36-44-42-31",
    "50-06 | 06-20-16 | 05-20-17 | 15-31-36 | 06-14-30-16 | 07-30-27 | 05-13-21-30-25 | 06-25-30-20-26"
    " | 05-14-30-27-17-37 | 04-12-20-06 | 03-21-26 16-36 | 02-13-30-26 06-46",
    "02-10-30-31-06-05-16-36 | 12-10-30-31-15-04-05-16-56 | 01-20-41-16-06-15-46",
    "01-20-41-32-23-33-44-36-06-16",
    "00-03-43 40-46 | 20-04-54 33-36 | 10-03-14-34-42 31-37 | 00-04-14-33 32-37",
    "12-04-16-30-60 | 02-04-16-30-50 | 10-12-22-33-26-15 10-40 | 41-20-02-23-44-26-05",
    "10-04-06-36-44-33-13-04 | 40-12-05-16-35-34-14",
    "00-50 50-26 13-43 | 02-01-40-16 23-43 | 01-10-40-50-23-16",
    "40-10-01-32-44-36-16-04-32-40 | 31-20-11-12-34-45-36-15-14-31-41",
    "07-20-30-31-22-12 | 30-11-13-32-30-33-16-05 | 32-12-10-30-32-45-26",
)
"""Styles that only lines are drawn with: what is a digit among digits is hardly one alone."""


def _table(text: str) -> dict[str, str]:
    return {each[0]: each[2:] for each in " ".join(text.split()).split("; ")}


# columns 0 .. 6, rows 0 (top of capitals), 6 (baseline), 8 (foot); strokes parted by spaces, forms by bars
_SIGN_LINES = {
    "+": "03-43 21-25 | 21-25-03-43", "=": "02-42 04-44 | 02-42-04-44", "(": "20-02-04-26",
    "x": "01-45 41-05 | 02-11-22-24-15-04 42-31-22-24-35-44 | 01-12-23-34-45-35 41-32-23-14-05",
    ")": "00-22-24-06", "*": "02-44 42-04 21-25", "%": "06-50 00-10-11-01-00 45-55-56-46-45",
    "#": "10-06 30-26 02-42 04-44",
}  # fmt: skip

_LETTER_LINES = _table("""
    A 06-20-46 14-34; B 00-06 00-30-41-32-03 03-34-45-36-06; C 41-30-10-01-05-16-36-45; D 00-06
    00-20-42-44-26-06; E 40-00-06-46 03-33; F 40-00-06 03-33; G 41-30-10-01-05-16-36-45-43-23; H 00-06 40-46
    03-43; I 00-40 20-26 06-46; J 40-45-36-16-05; K 00-06 40-03-46; L 00-06-46; M 06-00-24-40-46; N
    06-00-46-40; O 20-01-05-26-45-41-20; P 00-06 00-30-41-42-33-03; Q 20-01-05-26-45-41-20 24-47; R 00-06
    00-30-41-42-33-03 23-46; S 41-30-10-01-13-33-45-36-16-05; T 00-40 20-26; U 00-05-16-36-45-40; V
    00-26-40; W 00-16-22-36-50; X 00-46 40-06; Y 00-23-40 23-26; Z 00-40-06-46; a 42-22-03-05-26-45-42
    42-45-56; b 00-06 03-22-43-45-26-05; c 43-32-12-03-05-16-36-45; d 40-46 43-22-03-05-26-45; e
    04-44-43-22-03-05-26-45; f 41-30-21-26 12-42; g 43-22-03-05-26-45 42-47-38-18; h 00-06 03-22-42-46; i
    22-26 20-20; j 32-37-18-07 30-30; k 00-06 32-04-36; l 20-25-36; m 02-06 03-12-23-26 23-32-43-46; n 02-06
    03-22-42-46; o 22-03-05-26-45-43-22; p 02-08 03-22-43-45-26-05; q 43-22-03-05-26-45 42-48; r 02-06
    04-12-32; s 42-12-03-24-45-36-06; t 20-25-36-45 02-42; u 02-05-16-36-45 42-46; v 02-26-42; w
    02-16-23-36-52; y 02-25 42-08; z 02-42-06-46; ä 42-22-03-05-26-45-42 42-45-56 10-10 30-30; ß
    06-01-20-31-23-44-36-16; д 12-06-46-42-12 07-06 47-46; ж 02-46 42-06 22-26; я 42-12-03-14-44 42-46
    24-06; α 52-25-06-04-22-33-56; π 02-52 12-16 42-46; Σ 40-00-23-06-46; Ω 06-16-03-10-40-53-46-56
""")
_CURSIVE = _table("""
    a 06-13-33-13-05-16-26-34-33-35-46; b 06-23-20-10-13-16-26-35-33-44; c 06-14-33-13-04-05-16-26-46; d
    06-13-33-13-05-16-26-33-30-33-36-46; e 06-25-33-23-14-15-26-36-46; f 06-23-20-10-14-18-19-28-26-46; g
    06-13-33-13-05-16-26-34-33-38-29-18-27-46; h 06-23-20-10-13-16-14-23-33-36-46; i 06-13-16-36 11-11; j
    06-23-28-19-08-17-36 22-22; k 06-23-20-10-13-16-14-33-24-15-36-46; l 06-23-20-10-13-16-36; m
    06-13-16-13-23-26-23-33-36-46; n 06-13-16-14-23-33-36-46; o 06-14-33-13-05-16-26-34-33-23-43; p
    06-13-19-13-23-34-35-26-16-46; q 06-13-33-13-05-16-26-34-33-39-38-46; r 06-12-13-33-36-46; s
    06-22-24-35-26-16-46; t 06-21-25-26-46 03-33; u 06-13-15-26-35-33-36-46; v 06-13-16-26-33-43; w
    06-13-15-26-34-33-35-46-54-53-63; x 06-13-24-36-46 33-16; z 06-13-33-16-27-28-19-18-36; y
    06-13-15-26-34-33-38-29-18-27-46
""")
"""Small letters that hang together: each goes from the baseline, row 6, to where the next one begins."""

_SEGMENTS = "abcdef bc abged abgcd fgbc afgcd afgedc abc abcdefg abcdfg".split()
_SEGMENT = dict(zip("abcdefg", ((0, 0, 1, 0), (1, 0, 1, 1), (1, 1, 1, 2), (0, 2, 1, 2), (0, 1, 0, 2),
                                (0, 0, 0, 1), (0, 1, 1, 1)), strict=True))  # fmt: skip
LETTERS = "".join(_LETTER_LINES)
_VOWELS, _CONSONANTS = "aeiou", "bcdfghklmnprstvwxz"

_ENDS = {"latin": (0x61, 0x7B), "hebrew": (0x5D0, 0x5EB), "georgian": (0x10D0, 0x10F1),
         "greek": (0x3B1, 0x3CA), "cyrillic": (0x430, 0x450), "armenian": (0x561, 0x587)}  # fmt: skip
SCRIPTS = {name: "".join(map(chr, range(*ends))) for name, ends in _ENDS.items()}
SCRIPTS["arabic"] = "".join(map(chr, (*range(0x628, 0x63B), *range(0x641, 0x64B))))

FACES = (
    "dkg Breip femkeklaver Rufscript010 SteveHand Delphine Kristi Humor-Sans AmaticSC-Regular "
    "BecauseWeBuild-Regular BecauseWeLearn-Regular BecauseWeMentor-Regular BecauseWeOrganize-Regular "
    "Caladea-Regular EBGaramond12-Regular LinLibertine_R LinLibertine_RB LinBiolinum_R Inconsolata "
    "Cantarell-Regular OpenSans-Regular Lato-Regular"
).split()
"""Typefaces that only measure, by the names of their files: no page is printed in them."""

_EM = 44


def strokes_of(form: str) -> list[Line]:
    """Return the strokes that a row of tokens stands for, in columns and rows."""
    return [np.array([(int(at[0]), int(at[1:])) for at in stroke.split("-")], np.float32)
            for stroke in form.split()]  # fmt: skip


@cache
def shape(character: str) -> list[list[Line]]:
    """Return the forms of a sign or a letter: strokes, 0 .. 1 from the top of capitals to the baseline."""
    forms = (_SIGN_LINES.get(character) or _LETTER_LINES[character]).split(" | ")
    return [[line / np.float32(6) for line in strokes_of(form)] for form in forms]


@cache
def _styles(digit: int) -> list[list[Line]]:
    return [strokes_of(form) for forms in (_STYLES, _RARE) for form in forms[digit].split(" | ")]


def styles_of(digit: int, *, rare: bool = False) -> int:
    """How many styles a digit has; rare ones come after the others."""
    return len(_styles(digit)) if rare else len(_STYLES[digit].split(" | "))


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
    ends = [np.array(_SEGMENT[one], np.float32).reshape(2, 2) for one in _SEGMENTS[digit]]
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
            if letter not in _CURSIVE:
                lift()
                own = [line * 6 + np.array([x, 0], np.float32) for line in shape(letter)[0]]
                lines += [rounded(shaken(line, 2 * self.loose, rng), 2) for line in own]
                x += max(float(line[:, 0].max()) for line in own) - x + 0.6
                continue
            first, *rest = strokes_of(_CURSIVE[letter])
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


class Face:
    """A typeface, from a file or Pillow's own: characters as pictures, and as strokes of a pen."""

    def __init__(self, file: Path | None = None) -> None:
        own = ImageFont.truetype(file, _EM) if file else ImageFont.load_default(_EM)
        self.font = cast(ImageFont.FreeTypeFont, own)
        none = bytes(self.font.getmask("\u0378"))  # what it shows for a character that it lacks
        self.scripts = [
            name for name, own in SCRIPTS.items() if all(bytes(self.font.getmask(c)) != none for c in own)
        ] or ["latin"]
        self._pictures: dict[str, tuple[NDArray[np.uint8], int]] = {}
        self._strokes: dict[str, list[Line]] = {}

    def picture(self, character: str) -> tuple[NDArray[np.uint8], int]:
        """Return a character (h, w), ink 255, and its top below the ascender; 44 pixels are an em."""
        if character not in self._pictures:
            left, top, right, bottom = (int(v) for v in self.font.getbbox(character))
            sheet = Image.new("L", (max(1, right - left), max(1, bottom - top)), 0)
            ImageDraw.Draw(sheet).text((-left, -top), character, fill=255, font=self.font)
            self._pictures[character] = np.asarray(sheet, np.uint8), top
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
