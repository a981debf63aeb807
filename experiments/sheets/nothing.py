"""Measures false digits on 504 drawn pages that hold none: see README.md.

DATA as for `experiments.sheets.measure`; README.md names the packages of typefaces. ``--drawn`` keeps the
pages, and boxes of what is read on them.
"""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from PIL import Image

from experiments.harness.record import arguments, totals, write_results
from neocog.errors import InputError
from neocog.learning.drawing import layouts
from neocog.learning.drawing.canvas import Canvas
from neocog.learning.drawing.foreign import drawing, empty, engraved, joined, text, typefaces
from neocog.learning.drawing.glyphs import Face
from neocog.learning.drawing.hands import Hand, load_hands
from neocog.learning.drawing.page import ground
from neocog.learning.drawing.paper import photographed
from neocog.learning.drawing.pen import log_uniform
from neocog.reading.reader import Reader

Draw = Callable[[Canvas, Hand, float], None]

PAGES = 42  # of a kind
SIDES = 800, 1600  # pixels
_FONTS = Path("/usr/share/fonts")
_GROUND = {"rules": 0.2, "folds": 0.12, "stains": 0.1, "sheet": 0.2, "bright": 0.08, "surface": 0.07}
_BESIDE = {
    "ARABIC": "Kacst*.ttf NotoNaskh*Regular* NotoNasta*Regular* NotoKufi*Regular*",
    "HEBREW": "*CLM-*[km].?tf",
    "GREEK": "GFSDidot*", "CYRILLIC": "LinLibertine_R.otf OpenSans-Regular.ttf EBGaramond12-Regular.otf",
    "ARMENIAN": "Noto*Armenian-Regular.ttf", "GEORGIAN": "Noto*Georgian-Regular.ttf",
}  # fmt: skip
_INDIA, _EAST = ({name.upper(): f"Noto*{name}-[RB]*.ttf" for name in names.split()} for names in (
    "Devanagari Bengali Tamil Telugu Gujarati Gurmukhi Kannada Malayalam Oriya Sinhala",
    "Thai Lao Khmer Myanmar Tibetan Ethiopic Mongolian Cherokee Tifinagh Javanese"))  # fmt: skip
_HAN = {"CJK UNIFIED": "wqy*", "HIRAGANA": "sawarabi* wqy*", "KATAKANA": "sawarabi* wqy*",
        "HANGUL": "Nanum[GM]*.ttf"}  # fmt: skip
_LATIN = """
GFSDidot* Junicode*Beta-[RBI]* Comfortaa* Caladea* EBGaramond12* Lin*_R*.otf Incons* Cantarell* OpenSans*
Lato*
"""
_WRITTEN = """
dkg* Breip* femke* Rufs* SteveHand* Delphine* Kristi* Humor* BecauseWe* Dancing* Kaush* lobster*
"""


@cache
def faces(globs: str) -> list[Face]:
    found = [Face(file) for glob in globs.split() for file in sorted(_FONTS.rglob(glob)) if file.is_file()]
    if not found:
        raise InputError(f"{globs}: not in {_FONTS}; install what experiments/sheets/README.md names")
    return found


def words(globs: dict[str, str]) -> Draw:
    """Words of one of the scripts ("": Latin) in one of its typefaces."""

    def draw(canvas: Canvas, hand: Hand, size: float) -> None:
        script = str(canvas.rng.choice([*globs]))
        own = faces(globs[script])
        face = own[int(canvas.rng.integers(len(own)))]
        text(canvas, face, typefaces(face)[script][0][1] if script else None, size)

    return draw


def scribbles(canvas: Canvas, hand: Hand, size: float) -> None:
    for _ in range(3):
        layouts.scribbles(canvas, hand, size)


#: how a page of each kind is drawn, and the least and the largest size of what stands on it, in pixels
KINDS: dict[str, tuple[Draw, float, float]] = {
    "scripts learned, other typefaces": (words(_BESIDE), 14, 70),
    "scripts of India": (words(_INDIA), 14, 70),
    "scripts of the east and of Africa": (words(_EAST), 14, 70),
    "Han, kana, Hangul": (words(_HAN), 14, 70),
    "Latin print": (words({"": _LATIN}), 14, 70),
    "typefaces of handwriting": (words({"": _WRITTEN}), 14, 70),
    "joined letters (drawing room)": (joined, 18, 80),
    "music (drawing room)": (layouts.music, 20, 120),
    "music in print": (
        lambda canvas, hand, gap: engraved(canvas, faces("NotoMusic-Regular.ttf")[0], gap), 7, 20),
    "scribbles (drawing room)": (scribbles, 20, 120),
    "maps, circuits, plans, charts": (drawing, 20, 60),
    "tables, crosswords, stamps": (
        lambda canvas, hand, high: empty(canvas, hand, faces("Lato-Regular.ttf")[0], high), 28, 65),
}  # fmt: skip


def main() -> None:
    usual = {"seed": 1, "drawn": Path, "finder": Path, "model": Path, "pages": PAGES}
    args = arguments(__doc__, "data", **usual).parse_args()
    cv2.setNumThreads(1)
    reader, hands = Reader(args.model, device="cpu", finder=args.finder), load_hands(args.data, held=True)
    rows = list[dict[str, Any]]()
    for number, (kind, (draw, *sizes)) in enumerate(KINDS.items()):
        for k in range(args.pages):
            rng = np.random.default_rng([args.seed, number, k])
            on = frozenset(name for name, share in _GROUND.items() if rng.random() < share)
            shape, size = (int(rng.integers(*SIDES)), int(rng.integers(*SIDES))), log_uniform(rng, *sizes)
            canvas = ground(hands, [], on, rng, shape, turn=rng.normal(0, 0.02))
            draw(canvas, Hand(hands, rng), size)
            picture = photographed(canvas.image, rng, min(size, 60.0))
            read = reader.read(picture).digits
            digits, doubts = (sum(map(one, (d.char for d in read))) for one in (str.isdigit, "?".__eq__))
            row = {"kind": kind, "pages": 1, "false": int(digits > 0), "digits": digits}
            rows.append(row | {"doubts": doubts})
            if args.drawn:
                args.drawn.mkdir(exist_ok=True)
                Image.fromarray(picture).save(args.drawn / f"{number:02d}_{k:02d}.png")
                boxes = json.dumps([[d.char, *map(float, d.box)] for d in read])
                (args.drawn / f"{number:02d}_{k:02d}.json").write_text(boxes)
        print(kind, sum(row["false"] for row in rows[-args.pages :]), flush=True)
    columns = {"kind": "kind", "pages": "pages", "false": "with a digit", "digits": "digits", "doubts": "?"}
    write_results(args.output, totals(rows, "kind", KINDS, [], "pages"), columns=columns, read_by=reader)


if __name__ == "__main__":
    main()
