"""Measures a finder: pictures, made pages, made forms, pages without digits, time.

    python benchmarks/finder.py FINDER DATA -o benchmarks/results/finder.json [--pages N] [--jobs N]

FINDER is a file of weights. DATA holds the folders photos and mnist (the last 5 000 of MNIST's
training digits write the made pages); folders that are missing are left out. Boxes of at least the
finder's score are cut out and read by the digit network's best digit, none rejected; lines by
overlap. ``--sets`` names what is measured.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import cv2
import numpy as np

from neocog.bench.evaluate import edit_distance
from neocog.learning.finder.boxes import compared
from neocog.learning.pages.conditions import CONDITIONS, WITHOUT_DIGITS
from neocog.learning.pages.forms import CELLS, make_form
from neocog.learning.pages.page import make_page
from neocog.network.engine import open_engine
from neocog.network.model import load_model
from neocog.vision.crop import digit_of_box
from neocog.vision.decode import decode, to_grey
from neocog.vision.finder import FinderSettings, Finding, find
from neocog.vision.finder_model import FinderModel, load_finder, open_finder
from neocog.vision.lines import into_lines

SEED = 31
SETS = ("photos", "conditions", "blank", "forms", "time")


@dataclass(frozen=True, slots=True)
class Task:
    """One picture to be read: where it comes from and its number."""

    set: str
    kind: str
    number: int


def best_digits(engine: Any, grey: np.ndarray, boxes: np.ndarray) -> list[str]:
    if not len(boxes):
        return []
    crops = np.stack([digit_of_box(grey, box) for box in boxes])
    return [str(int(row.argmax())) for row in engine.recognise(crops).score]


def text_of(found: Finding, chars: list[str]) -> str:
    lines = into_lines(found.boxes)
    return "".join(chars[box] for line in lines for box in line)


@cache
def kept_apart(data: str) -> tuple[np.ndarray, np.ndarray]:
    file = Path(data) / "held.npz"
    if file.is_file():
        with np.load(file) as stored:
            return stored["images"], stored["labels"].astype(np.int64)
    from neocog.learning.datasets import open_digits

    part = open_digits(Path(data) / "mnist", split="validation")
    return part.images, part.labels


@cache
def labelled(data: str, name: str) -> list[tuple[Path, str]]:
    import csv

    folder = Path(data) / name
    with (folder / "labels.csv").open() as stream:
        return [(folder / row["file"], row["digits"]) for row in csv.DictReader(stream)]


def sample(task: Task, data: str, long_side: int) -> tuple[np.ndarray, str, np.ndarray | None]:
    """Grey picture, its digits, and boxes where they are known."""
    rng = np.random.default_rng([SEED, task.number, *task.kind.encode()])
    if task.set == "photos":
        file, digits = labelled(data, task.kind)[task.number]
        return next(decode(file, long_side=long_side)).grey, digits, None
    digits, labels = kept_apart(data)
    if task.set == "forms":
        grey, text, marks = make_form(task.kind, digits, labels, rng)
        return grey, text.replace("\n", ""), marks
    picture, text = make_page(task.kind, digits, labels, rng)
    return to_grey(picture), text.replace("\n", ""), None


_STATE: dict[str, Any] = {}


def prepare(weights: str, data: str, settings: FinderSettings) -> None:
    cv2.setNumThreads(1)
    finder = load_finder(weights)
    _STATE.update(
        network=open_finder(finder), engine=open_engine(load_model("neocog"), device="cpu"),
        data=data, settings=settings,
    )  # fmt: skip


def look(task: Task) -> dict[str, Any]:
    grey, expected, marks = sample(task, _STATE["data"], _STATE["settings"].long_side)
    begin = time.perf_counter()
    settings = _STATE["settings"]
    found = find(grey, _STATE["network"], settings)
    ms = 1e3 * (time.perf_counter() - begin)
    found = found[found.scores >= settings.score]
    signs = int((~found.digits).sum())
    digits = found[found.digits]
    read = text_of(digits, best_digits(_STATE["engine"], grey, digits.boxes))
    row: dict[str, Any] = {
        "set": task.set, "kind": task.kind, "number": task.number, "expected": expected,
        "read": read, "signs": signs, "ms": ms, "wrong": edit_distance(read, expected),
    }  # fmt: skip
    if task.set == "photos":
        row["name"] = labelled(_STATE["data"], task.kind)[task.number][0].name
    if marks is not None:
        row["counts"] = compared(found, marks).tolist()
    return row


def tasks(data: Path, sets: list[str], pages: int) -> Iterator[Task]:
    if "photos" in sets:
        for name in ("photos", *(s for s in sets if s.startswith("photos_"))):
            if (data / name / "labels.csv").is_file():
                for number in range(len(labelled(str(data), name))):
                    yield Task("photos", name, number)
    for number in range(pages):
        for kind in CONDITIONS:
            name = "blank" if kind in WITHOUT_DIGITS else "conditions"
            if name in sets:
                yield Task(name, kind, number)
        for kind in CELLS:
            if "forms" in sets:
                yield Task("forms", kind, number)


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        whole = row["kind"] if row["set"] == "photos" else "all"
        groups.setdefault((row["set"], whole), []).append(row)
        if row["set"] != "photos":
            groups.setdefault((row["set"], row["kind"]), []).append(row)
    out = []
    for (name, kind), some in groups.items():
        digits = sum(len(row["expected"]) for row in some)
        line: dict[str, Any] = {
            "set": name, "kind": kind, "pictures": len(some), "digits": digits,
            "exact": sum(row["read"] == row["expected"] for row in some),
            "count_right": sum(len(row["read"]) == len(row["expected"]) for row in some),
            "any": sum(bool(row["read"]) for row in some),
            "median_ms": median(row["ms"] for row in some),
        }  # fmt: skip
        if digits:
            line["cer"] = sum(row["wrong"] for row in some) / digits
        counts = [row["counts"] for row in some if "counts" in row]
        if counts:
            total = np.sum(counts, axis=0)
            line["recall"] = total[1] / max(total[0], 1)
            line["false_by_digit"] = total[2] / max(total[0], 1)
        out.append(line)
    return out


def times(finder: FinderModel) -> list[dict[str, Any]]:
    """Time of a frame on two threads, textured as a desk is."""
    rng = np.random.default_rng(SEED)
    out = []
    cv2.setNumThreads(2)
    network = open_finder(finder, threads=2)
    for wide, high in ((320, 240), (640, 480), (1280, 720), (1600, 1200)):
        grey = cv2.GaussianBlur(rng.integers(0, 255, (high, wide), np.uint8), (0, 0), 2)
        spent = []
        for _ in range(12):
            begin = time.perf_counter()
            find(grey, network)
            spent.append(1e3 * (time.perf_counter() - begin))
        out.append(
            {"size": f"{wide}x{high}", "median_ms": median(spent[2:]), "best_ms": min(spent)}
        )
    cv2.setNumThreads(1)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("finder")
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--pages", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--set", action="append", default=[], help="a setting, NAME=NUMBER")
    given = parser.parse_args()
    settings = FinderSettings()
    for pair in given.set:
        name, _, value = pair.partition("=")
        settings = replace(settings, **{name: type(getattr(settings, name))(float(value))})
    sets = given.sets.split(",")
    finder = load_finder(given.finder)
    timed = times(finder) if "time" in sets else []
    todo = list(tasks(given.data, sets, given.pages))
    start = (given.finder, str(given.data), settings)
    with ProcessPoolExecutor(given.jobs, get_context("spawn"), prepare, start) as pool:
        rows = list(pool.map(look, todo, chunksize=2))
    lines = summary(rows)
    wrong = [row for row in rows if row["read"] != row["expected"]]
    result = {
        "finder": finder.id,
        "card": finder.card,
        "rows": lines,
        "times": timed,
        "wrong": wrong,
    }
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    for line in [*lines, *timed]:
        if line.get("kind", "all") in ("all", "photos", "photos_b"):
            print(json.dumps(line))


if __name__ == "__main__":
    main()
