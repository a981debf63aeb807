"""Readers for labelled digits: every set becomes ``(N, 28, 28)`` pictures in MNIST's form or a list of files.

IDX files, plain or gz, a folder with ``train-`` and ``t10k-`` pairs, or one pair; ``zip.train`` and
``zip.test``, USPS as text; folders ``0`` .. ``9``, one picture per digit; ``labels.csv`` with columns
``file`` and ``digits`` or ``text``; ``sklearn``; ``mnist``, what ``neocog data fetch`` fetched.
"""

import csv
import gzip
import io
import math
import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from neocog.errors import InputError, UsageError
from neocog.learning import fetch
from neocog.reading.pictures import is_picture_name
from neocog.vision.decode import decode
from neocog.vision.normalise import enlarged, isolated_digit, normalise

SPLITS = ("train", "test", "validation", "learning")
SETS = ("mnist", "usps", "photos", "strings")  # folders of a folder of sets
MAX_DIGITS = 500_000  # of a set, 392 MB: some bytes of gz must not fill the memory
MAX_TEXT = 32 << 20  # bytes of USPS as text (15 MB), or of a table of labels
_VALIDATION = 5_000  # the last 5 000 of MNIST's 60 000 training digits
_VALIDATION_SHARE = 12  # and never more than a twelfth of a smaller set
_WRITERS_SHARE = 5  # of writers, a fifth is kept apart
_TEST = ("t10k-images", "test-images", "zip.test")  # how files of a test part begin
_WRITERS = "train-writers.txt"  # a writer a line, beside IDX files; plain or gz
_IDX_IMAGES, _IDX_LABELS = 0x803, 0x801  # unsigned bytes, three dimensions and one
_SIDE, _USPS_SIDE = 28, 16
_USPS_LINE = 1 + _USPS_SIDE**2


@dataclass(frozen=True, slots=True)
class Digits:
    """Isolated digits with their labels."""

    images: NDArray[np.uint8]  #: (N, 28, 28), ink 255 on paper 0, in MNIST's form
    labels: NDArray[np.int64]  #: (N,), 0..9
    name: str  #: the set and its part, for people

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: "slice | NDArray[np.int64]") -> "Digits":
        return Digits(self.images[index], self.labels[index], self.name)


@dataclass(frozen=True, slots=True)
class LabelledPictures:
    """Pictures of any number of digits, with the digits that stand in each."""

    files: tuple[Path, ...]  #: whether they can be read shows when they are read
    expected: tuple[str, ...]  #: digits of each picture in reading order, nothing between them
    name: str  #: the set, for people
    left_out: tuple[str, ...] = ()  #: pictures of the table whose text holds no digit
    texts: tuple[str, ...] | None = None  #: with signs, spaces and line ends, if the table has them

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: slice) -> "LabelledPictures":
        texts = self.texts and self.texts[index]
        return replace(self, files=self.files[index], expected=self.expected[index], texts=texts)


def open_dataset(path: str | Path, *, split: str | None = None) -> Digits | LabelledPictures:
    """Read a part (``split``) of the labelled set at ``path``: a file, a folder, sklearn or mnist.

    Without one: the test part where there is one, else all. A set without parts may be learned from whole.
    UsageError if there is no part of that name; InputError if the set or that part cannot be read.
    """
    if split not in (None, *SPLITS):
        raise UsageError(f"split '{split}' is unknown: choose one of {', '.join(SPLITS)}")
    place = place_of(path)
    if os.path.isdir(place):
        return _open_folder(place, split)
    if os.path.exists(place):
        if place.suffix == ".csv":
            return _whole(read_labels_csv(place), split)
        if split == "test" and place.name.startswith(_TEST):
            split = None  # it is that part
        if _is_usps(place.name):
            return _whole(_read_usps(place), split)
        if _bytes(place, 3) == b"\0\0\x08":
            return _whole(read_idx(place), split)
        raise InputError(f"{path}: neither IDX, USPS text nor a labels.csv; give one of these or a folder")
    if str(path) == "sklearn":
        return _whole(read_sklearn(), split)
    what = "no such file or folder; give the path of a data set, mnist or sklearn"
    if str(path) == "mnist":
        what = f"not at {fetch.default_folder('mnist')}; run 'neocog data fetch mnist' or give its folder"
    raise InputError(f"{path}: {what}")


def open_digits(path: str | Path, *, split: str | None = None) -> Digits:
    """As `open_dataset`; InputError as well if the set holds pictures of several digits."""
    dataset = open_dataset(path, split=split)
    if isinstance(dataset, LabelledPictures):
        what = "expected isolated digits; give IDX files, USPS text or folders 0 to 9"
        raise InputError(f"{path}: a folder of pictures with labels.csv, {what}")
    return dataset


def fetched_mnist() -> Path | None:
    """Where ``neocog data fetch mnist`` put MNIST; None if none of its files of pictures is there."""
    folder = fetch.default_folder("mnist")
    try:
        return folder if any(map(_is_idx_images, os.listdir(folder))) else None
    except OSError:  # it is not there, or may not be listed
        return None


def place_of(path: str | Path) -> Path:
    """Return the path of a set; of ``mnist`` where it was fetched to, if it was."""
    place = Path(path)
    return (str(path) == "mnist" and not place.exists() and fetched_mnist()) or place


def rows_of_part(folder: Path, labels: NDArray[np.int64], split: str | None) -> NDArray[np.int64]:
    """Which digits of a training file a part holds; InputError if none. Of validation the last 5 000, but
    at most a twelfth; with writers beside it the last fifth of them, or of each label if there is one.
    """
    kept = np.zeros(len(labels), bool)
    if split not in ("learning", "validation"):
        return np.flatnonzero(~kept)
    files = [folder / name for name in (_WRITERS, f"{_WRITERS}.gz") if (folder / name).is_file()]
    if files:
        writers = read_text(files[0], "a name a line").splitlines()
        if len(writers) != len(labels):
            raise InputError(f"{files[0]}: {len(writers)} writers of {len(labels)} digits, expected one each")
        names, first, own = np.unique(writers, return_index=True, return_inverse=True)
        if len(names) > 1:
            turn = np.argsort(np.argsort(first))[own]  # in the order in which they begin
            kept = turn >= len(names) - -(-len(names) // _WRITERS_SHARE)
        for label in range(10) if len(names) == 1 else ():
            rows = np.flatnonzero(labels == label)
            kept[rows[len(rows) - len(rows) // _WRITERS_SHARE :]] = True
    else:
        kept[len(labels) - min(_VALIDATION, len(labels) // _VALIDATION_SHARE) :] = True
        if split == "validation" and not kept.any():
            why = f"at least {_VALIDATION_SHARE} are needed (1/{_VALIDATION_SHARE} is used for validation)"
            raise InputError(f"{folder.name} {split}: {len(labels)} training digits are too few; {why}")
    return np.flatnonzero(kept == (split == "validation"))


def _open_folder(folder: Path, split: str | None) -> Digits | LabelledPictures:
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror}") from error
    if "labels.csv" in names:
        return _whole(read_labels_csv(folder / "labels.csv"), split)
    for is_kind in (_is_idx_images, _is_usps):
        if not (files := list(filter(is_kind, names))):
            continue
        begin = _TEST if split in (None, "test") else ("train-images", "zip.train")
        # where both a plain and a gz file lie there, the plain one comes first and is faster
        of_part = [name for name in files if name.startswith(begin)] or (files if split is None else [])
        if not of_part:
            raise InputError(f"{folder}: no file for its {split} part, only {', '.join(files)}")
        file = of_part[0]
        if is_kind is _is_usps:
            digits = _read_usps(folder / file)
            return replace(digits if split == "test" else _whole(digits, split), name=f"{folder.name} {file}")
        part = split or file.partition("-")[0].replace("t10k", "test")
        digits = replace(read_idx(folder / file), name=f"{folder.name} {part}")
        return digits[rows_of_part(folder, digits.labels, split)]
    if any((folder / str(label)).is_dir() for label in range(10)):
        return _whole(_read_class_folders(folder), split)
    for name in SETS:
        if name in names:
            instead = f"or the like, or measure all of them: neocog eval {folder} --report DIR"
            raise InputError(f"{folder}: holds several sets, expected one; give {folder / name} {instead}")
    what = "IDX files (train-images...), USPS text (zip.train), folders 0 to 9, or a labels.csv"
    raise InputError(f"{folder}: no data set here, expected {what}")


def _is_idx_images(name: str) -> bool:
    return "-images" in name and not name.endswith(".part")


def _is_usps(name: str) -> bool:
    return name.removesuffix(".gz").removesuffix(".txt") in ("zip.train", "zip.test")


_Set = TypeVar("_Set", Digits, LabelledPictures)


def _whole(dataset: _Set, split: str | None) -> _Set:
    """The set as it is, which may be learned from; it has no part that is kept apart."""
    if split in ("test", "validation"):
        instead = "leave --split out to use all of it" if split == "test" else "give an IDX folder"
        raise InputError(f"{dataset.name}: has no {split} part; {instead}")
    return dataset


def read_idx(images: Path, labels: Path | None = None) -> Digits:
    """Read a pair of IDX files, plain or gz; without ``labels`` the file beside; else InputError."""
    pictures = _idx_array(images, _IDX_IMAGES)
    if pictures.shape[1:] != (_SIDE, _SIDE):
        raise InputError(f"{images}: pictures of {pictures.shape[1:]}, expected {_SIDE}x{_SIDE}")
    if labels is None:
        name = images.name.replace("images", "labels").replace("idx3", "idx1")
        beside = [images.with_name(n) for n in (name, name.removesuffix(".gz"), f"{name}.gz")]
        labels = next((place for place in beside if place != images and place.is_file()), None)
        if labels is None:
            raise InputError(f"{images}: its labels file {name} is not beside it")
    answers = _idx_array(labels, _IDX_LABELS).astype(np.int64)
    if len(pictures) != len(answers):
        counts = f"{len(pictures)} pictures but {len(answers)} labels in {labels.name}"
        raise InputError(f"{images}: {counts}; the two files do not belong together")
    if not len(answers):
        raise InputError(f"{images}: holds no digits; fetch it again or choose another set")
    if answers.max() > 9:
        raise InputError(f"{labels}: label {answers.max()}, expected 0 to 9")
    return Digits(pictures, answers, images.parent.name or images.name)


def _idx_array(path: Path, magic: int) -> NDArray[np.uint8]:
    size = 4 + 4 * (magic & 0xFF)
    head = _bytes(path, size)
    if len(head) < size:
        raise InputError(f"{path}: ends inside its header ({len(head)} bytes); fetch it again")
    kind, *shape = np.frombuffer(head, ">u4").tolist()
    if kind != magic:
        what = "pictures" if magic == _IDX_IMAGES else "labels"
        raise InputError(f"{path}: starts with {kind:#010x}, expected {magic:#010x} (IDX {what})")
    if (wanted := math.prod(shape)) > MAX_DIGITS * _SIDE * _SIDE:
        most = f"{MAX_DIGITS} digits of {_SIDE}x{_SIDE}; split the set"
        raise InputError(f"{path}: the header promises {wanted} bytes, expected at most {most}")
    data = _bytes(path, size + wanted + 1)
    if len(data) - size != wanted:
        how = "cut short" if len(data) - size < wanted else "too long"
        raise InputError(f"{path}: {how}: the header promises {wanted} bytes; fetch it again")
    return np.frombuffer(data, np.uint8, offset=size).reshape(shape)


def _read_usps(path: Path) -> Digits:
    """Read USPS as text: per line a label and 16x16 values, -1 paper and 1 ink; InputError if it is not."""
    text = _bytes(path, MAX_TEXT)
    wanted = f"expected lines of {_USPS_LINE} numbers (a label and 16x16 values)"
    if not text.strip():
        raise InputError(f"{path}: empty, {wanted}")
    if re.search(rb"[^\n]{10001}", text):  # before a line of millions of numbers is taken apart
        raise InputError(f"{path}: a line of more than 10 000 characters, {wanted}")
    try:
        rows = np.loadtxt(io.BytesIO(text), np.float32, comments=None, ndmin=2)
    except ValueError as error:
        raise InputError(f"{path}: {str(error).partition(';')[0]}; {wanted}") from error
    if rows.shape[1] != _USPS_LINE:
        raise InputError(f"{path}: {rows.shape[1]} numbers a line, {wanted}")
    # `not (... <= ...)` also catches NaN
    if not (np.abs(rows[:, 1:]) <= 1.0).all() or not np.isin(rows[:, 0], np.arange(10)).all():
        raise InputError(f"{path}: a label outside 0..9 or a value outside -1..1; not USPS text")
    ink = (rows[:, 1:].reshape(-1, _USPS_SIDE, _USPS_SIDE) + 1.0) / 2.0
    return Digits(np.stack([normalise(enlarged(one)) for one in ink]), rows[:, 0].astype(np.int64), path.name)


def _read_class_folders(folder: Path) -> Digits:
    """Read folders named 0 to 9 with a digit in each picture, the folders by turns; else InputError."""
    places = [place for label in range(10) if (place := folder / str(label)).is_dir()]
    columns = [[file for file in sorted(place.iterdir()) if is_picture_name(file.name)] for place in places]
    files = [file for row in zip_longest(*columns) for file in row if file is not None]
    if not files:
        raise InputError(f"{folder}: its folders 0 to 9 hold no pictures (png, jpg, ...)")
    images = []
    for file in files:
        if file.exists() and not file.is_file():  # a pipe would never answer
            raise InputError(f"{file}: not a regular file, expected a picture")
        try:
            images.append(isolated_digit(next(decode(file)).grey))
        except InputError as error:
            raise InputError(f"{file}: {error}") from error
    return Digits(np.stack(images), np.array([int(file.parent.name) for file in files]), folder.name)


def read_labels_csv(path: Path) -> LabelledPictures:
    """Read a ``labels.csv``; rows whose value has no digit are left out. InputError if it is none."""
    count, files, expected, left_out, texts = 0, list[Path](), list[str](), list[str](), list[str]()
    rows = read_table(path)
    columns = next(rows, [])
    answer = next((name for name in ("digits", "text") if name in columns), None)
    if "file" not in columns or answer is None:
        have = ", ".join(columns[:9]) or "none"
        raise InputError(f"{path}: columns 'file' and 'digits' or 'text' are needed; it has {have}")
    for count, values in enumerate(rows, 1):
        row = dict(zip(columns, values, strict=False))
        name, shown = row.get("file"), row.get(answer)
        if not name or shown is None or "\0" in name:
            why = f"lacks its file or its {answer}, or it has a zero byte"
            raise InputError(f"{path}: row {count + 1} {why}")
        if count > MAX_DIGITS:
            raise InputError(f"{path}: more than {MAX_DIGITS} rows; split the set")
        digits = "".join(char for char in shown if char in "0123456789")
        if shown.strip() and not digits:
            left_out.append(name)
            continue
        files.append(path.parent / name)
        expected.append(digits)
        words = row.get("text", "").removeprefix("'")  # see `neocog.reading.formats.inert`
        texts.append("\n".join(line.strip() for line in words.split("|")))
    if not files:
        none = f"no row of {count} has a digit in its {answer}" if count else "has no rows"
        raise InputError(f"{path}: {none}, expected a row for each picture")
    written = tuple(texts) if "text" in columns else None
    name = path.parent.name or path.name
    return LabelledPictures(tuple(files), tuple(expected), name, tuple(left_out), written)


def read_table(path: Path) -> Iterator[list[str]]:
    """Rows of a CSV as spreadsheets save it, with commas, semicolons or tabs; InputError if it is none."""
    table = read_text(path, "a table of labels; save it as CSV in UTF-8").lstrip("\r\n")
    if table.startswith("sep="):  # a line that tells a spreadsheet what follows
        table = table.partition("\n")[2]
    separator = max(",;\t", key=table.partition("\n")[0].count)
    try:
        yield from filter(None, csv.reader(io.StringIO(table, newline=""), delimiter=separator, strict=True))
    except csv.Error as error:
        raise InputError(f"{path}: not a table ({error}); quote values that hold quotes") from error


@cache  # they take a second to normalise
def read_sklearn() -> Digits:
    """scikit-learn's 1 797 digits of 8x8, levels 0..16; UsageError if it is not installed."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise UsageError("'sklearn' needs scikit-learn: pip install scikit-learn") from error
    pictures, labels = load_digits(return_X_y=True)
    ink = np.asarray(pictures, np.float32).reshape(-1, 8, 8) / 16.0
    made = np.stack([normalise(enlarged(digit)) for digit in ink])
    return Digits(made, np.asarray(labels, np.int64), "sklearn")


def read_text(path: Path, wanted: str) -> str:
    """Return a text, plain or gz; InputError if it is not UTF-8, or too long."""
    try:
        return _bytes(path, MAX_TEXT).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text, expected {wanted}") from error


def _bytes(path: Path, most: int) -> bytes:
    """The first bytes of a regular file, gz unpacked; InputError if a text (of `MAX_TEXT`) has more."""
    if not path.is_file():  # a folder, or a pipe that would never answer
        raise InputError(f"{path}: not a regular file; give a file or its folder")
    try:
        with path.open("rb") as file:
            packed = file.peek(2)[:2] == b"\x1f\x8b"
            with gzip.open(file) if packed else file as stream:
                data = stream.read(most + (most == MAX_TEXT))
    except EOFError as error:
        raise InputError(f"{path}: cut short (the gz stream has no end); fetch it again") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path}: damaged gz stream ({error}); fetch it again") from error
    except OSError as error:
        raise InputError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    if most == MAX_TEXT < len(data):
        raise InputError(f"{path}: a text of more than {MAX_TEXT >> 20} MiB; split the set")
    return data
