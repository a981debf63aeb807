"""The sets that reading is measured with: photographs, strings, frozen pages of seven kinds."""

import csv
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from neocog.errors import UsageError
from neocog.learning.datasets import LabelledPictures, open_dataset
from neocog.reading.pictures import Picture
from neocog.reading.records import REJECTED

FROZEN = ("conditions", "blank", "forms", "amounts", "turned", "letters")


@dataclass(frozen=True, slots=True)
class Sample:
    """A picture and what is written on it; ``marks``: label, middle, width, height of each."""

    set: str
    kind: str
    file: Path
    text: str
    marks: np.ndarray | None = None
    frozen: bool = False  #: whether it is a page that was drawn

    @property
    def picture(self) -> Picture:
        """The pixels of a frozen page, the file of any other."""
        return np.asarray(Image.open(self.file)) if self.frozen else self.file


def digits_of(text: str) -> str:
    """Digits and question marks of a text, nothing between them."""
    return "".join(char for char in text if char.isdigit() or char == REJECTED)


def frozen(folder: Path, name: str) -> list[Sample]:
    """The pages of a set that `experiments.reading.freeze` drew into a folder."""
    table = folder / name / "labels.csv"
    if not table.is_file():
        raise UsageError(f"{table} is not there: python -m experiments.reading.freeze {folder} --data DATA")
    with table.open(newline="", encoding="utf-8") as stream:
        some = list(csv.DictReader(stream))
    marks = [np.array(json.loads(row["marks"]), np.float32).reshape(-1, 5) if row["marks"] else None
             for row in some]  # fmt: skip
    return [Sample(name, row["kind"], table.with_name(row["file"]), row["text"], own, frozen=True)
            for row, own in zip(some, marks, strict=True)]  # fmt: skip


def samples(data: Path, folder: Path, sets: list[str]) -> Iterator[Sample]:
    """All pictures of sets, ``name`` or ``name:kind``, of DATA and of the folder of the frozen pages."""
    for name, _, only in (word.partition(":") for word in sets):
        if name in FROZEN:
            some = frozen(folder, name)
        elif (data / name).is_dir():
            known = open_dataset(data / name)
            assert isinstance(known, LabelledPictures)
            kinds = ("even", "odd") if name == "strings" else (name,)
            files = enumerate(zip(known.files, known.expected, strict=True))
            some = [Sample(name, kinds[n % len(kinds)], file, digits_of(text)) for n, (file, text) in files]
        else:
            print(f"{name}: DATA has no folder {name}", file=sys.stderr)
            continue
        yield from (one for one in some if only in ("", one.kind))
