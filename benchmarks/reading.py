"""Measures how photographs, cheque amounts and made pages are read, and how long finding takes.

    python benchmarks/reading.py DATA -o benchmarks/results/reading.json [--pages N] [--quick]

DATA holds the folders photos, strings and mnist. Made pages are written with the last 5 000
digits of MNIST's training set; the conditions of `HELD_BACK` and `BLANK_HELD_BACK` were never
tuned for. Photos and strings are also read the other way at touching digits, and by tesseract,
where it is installed, as one block of text, digits only. Every picture that is read wrong is
listed with a cause (`benchmarks/causes.py`). Times of finding are taken first, alone; then
``--jobs`` processes read, each with the network on one thread, so that the results are the same
however many there are.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import cv2
import numpy as np

from benchmarks.causes import CAUSES, cause
from benchmarks.record import write_results
from benchmarks.spread import spread
from neocog.batch.reader import Reader
from neocog.batch.records import PageReading
from neocog.evaluation.evaluate import edit_distance
from neocog.learning.datasets import Digits, LabelledPictures, open_dataset, open_digits
from neocog.learning.pages.conditions import (
    BLANK,
    BLANK_HELD_BACK,
    CONDITIONS,
    HELD_BACK,
    WITHOUT_DIGITS,
)
from neocog.learning.pages.page import make_page
from neocog.network.engine import cores, open_engine
from neocog.network.once import Once
from neocog.vision.decode import decode, to_grey
from neocog.vision.find import LONG_SIDE, find_digits

COLUMNS = {
    "set": "set",
    "condition": "condition",
    "pictures": "pictures",
    "digits": "digits",
    "cer": "character error rate",
    "exact": "pictures exact",
    "cer_other": "error rate, touching digits {other}",
    "cer_tesseract": "error rate of tesseract",
    "exact_tesseract": "exact by tesseract",
    "any": "pictures with any digit",
    "marks": "marks found",
    "printed": "of these printed as a digit",
}
FORMATS = {"cer": ".1%", "cer_other": ".1%", "cer_tesseract": ".1%"}
CURVE = {
    "min_p": "threshold",
    "strings": "strings",
    "answered": "without ?",
    "wrong": "of these wrong",
    "risk": "share of wrong ones",
    "refused": "question marks",
}
GROUPS = {
    "tuned": ([n for n in CONDITIONS if n not in {*HELD_BACK, *WITHOUT_DIGITS}], False),
    "held back": (list(HELD_BACK), False),
    "no digits": (list(BLANK), True),
    "no digits, held back": (list(BLANK_HELD_BACK), True),
}
"""Conditions of made pages, and whether nothing is written on them."""

THRESHOLDS = (0.0, 0.4, 0.6, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995)
SEED = 20

Sample = tuple[str, np.ndarray, str]
"""Name, grey page and what is written on it."""

Place = Callable[[], Sample]
"""Makes or decodes a sample; may go to another process."""


@dataclass(frozen=True, slots=True)
class Look:
    """What a picture is looked at for.

    Attributes
    ----------
    other : bool
        Whether it is also read the other way at touching digits.
    curve : bool
        Whether it is also read with all of `THRESHOLDS`.
    rival : bool
        Whether tesseract reads it too.
    """

    other: bool = False
    curve: bool = False
    rival: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """What came of a picture: what is written, what was read, and what was read otherwise."""

    name: str
    expected: str
    reading: PageReading
    other: str | None = None
    curve: tuple[str, ...] = ()
    rival: str | None = None


def pictures(labelled: LabelledPictures) -> list[Place]:
    """The first page of every picture, as the reader decodes it."""
    pairs = zip(labelled.files, labelled.expected, strict=True)
    return [partial(_picture, file, expected) for file, expected in pairs]


def made(condition: str, data: Path, pages: int, *, seed: int = SEED) -> list[Place]:
    """Made pages of one condition, the same ones each time."""
    return [partial(_made, condition, data, number, seed) for number in range(pages)]


def _picture(file: Path, expected: str) -> Sample:
    return file.name, next(decode(file, long_side=LONG_SIDE)).grey, expected


def _made(condition: str, data: Path, number: int, seed: int) -> Sample:
    part = kept_apart(data)
    rng = np.random.default_rng([seed, number, *condition.encode()])
    picture, text = make_page(condition, part.images, part.labels, rng)
    return f"{condition}_{number:03d}", to_grey(picture), text.replace("\n", "")


@cache
def kept_apart(data: Path) -> Digits:
    return open_digits(data / "mnist", split="validation")


@cache
def reader_of(model: str) -> Reader:
    """The one reader of this process: its network is on one thread, however many processes."""
    reader = Reader(model, device="cpu")
    reader.engine = open_engine(reader.model, device="cpu", threads=1)
    return reader


def look(model: str, part: tuple[Place, Look]) -> Seen:
    """Read a picture in every way that is wanted."""
    place, wanted = part
    name, grey, expected = place()
    reader = copy(reader_of(model))
    reader.engine = Once(reader.engine)  # type: ignore[assignment]
    reading, other = reader.read(grey), None
    if wanted.other:
        reader.cut = not reader.cut
        other = _line(reader.read(grey))
        reader.cut = not reader.cut
    curve: list[str] = []
    for min_p in THRESHOLDS if wanted.curve else ():
        reader.policy = replace(reader.policy, min_p=min_p)
        curve.append(_line(reader.read(grey)))
    return Seen(name, expected, replace(reading, ms=None), other, tuple(curve),
                tesseract(grey) if wanted.rival else None)  # fmt: skip


def _line(reading: PageReading) -> str:
    return reading.text.replace("\n", "")


def measure(seen: Sequence[Seen], *, lines: int = 0) -> dict[str, Any]:
    """A row of the results; ``lines``: how many each picture has, 0 where that is not known."""
    digits = sum(len(one.expected) for one in seen)
    edits = [edit_distance(_line(one.reading), one.expected) for one in seen]
    wrong = [
        {"picture": one.name, "written": one.expected, "read": one.reading.text,
         "cause": cause(one.reading, one.expected, lines=lines) if one.expected else "none written"}
        for one, count in zip(seen, edits, strict=True) if count
    ]  # fmt: skip
    row: dict[str, Any] = {"pictures": len(seen), "digits": digits, "wrong": wrong}
    row["causes"] = dict(Counter(one["cause"] for one in wrong).most_common())
    if not digits:
        marks = [[mark.char.isdigit() for mark in one.reading.digits] for one in seen]
        return row | {"any": sum(map(any, marks)), "marks": sum(map(len, marks)),
                      "printed": sum(map(sum, marks))}  # fmt: skip
    row |= {"exact": edits.count(0), "cer": sum(edits) / digits}
    others = [edit_distance(one.other, one.expected) for one in seen if one.other is not None]
    if others:
        row["cer_other"] = sum(others) / digits
    rivals = [edit_distance(one.rival, one.expected) for one in seen if one.rival is not None]
    if rivals:
        row |= {"cer_tesseract": sum(rivals) / digits, "exact_tesseract": rivals.count(0)}
    return row


def curve(seen: Sequence[Seen]) -> list[dict[str, Any]]:
    """What is left of the errors of lines where "?" is allowed, by threshold."""
    rows = []
    for place, min_p in enumerate(THRESHOLDS):
        texts = [(one.curve[place], one.expected) for one in seen]
        sure = [text != expected for text, expected in texts if text and "?" not in text]
        rows.append({
            "min_p": min_p, "strings": len(texts), "answered": len(sure), "wrong": sum(sure),
            "refused": sum(text.count("?") for text, _ in texts),
            "risk": sum(sure) / max(len(sure), 1),
        })  # fmt: skip
    return rows


def tesseract(grey: np.ndarray) -> str | None:
    """What tesseract reads on a page, as a block of text of digits; None if it is absent."""
    program = shutil.which("tesseract")
    if program is None:
        return None
    command = [program, "stdin", "stdout", "--psm", "6", "-c", "tessedit_char_whitelist=0123456789"]
    _, file = cv2.imencode(".png", grey)
    done = subprocess.run(command, input=file.tobytes(), capture_output=True, check=False,
                          env={**os.environ, "OMP_THREAD_LIMIT": "1"})  # fmt: skip
    return re.sub(r"\D", "", done.stdout.decode())


def large_page(data: Path) -> Sample:
    """A made page as a photograph of 24 megapixels, decoded as the reader does it."""
    _, grey, text = made("plain", data, 1)[0]()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "24 megapixels.jpg"
        cv2.imwrite(str(file), cv2.resize(grey, (5656, 4242), interpolation=cv2.INTER_CUBIC))
        return file.name, next(decode(file, long_side=LONG_SIDE)).grey, text


def finding_times(reader: Reader, samples: list[Sample]) -> dict[str, Any]:
    """Milliseconds of the search, the best of three each, without what the network takes."""
    network = 0.0

    def score(digits: np.ndarray) -> np.ndarray:
        nonlocal network
        start = time.perf_counter()
        p = reader._known(digits)  # as the reader asks, or other cuts would be tried
        network += time.perf_counter() - start
        return p

    times = []
    for name, grey, _ in samples:
        took = []
        for _ in range(3):
            start, network = time.perf_counter(), 0.0
            find_digits(grey, score=score if reader.cut else None)
            took.append(1e3 * (time.perf_counter() - start - network))
        times.append((min(took), name))
    worst, name = max(times)
    middle = median(took for took, _ in times)
    return {"median_ms": round(middle, 1), "worst_ms": round(worst, 1), "worst": name,
            "large_ms": round(times[-1][0], 1)}  # fmt: skip


def pictures_of(folder: Path, quick: bool) -> list[Place]:
    """All pictures of a set, or a tenth of them."""
    labelled = open_dataset(folder)
    assert isinstance(labelled, LabelledPictures)
    return pictures(labelled[::10] if quick else labelled)


def alone(row: dict[str, Any]) -> dict[str, Any]:
    """A row without what others read."""
    others = {"cer_other", "cer_tesseract", "exact_tesseract"}
    return {key: value for key, value in row.items() if key not in others}


def together(rows: list[dict[str, Any]], **about: str) -> dict[str, Any]:
    """Several rows as one; error rates count by digits."""
    digits = sum(row["digits"] for row in rows)
    total: dict[str, Any] = {**about, "digits": digits}
    total["pictures"] = sum(row["pictures"] for row in rows)
    for key in ("exact", "any", "marks", "printed"):
        if key in rows[0]:
            total[key] = sum(row[key] for row in rows)
    if digits:
        total["cer"] = sum(row["cer"] * row["digits"] for row in rows) / digits
    return total


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--model", default="neocog")
    parser.add_argument("--pages", type=int, default=20, help="made pages of each condition")
    parser.add_argument("--quick", action="store_true", help="a tenth of it, without tesseract")
    parser.add_argument("--jobs", type=int, default=cores(), help="processes that read")
    args = parser.parse_args()
    sets = {name: pictures_of(args.data / name, args.quick) for name in ("photos", "strings")}
    photos = [place() for place in sets["photos"]]
    finding = finding_times(reader_of(args.model), [*photos, large_page(args.data)])
    print(finding, flush=True)
    blank, pages = min(5, args.pages), 2 if args.quick else args.pages
    groups = {
        group: {name: made(name, args.data, min(blank, pages) if without else pages)
                for name in names}
        for group, (names, without) in GROUPS.items()
    }  # fmt: skip
    asked = [(place, Look(other=True, curve=name == "strings", rival=not args.quick))
             for name, places in sets.items() for place in places]  # fmt: skip
    asked += [(place, Look()) for conditions in groups.values() for places in conditions.values()
              for place in places]  # fmt: skip
    seen = spread(partial(look, args.model), asked, args.jobs)
    rows: list[dict[str, Any]] = []

    def keep(row: dict[str, Any]) -> None:
        rows.append(row)
        print({k: v for k, v in row.items() if k != "wrong"}, flush=True)

    for name, places in sets.items():
        own = list(islice(seen, len(places)))
        keep({"set": name, **measure(own, lines=int(name == "strings"))})
        if name == "strings":
            keep({"set": "strings, other half", **alone(measure(own[1::2], lines=1))})
            rest = curve(own[1::2])
    for group, conditions in groups.items():
        parts = [{"set": group, "condition": name, **measure(list(islice(seen, len(places))))}
                 for name, places in conditions.items()]  # fmt: skip
        for row in [*parts, together(parts, set=group, condition="all")]:
            keep(row)
    reader = reader_of(args.model)
    columns = COLUMNS | {
        "cer_other": COLUMNS["cer_other"].format(other="left whole" if reader.cut else "cut apart")
    }
    write_results(args.output.with_name("strings.json"), rest, columns=CURVE,
                  formats={"risk": ".1%"}, model=reader.model.id)  # fmt: skip
    write_results(args.output, rows, columns=columns, formats=FORMATS,
                  model=reader.model.id, touching_cut=reader.cut, finding=finding,
                  causes=CAUSES)  # fmt: skip


if __name__ == "__main__":
    main()
