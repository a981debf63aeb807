"""Corrected pages as a labelled set: ``pages`` to measure with, ``digits`` to learn from.

``pages/labels.csv`` names a picture of each page and what stands there. ``digits`` holds the pages'
digits as IDX files, with the page of each as its writer: those of the last fifth of the pages are
kept for validation (`neocog.learning.datasets.rows_of_part`). A page that comes again replaces
what was there of it.
"""

import csv
import hashlib
import io
import struct
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from neocog.batch.formats import inert
from neocog.errors import InputError
from neocog.files import atomic_write, check_output
from neocog.learning.formats import read_idx


class Corrections:
    """A folder of corrected pages; UsageError if it cannot be written to."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        for place in ("pages", "digits"):
            check_output(self.folder / place, "--corrections", folder=True, make=True)
        self.labels = self.folder / "pages" / "labels.csv"
        self._lock = threading.Lock()

    def save(
        self, source: bytes, page: int, png: bytes, text: str, digits: NDArray[np.uint8], chars: Sequence[str]
    ) -> int:
        """Save page number ``page`` of the file ``source``, and return how many pages there are.

        ``png`` is the page, ``text`` what stands on it; ``digits`` (N, 28, 28) are its digits in
        MNIST's form, and ``chars`` what these are.
        """
        name = f"{hashlib.sha256(source).hexdigest()[:12]}-{page}"
        with self._lock:
            with atomic_write(self.folder / "pages" / f"{name}.png") as stream:
                stream.write(png)
            count = self._label(f"{name}.png", text)
            inked = np.flatnonzero(digits.any(axis=(1, 2))).tolist()
            self._learn(name, digits[inked], [chars[place] for place in inked])
        return count

    def _label(self, file: str, text: str) -> int:
        rows = {}
        if self.labels.exists():
            with self.labels.open(newline="", encoding="utf-8") as stream:
                rows = {row["file"]: row["text"] for row in csv.DictReader(stream)}
        rows[file] = str(inert(text))
        table = io.StringIO(newline="")
        csv.writer(table, lineterminator="\n").writerows([("file", "text"), *rows.items()])
        with atomic_write(self.labels) as out:
            out.write(table.getvalue().encode())
        return len(rows)

    def _learn(self, name: str, digits: NDArray[np.uint8], chars: list[str]) -> None:
        names = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "train-writers.txt")
        places = [self.folder / "digits" / file for file in names]
        labels, writers = np.array(chars, np.uint8), [name] * len(chars)
        if places[0].exists():
            known, old = read_idx(places[0]), places[2].read_text(encoding="utf-8").splitlines()
            if len(old) != len(known):
                raise InputError(
                    "the files in the corrections folder do not match each other; use a new folder"
                )
            kept = [n for n, writer in enumerate(old) if writer != name]
            digits = np.concatenate([known.images[kept], digits])
            labels = np.concatenate([known.labels[kept].astype(np.uint8), labels])
            writers = [old[n] for n in kept] + writers
        if not writers:
            for place in places:
                place.unlink(missing_ok=True)
            return
        files = (
            struct.pack(">4I", 0x803, *digits.shape) + digits.tobytes(),
            struct.pack(">2I", 0x801, len(labels)) + labels.tobytes(),
            "".join(f"{writer}\n" for writer in writers).encode(),
        )
        with ExitStack() as stack:  # all of them, or none
            streams = [stack.enter_context(atomic_write(place)) for place in places]
            for stream, data in zip(streams, files, strict=True):
                stream.write(data)
