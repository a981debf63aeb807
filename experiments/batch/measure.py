"""Measures reading many pictures: rates, what the stages take, and memory.

    python -m experiments.batch.measure DATA -o FILE [--sections NAME ...]

DATA holds mnist/. Sections:

isolated   10 000 digits of MNIST's test set as PNG files: accuracy and rate beside eval and timing
archive    digits in a zip archive in memory: the rate of a warm run, and which stage takes what
memory     photo-sized pictures: how far memory grows

Rows of other sections that FILE holds already stay in it. What takes long is done with less by
``--count`` (digits of archive) and ``--photos``.
"""

import argparse
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from experiments.harness.arguments import data_and_output
from experiments.harness.processes import Memory
from experiments.harness.record import machine, write_results
from neocog.batch.run import Request, Tally, read_all
from neocog.batch.tasks import Block
from neocog.evaluation.evaluate import evaluate_digits
from neocog.evaluation.timing import measure
from neocog.learning.datasets import Digits, open_digits
from neocog.learning.made import bank_of, make_page
from neocog.network.parallel import cores
from neocog.reading.formats import Format
from neocog.reading.reader import Reader

COLUMNS = {"section": "section", "what": "what", "found": "found", "wanted": "wanted", "met": "met",
           "machine": "machine", "model": "model"}  # fmt: skip
BATCHES = {"cpu": (8, 32), "cuda": (256, 1024, 4096)}
SHARE_OF_BEST = 0.8  # of the best batch rate that timing measures
RATE_WANTED = 20_000  # isolated digits a second on an H200 with 16 cores
GROWTH_WANTED = 300  # MB
PHOTO, PHOTOS = (4000, 3000), 13  # pixels; different ones
SHARED = 2000  # bytes of a digit's file and its record, amply

Row = dict[str, Any]


@dataclass
class Bench:
    """What all sections share."""

    args: argparse.Namespace
    folder: Path

    @cached_property
    def reader(self) -> Reader:
        """What reads in this process; it answers however doubtful, as eval does."""
        return Reader(self.args.model, device=self.args.device, min_p=0.0)

    def digits(self, split: str) -> Digits:
        return open_digits(self.args.data / "mnist", split=split)


def best_rate(bench: Bench) -> tuple[float, int]:
    """Digits a second at the best batch size, and that size."""
    sizes = BATCHES["cpu" if bench.reader.engine.device == "cpu" else "cuda"]
    rates = {batch: rate_at(bench, batch) for batch in sizes}
    batch = max(rates, key=lambda n: rates[n])
    return rates[batch], batch


def rate_at(bench: Bench, batch: int) -> float:
    """Digits a second, as timing measures them."""
    return 1e3 / float(measure(bench.reader.engine, batch=batch, seconds=1.0)["ms_per_digit"])


class Watch:
    """Notes when blocks come: the rate of a run without its start."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.counts: list[int] = []

    def __call__(self, block: Block) -> None:
        self.times.append(time.perf_counter())
        self.counts.append(block.inputs)

    @property
    def rate(self) -> float:
        """Inputs a second from the first block to the last."""
        return sum(self.counts[1:]) / max(1e-9, self.times[-1] - self.times[0])


def timed(bench: Bench, source: Path, output: Path) -> tuple[Tally, Watch, float, float]:
    """Read isolated digits; also wall seconds, and processor seconds of this process."""
    request = Request((str(source),), Format("jsonl"), str(output), isolated=True, workers=bench.args.workers)
    watch, start, spent = Watch(), time.perf_counter(), time.process_time()
    tally = read_all(request, bench.reader, watch=watch)
    return tally, watch, time.perf_counter() - start, time.process_time() - spent


def isolated(bench: Bench) -> Iterator[Row]:
    digits = bench.digits("test")
    folder = bench.folder / "digits"
    folder.mkdir()
    for number, digit in enumerate(digits.images):
        Image.fromarray(digit).save(folder / f"{number:05}.png")
    best, batch = best_rate(bench)
    output = bench.folder / "digits.jsonl"
    tally, watch, wall, _ = timed(bench, folder, output)
    best = (best + rate_at(bench, batch)) / 2  # the machine may have other work: before and after
    texts = {}
    with output.open(encoding="utf-8") as stream:
        for record in map(json.loads, stream):
            text = record["text"]
            texts[int(Path(record["source"]).stem)] = int(text) if text.isdigit() else -1  # rejected
    found = float(np.mean([texts[n] == label for n, label in enumerate(digits.labels)]))
    wanted = evaluate_digits(bench.reader.engine, digits, batch=batch).accuracy
    yield row("isolated", f"accuracy of {len(digits)} PNG files", f"{found:.2%}",
              f"{wanted:.2%}, as eval", abs(found - wanted) < 5e-5)  # fmt: skip
    rate = len(digits) / wall
    yield row("isolated", "digits a second, start and end of workers included", f"{rate:.0f}",
              f"{SHARE_OF_BEST:.0%} of {best:.0f} (timing, batch {batch})",
              rate >= SHARE_OF_BEST * best, share=rate / best)  # fmt: skip
    yield row("isolated", "digits a second once it runs", f"{watch.rate:.0f}", "", None,
              share=watch.rate / best)  # fmt: skip
    yield row("isolated", "share of the time that the network was at work",
              f"{tally.seconds['network'] / wall:.0%}", "", None)  # fmt: skip


def archive(bench: Bench) -> Iterator[Row]:
    count: int = bench.args.count
    place = Path("/dev/shm")
    if not os.access(place, os.W_OK) or shutil.disk_usage(place).free < SHARED * count:
        place = bench.folder  # just written, it is in the page cache
    with tempfile.TemporaryDirectory(dir=place, prefix="neocog-") as name:
        small, large = Path(name) / "small.zip", Path(name) / "large.zip"
        write_archive(bench.digits("validation"), small, min(8192, count))
        write_archive(bench.digits("validation"), large, count)
        best, batch = best_rate(bench)
        timed(bench, small, Path(name) / "small.jsonl")  # kernels and workers' first pages
        tally, watch, wall, own = timed(bench, large, Path(name) / "large.jsonl")
    rate, workers = watch.rate, bench.args.workers or cores()
    yield row("archive", f"digits a second of {count} in a zip, once it runs", f"{rate:.0f}",
              f"{RATE_WANTED} on an H200 with 16 cores", rate >= RATE_WANTED,
              rate=rate, rate_with_start=count / wall, workers=workers, best=best,
              batch=batch)  # fmt: skip
    busy = {
        "decode, share of the workers": tally.seconds["decode"] / workers,
        "records, share of the workers": tally.seconds["write"] / workers,
        "waiting for the network, share of the workers": tally.seconds["recognise"] / workers,
        "network, share of its thread": tally.seconds["network"],
        "output, share of the writing thread": tally.seconds["output"],
        "processor time of the process that gathers and writes, in cores": own,
    }
    for stage, seconds in busy.items():
        yield row("archive", stage, f"{seconds / wall:.0%}", "", None)


def write_archive(digits: Digits, path: Path, count: int) -> None:
    """Pack digits as PNG files, again and again until there are enough."""
    files = []
    for digit in digits.images[:count]:
        stream = io.BytesIO()
        Image.fromarray(digit).save(stream, "PNG")
        files.append(stream.getvalue())
    with zipfile.ZipFile(path, "w") as packed:
        for number in range(count):
            packed.writestr(f"{number:07}.png", files[number % len(files)])


def memory(bench: Bench) -> Iterator[Row]:
    """Run ``neocog read`` on large pages, and watch its memory."""
    count: int = bench.args.photos
    folder, bank = bench.folder / "photos", bank_of(bench.digits("validation"))
    folder.mkdir()
    for number in range(count):
        path = folder / f"photo{number}.jpg"
        if number < PHOTOS:
            random = np.random.default_rng(number)
            picture, _ = make_page(bank, "plain", random)
            Image.fromarray(picture).convert("RGB").resize(PHOTO).save(path)
        else:
            os.link(folder / f"photo{number % PHOTOS}.jpg", path)
    command = [sys.executable, "-m", "neocog", "read", str(folder), "--model", bench.args.model]
    command += ["--device", bench.args.device, "-o", str(bench.folder / "photos.jsonl")]
    if bench.args.workers is not None:
        command += ["--workers", str(bench.args.workers)]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    sizes = Memory(process.pid)
    sizes.start()
    code = process.wait()
    sizes.stop()
    wall = time.perf_counter() - start
    growth = max(sizes.samples) - max(sizes.samples[: len(sizes.samples) // 10])
    megapixels = PHOTO[0] * PHOTO[1] / 1e6
    yield row("memory", f"MB more than in the first tenth, {count} pictures of {megapixels:.0f} "
              "megapixels", f"{growth:.0f}", f"at most {GROWTH_WANTED}",
              code == 0 and growth <= GROWTH_WANTED, highest=max(sizes.samples))  # fmt: skip
    yield row("memory", "pictures a second", f"{count / wall:.1f}", "", None)


SECTIONS: dict[str, Callable[[Bench], Iterator[Row]]] = {
    "isolated": isolated,
    "archive": archive,
    "memory": memory,
}


def row(section: str, what: str, found: str, wanted: str, met: bool | None, **more: Any) -> Row:
    out = {"section": section, "what": what, "found": found, "wanted": wanted}
    return out | {"met": "" if met is None else "yes" if met else "no"} | more


def main() -> None:
    parser = data_and_output(__doc__, model="neocog", device="auto", workers=int, count=200_000, photos=1000)
    parser.add_argument("--sections", nargs="+", choices=list(SECTIONS), default=list(SECTIONS))
    args = parser.parse_args()
    rows: list[Row] = []
    if args.output.exists():  # sections that are not measured anew stay
        before = json.loads(args.output.read_text())["rows"]
        rows = [found for found in before if found["section"] not in args.sections]
    with tempfile.TemporaryDirectory(prefix="neocog-") as name:
        bench = Bench(args, Path(name))
        gpu = bench.reader.engine.device != "cpu"
        about = {"machine": machine(gpu), "model": bench.reader.model.id, "cores": cores()}
        for section in args.sections:
            for found in SECTIONS[section](bench):
                rows.append(about | found)
                print(json.dumps(rows[-1]), flush=True)
            rows.sort(key=lambda found: list(SECTIONS).index(found["section"]))
            write_results(args.output, rows, columns=COLUMNS, gpu=gpu)


if __name__ == "__main__":
    main()
