"""The formats of labelled digits, one reader for each; `neocog.learning.datasets` chooses."""

import csv
import gzip
import io
import math
import re
import zlib
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from neocog.errors import InputError, UsageError
from neocog.reading.pictures import is_picture_name
from neocog.vision.normalise import enlarged, isolated_digit, normalise

SIDE = 28
USPS_SIDE = 16

_IDX_IMAGES = 0x803  # unsigned bytes, three dimensions
_IDX_LABELS = 0x801  # unsigned bytes, one dimension
MAX_DIGITS = 500_000  # of a set, 392 MB: some bytes of gz must not fill the memory
MAX_TEXT = 32 << 20  # bytes of USPS as text (15 MB), or of a table of labels
_USPS_LINE = 1 + USPS_SIDE * USPS_SIDE


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
        texts = None if self.texts is None else self.texts[index]
        return LabelledPictures(self.files[index], self.expected[index], self.name, self.left_out, texts)


def read_idx(images: Path, labels: Path | None = None) -> Digits:
    """Read a pair of IDX files, plain or gz; without ``labels`` the file beside; else InputError."""
    pictures = _idx_array(images, _IDX_IMAGES)
    if pictures.shape[1:] != (SIDE, SIDE):
        raise InputError(f"{images}: pictures of {pictures.shape[1:]}, expected {SIDE}x{SIDE}")
    if labels is None:
        name = images.name.replace("images", "labels").replace("idx3", "idx1")
        beside = [images.with_name(n) for n in (name, name.removesuffix(".gz"), f"{name}.gz")]
        labels = next((place for place in beside if place != images and place.is_file()), None)
        if labels is None:
            raise InputError(f"{images}: its labels file {name} is not beside it")
    answers = _idx_array(labels, _IDX_LABELS).astype(np.int64)
    if len(pictures) != len(answers):
        raise InputError(
            f"{images}: {len(pictures)} pictures but {len(answers)} labels in {labels.name}; "
            "the two files do not belong together"
        )
    if not len(answers):
        raise InputError(f"{images}: holds no digits; fetch it again or choose another set")
    if answers.max() > 9:
        raise InputError(f"{labels}: label {answers.max()}, expected 0 to 9")
    return Digits(pictures, answers, images.parent.name or images.name)


def begins_as_idx(path: Path) -> bool:
    return _bytes(path, 3) == b"\0\0\x08"


def _idx_array(path: Path, magic: int) -> NDArray[np.uint8]:
    size = 4 + 4 * (magic & 0xFF)
    head = _bytes(path, size)
    if len(head) < size:
        raise InputError(f"{path}: ends inside its header ({len(head)} bytes); fetch it again")
    kind, *shape = np.frombuffer(head, ">u4").tolist()
    if kind != magic:
        what = "pictures" if magic == _IDX_IMAGES else "labels"
        raise InputError(f"{path}: starts with {kind:#010x}, expected {magic:#010x} (IDX {what})")
    if (wanted := math.prod(shape)) > MAX_DIGITS * SIDE * SIDE:
        most = f"{MAX_DIGITS} digits of {SIDE}x{SIDE}"
        raise InputError(
            f"{path}: the header promises {wanted} bytes, expected at most {most}; split the set"
        )
    data = _bytes(path, size + wanted + 1)
    if len(data) - size != wanted:
        how = "cut short" if len(data) - size < wanted else "too long"
        raise InputError(f"{path}: {how}: the header promises {wanted} bytes; fetch it again")
    return np.frombuffer(data, np.uint8, offset=size).reshape(shape)


def read_usps(path: Path) -> Digits:
    """Read USPS as text: per line a label and 16x16 values, -1 paper and 1 ink; InputError if it is not."""
    text, wanted = (
        _bytes(path, MAX_TEXT),
        f"expected lines of {_USPS_LINE} numbers (a label and 16x16 values)",
    )
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
    ink = (rows[:, 1:].reshape(-1, USPS_SIDE, USPS_SIDE) + 1.0) / 2.0
    return Digits(
        np.stack([normalise(enlarged(digit)) for digit in ink]), rows[:, 0].astype(np.int64), path.name
    )


def read_class_folders(folder: Path) -> Digits:
    """Read folders named 0 to 9 with a digit in each picture, the folders by turns; else InputError."""
    from neocog.vision.decode import decode

    columns = [
        [(file, label) for file in sorted(place.iterdir()) if is_picture_name(file.name)]
        for label in range(10)
        if (place := folder / str(label)).is_dir()
    ]
    files = [entry for row in zip_longest(*columns) for entry in row if entry is not None]
    if not files:
        raise InputError(f"{folder}: its folders 0 to 9 hold no pictures (png, jpg, ...)")
    images = []
    for file, _ in files:
        if file.exists() and not file.is_file():  # a pipe would never answer
            raise InputError(f"{file}: not a regular file, expected a picture")
        try:
            images.append(isolated_digit(next(decode(file)).grey))
        except InputError as error:
            raise InputError(f"{file}: {error}") from error
    return Digits(np.stack(images), np.array([label for _, label in files], np.int64), folder.name)


def read_labels_csv(path: Path) -> LabelledPictures:
    """Read a ``labels.csv``: a column ``file``, and ``digits`` or ``text`` for what stands there.

    Rows whose value is text without a digit are left out. InputError if it is no such table, or has no rows.
    """
    text = read_text(path, "a table of labels")
    table = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    count, files, expected, left_out, texts = 0, [], [], [], list[str]()
    try:
        columns = table.fieldnames or []
        answer = next((name for name in ("digits", "text") if name in columns), None)
        if "file" not in columns or answer is None:
            have = ", ".join(columns[:9]) or "none"
            raise InputError(f"{path}: columns 'file' and 'digits' or 'text' are needed; it has {have}")
        for count, row in enumerate(table, 1):
            name, shown = row["file"], row[answer]
            if not name or shown is None or "\0" in name:
                raise InputError(
                    f"{path}: row {count + 1} lacks its file or its {answer}, or it has a zero byte"
                )
            if count > MAX_DIGITS:
                raise InputError(f"{path}: more than {MAX_DIGITS} rows; split the set")
            digits = "".join(char for char in shown if char in "0123456789")
            if shown.strip() and not digits:
                left_out.append(name)
                continue
            files.append(path.parent / name)
            expected.append(digits)
            words = (row.get("text") or "").removeprefix("'")  # see `neocog.reading.formats.inert`
            texts.append("\n".join(line.strip() for line in words.split("|")))
    except csv.Error as error:
        raise InputError(f"{path}: not a table ({error}); quote values that hold quotes") from error
    if not files:
        none = f"no row of {count} has a digit in its {answer}" if count else "has no rows"
        raise InputError(f"{path}: {none}, expected a row for each picture")
    name = path.parent.name or path.name
    written = tuple(texts) if "text" in columns else None
    return LabelledPictures(tuple(files), tuple(expected), name, tuple(left_out), written)


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
