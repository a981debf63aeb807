"""Signs and letters as strokes, so that any pen and any hand can write them."""

from functools import cache
from itertools import chain

import numpy as np
from numpy.typing import NDArray

Line = NDArray[np.float32]

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

LIKE_DIGITS = "OoIlSsZzBbqgDQYyJjTtViGCcUuLe"
"""Letters that, alone, may be a digit of some hand: they are written in words only."""


@cache
def shape(character: str) -> tuple[Line, list[int]]:
    """Strokes of a sign or a letter: points (n, 2), where its strokes begin, and n.

    The points (x, y) are 0 .. 1 from the top of capitals to the baseline.
    """
    strokes = (_SIGN_LINES.get(character) or _LETTER_LINES[character]).split()
    points = [[(int(at[0]), int(at[1])) for at in stroke.split("-")] for stroke in strokes]
    cuts = np.cumsum([0, *map(len, points)]).tolist()
    return np.array(list(chain(*points)), np.float32) / np.float32(6), cuts


_VOWELS, _CONSONANTS = "aeiou", "bcdfghklmnprstvwxz"


def any_word(rng: np.random.Generator, characters: str | None = None) -> str:
    """Make up a word of 2 to 9 letters, in small letters, capitals or both."""
    count = int(rng.integers(2, 10))
    kind = rng.random()
    if characters is not None and kind < 0.3:
        return "".join(characters[int(rng.integers(len(characters)))] for _ in range(count))
    first = int(rng.integers(2))
    letters = [(_VOWELS, _CONSONANTS)[(k + first) % 2] for k in range(count)]
    word = "".join(some[int(rng.integers(len(some)))] for some in letters)
    return word.upper() if kind > 0.8 else word.capitalize() if kind > 0.5 else word
