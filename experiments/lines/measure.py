"""Reads pictures of lines and compares what is read with what is written: see README.md."""

import csv
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from statistics import median
from typing import Any

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OMP_THREAD_LIMIT", "ORT_DISABLE_TELEMETRY"), "1")
import cv2
import numpy as np
from PIL import Image

from experiments.harness.record import arguments, say, write_results
from experiments.lines.peers import RapidOCR, Tesseract
from experiments.lines.score import Row, by_line, compared, of_signs, paired, plain, summary
from neocog.errors import UsageError
from neocog.network.ctc import beam
from neocog.network.registry import DEFAULT
from neocog.reading.reader import Reader
from neocog.vision.decode import to_grey
from neocog.vision.strips import strip_of

SITUATIONS = ("decimal_", "times_", "date_", "fraction_", "iban_", "minus_")
PARTS = {"strings:even": slice(0, None, 2), "strings:odd": slice(1, None, 2),
         "drawn": slice(None), "situations": slice(None)}  # fmt: skip
COLUMNS = {"reader": "reader", "set": "set", "lines": "lines", "exact": "digits exact|.1%",
           "exact_low": "from|.1%", "exact_high": "to|.1%", "cer": "error rate of digits|.1%",
           "text": "signs exact, too|.1%", "lost": "sign lost|.1%", "ms": "median, ms|.0f"}  # fmt: skip


Case = tuple[str, Any, str]
"""Name, pixels in RGB, (H, W, 3), and what is written, a line break between lines."""


def rgb(file: Any) -> Any:
    return np.asarray(Image.open(file).convert("RGB"))


def labelled(folder: Path, name: str) -> Iterator[Case]:
    """The pictures that labels.csv of a folder names, or a set's part of them."""
    if name not in PARTS:
        raise UsageError(f"no set {name}: choose of lectaurep, {', '.join(PARTS)}")
    if name == "strings:odd":
        print("strings:odd: these rows are kept apart; ask for their sums alone, and seldom", file=sys.stderr)
    with (folder / "labels.csv").open(newline="", encoding="utf-8-sig") as stream:
        for row in list(csv.DictReader(stream))[PARTS[name]]:
            if name != "situations" or row["file"].startswith(SITUATIONS):
                yield row["file"], rgb(folder / row["file"]), row["text"].replace("|", "\n")


def held_out(folder: Path, _: str) -> Iterator[Case]:
    """The lines of every fifth page of each archive."""
    for path in sorted(folder.glob("*.npz")):
        of = np.load(path)
        start, pages, images = of["start"], of["page"].tolist(), of["images"]
        kept = set(sorted(set(pages))[::5])
        for k, (page, text) in enumerate(zip(pages, of["text"].tolist(), strict=True)):
            if page in kept and text.strip():
                pixels = rgb(BytesIO(images[start[k] : start[k + 1]].tobytes()))
                yield f"{path.name} {k}", pixels, text.replace(" ", "")


def pictures_of(name: str, data: Path, drawn: Path) -> list[Case]:
    """Return the pictures of a set by its name; ``drawn`` is the folder of drawn lines."""
    folder = {"drawn": drawn, "lectaurep": data / "lines/free/lectaurep"}.get(name)
    folder = folder or data / name.partition(":")[0]
    return list((held_out if name == "lectaurep" else labelled)(folder, name))


def doubtful_files() -> set[str]:
    """Return the pictures whose labels are surely not what is written."""
    labels = json.loads(Path(__file__).with_name("doubtful.json").read_text())
    return {one["file"] for some in labels.values() for one in some if not one.get("unsure")}


class Ours:
    """Pages by the reader that users have, lines by the model of lines alone, or else as pages."""

    def __init__(self, model: str = DEFAULT) -> None:
        self.reader: Any = Reader(model, device="cpu")
        self.version = self.reader.model.id

    def page(self, pixels: Any) -> str:
        return str(self.reader.read(pixels).text)

    def line(self, pixels: Any) -> str:
        if self.reader.kind == "digits":
            return self.page(pixels)
        return beam(self.reader.engine.likelihoods([strip_of(to_grey(pixels))])[0])[0][0]


def opened(word: str, model: str) -> Any:
    name, _, page = word.partition(":")
    known: dict[str, Callable[[], Any]] = {
        "lines": partial(Ours, model), "digits": Ours, "rapidocr": RapidOCR, "tesseract": Tesseract
    }  # fmt: skip
    if name not in known:
        raise UsageError(f"no reader {name}: choose of {', '.join(known)}")
    reader = known[name]()
    reader.line = reader.page if page else reader.line
    return reader


def read(reader: Any, name: str, case: Case, show: str = "") -> list[Row]:
    """Read one picture of a set: a row for each line of it, the first with the time."""
    file, pixels, text = case
    begin = time.perf_counter()
    told = (reader.page if name == "situations" else reader.line)(pixels)
    ms = 1e3 * (time.perf_counter() - begin)
    written, got = ([line for line in map(plain, some.splitlines()) if line] for some in (text, told))
    got = by_line(written, got) if len(written) > 1 else [" ".join(got)]
    rows: list[Row] = []
    for wanted, found in zip(written or [""], got, strict=True):
        row = compared(wanted, found, signs=not name.startswith("strings"), spaces=name != "lectaurep")
        if show and name != "strings:odd" and not row.get("text", not row["wrong"]):
            print(f"{show}, {file}: {wanted} read as {found}")
        rows.append({"name": f"{file} {len(rows)}", **row})
    rows[0]["ms"] = ms
    return rows


def flags(rows: list[Row]) -> dict[str, str]:
    """A character a line, in an order that tells no row: its wrong digits (9: or more), its text is wrong."""
    rows = sorted(rows, key=lambda row: sha256(row["name"].encode()).digest())
    return {"digits": "".join(str(min(row["wrong"], 9)) for row in rows),
            "text": "".join(str(int(not row["text"])) for row in rows if "text" in row)}  # fmt: skip


def differences(answers: dict[str, dict[str, dict[str, str]]], beside: str) -> Iterator[Row]:
    """The first reader's share of right lines less each other's."""
    for name, own in answers.items():
        (first, flags_), *others = own.items()
        for path in map(Path, filter(None, beside.split(","))):
            earlier = json.loads(path.read_text())["answers"].get(name, {})
            others += [(f"{word} of {path.stem}", some) for word, some in earlier.items()]
        for word, some in others:
            for key in (key for key in some if some[key]):
                right = [[c == "0" for c in line] for line in (flags_[key], some[key])]
                yield {"set": name, "exact": key, "reader": first, "beside": word, **paired(*right)}


def main() -> None:
    args = arguments(
        __doc__, "data", reader=("neocog-lines", "the line model, a name or a file"),
        sets=("strings:even,lectaurep,situations", "what is read; strings:odd only if it is named"),
        readers=("lines", "of neocog, or none"), peers=("", "other readers"), drawn=(Path("drawn"), "folder"),
        beside=("", "results of the same sets"), show=(False, "print wrong lines, of odd rows none"),
    ).parse_args()  # fmt: skip
    cv2.setNumThreads(1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    words = [word for word in f"{args.readers},{args.peers}".split(",") if word not in ("", "none")]
    readers = {word: opened(word, args.reader) for word in words}
    doubtful = doubtful_files()
    rows, signs = list[Row](), list[Row]()
    answers: dict[str, dict[str, dict[str, str]]] = {}
    for name in args.sets.split(","):
        pictures = pictures_of(name, args.data, args.drawn)
        for word, reader in readers.items():
            found = [row for case in pictures for row in read(reader, name, case, word * args.show)]
            ms = [row["ms"] for row in found if "ms" in row]
            own = {"reader": word, "set": name}
            rows.append({**own, **summary(found), "ms": median(ms), "seconds": sum(ms) / 1e3})
            sure = [row for row in found if row["name"].rpartition(" ")[0] not in doubtful]
            if len(sure) < len(found):
                rows.append({**own, "set": f"{name}, doubtful labels left out", **summary(sure)})
            signs += [{**own, **row} for row in of_signs(found)]
            answers.setdefault(name, {})[word] = flags(found)
    pairs = list(differences(answers, args.beside))
    say([*rows, *pairs])
    write_results(args.output, rows, columns=COLUMNS, signs=signs, differences=pairs, answers=answers,
                  readers={word: reader.version for word, reader in readers.items()})  # fmt: skip


if __name__ == "__main__":
    main()
