"""Pages without digits: words of any script in a typeface, joined letters, music, drawings, tables."""

import re
import unicodedata
from collections import defaultdict
from functools import cache
from itertools import pairwise, product

import cv2
import numpy as np
from PIL import Image

from neocog.learning.drawing.canvas import Canvas
from neocog.learning.drawing.fields import Rng, octaves
from neocog.learning.drawing.glyphs import Curve, Face, any_word, shown
from neocog.learning.drawing.hands import Hand
from neocog.learning.drawing.pen import log_uniform

Alphabet = tuple[list[str], list[str]]  #: letters, and signs of vowels

_PARTS = {"text": 0.62, "joined": 0.08, "engraved": 0.09, "drawing": 0.11, "empty": 0.1}
_WORDS = 0.6, 0.25, 0.15  # of the texts: other scripts, Latin print, typefaces of handwriting
_NAME = re.compile("(.+?)(?: CAPITAL| SMALL)? (LETTER|SYLLAB|IDEOGRAPH|CHARACTER|VOWEL SIGN)")
_CONSONANT = re.compile("LETTER [^AEIOU ]+A$")  # that a sign of a vowel may follow
_MOST = 600  # letters of a script
_CLEFS, _ACCIDENTALS, _RESTS, _HEADS = "𝄞𝄡𝄢", "♭♮♯", "𝄻𝄼𝄽𝄾𝄿", "𝅗𝅘𝅘"
_MUSIC = _CLEFS + _ACCIDENTALS + _RESTS + _HEADS
_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"  # that are no digit where they stand alone
_RING = np.stack([f(np.linspace(0, 2 * np.pi, 30)) for f in (np.cos, np.sin)], axis=1)
_BOX = np.array([[-1.0, -1], [1, -1], [1, 1], [-1, 1], [-1, -1]])


@cache
def _scripts() -> dict[str, Alphabet]:
    """Each script but Latin, by the names of Unicode."""
    found: dict[str, Alphabet] = defaultdict(lambda: ([], []))
    for char in map(chr, range(0x370, 0xD7A4)):
        name, kind = _NAME.match(unicodedata.name(char, "")), unicodedata.category(char)
        if name and (kind in ("Lu", "Ll", "Lo") or (kind[0] == "M" and name[2] == "VOWEL SIGN")):
            found[name[1]][kind[0] == "M"].append(char)
    return {script: own for script, own in found.items() if script != "LATIN"}


@cache
def typefaces(*faces: Face) -> dict[str, list[tuple[Face, Alphabet]]]:
    """Typefaces of each script but Latin, and what they have of it."""
    found = defaultdict[str, list[tuple[Face, Alphabet]]](list)
    for face, (script, (letters, vowels)) in product(faces, _scripts().items()):
        if sum(map(face.has, letters[:: 5 + len(letters) // 100])) > 2:
            own = [*filter(face.has, letters)]
            found[script].append((face, (own[:: 1 + len(own) // _MOST], [*filter(face.has, vowels)])))
    return dict(found)


def foreign(canvas: Canvas, hand: Hand, high: float) -> None:
    """Fill a page with what is no digit, words as high as ``high``, in scripts of the page's typefaces."""
    scripts = typefaces(*canvas.faces)
    rng, music = canvas.rng, [face for face in canvas.faces if all(map(face.has, _MUSIC))]
    shares = np.array([share * (part != "engraved" or bool(music)) for part, share in _PARTS.items()])
    part = rng.choice([*_PARTS], p=shares / shares.sum())
    kind = int(rng.choice(3, p=_WORDS)) if scripts else 1
    faces = [face for face in canvas.faces if "latin" in face.scripts]
    faces = music if part == "engraved" else canvas.written or faces if kind == 2 else faces
    face = faces[int(rng.integers(len(faces)))]
    if part == "text" and kind == 0:
        own = scripts[str(rng.choice([*scripts]))]
        text(canvas, *own[int(rng.integers(len(own)))], min(high, 110))
    elif part == "text":
        text(canvas, face, None, min(high, 110))
    elif part == "joined":
        joined(canvas, hand, log_uniform(rng, 18, 80))
    elif part == "engraved":
        engraved(canvas, face, log_uniform(rng, 7, 20))
    elif part == "drawing":
        drawing(canvas, hand, rng.uniform(20, 60))
    else:
        empty(canvas, hand, face, rng.uniform(28, 65))


def text(canvas: Canvas, face: Face, alphabet: Alphabet | None, size: float) -> None:
    """Lines of made-up words in one typeface, an em of so many pixels, of an alphabet or in Latin letters."""
    rng, font = canvas.rng, face.font.font_variant(size=max(8, round(size)))
    letters, vowels = alphabet or ([], [])
    contrast, margin = rng.uniform(0.5, 0.97), rng.uniform(0, 0.12) * canvas.wide
    y, capitals = rng.uniform(-0.1, 0.1) * canvas.high, rng.random() < 0.15

    def word() -> str:
        if not letters:
            return any_word(rng).upper() if capitals else any_word(rng)
        own = rng.choice(letters, int(rng.integers(2, 9))).tolist()
        more = [vowels and _CONSONANT.search(unicodedata.name(c)) and rng.random() < 0.5 for c in own]
        return "".join(c + rng.choice(vowels) if sign else c for c, sign in zip(own, more, strict=True))

    while y < canvas.high:
        line, right = word(), canvas.wide * (1 if rng.random() < 0.8 else rng.uniform(0.3, 1)) - margin
        while font.getlength(longer := f"{line} {word()}") < right - margin:
            line = longer
        cover, top = shown(font, line)
        canvas.lay(cover, margin, y + top, contrast)
        y += size * rng.uniform(1.3, 1.8) * (1 if rng.random() < 0.9 else 2)


def joined(canvas: Canvas, hand: Hand, high: float) -> None:
    """Lines of words by hand in letters that hang together."""
    rng = canvas.rng
    for base in np.arange(1.5 * high, canvas.high, high * rng.uniform(1.5, 2.2)):
        x = rng.uniform(0.3, 2) * high
        while x < canvas.wide - 4 * high:
            x = canvas.put(hand, hand.word(any_word(rng).lower(), high), x, base)
            x += high * rng.uniform(0.3, 0.8)


def _level(canvas: Canvas) -> float:
    return float(canvas.rng.uniform(200, 255) if canvas.bright_ink else canvas.rng.uniform(0, 90))


def engraved(canvas: Canvas, face: Face, gap: float) -> None:
    """Staves, lines so many pixels apart, with signs of a typeface of music, stems, beams and bars."""
    rng, level, font = canvas.rng, _level(canvas), face.font.font_variant(size=round(4 * gap))
    width, left, right = max(1.0, 0.1 * gap), 3 * gap, canvas.wide - 3 * gap

    def sign(kinds: str, x: float, middle: float) -> None:
        cover, _ = shown(font, kinds[int(rng.integers(len(kinds)))])
        canvas.lay(cover, x, middle - len(cover) / 2, 0.9)

    for top in np.arange(3 * gap, canvas.high - 6 * gap, gap * rng.uniform(8, 14)):
        paths = [(np.array([[left, y], [right, y]]), width) for y in top + gap * np.arange(5)]
        sign(_CLEFS, left + 0.5 * gap, top + 2 * gap)
        x, last = left + 5 * gap, np.zeros(2)
        while x < right - 2 * gap:
            y, kind = top + gap * 0.5 * int(rng.integers(-2, 11)), rng.random()
            if kind < 0.1:
                paths.append((np.array([[x, top], [x, top + 4 * gap]]), width))
            elif kind < 0.2:
                sign(_RESTS, x, top + 2 * gap)
            elif kind < 0.3:
                sign(_ACCIDENTALS, x, y)
            else:
                sign(_HEADS, x, y)
                way = -1 if y > top + 2 * gap else 1
                end = np.array([x + (1.1 * gap if way < 0 else 0), y + way * 3.2 * gap])
                paths.append((np.array([[end[0], y], end]), width))
                if (abs(end - last) < np.array([4, 1.6]) * gap).all() and rng.random() < 0.7:
                    paths.append((np.stack([last, end]), 0.5 * gap))
                last = end
            x += gap * rng.uniform(1.8, 3.5)
        canvas.rule(paths, level)


def _map(rng: Rng, size: Curve, unit: float) -> list[Curve]:
    field, lines = octaves((int(size[1]) // 4, int(size[0]) // 4), (3, 6, 12), 0.9, rng), list[Curve]()
    for level in np.linspace(-1.5, 1.5, int(rng.integers(5, 14))) * field.std():  # heights
        found = cv2.findContours((field > level).astype(np.uint8), cv2.RETR_LIST, cv2.CHAIN_APPROX_NONE)[0]
        lines += [4.0 * line.reshape(-1, 2)[::2] for line in found if len(line) > 20]
    return lines


def _circuit(rng: Rng, size: Curve, unit: float) -> list[Curve]:
    lines, steps = list[Curve](), np.arange(8)[:, None]
    for _ in range(int(rng.integers(15, 50))):
        at, way = np.round(rng.uniform(0.1, 0.9, 2) * size / unit), np.roll([1.0, 0.0], int(rng.integers(2)))
        parts = (
            [way * steps / 7 + 0.2 * way[::-1] * (-1.0) ** steps],  # a resistor
            [0.5 * way + 0.5 * _RING, rng.uniform(0.2, 0.8, (2, 2)) * way],  # a lamp or a transistor
            [way * place + way[::-1] * [[-0.4], [0.4]] for place in (0.4, 0.6)],  # a capacitor
        )
        wires = [-way * [[rng.integers(1, 6)], [0]], way * [[1], [rng.integers(2, 7)]]]
        lines += [unit * (at + line) for line in wires + parts[int(rng.integers(3))]]
    return lines


def _rooms(rng: Rng, size: Curve, unit: float) -> list[Curve]:
    walls = [np.sort(rng.uniform(0.05, 0.95, int(rng.integers(3, 7)))) * side for side in size]
    lines = list[Curve]()
    for (x0, x1), (y0, y1) in product(*map(pairwise, walls)):
        low, half = np.array([x0, y0]), np.array([x1 - x0, y1 - y0]) / 2
        door, table = low + unit * abs(_RING[:8]), low + 2 * half * rng.random(2) + unit * _RING / 2
        lines += [low + half * (1 + _BOX), door if rng.random() < 0.5 else table]
    return lines


def _chart(rng: Rng, size: Curve, unit: float) -> list[Curve]:
    spots = rng.uniform(0.1, 0.9, (int(rng.integers(5, 16)), 2)) * size
    forms = _RING, _BOX, _BOX @ [[0.7, 0.7], [-0.7, 0.7]]
    lines = [spot + unit * rng.uniform(0.7, 2, 2) * forms[int(rng.integers(3))] for spot in spots]
    for a, b in pairwise(spots):  # an arrow
        way = unit * (b - a) / max(float(np.hypot(*(b - a))), 1)
        tip, side = b - 2 * way, way[::-1] * [-1, 1]
        lines.append(np.array([a + 2 * way, tip, tip + 0.3 * (side - way), tip, tip - 0.3 * (side + way)]))
    return lines


def _curves(rng: Rng, size: Curve, unit: float) -> list[Curve]:
    low, far, x = size * 0.1, size * 0.9, np.linspace(0.01, 1, 80)
    lines = [np.array([[at, far[1] - 5], [at, far[1] + 5]]) for at in np.arange(low[0], far[0], unit)]
    lines.append(np.array([low, [low[0], far[1]], far]))  # axes
    for _ in range(int(rng.integers(1, 6))):
        y = 0.5 + 0.4 * np.sin(rng.uniform(2, 25) * x + rng.uniform(0, 6)) * x ** rng.uniform(-0.3, 2)
        rough = rng.normal(0, 2, (80, 2)) * (rng.random() < 0.5)
        lines.append(low + np.stack([x, y], axis=1) * (far - low) + rough)
    return lines


def drawing(canvas: Canvas, hand: Hand, unit: float) -> None:
    """A map, a circuit, rooms, a chart or curves, in parts of so many pixels, by hand or in print."""
    rng, size = canvas.rng, np.array([canvas.wide, canvas.high])
    lines = (_map, _circuit, _rooms, _chart, _curves)[int(rng.integers(5))](rng, size, unit)
    width = rng.uniform(1, 4)
    if lines and rng.random() < 0.5:
        canvas.draw(lines, hand, width)
    else:
        canvas.rule([(line, width) for line in lines], _level(canvas))


def _stamps(canvas: Canvas, face: Face, high: float) -> None:
    rng, level = canvas.rng, _level(canvas)
    for _ in range(int(rng.integers(2, 9))):
        middle, turn = rng.uniform(0.15, 0.85, 2) * [canvas.wide, canvas.high], rng.uniform(-40, 40)
        reach, width = high * rng.uniform([1, 0.8], [3.5, 2.5]), rng.uniform(1, 5)
        cos, sin = np.cos(np.radians(turn)), np.sin(np.radians(turn))
        ring = np.sign(_RING) * abs(_RING) ** rng.choice([1, 0.15]) * reach @ [[cos, -sin], [sin, cos]]
        canvas.rule([(middle + share * ring, width) for share in (1, 0.85)], level)
        font = face.font.font_variant(size=1 + round(rng.uniform(0.3, 0.6) * reach[1]))
        word = Image.fromarray(shown(font, any_word(rng).upper())[0]).rotate(turn, expand=True)
        x, y = middle - np.array(word.size) / 2
        canvas.lay(np.asarray(word), x, y, 0.85)


def empty(canvas: Canvas, hand: Hand, face: Face, high: float) -> None:
    """Stamps, a table with few words or a crossword with few letters, its rows so many pixels high."""
    rng, kind = canvas.rng, str(canvas.rng.choice(["stamps", "table", "crossword"], p=[0.35, 0.35, 0.3]))
    if kind == "stamps":
        return _stamps(canvas, face, high)
    level, table, size = _level(canvas), kind == "table", np.array([canvas.wide, canvas.high])
    cell = np.array([rng.uniform(60, 200) if table else high, high])
    count = (rng.uniform(0.5, 0.95) * size / cell).astype(int)
    low = (size - count * cell) * rng.random(2)
    black, full, by_hand = 0 if table else rng.uniform(0.1, 0.3), rng.uniform(0, 0.5), rng.random() < 0.5
    for at in np.ndindex(*count):
        x, y = low + at * cell
        ring = [x, y] + cell * (1 + _BOX) / 2
        canvas.rule([(ring, 1.5)], level)
        if rng.random() < black:
            cv2.fillPoly(canvas.image, [canvas.at(ring).astype(np.int32)], level)
        elif rng.random() < full:
            word = any_word(rng)[: 3 if by_hand else 5] if table else str(rng.choice([*_LETTERS]))
            x += 5 if table else 0.3 * high
            if by_hand:
                drawn = (hand.word if table else hand.letter)(word, 0.5 * high)
                canvas.put(hand, drawn, x, y + 0.75 * high)
            else:
                canvas.print_word(word, x, y + 0.2 * high, 0.6 * high, face, 0.85)
