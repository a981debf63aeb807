"""Who writes: digits by writer, as pictures and as the path of a pen; real lines of registers.

The folder of sets holds ``mnist``, ``hands/free`` (swiss, bhmsds, optdigits, pendigits) and ``lines/free``
(``qmnist-writers.txt.gz``, ``lectaurep``); there must be a set of pictures and the strokes of pendigits.
"""

import gzip
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from zipfile import BadZipFile

import cv2
import numpy as np
from numpy.typing import NDArray

from neocog.errors import InputError
from neocog.learning.datasets import Digits, read_idx, read_labels_csv
from neocog.learning.drawing.glyphs import HELD_OUT, styles_of
from neocog.learning.drawing.strokes import Strokes, read_strokes
from neocog.network.lines import ALPHABET
from neocog.text import reason_of, tell
from neocog.vision.decode import decode
from neocog.vision.strips import rows_of

Rng = np.random.Generator
ByDigit = dict[int, list[int]]

THANKS = {  # sets, and whom a card thanks for them
    "mnist": "MNIST (LeCun, Cortes, Burges), its writers from QMNIST (Yadav, Bottou; BSD)",
    "swiss": "kensanata/numbers (CC0)",
    "bhmsds": "BHMSDS (wblachowski/bhmsds, MIT)",
    "optdigits": "Optical Recognition of Handwritten Digits (Alpaydin, Kaynak; UCI, CC BY 4.0)",
    "pendigits": "Pen-Based Recognition of Handwritten Digits (Alpaydin, Alimoglu; UCI, CC BY 4.0)",
    "own": "corrected lines of the user's",
    "lectaurep": "Lectaurep Repertoires (HTR-United, CC BY 4.0)",
}

_SHARES = {"mnist": 0.5, "swiss": 0.28, "bhmsds": 0.14, "optdigits": 0.08}
_WRITERS = "train-writers.txt.gz"
_MOST_OF_A_TEXT = 60  # real lines of one text: a fifth of a register is 2.20


@dataclass(frozen=True, slots=True)
class Pictures:
    """A set of digits as pictures, its writers' digits and everybody's."""

    images: NDArray[np.uint8]
    writers: list[ByDigit]
    every: ByDigit
    share: float  #: of lines that are drawn from it


@dataclass(frozen=True)
class Hands:
    """All hands that may write: those to learn from, or with ``held`` those that are kept apart."""

    sets: dict[str, Pictures]
    strokes: Strokes
    pens: list[ByDigit]  #: writers with a pen's path of every digit
    every: ByDigit
    styles: list[list[int]] = field(default_factory=list)  #: allographs of each digit

    def counts(self, lines: int = 0) -> dict[str, int]:
        """Digits of each set, and of real lines their number where there are any."""
        own = {name: own.every for name, own in self.sets.items()} | {"pendigits": self.every}
        found = {name: sum(map(len, every.values())) for name, every in own.items()}
        return found | {"lectaurep": lines} if lines else found


def load_hands(folder: Path, *, held: bool = False) -> Hands:
    """Load the hands of a folder of sets; InputError if there are none."""
    sets = {}
    for name, share in _SHARES.items():
        place = folder / name if name == "mnist" else folder / "hands/free" / name
        names = folder / "lines/free/qmnist-writers.txt.gz" if name == "mnist" else place / _WRITERS
        if place.is_dir() and (not held or name in HELD_OUT["writers"]):
            digits = read_idx(place / "train-images-idx3-ubyte.gz")
            by, every = _by_writer(name, digits.labels, names, held)
            sets[name] = Pictures(digits.images, [own for own in by if len(own) >= 6], every, share)
    place = folder / "hands/free/pendigits"
    if not sets or not place.is_dir():
        raise InputError(f"{folder}: no hands; expected mnist and hands/free/pendigits (data/README.md)")
    labels = read_idx(place / "train-images-idx3-ubyte.gz").labels
    by, every = _by_writer("pendigits", labels, place / _WRITERS, held)
    pens, known = [own for own in by if len(own) == 10], [range(styles_of(d, rare=True)) for d in range(10)]
    styles = [[k for k in own if ([d, k] in HELD_OUT["styles"]) == held] for d, own in enumerate(known)]
    return Hands(sets, read_strokes(place / "strokes.npz"), pens, every, styles)


def hands_of(*sets: Digits) -> Hands:
    """One hand that writes with all digits of some sets, as they are; InputError if there is no ink."""
    own = {}
    for digits in sets:
        inked = np.flatnonzero(digits.images.max(axis=(1, 2), initial=0) > 100)
        every = {d: inked[digits.labels[inked] == d].tolist() for d in range(10)}
        if not len(inked):
            raise InputError(f"{digits.name}: no digit has ink to write with; choose another set")
        own[digits.name] = Pictures(digits.images, [every], every, len(inked))
    none = np.zeros(1, np.int32)
    return Hands(own, Strokes(np.zeros((0, 2), np.int16), none, none), [], {}, [[] for _ in range(10)])


def _by_writer(name: str, labels: NDArray[np.int64], file: Path, held: bool) -> tuple[list[ByDigit], ByDigit]:
    try:
        writers = gzip.decompress(file.read_bytes()).decode().split()
    except (OSError, EOFError, ValueError) as error:
        raise InputError(f"{file}: no list of writers ({reason_of(error)})") from None
    by: dict[str, ByDigit] = {}
    for k, (label, writer) in enumerate(zip(labels.tolist(), writers, strict=False)):
        if (writer in HELD_OUT["writers"].get(name, ())) == held:
            by.setdefault(writer, {}).setdefault(label, []).append(k)
    return [*by.values()], {d: [k for own in by.values() for k in own.get(d, ())] for d in range(10)}


Line = tuple[NDArray[np.uint8], str]  #: grey of a line (rows, w), or its ink, and what it says


def real_lines(folder: Path, rows: int, *, held: bool = False) -> list[Line]:
    """Lines of lectaurep, grey (``rows``, w), and what they say but for spaces; none without that folder."""
    found: list[Line] = []
    seen: Counter[str] = Counter()
    for path in sorted((folder / "lines/free/lectaurep").glob("*.npz")):
        try:
            with np.load(path) as file:  # each look into it unpacks
                images, start, texts, pages = (file[name] for name in ("images", "start", "text", "page"))
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise InputError(f"{path}: no lines of lectaurep ({reason_of(error)})") from None
        for k, (text, page) in enumerate(zip(map(str, texts), map(str, pages), strict=True)):
            text = text.replace(" ", "")
            seen[text] += (page in HELD_OUT["pages"]) == held
            if not text or (page in HELD_OUT["pages"]) != held or (not held and seen[text] > _MOST_OF_A_TEXT):
                continue
            grey = cv2.imdecode(images[start[k] : start[k + 1]], cv2.IMREAD_GRAYSCALE)
            found.append((_of_height(np.asarray(grey, np.uint8), rows), text))
    return found


def own_lines(folder: Path, rows: int) -> list[Line]:
    """Lines of ``lines/own``, such as `neocog serve` keeps, grey (``rows``, w); none without that folder."""
    table = folder / "lines/own/labels.csv"
    if not table.is_file():
        return []
    told = read_labels_csv(table)
    if told.texts is None:
        raise InputError(f"{table}: no column 'text', which says what stands in each line")
    pairs = list(zip(told.files, told.texts, strict=True))
    known = [(file, text) for file, text in pairs if text and {*text} <= {*ALPHABET}]
    if len(known) < len(pairs):
        less, others = len(pairs) - len(known), "".join(sorted({*"".join(told.texts)} - {*ALPHABET}))
        why = f"empty, or with a character that no line has{others and f' ({others[:20]})'}"
        tell(f"{less} of {len(pairs)} own lines are left out: {why}")
    return [(_of_height(next(decode(file)).grey, rows), text) for file, text in known]


def _of_height(grey: NDArray[np.uint8], rows: int) -> NDArray[np.uint8]:
    grey = grey[slice(*rows_of(grey))]
    how = cv2.INTER_AREA if len(grey) > rows else cv2.INTER_LINEAR
    size = (max(16, round(grey.shape[1] * rows / len(grey))), rows)
    return np.asarray(cv2.resize(grey, size, interpolation=how), np.uint8)
