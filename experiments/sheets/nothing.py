"""Measures false digits on 504 drawn pages that hold none: see README.md.

    python -m experiments.sheets.nothing DATA -o RESULT [--finder FILE] [--drawn FOLDER]

DATA as for `experiments.sheets.measure`; README.md names the packages of typefaces. ``--drawn`` keeps the
pages, and boxes of what is read on them.
"""

import json
import re
import unicodedata
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from experiments.harness.record import arguments, totals, write_results
from neocog.learning.drawing import layouts
from neocog.learning.drawing.canvas import Canvas
from neocog.learning.drawing.glyphs import any_word
from neocog.learning.drawing.hands import Hand, load_hands
from neocog.learning.drawing.page import ground
from neocog.learning.drawing.paper import photographed
from neocog.learning.drawing.pen import log_uniform, octaves
from neocog.reading.reader import Reader

PAGES = 42  # of a kind
_FONTS = Path("/usr/share/fonts")
SIDES = 800, 1600  # pixels
_GROUND = {"rules": 0.2, "folds": 0.12, "stains": 0.1, "sheet": 0.2, "bright": 0.08, "surface": 0.07}
_LEARNED = {
    "ARABIC": "Kacst*.ttf NotoNaskh*Regular* NotoNasta*Regular* NotoKufi*Regular*",
    "HEBREW": "*CLM-*[km].?tf",
    "GREEK": "GFSDidot*", "CYRILLIC": "LinLibertine_R.otf OpenSans-Regular.ttf EBGaramond12-Regular.otf",
    "ARMENIAN": "Noto*Armenian-Regular.ttf", "GEORGIAN": "Noto*Georgian-Regular.ttf",
}  # fmt: skip
_CONSONANT = re.compile("LETTER [^AEIOU ]+A$")  # that a sign of a vowel may follow
_INDIC = "Devanagari Bengali Tamil Telugu Gujarati Gurmukhi Kannada Malayalam Oriya Sinhala".split()
_EAST = "Thai Lao Khmer Myanmar Tibetan Ethiopic Mongolian Cherokee Tifinagh Javanese".split()
_HAN = {
    "CJK UNIFIED": "wqy*",
    "HIRAGANA": "sawarabi* wqy*",
    "KATAKANA": "sawarabi* wqy*",
    "HANGUL SYLLABLE": "Nanum[GM]*.ttf",
}
_LATIN = {
    "": "GFSDidot* Junicode*Beta-[RBI]* Comfortaa* Caladea* EBGaramond12* Lin*_R*.otf Incons* Cantarell* "
    "OpenSans* Lato*"
}
_WRITTEN = {
    "": "dkg* Breip* femke* Rufs* SteveHand* Delphine* Kristi* Humor* BecauseWe* Dancing* Kaush* lobster*"
}


@cache
def _alphabet(script: str, file: Path) -> tuple[list[str], list[str]]:
    """Letters of a script that a typeface has, and its signs of vowels; no digits."""
    font = ImageFont.truetype(file, 20)
    names = {chr(c): unicodedata.name(chr(c), "") for c in range(0x370, 0xD7A4)}
    own = [c for c, name in names.items() if name.startswith(script + " ")]
    none = bytes(font.getmask("\u0378"))
    letters = [
        c for c in own if unicodedata.category(c) in ("Lu", "Ll", "Lo") and bytes(font.getmask(c)) != none
    ]
    return letters, [c for c in own if "VOWEL SIGN" in names[c]]


def _text(canvas: Canvas, typefaces: dict[str, str]) -> float:
    """Fill a page with lines of made-up words of one script in one typeface; return its size in pixels."""
    rng, script = canvas.rng, str(canvas.rng.choice(list(typefaces)))
    files = [f for glob in typefaces[script].split() for f in sorted(_FONTS.rglob(glob)) if f.is_file()]
    file = files[int(rng.integers(len(files)))]
    size = log_uniform(rng, 14, 70)
    font, margin = ImageFont.truetype(file, size), rng.uniform(0.02, 0.15) * canvas.wide
    contrast, y = rng.uniform(0.5, 0.97), rng.uniform(0.02, 0.2) * canvas.high

    def word() -> str:
        if not script:
            return any_word(rng)
        letters, vowels = _alphabet(script, file)
        own = [str(c) for c in rng.choice(letters, int(rng.integers(2, 9)))]
        bare = [not vowels or rng.random() < 0.5 or not _CONSONANT.search(unicodedata.name(c)) for c in own]
        return "".join(c if alone else c + rng.choice(vowels) for c, alone in zip(own, bare, strict=True))

    while y < canvas.high - 2 * size:
        line, right = word(), canvas.wide * (1 if rng.random() < 0.8 else rng.uniform(0.3, 1)) - margin
        while font.getlength(longer := f"{line} {word()}") < right - margin:
            line = longer
        left, top, *ends = (int(v) for v in font.getbbox(line))
        picture = Image.new("L", (max(ends[0] - left, 1), max(ends[1] - top, 1)))
        ImageDraw.Draw(picture).text((-left, -top), line, 255, font)
        canvas.lay(np.asarray(picture, np.float32) / np.float32(255), margin, y + top, contrast)
        y += size * rng.uniform(1.4, 1.7) * (1 if rng.random() < 0.9 else 2)
    return float(size)


def _joined(canvas: Canvas, hand: Hand) -> float:
    """Fill a page with words in joined letters."""
    rng, high = canvas.rng, log_uniform(canvas.rng, 18, 80)
    for base in np.arange(1.5 * high, canvas.high, high * rng.uniform(1.5, 2.2)):
        x = rng.uniform(0.3, 2) * high
        while x < canvas.wide - 4 * high:
            x = canvas.put(hand, hand.word(any_word(rng).lower(), high), x, base) + high * rng.uniform(
                0.3, 0.8
            )
    return high


def _level(canvas: Canvas) -> float:
    return float(canvas.rng.uniform(200, 255) if canvas.bright_ink else canvas.rng.uniform(0, 90))


def _engraved(canvas: Canvas) -> float:
    """Staves in print with clefs, notes, rests, accidentals and beams of a typeface of music."""
    rng, gap, level = canvas.rng, log_uniform(canvas.rng, 7, 20), _level(canvas)
    font = ImageFont.truetype(next(_FONTS.rglob("NotoMusic-Regular.ttf")), 4 * gap)
    width, left, right = max(1.0, 0.1 * gap), 3 * gap, canvas.wide - 3 * gap

    def sign(code: int, x: float, middle: float) -> None:
        mask = font.getmask(chr(code), "L")
        cover = np.asarray(np.asarray(mask).reshape(mask.size[::-1]) / 255, np.float32)
        canvas.lay(cover, x, middle - len(cover) / 2, 0.9)

    for top in np.arange(3 * gap, canvas.high - 6 * gap, gap * rng.uniform(8, 14)):
        canvas.rule([(np.array([[left, y], [right, y]]), width) for y in top + gap * np.arange(5)], level)
        sign(int(rng.choice([0x1D11E, 0x1D122, 0x1D121])), left + 0.5 * gap, top + 2 * gap)
        x, stems = left + 5 * gap, list[tuple[float, float]]()
        while x < right - 2 * gap:
            y, kind = top + gap * 0.5 * int(rng.integers(-2, 11)), rng.random()
            if kind < 0.1:
                canvas.rule([(np.array([[x, top], [x, top + 4 * gap]]), width)], level)
            elif kind < 0.2:
                sign(0x1D13B + int(rng.integers(5)), x, top + 2 * gap)
            elif kind < 0.3:
                sign(0x266D + int(rng.integers(3)), x, y)
            else:
                way = -1 if y > top + 2 * gap else 1
                stem = x + (1.1 * gap if way < 0 else 0), y + way * 3.2 * gap
                sign(0x1D157 + int(rng.random() < 0.7), x, y)
                canvas.rule([(np.array([[stem[0], y], stem]), width)], level)
                near = stems and stem[0] - stems[-1][0] < 4 * gap and abs(stem[1] - stems[-1][1]) < 1.6 * gap
                if near and rng.random() < 0.7:
                    canvas.rule([(np.array([stems[-1], stem]), 0.5 * gap)], level)
                stems.append(stem)
            x += gap * rng.uniform(1.8, 3.5)
    return 3 * gap


def _drawing(canvas: Canvas, hand: Hand) -> float:
    """A map with contours, a circuit, rooms, a chart with arrows or curves on axes, by pen or in print."""
    rng, size = canvas.rng, np.array([canvas.wide, canvas.high])
    kind, unit = rng.choice(["map", "circuit", "rooms", "chart", "curves"]), rng.uniform(20, 60)
    turn, lines = np.linspace(0, 2 * np.pi, 30)[:, None], list[np.ndarray]()
    ring = np.c_[np.cos(turn), np.sin(turn)]
    if kind == "map":
        field = octaves((canvas.image.shape[0] // 4, canvas.image.shape[1] // 4), (3, 6, 12), 0.9, rng)
        for height in np.linspace(-1.5, 1.5, int(rng.integers(5, 14))):
            above = (field > height * field.std()).astype(np.uint8)
            found = cv2.findContours(above, cv2.RETR_LIST, cv2.CHAIN_APPROX_NONE)[0]
            lines += [4.0 * c.reshape(-1, 2)[::2] for c in found if len(c) > 20]
    elif kind == "circuit":
        for _ in range(int(rng.integers(15, 50))):
            at = np.round(rng.uniform(0.1, 0.9, 2) * size / unit) * unit
            way = np.roll([1.0, 0.0], int(rng.integers(2)))
            across, steps, part = way[::-1], np.arange(8), rng.random()
            lines += [
                at - way * unit * [[rng.integers(1, 6)], [0]],
                at + way * unit * [[1], [rng.integers(2, 7)]],
            ]
            if part < 0.4:  # a resistor
                lines.append(at + unit * (way * steps[:, None] / 7 + 0.2 * across * ((-1) ** steps)[:, None]))
            elif part < 0.7:  # a lamp or a transistor
                lines += [
                    at + unit * (0.5 * way + 0.5 * ring),
                    at + unit * rng.uniform(0.2, 0.8, (2, 2)) * way,
                ]
            else:  # a capacitor
                lines += [at + unit * (way * share + across * [[-0.4], [0.4]]) for share in (0.4, 0.6)]
    elif kind == "rooms":
        walls = [np.sort(rng.uniform(0.05, 0.95, int(rng.integers(3, 7)))) * side for side in size]
        for x0, x1 in pairwise(walls[0]):
            for y0, y1 in pairwise(walls[1]):
                lines.append(np.array([[x0, y0], [x1, y0], [x1, y1], [x0, y1], [x0, y0]]))
                door = [x0, y0] + unit * np.abs(ring[:8])
                lines += [door] if rng.random() < 0.5 else [rng.uniform([x0, y0], [x1, y1]) + unit * ring / 2]
    elif kind == "chart":
        spots = rng.uniform(0.1, 0.9, (int(rng.integers(5, 16)), 2)) * size
        for spot in spots:
            shape = unit * rng.uniform(0.7, 2, 2)
            box = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1], [-1, -1]])
            lines.append(spot + shape * [ring, box, box @ [[0.7, 0.7], [-0.7, 0.7]]][int(rng.integers(3))])
        for a, b in pairwise(spots):
            way = (b - a) / max(float(np.hypot(*(b - a))), 1)
            head = b - way * 2 * unit
            barb = np.array([-way + way[::-1] * [-1, 1], [0, 0], -way - way[::-1] * [-1, 1]])
            lines += [np.array([a + way * 2 * unit, head]), head + 0.3 * unit * barb]
    else:
        low, far = size * 0.1, size * 0.9
        lines.append(np.array([low, [low[0], far[1]], far]))
        lines += [np.array([[x, far[1] - 5], [x, far[1] + 5]]) for x in np.arange(low[0], far[0], unit)]
        for _ in range(int(rng.integers(1, 6))):
            x = np.linspace(0.01, 1, 80)
            y = 0.5 + 0.4 * np.sin(rng.uniform(2, 25) * x + rng.uniform(0, 6)) * x ** rng.uniform(-0.3, 2)
            lines.append(low + np.c_[x, y] * (far - low) + rng.normal(0, 2, (80, 2)) * (rng.random() < 0.5))
    width = rng.uniform(1, 4)
    if rng.random() < 0.5:
        for line in lines:
            canvas.draw([line.astype(np.float32)], hand, width)
    else:
        canvas.rule([(line, width) for line in lines], _level(canvas))
    return unit


def _empty(canvas: Canvas, hand: Hand) -> float:
    """A table with empty cells and words, a crossword with letters, or stamps."""
    rng, level = canvas.rng, _level(canvas)
    kind, font = rng.random(), ImageFont.truetype(next(_FONTS.rglob("Lato-Regular.ttf")), 40)

    def put(word: str, x: float, y: float, high: float, angle: float = 0) -> None:
        box = font.getbbox(word)
        picture = Image.new("L", (int(box[2]) + 4, 52))
        ImageDraw.Draw(picture).text((2, 0), word, 255, font)
        picture = picture.resize((max(1, round(picture.width * high / 52)), max(1, round(high))))
        canvas.lay(np.asarray(picture.rotate(angle, expand=True), np.float32) / np.float32(255), x, y, 0.85)

    if kind < 0.35:  # stamps
        for _ in range(int(rng.integers(2, 9))):
            middle = rng.uniform(0.15, 0.85, 2) * [canvas.wide, canvas.high]
            reach, angle = rng.uniform(40, 160) * np.array([1, rng.uniform(0.5, 1)]), rng.uniform(-40, 40)
            turn = np.linspace(0, 2 * np.pi, 60)
            power = rng.choice([1, 0.15])  # a ring or a box with round corners
            ring = np.stack([np.cos(turn), np.sin(turn)], axis=1)
            form = np.sign(ring) * np.abs(ring) ** power * reach
            cos, sin = np.cos(np.radians(angle)), np.sin(np.radians(angle))
            form = form @ np.array([[cos, -sin], [sin, cos]])
            canvas.rule([(middle + share * form, rng.uniform(1, 5)) for share in (1, 0.85)], level)
            x, y = middle - 0.6 * reach
            put(any_word(rng).upper(), x, y, rng.uniform(0.3, 0.6) * reach[1], angle)
        return 30.0
    wide = rng.uniform(60, 200) if kind < 0.7 else 0.0
    high = rng.uniform(28, 60 if wide else 70)
    cell = np.array([wide or high, high])
    count = (rng.uniform(0.5, 0.95) * np.array([canvas.wide, canvas.high]) / cell).astype(int)
    low = (np.array([canvas.wide, canvas.high]) - count * cell) * rng.uniform(0, 1, 2)
    black, full, by_hand = rng.uniform(0.1, 0.3), rng.uniform(0, 0.5), rng.random() < 0.5
    for k in np.ndindex(*count):
        x, y = low + k * cell
        ring = np.array([[x, y], [x + cell[0], y], [x + cell[0], y + cell[1]], [x, y + cell[1]], [x, y]])
        canvas.rule([(ring, 1.5)], level)
        if kind < 0.7:
            if rng.random() < full and not by_hand:
                put(any_word(rng)[:5], x + 4, y + 0.2 * cell[1], 0.55 * cell[1])
            elif rng.random() < full:
                canvas.put(hand, hand.word(any_word(rng)[:3], 0.4 * cell[1]), x + 6, y + 0.7 * cell[1])
        elif rng.random() < black:
            cv2.fillPoly(canvas.image, [canvas.at(ring).astype(np.int32)], level)
        elif rng.random() < full:
            letter = str(rng.choice(list("ABCDEFGHJKLMNPQRSTUVWXYZ")))
            if by_hand:
                canvas.put(hand, hand.letter(letter, 0.6 * cell[1]), x + 0.3 * cell[0], y + 0.8 * cell[1])
            else:
                put(letter, x + 0.3 * cell[0], y + 0.15 * cell[1], 0.7 * cell[1])
    return float(0.5 * cell[1])


def _room(draw: Callable[[Canvas, Hand, float], None]) -> Callable[[Canvas, Hand], float]:
    def page(canvas: Canvas, hand: Hand) -> float:
        high = log_uniform(canvas.rng, 20, 120)
        for _ in range(3 if draw is layouts.scribbles else 1):
            draw(canvas, hand, high)
        return min(high, 60.0)

    return page


def _print(typefaces: dict[str, str]) -> Callable[[Canvas, Hand], float]:
    return lambda canvas, hand: _text(canvas, typefaces)


KINDS: dict[str, Callable[[Canvas, Hand], float]] = {
    "scripts learned, other typefaces": _print(_LEARNED),
    "scripts of India": _print({name.upper(): f"Noto*{name}-[RB]*.ttf" for name in _INDIC}),
    "scripts of the east and of Africa": _print({name.upper(): f"Noto*{name}-[RB]*.ttf" for name in _EAST}),
    "Han, kana, Hangul": _print(_HAN),
    "Latin print": _print(_LATIN),
    "typefaces of handwriting": _print(_WRITTEN),
    "joined letters (drawing room)": _joined,
    "music (drawing room)": _room(layouts.music),
    "music in print": lambda canvas, hand: _engraved(canvas),
    "scribbles (drawing room)": _room(layouts.scribbles),
    "maps, circuits, plans, charts": _drawing,
    "tables, crosswords, stamps": _empty,
}


def main() -> None:
    usual = {"seed": 1, "drawn": Path, "finder": Path, "pages": PAGES}
    args = arguments(__doc__, "data", output=Path, **usual).parse_args()
    cv2.setNumThreads(1)
    reader = Reader(device="cpu", finder=args.finder) if args.finder else Reader(device="cpu")
    hands, rows = load_hands(args.data, held=True), list[dict[str, Any]]()
    for number, (kind, draw) in enumerate(KINDS.items()):
        for k in range(args.pages):
            rng = np.random.default_rng([args.seed, number, k])
            on = frozenset(name for name, share in _GROUND.items() if rng.random() < share)
            shape = (int(rng.integers(*SIDES)), int(rng.integers(*SIDES)))
            canvas = ground(hands, [], on, rng, shape, turn=rng.normal(0, 0.02))
            picture = photographed(canvas.image, rng, draw(canvas, Hand(hands, rng)))
            read = reader.read(picture).digits
            digits = len([digit for digit in read if digit.char.isdigit()])
            doubts = len([digit for digit in read if digit.char == "?"])
            row = {"kind": kind, "pages": 1, "false": int(digits > 0), "digits": digits}
            rows.append(row | {"doubts": doubts})
            if args.drawn:
                args.drawn.mkdir(exist_ok=True)
                Image.fromarray(picture).save(args.drawn / f"{number:02d}_{k:02d}.png")
                boxes = json.dumps([[d.char, *map(float, d.box)] for d in read])
                (args.drawn / f"{number:02d}_{k:02d}.json").write_text(boxes)
        print(kind, sum(row["false"] for row in rows[-args.pages :]), flush=True)
    table = totals(rows, "kind", KINDS, [], "pages")
    if args.output:
        columns = {"kind": "kind", "pages": "pages", "false": "with a digit", "digits": "digits"}
        write_results(args.output, table, columns=columns | {"doubts": "?"}, finder=reader.finder.model.id)


if __name__ == "__main__":
    main()
