"""Corrected pages as a labelled set: ``pages`` to measure with, ``lines`` and ``digits`` to learn from.

``pages/labels.csv`` names a picture of each page and what stands there, signs included; ``lines`` is the same
for each line, as far as it has a box. ``digits`` holds the pages' digits as IDX files, with the page of each
as its writer: those of the last fifth are kept for validation (`neocog.learning.datasets.rows_of_part`). A
page that comes again replaces what was there of it. A save writes all files into ``.new``, renames that to
``.saved``, which is the commit, and moves the files to their places; the next start or save moves what a
killed one left.
"""

import csv
import hashlib
import io
import shutil
import struct
import threading
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from neocog.errors import InputError
from neocog.files import atomic_write, check_output
from neocog.learning.datasets import read_idx, read_table, read_text
from neocog.reading.formats import inert

_IDX = ("digits/train-images-idx3-ubyte", "digits/train-labels-idx1-ubyte", "digits/train-writers.txt")


class Corrections:
    """A folder of corrected pages; UsageError if it cannot be written to."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        for place in (".", "pages", "lines", "digits"):
            check_output(self.folder / place, "--corrections", folder=True, make=True)
        self._lock = threading.Lock()

    def mend(self) -> None:
        """Finish a save that was interrupted, and remove what `check_output` left if it was killed."""
        self._finish()
        shutil.rmtree(self.folder / ".new", ignore_errors=True)
        for place in ("pages", "lines", "digits"):
            for left in filter(Path.is_file, (self.folder / place).glob(".file.????????")):
                left.unlink()

    def save(
        self, source: bytes, page: int, png: bytes | None, text: str, digits: NDArray[np.uint8],
        chars: Sequence[str], lines: Sequence[tuple[str, bytes]] = (),
    ) -> int:  # fmt: skip
        """Save a page, ``digits`` (N, 28, 28) and ``lines`` (text, PNG); return how many pages there are.

        Without a picture of the page only the others are saved: of cells of a form.
        """
        name = f"{hashlib.sha256(source).hexdigest()[:12]}-{page}"
        new = self.folder / ".new"
        inked = np.flatnonzero(digits.any(axis=(1, 2))).tolist()
        with self._lock:
            self._finish()
            rows = self._labels("pages", {} if png is None else {f"{name}.png": text})
            files = {} if png is None else {f"pages/{name}.png": png, "pages/labels.csv": _table(rows)}
            old = [file.name for file in (self.folder / "lines").glob(f"{name}-*.png")]
            new_lines = {f"{name}-{number}.png": line for number, line in enumerate(lines, 1)}
            files |= {f"lines/{file}": b"" for file in old}
            files |= {f"lines/{file}": strip for file, (_, strip) in new_lines.items()}
            if old or new_lines:
                told = self._labels("lines", {file: line for file, (line, _) in new_lines.items()}, old)
                files["lines/labels.csv"] = _table(told)
            files |= self._digits(name, digits[inked], [chars[place] for place in inked])
            shutil.rmtree(new, ignore_errors=True)
            for file, data in files.items():
                (new / file).parent.mkdir(parents=True, exist_ok=True)
                with atomic_write(new / file) as stream:
                    stream.write(data)
            new.rename(self.folder / ".saved")
            self._finish()
        return len(rows) - 1

    def _finish(self) -> None:
        """Move what a save wrote to its place; an empty file stands for one that goes."""
        saved = self.folder / ".saved"
        for file in saved.glob("*/*"):
            place = self.folder / file.relative_to(saved)
            if file.stat().st_size:
                file.replace(place)
            else:
                place.unlink(missing_ok=True)
        if saved.exists():
            shutil.rmtree(saved)

    def _labels(self, part: str, texts: dict[str, str], old: Collection[str] = ()) -> list[list[str]]:
        """Return the rows of labels.csv with files' texts put in, as a spreadsheet may have saved it.

        ``old`` are files of which those without a text go.
        """
        place = self.folder / part / "labels.csv"
        rows = [*(read_table(place) if place.exists() else ())] or [["file", "text"]]
        head = rows[0]
        answers = [column for column, name in enumerate(head) if name in ("text", "digits")]
        if "file" not in head or not answers:
            raise InputError(f"{place}: has no columns 'file' and 'text'; put them back in its first line")
        rows = [[*row, *[""] * (len(head) - len(row))] for row in rows]
        column = head.index("file")
        rows = [row for row in rows if row[column] in texts or row[column] not in old]
        known = {row[column] for row in rows}
        blank = [""] * len(head)
        rows += [[*blank[:column], file, *blank[column + 1 :]] for file in texts if file not in known]
        for row in rows:
            for answer in answers if row[column] in texts else ():
                row[answer] = str(inert(texts[row[column]]))
        return rows

    def _digits(self, name: str, digits: NDArray[np.uint8], chars: Iterable[str]) -> dict[str, bytes]:
        """Return the IDX files and the writers with the digits of one page replaced."""
        images, _, names = (self.folder / file for file in _IDX)
        labels = np.array(list(chars), np.uint8)
        writers = [name] * len(labels)
        if images.exists():
            known, old = read_idx(images), read_text(names, "a name a line").splitlines()
            if len(old) != len(known):
                raise InputError(f"{names}: {len(old)} names of {len(known)} digits; move the folder away")
            kept = [n for n, writer in enumerate(old) if writer != name]
            digits = np.concatenate([known.images[kept], digits])
            labels = np.concatenate([known.labels[kept].astype(np.uint8), labels])
            writers = [old[n] for n in kept] + writers
        if not writers:
            return dict.fromkeys(_IDX, b"")
        pictures = struct.pack(">4I", 0x803, *digits.shape) + digits.tobytes()
        told = struct.pack(">2I", 0x801, len(labels)) + labels.tobytes()
        names_of_them = "".join(f"{writer}\n" for writer in writers).encode()
        return dict(zip(_IDX, (pictures, told, names_of_them), strict=True))


def _table(rows: Iterable[Sequence[str]]) -> bytes:
    table = io.StringIO(newline="")
    csv.writer(table, lineterminator="\n").writerows(rows)
    return table.getvalue().encode()
