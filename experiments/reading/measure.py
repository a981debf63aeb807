"""Measures how pictures are read, and how long that takes: every figure of docs/reading.md.

Of photos_b nobody is told what is wrong: it is read with ``--sets photos_b`` only, and seldom. Times are
taken first, in a process with two cores; then ``--jobs`` processes read, each on one thread.
"""

import os
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
import cv2
import numpy as np

from experiments.harness.record import arguments, say, spread, write_results
from experiments.lines.score import edits
from experiments.reading.freeze import DEFAULT
from experiments.reading.sets import FROZEN, Sample, digits_of, frozen, samples
from neocog.evaluation.timing import milliseconds
from neocog.learning.drawing.page import compared
from neocog.network.parallel import cores
from neocog.reading.pictures import Picture
from neocog.reading.reader import Reader
from neocog.reading.records import REJECTED
from neocog.reading.results import PageReading
from neocog.vision.decode import to_grey
from neocog.vision.finder import FinderSettings, Finding, overlaps

Row = dict[str, Any]
COLUMNS = {
    "set": "set", "kind": "kind", "pictures": "pictures", "digits": "digits",
    "cer": "character error rate|.1%", "exact": "exact", "missed": "missed", "extra": "extra",
    "misread": "misread", "refused": "?", "out_of_order": "out of order",
    "any": "pages with a digit", "printed": "digits printed", "letters": "letters",
    "signs_kept": "no sign as a digit", "as_upright": "same as upright",
    "turned": "rotated", "left_out": "left out",
}  # fmt: skip


@cache
def opened(model: str | None, device: str, finder: str | None, threads: int = 1) -> Reader:
    cv2.setNumThreads(threads)
    return Reader(model, device=device, finder=finder)


def look(one: Sample, how: tuple[Any, ...]) -> Row:
    """Read one picture, by what `opened` is given, and compare it with what is written."""
    reader, picture = opened(*how), one.picture
    row: Row = {"set": one.set, "kind": one.kind, "name": one.file.name, "written": one.text}
    if one.set == "turned":
        upright = reader.read(picture)
        picture = np.ascontiguousarray(np.rot90(picture, -int(one.kind) // 90))
    reading = reader.read(picture)
    read = digits_of(reading.text)
    row |= {"read": read, "turn": reading.turn, "left_out": reading.left_out,
            "printed": sum(mark.char.isdigit() for mark in reading.digits),
            "p": round(min((mark.p for mark in reading.digits), default=0.0), 5),
            "ms": sum(reading.ms.values()) - reading.ms["decode"]}  # fmt: skip
    if one.set == "turned":
        row["as_upright"] = reading.plain == upright.plain
    if one.set not in ("letters", "blank"):
        row |= faults(read, one.text)
    if one.marks is not None:
        row |= placed(reading, one.marks)
    return row


def faults(read: str, written: str) -> dict[str, int]:
    """Count the errors of the cheapest alignment by kind."""
    cost, as_what = edits(read, written)
    found = Counter[str](missed=len(written) - len(as_what))
    for i, char in enumerate(read):
        if i not in as_what or char != written[as_what[i]]:
            kind = "misread" if i in as_what else "extra"
            found["refused" if char == REJECTED else kind] += 1
    mixed = cost > 0 and sorted(read) == sorted(written)
    return {"wrong": cost, **+found, **({"out_of_order": 1} if mixed else {})}


def placed(reading: PageReading, marks: np.ndarray) -> dict[str, int]:
    """Count digits that were printed where one stands, elsewhere, and where a sign stands."""
    printed = [mark.box for mark in reading.digits if mark.char.isdigit()]
    boxes = np.array(printed, np.float32).reshape(-1, 4)
    count = len(boxes)
    told = Finding(boxes, np.ones(count, np.float32), np.zeros(count, int), np.zeros((count, 10), np.float32))
    known = np.concatenate([marks[:, 1:3] - marks[:, 3:5] / 2, marks[:, 3:5]], axis=1)
    signs, digits = known[marks[:, 0] >= 10], known[marks[:, 0] < 10]
    alone = overlaps(boxes, digits)[0].max(axis=1, initial=0) < FinderSettings().overlap
    over = overlaps(signs, boxes[alone])[2].max(axis=1, initial=0) > 0.5
    _, right, false, *_ = compared(told, marks).tolist()
    return {"found": right, "false": false, "signs_printed": int(over.sum()), "signs": len(signs)}


def summary(rows: list[Row]) -> list[Row]:
    """One row for each kind of each set, and one for all of it."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        for kind in dict.fromkeys(("all", row["kind"])):
            groups.setdefault((row["set"], kind), []).append(row)
    kinds, lines = Counter(name for name, _ in groups), list[Row]()
    for (name, kind), some in groups.items():
        if kinds[name] <= 2 and kind != "all":
            continue
        total = Counter[str]()
        for row in some:
            total.update({key: value for key, value in row.items() if isinstance(value, int)})
        line = {"set": name, "kind": kind, "pictures": len(some), "left_out": total["left_out"],
                "printed": total["printed"], "turned": sum(row["turn"] != 0 for row in some)}  # fmt: skip
        lines.append(line)
        if name == "letters":
            line["letters"] = sum(map(str.isalpha, "".join(row["written"] for row in some)))
        elif name == "blank":
            line["any"] = sum(row["printed"] > 0 for row in some)
        else:
            digits = max(1, sum(len(row["written"]) for row in some))
            line |= {"digits": digits, "cer": total["wrong"] / digits}
            line["exact"] = sum(not row["wrong"] for row in some)
            line |= {key: total[key] for key in ("missed", "extra", "misread", "refused", "out_of_order")}
            if "found" in some[0]:
                line |= {"recall": total["found"] / digits, "false": total["false"]}
                if total["signs"]:
                    line["signs_kept"] = sum(not row["signs_printed"] for row in some)
            if name == "turned":
                line["as_upright"] = total["as_upright"]
    return lines


def times(data: Path, folder: Path, how: tuple[Any, ...]) -> list[Row]:
    """Milliseconds on two cores, decoding apart, each the better of two; memory at the end."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    reader, out, read = opened(*how, threads=2), list[Row](), list[tuple[str, Picture]]()
    for name, kind, step in (("photographs", "photos", 1), ("strings", "strings", 10)):
        read += [(name, one.file) for one in list(samples(data, folder, [kind]))[::step]]
    pages = [one.picture for one in frozen(folder, "timed")]
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
    reader.rotate = 0  # as live reads frames
    for page in pages:
        grey = cv2.resize(to_grey(np.asarray(page)), (640, 480), interpolation=cv2.INTER_AREA)
        for name, work in (("frame 640x480: finder", reader.look), ("frame 640x480", reader.read)):
            ms = float(np.mean([milliseconds(partial(work, grey)) for _ in range(5)]))
            spent.setdefault(name, []).append((ms, 0.0))
    for name, some in spent.items():
        took, decoding = zip(*some, strict=True)
        figures = {"median_ms": median(took), "p95_ms": float(np.percentile(took, 95)),
                   "worst_ms": max(took), "decode_ms": median(decoding)}  # fmt: skip
        out.append({"kind": name, "pictures": len(some), **{k: round(v, 1) for k, v in figures.items()}})
    import resource  # not on Windows

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [*out, {"kind": "the process, at the end", "peak_mb": round(peak)}]


def main() -> None:
    default = ",".join(["time", "photos", "strings:even", *FROZEN])
    args = arguments(
        __doc__, "data", model=(str, "of the digits; the shipped one by default"),
        finder=(str, "a file of weights; the shipped one by default"),
        sets=(default, f"by default {default}; of strings odd rows only if they are named"),
        frozen=(DEFAULT, "folder of the made pages"), jobs=(cores(), "processes that read"),
        device=("cpu", "device that reads: cpu, cuda"),
    ).parse_args()  # fmt: skip
    sets, how, timed = args.sets.split(","), (args.model, args.device, args.finder), list[Row]()
    if "time" in sets:
        sets.remove("time")
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            timed = pool.submit(times, args.data, args.frozen, how).result()
    todo = list(samples(args.data, args.frozen, sets))
    order = np.random.default_rng(0).permutation(len(todo)).tolist()  # slow ones are spread
    found = spread(partial(look, how=how), [todo[k] for k in order], args.jobs if args.device == "cpu" else 1)
    read = dict(zip(order, found, strict=True))
    rows = [read[k] for k in sorted(read)]
    lines = summary(rows)
    write_results(
        args.output, lines, columns=COLUMNS, read_by=opened(*how), times=timed,
        wrong=[row for row in rows if row["set"] != "photos_b" and (
               row.get("wrong") or (row["printed"] and "wrong" not in row)
               or row.get("signs_printed") or (row["turn"] and row["set"] != "turned"))],
    )  # fmt: skip
    say([*timed, *(line for line in lines if line["kind"] in ("all", "even", "odd"))])


if __name__ == "__main__":
    main()
