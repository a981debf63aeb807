"""Measures how photographs, cheque amounts and made pages are read, and how long finding takes.

    python -m benchmarks.reading DATA -o benchmarks/results/reading.json [--pages N] [--quick]

DATA holds the folders photos, strings and mnist. Made pages are written with the last 5 000
digits of MNIST's training set; the conditions of `HELD_BACK` and `BLANK_HELD_BACK` were never
tuned for. Photos and strings are also read the other way at touching digits, and by tesseract,
where it is installed, as one block of text, digits only. Every picture that is read wrong is
listed with a cause (`benchmarks/causes.py`).
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
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import cv2
import numpy as np

from benchmarks.causes import CAUSES, cause
from benchmarks.record import write_results
from neocog.batch.reader import Reader
from neocog.bench.evaluate import edit_distance
from neocog.learning.datasets import LabelledPictures, open_dataset, open_digits
from neocog.learning.pages.conditions import (
    BLANK,
    BLANK_HELD_BACK,
    CONDITIONS,
    HELD_BACK,
    WITHOUT_DIGITS,
)
from neocog.learning.pages.page import make_page
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
THRESHOLDS = (0.0, 0.4, 0.6, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995)
SEED = 20

Sample = tuple[str, np.ndarray, str]
"""Name, grey page and what is written on it."""


def pictures(labelled: LabelledPictures) -> Iterator[Sample]:
    """The first page of every picture, as the reader decodes it."""
    for file, expected in zip(labelled.files, labelled.expected, strict=True):
        yield file.name, next(decode(file, long_side=LONG_SIDE)).grey, expected


def made(condition: str, data: Path, pages: int, *, seed: int = SEED) -> Iterator[Sample]:
    """Made pages of one condition, the same ones each time."""
    part = open_digits(data / "mnist", split="validation")
    for number in range(pages):
        rng = np.random.default_rng([seed, number, *condition.encode()])
        picture, text = make_page(condition, part.images, part.labels, rng)
        yield f"{condition}_{number:03d}", to_grey(picture), text.replace("\n", "")


def measure(
    reader: Reader, samples: list[Sample], *, other: bool = False, lines: int = 0
) -> dict[str, Any]:
    """Read the samples as the reader does, and (``other``) the other way at touching digits.

    ``lines`` is how many lines each picture has, 0 where that is not known.
    """
    usual = reader.cut
    rows, wrong, any_digit, marks, printed = [], [], 0, 0, 0
    for name, grey, expected in samples:
        reading = reader.read(grey)
        text = reading.text
        any_digit += any(char.isdigit() for char in text)
        marks += len(reading.digits)
        printed += sum(digit.char.isdigit() for digit in reading.digits)
        reader.cut = usual != other
        second = reader.read(grey).text if other else text
        reader.cut = usual
        rows.append([edit_distance(t.replace("\n", ""), expected) for t in (text, second)])
        if rows[-1][0]:
            why = cause(reading, expected, lines=lines) if expected else "none written"
            wrong.append({"picture": name, "written": expected, "read": text, "cause": why})
    digits = sum(len(expected.replace("\n", "")) for *_, expected in samples)
    edits = np.array(rows)
    found: dict[str, Any] = {"pictures": len(samples), "digits": digits, "wrong": wrong}
    found["causes"] = dict(Counter(row["cause"] for row in wrong).most_common())
    if digits:
        found["exact"] = int((edits[:, 0] == 0).sum())
        found["cer"] = float(edits[:, 0].sum() / digits)
        if other:
            found["cer_other"] = float(edits[:, 1].sum() / digits)
    else:
        found |= {"any": any_digit, "marks": marks, "printed": printed}
    return found


def curve(reader: Reader, samples: list[Sample]) -> list[dict[str, Any]]:
    """What is left of the errors of lines where "?" is allowed, by threshold."""
    usual, engine = reader.policy, reader.engine
    once = Once(engine)
    reader.engine = once  # type: ignore[assignment]
    count: Counter[tuple[float, str]] = Counter()
    for _, grey, expected in samples:
        once.forget()
        for min_p in THRESHOLDS:
            reader.policy = replace(usual, min_p=min_p)
            text = reader.read(grey).text.replace("\n", "")
            sure = text and "?" not in text
            count[min_p, "answered"] += bool(sure)
            count[min_p, "wrong"] += bool(sure and text != expected)
            count[min_p, "refused"] += text.count("?")
    reader.policy, reader.engine = usual, engine
    return [
        {"min_p": p, "strings": len(samples), "answered": count[p, "answered"],
         "wrong": count[p, "wrong"], "refused": count[p, "refused"],
         "risk": count[p, "wrong"] / max(count[p, "answered"], 1)}
        for p in THRESHOLDS
    ]  # fmt: skip


def tesseract(samples: list[Sample]) -> dict[str, Any]:
    """Let tesseract read the same pages as a block of text of digits; nothing if it is absent."""
    program = shutil.which("tesseract")
    if program is None:
        return {}
    command = [program, "stdin", "stdout", "--psm", "6", "-c", "tessedit_char_whitelist=0123456789"]
    edits = []
    for _, grey, expected in samples:
        _, file = cv2.imencode(".png", grey)
        done = subprocess.run(command, input=file.tobytes(), capture_output=True, check=False,
                              env={**os.environ, "OMP_THREAD_LIMIT": "1"})  # fmt: skip
        edits.append(edit_distance(re.sub(r"\D", "", done.stdout.decode()), expected))
    digits = sum(len(expected) for *_, expected in samples)
    return {"cer_tesseract": sum(edits) / digits, "exact_tesseract": edits.count(0)}


def large_page(data: Path) -> Sample:
    """A made page as a photograph of 24 megapixels, decoded as the reader does it."""
    _, grey, text = next(made("plain", data, 1))
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
    args = parser.parse_args()
    pages = 2 if args.quick else args.pages
    reader = Reader(args.model)
    rows: list[dict[str, Any]] = []

    def keep(row: dict[str, Any]) -> None:
        rows.append(row)
        print({k: v for k, v in row.items() if k != "wrong"}, flush=True)

    finding: dict[str, Any] = {}
    for name in ("photos", "strings"):
        labelled = open_dataset(args.data / name)
        assert isinstance(labelled, LabelledPictures)
        samples = list(pictures(labelled[::10] if args.quick else labelled))
        if name == "photos":
            finding = finding_times(reader, [*samples, large_page(args.data)])
        keep({"set": name, **measure(reader, samples, other=True, lines=int(name == "strings")),
              **({} if args.quick else tesseract(samples))})  # fmt: skip
        if name == "strings":
            keep({"set": "strings, other half", **measure(reader, samples[1::2], lines=1)})
            rest = curve(reader, samples[1::2])
            write_results(args.output.with_name("strings.json"), rest, columns=CURVE,
                          formats={"risk": ".1%"}, model=reader.model.id)  # fmt: skip
    apart = {*HELD_BACK, *WITHOUT_DIGITS}
    groups = {
        "tuned": [name for name in CONDITIONS if name not in apart],
        "held back": list(HELD_BACK),
        "no digits": list(BLANK),
        "no digits, held back": list(BLANK_HELD_BACK),
    }
    for group, names in groups.items():
        count = min(5, pages) if group.startswith("no digits") else pages
        own = []
        for name in names:
            samples = list(made(name, args.data, count))
            own.append({"set": group, "condition": name, **measure(reader, samples)})
            keep(own[-1])
        keep(together(own, set=group, condition="all"))
    columns = COLUMNS | {
        "cer_other": COLUMNS["cer_other"].format(other="left whole" if reader.cut else "cut apart")
    }
    write_results(args.output, rows, columns=columns, formats=FORMATS,
                  model=reader.model.id, touching_cut=reader.cut, finding=finding,
                  causes=CAUSES)  # fmt: skip
    print(finding)


if __name__ == "__main__":
    main()
