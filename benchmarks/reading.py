"""Measures how pictures are read, and how long that takes: every figure of docs/reading.md.

    python benchmarks/reading.py DATA -o benchmarks/results/reading.json [--jobs N] [--every K]

DATA holds what `SETS` need: photos and strings (pictures with labels.csv), mnist (its test digits
write the made pages), hands/measure/crohme (these hands write every second one) and fonts (those of
`neocog.learning.pages.letters`). What is missing is left out. The reader is the one that users have;
``--alone`` prints the finder's own guesses instead of the digit network's answers. Times are taken
first, in a process with two cores; then ``--jobs`` processes read, each on one thread. RapidOCR and
tesseract read some of the same pictures where they are installed (``--peers N``, of each set).
"""

import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import cv2
import numpy as np

from benchmarks.record import write_results
from neocog.batch.reader import Picture, Reader
from neocog.batch.records import REJECTED, DigitReading, PageReading
from neocog.learning.datasets import Digits, LabelledPictures, open_dataset, open_digits
from neocog.learning.finder.boxes import compared, overlaps
from neocog.learning.pages.amounts import FORMATS, make_amounts
from neocog.learning.pages.conditions import CONDITIONS, WITHOUT_DIGITS
from neocog.learning.pages.forms import CELLS, make_form
from neocog.learning.pages.letters import faces, make_letters
from neocog.learning.pages.page import make_page
from neocog.network.engine import cores
from neocog.vision.decode import to_grey
from neocog.vision.finder import Finding

SEED = 31
Row = dict[str, Any]
COLUMNS = {
    "set": "set", "kind": "kind", "pictures": "pictures", "digits": "digits",
    "cer": "character error rate", "exact": "exact", "missed": "missed", "extra": "too many",
    "misread": "misread", "refused": "?", "out_of_order": "out of order",
    "any": "pictures with any digit", "printed": "printed as digits", "letters": "letters",
    "signs_kept": "pages without a sign as a digit", "as_upright": "read as upright",
    "turned": "turned", "left_out": "left out",
}  # fmt: skip
TIMES = {"kind": "what", "pictures": "pictures", "median_ms": "median, ms", "worst_ms": "worst, ms",
         "decode_ms": "decoding beside it, ms", "peak_mb": "peak memory, MB"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Task:
    """One picture to be read: set, kind within it, number within that."""

    set: str
    kind: str
    number: int
    peers: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """A picture and what is written on it; ``marks``: label, middle, width, height of each."""

    picture: Picture
    text: str
    marks: np.ndarray | None = None
    name: str = ""


class Guesses(Reader):
    """Reads what the finder takes its digits for."""

    def recognise(self, lines: Any, *, scale: float = 1.0) -> tuple[DigitReading, ...]:
        """The finder's guesses, none rejected."""
        places = [place for line in lines for place in line.digits]
        boxes = [tuple(round(v / scale) for v in place.box) for place in places]
        return tuple(DigitReading(str(place.kind), place.score, 0.0, box)
                     for place, box in zip(places, boxes, strict=True))  # type: ignore[arg-type]  # fmt: skip


# --- what is measured --------------------------------------------------------------------------


@cache
def labelled(folder: Path) -> LabelledPictures:
    found = open_dataset(folder)
    assert isinstance(found, LabelledPictures)
    return found


@cache
def hands(data: Path, number: int) -> Digits:
    """MNIST's test digits, and for odd numbers those of other pens where there are any."""
    other = data / "hands" / "measure" / "crohme"
    if number % 2 and other.is_dir():
        return open_digits(other)
    return open_digits(data / "mnist", split="test")


def photo(task: Task, data: Path, rng: np.random.Generator) -> Sample:
    folder = "strings" if task.set == "strings" else task.kind
    step, start = (2, ["even", "odd"].index(task.kind)) if task.set == "strings" else (1, 0)
    known, at = labelled(data / folder), task.number * step + start
    return Sample(known.files[at], known.expected[at], name=known.files[at].name)


def written(task: Task, data: Path, rng: np.random.Generator) -> Sample:
    digits = hands(data, 0)
    picture, text = make_page(task.kind, digits.images, digits.labels, rng)
    return Sample(picture, text)


def boxed(make: Callable[..., Any], task: Task, data: Path, rng: np.random.Generator) -> Sample:
    digits = hands(data, task.number)
    grey, text, marks = make(task.kind, digits.images, digits.labels, rng)
    return Sample(grey, text, marks)


def lettered(task: Task, data: Path, rng: np.random.Generator) -> Sample:
    some = faces(data / "fonts")[task.kind]
    grey, text = make_letters(some[task.number % len(some)], rng)
    return Sample(grey, text)


def askew(task: Task, data: Path, rng: np.random.Generator) -> Sample:
    """A page of at least 12 digits, upright: every condition in turn, forms after each four."""
    digits, text = hands(data, task.number), ""
    names = [name for name in CONDITIONS if name not in WITHOUT_DIGITS and name != "one_digit"]
    while sum(char.isdigit() for char in text) < 12:
        if task.number % 5 == 4:
            layout = list(CELLS)[task.number // 5 % len(CELLS)]
            picture, text, _ = make_form(layout, digits.images, digits.labels, rng)
        else:
            condition = names[task.number % len(names)]
            picture, text = make_page(condition, digits.images, digits.labels, rng)
    return Sample(picture, text)


Make = Callable[[Task, Path, np.random.Generator], Sample]
SETS: dict[str, tuple[Make, Callable[[Path], dict[str, int]]]] = {
    "photos": (photo, lambda d: {"photos": len(labelled(d / "photos"))}),
    "photos_b": (photo, lambda d: {"photos_b": len(labelled(d / "photos_b"))}),
    "strings": (photo, lambda d: {"even": (len(labelled(d / "strings")) + 1) // 2,
                                  "odd": len(labelled(d / "strings")) // 2}),
    "conditions": (written, lambda d: {k: 20 for k in CONDITIONS if k not in WITHOUT_DIGITS}),
    "blank": (written, lambda d: dict.fromkeys(WITHOUT_DIGITS, 5)),
    "forms": (partial(boxed, make_form), lambda d: dict.fromkeys(CELLS, 17)),
    "amounts": (partial(boxed, make_amounts), lambda d: dict.fromkeys(FORMATS, 34)),
    "turned": (askew, lambda d: dict.fromkeys(("90", "180", "270"), 34)),
    "letters": (lettered, lambda d: dict.fromkeys(faces(d / "fonts"), 26)),
}  # fmt: skip
"""How a picture of each set is made, and the kinds of each with how many there are."""

NEEDS = {"photos": "photos", "photos_b": "photos_b", "strings": "strings", "letters": "fonts"}


def sample(task: Task, data: Path) -> Sample:
    """Make or open one picture; the same each time."""
    rng = np.random.default_rng([SEED, task.number, *task.kind.encode()])
    made = SETS[task.set][0](task, data, rng)
    name = made.name or f"{task.kind}_{task.number:03d}"
    return replace(made, name=name, text=made.text if task.set == "letters" else digits_of(made.text))  # fmt: skip


def digits_of(text: str) -> str:
    return "".join(char for char in text if char.isdigit() or char == REJECTED)


def tasks(data: Path, sets: list[str], every: int, peers: int) -> Iterator[Task]:
    for name in sets:
        if not (data / NEEDS.get(name, "mnist")).is_dir():
            print(f"{name}: DATA has no folder {NEEDS.get(name, 'mnist')}", file=sys.stderr)
            continue
        every_one = [Task(name, kind, number)
                     for kind, count in SETS[name][1](data).items() for number in range(count)]  # fmt: skip
        some = every_one[::every]
        step = len(some) / max(1, min(peers, len(some)))
        chosen = {int(k * step) for k in range(peers)}
        yield from (replace(task, peers=at in chosen) for at, task in enumerate(some))


# --- what came of it ---------------------------------------------------------------------------

_STATE: dict[str, Any] = {}


def prepare(make: Callable[[], Reader], data: Path, threads: int) -> None:
    if hasattr(os, "sched_setaffinity") and threads > 1:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    cv2.setNumThreads(threads)
    _STATE.update(reader=make(), data=data)


def look(task: Task) -> Row:
    """Read one picture and compare it with what is written."""
    one, reader = sample(task, _STATE["data"]), _STATE["reader"]
    row: Row = {"set": task.set, "kind": task.kind, "name": one.name, "written": one.text}
    picture: Any = one.picture
    if task.set == "turned":
        upright = reader.read(picture)
        picture = np.ascontiguousarray(np.rot90(picture, -int(task.kind) // 90))
    reading = reader.read(picture)
    read = digits_of(reading.text)
    row |= {"read": read, "turn": reading.turn, "left_out": reading.left_out,
            "printed": sum(mark.char.isdigit() for mark in reading.digits),
            "ms": sum(reading.ms.values()) - reading.ms["decode"]}  # fmt: skip
    if task.set == "turned":
        row["as_upright"] = reading.text == upright.text
    if task.set not in ("letters", "blank"):
        row |= faults(read, one.text)
    if one.marks is not None:
        row |= placed(reading, one.marks)
    if task.peers:
        row["peers"] = {name: digits_of(text) for name, text in peers(picture, task).items()}
    return row


def faults(read: str, written: str) -> dict[str, int]:
    """Count the errors of the cheapest alignment by kind."""
    cost = np.zeros((len(read) + 1, len(written) + 1), int)
    cost[:, 0], cost[0] = np.arange(len(read) + 1), np.arange(len(written) + 1)
    for i, char in enumerate(read):
        for j, wanted in enumerate(written):
            cost[i + 1, j + 1] = min(cost[i, j] + (char != wanted), cost[i, j + 1] + 1, cost[i + 1, j] + 1)  # fmt: skip
    i, j, found = len(read), len(written), Counter[str]()
    while i or j:
        if i and j and cost[i, j] == cost[i - 1, j - 1] + (read[i - 1] != written[j - 1]):
            i, j = i - 1, j - 1
            kind = "refused" if read[i] == REJECTED else "misread"
            found[kind] += read[i] != written[j]
        elif i and cost[i, j] == cost[i - 1, j] + 1:
            i -= 1
            found["refused" if read[i] == REJECTED else "extra"] += 1
        else:
            j -= 1
            found["missed"] += 1
    wrong = int(cost[-1, -1])
    mixed = wrong > 0 and sorted(read) == sorted(written)
    return {"wrong": wrong, **found, **({"out_of_order": 1} if mixed else {})}


def placed(reading: PageReading, marks: np.ndarray) -> dict[str, int]:
    """Count digits that were printed where one stands, elsewhere, and where a sign stands."""
    printed = [mark.box for mark in reading.digits if mark.char.isdigit()]
    boxes = np.array(printed, np.float32).reshape(-1, 4)
    told = Finding(boxes, np.ones(len(boxes), np.float32), np.zeros(len(boxes), np.int64))
    known = np.concatenate([marks[:, 1:3] - marks[:, 3:5] / 2, marks[:, 3:5]], axis=1)
    signs, digits = known[marks[:, 0] >= 10], known[marks[:, 0] < 10]
    alone = overlaps(boxes, digits)[0].max(axis=1, initial=0) < 0.4
    over = overlaps(signs, boxes[alone])[1].max(axis=1, initial=0) > 0.5
    _, right, false, *_ = compared(told, marks).tolist()
    return {"found": right, "false": false, "signs_printed": int(over.sum()), "signs": len(signs)}


# --- beside others -----------------------------------------------------------------------------


@cache
def rapidocr() -> Any:
    try:
        from rapidocr_onnxruntime import RapidOCR
    except ImportError:
        return None
    return RapidOCR(intra_op_num_threads=1, inter_op_num_threads=1)


def peers(picture: Any, task: Task) -> dict[str, str]:
    """What other programs read, those that are installed."""
    pixels = cv2.imread(str(picture)) if isinstance(picture, Path) else picture
    read: dict[str, str] = {}
    if rapidocr() is not None:
        strip = {"use_det": False, "use_cls": False} if task.set == "strings" else {}
        found, _ = rapidocr()(pixels, **strip)
        read["rapidocr"] = "".join(line[0] if strip else line[1] for line in found or [])
    if program := shutil.which("tesseract"):
        mode = "7" if task.set == "strings" else "6"
        command = [program, "stdin", "stdout", "--psm", mode]
        command += ["-c", "tessedit_char_whitelist=0123456789"]
        _, file = cv2.imencode(".png", pixels)
        done = subprocess.run(command, input=file.tobytes(), capture_output=True, check=False,
                              env={**os.environ, "OMP_THREAD_LIMIT": "1"})  # fmt: skip
        read["tesseract"] = re.sub(r"\D", "", done.stdout.decode())
    return read


# --- sums --------------------------------------------------------------------------------------


def summary(rows: list[Row]) -> list[Row]:
    """One row for each kind of each set, and one for all of it."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        for kind in dict.fromkeys(("all", row["kind"])):
            groups.setdefault((row["set"], kind), []).append(row)
    kinds = Counter(name for name, _ in groups)
    return [{"set": name, "kind": kind, **summed(name, some)}
            for (name, kind), some in groups.items() if kinds[name] > 2 or kind == "all"]  # fmt: skip


def summed(name: str, some: list[Row]) -> Row:
    def total(key: str) -> int:
        return sum(row.get(key, 0) for row in some)

    line: Row = {"pictures": len(some), "left_out": total("left_out"), "printed": total("printed"),
                 "turned": sum(row["turn"] != 0 for row in some)}  # fmt: skip
    if name == "letters":
        line["letters"] = sum(map(str.isalpha, "".join(row["written"] for row in some)))
        return line
    if name == "blank":
        return line | {"any": sum(row["printed"] > 0 for row in some)}
    digits = max(1, sum(len(row["written"]) for row in some))
    line |= {"digits": digits, "cer": total("wrong") / digits}
    line["exact"] = sum(not row["wrong"] for row in some)
    for key in ("missed", "extra", "misread", "refused", "out_of_order"):
        line[key] = total(key)
    if "found" in some[0]:
        line |= {"recall": total("found") / digits, "false": total("false")}
        if total("signs"):
            line["signs_kept"] = sum(not row["signs_printed"] for row in some)
    if name == "turned":
        line["as_upright"] = total("as_upright")
    for peer in sorted({peer for row in some for peer in row.get("peers", ())}):
        own = [row for row in some if peer in row.get("peers", ())]
        wrong = [faults(row["peers"][peer], row["written"])["wrong"] for row in own]
        line |= {f"{peer}_pictures": len(own), f"{peer}_exact": wrong.count(0),
                 f"{peer}_cer": sum(wrong) / max(1, sum(len(row["written"]) for row in own))}  # fmt: skip
    return line


def times(data: Path) -> list[Row]:
    """Milliseconds on two cores, decoding apart, each the better of two; memory at the end."""
    reader, out = _STATE["reader"], []
    read: list[tuple[str, Picture]] = []
    for name, folder, step in (("photographs", "photos", 1), ("strings", "strings", 10)):
        if (data / folder).is_dir():
            read += [(name, file) for file in labelled(data / folder).files[::step]]
    pages = [sample(Task("conditions", kind, 0), data).picture
             for kind in ("plain", "squared", "fifty_small", "stained", "desk_edge")]  # fmt: skip
    for wide, high in ((640, 480), (1280, 960), (4000, 3000), (5656, 4242)):
        for page in pages:
            large = cv2.resize(np.asarray(page), (wide, high), interpolation=cv2.INTER_CUBIC)
            read.append((f"page {wide}x{high}", cv2.imencode(".jpg", large)[1].tobytes()))
    reader.read(np.asarray(pages[0]))  # opens the networks
    spent: dict[str, list[tuple[float, float]]] = {}
    for name, picture in read:
        both = [reader.read(picture).ms for _ in range(2)]
        best = min((sum(ms.values()) - ms["decode"], ms["decode"]) for ms in both)
        spent.setdefault(name, []).append(best)
    for page in pages:
        grey = cv2.resize(to_grey(np.asarray(page)), (640, 480), interpolation=cv2.INTER_AREA)
        begin = time.perf_counter()
        for _ in range(5):
            reader.find(grey)
        took = 1e3 * (time.perf_counter() - begin) / 5
        spent.setdefault("finding in a frame 640x480", []).append((took, 0.0))
    for name, some in spent.items():
        ms, decoding = zip(*some, strict=True)
        out.append({"kind": name, "pictures": len(some), "median_ms": round(median(ms), 1),
                    "worst_ms": round(max(ms), 1), "decode_ms": round(median(decoding), 1)})  # fmt: skip
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [*out, {"kind": "the process, at the end", "peak_mb": round(peak)}]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--model", help="of the digits; the shipped one by default")
    parser.add_argument("--finder", help="a file of weights; the shipped one by default")
    parser.add_argument("--alone", action="store_true", help="print the finder's own guesses")
    default = ",".join(["time", *(name for name in SETS if name != "photos_b")])
    parser.add_argument("--sets", default=default, help=f"by default {default}")
    parser.add_argument("--every", type=int, default=1, help="read one picture of so many")
    parser.add_argument("--peers", type=int, default=0, help="pictures of a set that others read")
    parser.add_argument("--jobs", type=int, default=cores(), help="processes that read")
    args = parser.parse_args()
    sets = args.sets.split(",")
    make = partial(Guesses if args.alone else Reader, args.model, device="cpu", finder=args.finder)
    spawn, timed = get_context("spawn"), []
    if "time" in sets:
        sets.remove("time")
        with ProcessPoolExecutor(1, spawn, prepare, (make, args.data, 2)) as pool:
            timed = pool.submit(times, args.data).result()
    todo = list(tasks(args.data, sets, args.every, args.peers))
    order = np.random.default_rng(SEED).permutation(len(todo))  # slow ones are spread
    with ProcessPoolExecutor(args.jobs, spawn, prepare, (make, args.data, 1)) as pool:
        mixed = pool.map(look, [todo[k] for k in order], chunksize=2)
        rows = [row for _, row in sorted(zip(order, mixed, strict=True), key=lambda one: one[0])]
    lines = summary(rows)
    for line in [*timed, *lines]:
        if line["kind"] in ("all", "even", "odd") or line in timed:
            print(" ".join(f"{k} {round(v, 4) if isinstance(v, float) else v}," for k, v in line.items()))  # fmt: skip
    reader = make()
    others = {key: f"{name} {what}" for name in ("rapidocr", "tesseract")
              for key, what in ((f"{name}_cer", "error rate"), (f"{name}_exact", "exact"),
                                (f"{name}_pictures", "pictures"))}  # fmt: skip
    write_results(
        args.output, lines, columns=COLUMNS | others, model=reader.model.id,
        finder=reader.finder.model.id, times=timed,
        formats={"cer": ".1%", "rapidocr_cer": ".1%", "tesseract_cer": ".1%"},
        wrong=[row for row in rows if row.get("wrong") or (row["printed"] and "wrong" not in row)
               or row.get("signs_printed") or (row["turn"] and row["set"] != "turned")],
    )  # fmt: skip


if __name__ == "__main__":
    main()
