"""Measures a folder of drawn forms that becomes a table: cells right, wrong and doubtful, sheets that fit.

    python -m experiments.forms.measure DATA -o RESULT [--count N] [--seed S] [--layouts L] [--others M]

Each sheet is of one of L layouts, filled in by a hand that nothing is learned from, scanned or
photographed, a JPEG or a page of a PDF. Every tenth is of a layout that the form does not have: it must be
refused. In two of ten one digit of a cell that a rule concerns is replaced: the cell must be in doubt, and
the sheet counts for nothing else. Choices were made with seeds 7 and 1; figures are of seed 2. DATA holds
mnist, lines/free and hands/free.
"""

import json
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import cv2
import numpy as np
from PIL import Image

from experiments.forms.drawn import Drawn, fill, layout, photo, scanned, texts
from experiments.harness.arguments import arguments
from experiments.harness.record import write_results
from neocog.learning.drawing.hands import load_hands
from neocog.reading.forms import Form, load_form
from neocog.reading.reader import Reader
from neocog.reading.records import REJECTED, SheetReading
from neocog.reading.sheets import read_sheets

COLUMNS = {
    "how": "cells", "cells": "cells", "right": "right|.2%", "wrong": "wrong without ?|.2%", "doubt": "?|.2%",
    "sheets": "sheets", "laid": "laid onto its layout|.2%", "strangers": "others", "refused": "refused|.1%",
    "spoiled": "spoiled cells", "flagged": "flagged|.1%", "ms": "median, ms",
}  # fmt: skip
RULED = ("a", "b", "c", "total", "row 1", "row 2", "row 3", "account")


def form_of(drawn: list[Drawn], folder: Path, *, ruled: bool) -> Form:
    """Write form.json and its blanks; without rules and lists fields have neither these nor patterns."""
    layouts = []
    for k, one in enumerate(drawn):
        Image.fromarray(one.blank).save(folder / f"blank{k}.png")
        fields = one.fields if ruled else [{"name": f["name"], "box": f["box"]} for f in one.fields]
        layouts.append({"name": f"layout {k}", "pages": [{"blank": f"blank{k}.png", "fields": fields}]})
    (folder / "form.json").write_text(json.dumps({"form": 1, "layouts": layouts}))
    return load_form(folder / "form.json")


def spoil(said: dict[str, str], name: str, rng: np.random.Generator) -> None:
    """Replace a digit of a cell by another one."""
    text = said[name]
    k = int(rng.choice([k for k, c in enumerate(text) if c.isdigit() and (k or name == "account")]))
    said[name] = text[:k] + str((int(text[k]) + int(rng.integers(1, 10))) % 10) + text[k + 1 :]


def count(sheet: SheetReading, said: dict[str, str], spoiled: str, least: float) -> Counter[str]:
    """Cells of a sheet that are right, wrong, in doubt; a decimal point for a comma is right."""
    found = Counter[str]()
    for name, cell in sheet.fields.items():
        text, doubt = (
            cell.text.replace(" ", "").replace(".", ","),
            REJECTED in cell.text or (cell.p or 1) < least,
        )
        same = text == said[name].replace(".", ",")
        if spoiled:
            found["flagged"] += name == spoiled and doubt
        else:
            found += Counter(cells=1, right=same and not doubt, doubt=doubt, wrong=not same and not doubt)
            if not same:
                print(name, repr(said[name]), repr(cell.text), cell.p, cell.why, flush=True)
    return found


def main() -> None:
    args = arguments(
        __doc__, "data", output=Path, count=120, seed=2, layouts=12, others=0, kept=Path
    ).parse_args()
    cv2.setNumThreads(1)
    rng, hands = np.random.default_rng(args.seed), load_hands(args.data, held=True)
    valid = [f"{v:06d}" for v in rng.choice(10**6, 200, replace=False)]
    drawn = [layout(rng, valid) for _ in range(args.layouts)]
    reader = Reader(device="cpu")
    bounds = {"default": 0.0, "--max-error 2%": Reader(device="cpu", max_error=0.02).policy.min_p}
    total: dict[str, Counter[str]] = {}
    with TemporaryDirectory() as place:
        forms = {
            "": form_of(drawn, Path(place), ruled=True),
            ", no rules": form_of(drawn, Path(place), ruled=False),
        }
        times = list[float]()
        for k in range(args.count + args.others):
            own = np.random.default_rng([args.seed, k])
            stranger, spoiled = (
                k % 10 == 9 or k >= args.count,
                str(own.choice(RULED)) if k % 10 in (4, 8) else "",
            )
            number = int(own.integers(len(drawn)))
            one, said = layout(own, valid) if stranger else drawn[number], texts(own, valid)
            if spoiled:
                spoil(said, spoiled, own)
            sheet = fill(one, said, hands, own, stamp=k % 6 == 1)
            grey = (photo if k % 2 else scanned)(sheet, own)
            file = (args.kept or Path(place)) / (f"{k:04d}.pdf" if k % 3 == 0 else f"{k:04d}.jpg")
            file.parent.mkdir(exist_ok=True)
            Image.fromarray(grey).save(file, resolution=grey.shape[0] / 297 * 25.4, quality=88)
            for more, form in list(forms.items())[: 1 if k >= args.count else 2]:
                start = perf_counter()
                (found,) = read_sheets(reader, form, file)
                times.append(perf_counter() - start)
                for name, least in bounds.items():
                    row = total.setdefault(f"{name}{more}", Counter())
                    if stranger:
                        row += Counter(strangers=1, refused=found.error is not None)
                        continue
                    row += Counter(sheets=1, laid=found.layout == f"layout {number}", spoiled=bool(spoiled))
                    row += count(found, said, spoiled, least)
            print(k, file.name, grey.shape, found.error, found.layout, found.fit, found.residual, flush=True)
    rows = list[dict[str, Any]]()
    for how, row in total.items():
        share = {key: row[key] / max(1, row["cells"]) for key in ("right", "wrong", "doubt")}
        share |= {
            "laid": row["laid"] / max(1, row["sheets"]),
            "refused": row["refused"] / max(1, row["strangers"]),
        }
        share |= {"flagged": row["flagged"] / max(1, row["spoiled"])}
        rows.append({"how": how, **row, **share, "ms": round(1e3 * float(np.median(times)))})
        print(rows[-1])
    if args.output:
        write_results(
            args.output, rows, columns=COLUMNS, model=reader.model.id, finder=reader.finder.model.id
        )


if __name__ == "__main__":
    main()
