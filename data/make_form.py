"""Draw ``data/form``: a blank sheet, form.json, and scans: three sheets, one with a wrong sum, and no sheet.

    python data/make_form.py [FOLDER]

The digits are written by the pen that draws what neocog learns from. The same seed draws the same files.
"""

import json
import sys
from pathlib import Path

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from neocog.learning.drawing.glyphs import allograph
from neocog.learning.drawing.pen import Pen, ink

WIDE, HIGH, CELL = 720, 500, 44
BOXES = {"meter": (40, 120, 280), "day": (400, 120, 220), "before": (40, 220, 220), "used": (40, 300, 220),
         "now": (40, 380, 220)}  # fmt: skip
MORE = {
    "meter": {"valid": ["07946", "11873", "20619"], "required": True}, "day": {"pattern": "##/##"},
    "before": {"pattern": "####"}, "used": {}, "now": {"pattern": "####", "rule": "sum of before, used"},
}  # fmt: skip
SHEETS = [
    {"meter": "07946", "day": "12/05", "before": "2458", "used": "731", "now": "3189"},
    {"meter": "11873", "day": "30/11", "before": "4027", "used": "", "now": ""},
    {"meter": "20619", "day": "08/02", "before": "1165", "used": "292", "now": "1467"},  # 1457
]


def blank() -> Image.Image:
    image = Image.new("L", (WIDE, HIGH), 252)
    pen, font = ImageDraw.Draw(image), ImageFont.load_default(19)
    pen.text((40, 28), "Water board: reading of a meter", 20, ImageFont.load_default(30))
    labels = {"meter": "Number of the meter", "day": "Day / month", "before": "Last reading",
              "used": "Used since", "now": "Reading today"}  # fmt: skip
    for name, (x, y, wide) in BOXES.items():
        pen.text((x, y - 26), labels[name], 20, font)
        pen.rectangle((x, y, x + wide, y + CELL), None, 20, 2)
    words = "Please write plainly, with a\ndark pen, inside the frames.\nKeep the yellow copy."
    pen.text((400, 250), words, 20, font)
    pen.text((40, 450), "Office use only. Form 12, printed 2026. Questions: see the back.", 20, font)
    return image


def written(sheet: np.ndarray, said: dict[str, str], rng: np.random.Generator) -> None:
    pen = Pen(0.09, 0.8, 0.0, 1.0, 0.0)
    for name, text in said.items():
        x, y = BOXES[name][0] + 16, BOXES[name][1] + 8
        for char in text:
            strokes = (
                allograph(int(char), {"1": 1, "9": 2}.get(char, 0), rng)
                if char != "/"
                else [np.array([[2, -1], [0, 6]], np.float32)]
            )
            low = np.concatenate(strokes).min(axis=0)
            tall = np.ptp(np.concatenate(strokes)[:, 1])
            strokes = [(line - low) * 29 / tall for line in strokes]
            cover, left, top = ink([np.asarray(line, np.float32) for line in strokes], 3.2, pen, rng)
            place = sheet[y + top :, round(x) + left :][: cover.shape[0], : cover.shape[1]]
            place *= 1 - 0.8 * cover
            x += max(line[:, 0].max() for line in strokes) + 10


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "data/form")
    (folder / "scans").mkdir(parents=True, exist_ok=True)
    empty = blank()
    empty.save(folder / "blank.png", optimize=True)
    fields = [
        {
            "name": name,
            "box": [round(v, 4) for v in (x / WIDE, y / HIGH, wide / WIDE, CELL / HIGH)],
            **MORE[name],
        }
        for name, (x, y, wide) in BOXES.items()
    ]
    form = {"form": 1, "layouts": [{"name": "meter", "pages": [{"blank": "blank.png", "fields": fields}]}]}
    (folder / "form.json").write_text(json.dumps(form, indent=1) + "\n")
    for k, said in enumerate(SHEETS, 1):
        rng, sheet = np.random.default_rng(k), np.array(empty, np.float32)
        written(sheet, said, rng)
        way = cv2.getRotationMatrix2D((WIDE / 2, HIGH / 2), float(rng.normal(0, 2)), 0.95)
        scan = cv2.warpAffine(sheet, way, (WIDE, HIGH), flags=cv2.INTER_CUBIC, borderValue=240)
        scan = scan + rng.normal(0, 3, scan.shape)
        Image.fromarray(np.clip(scan, 0, 255).astype(np.uint8)).save(
            folder / "scans" / f"{k}.jpg", quality=70
        )
    Image.fromarray(np.full((HIGH, WIDE), 240, np.uint8)).save(folder / "scans" / "4.jpg", quality=70)


if __name__ == "__main__":
    main()
