"""Readers for labelled digits: every set becomes ``(N, 28, 28)`` pictures or a list of files.

- IDX files, plain or gz: MNIST's format; a folder with ``train-`` and ``t10k-`` pairs, or one pair
- ``zip.train``, ``zip.test``: USPS as text, plain or gz, a label and 256 values -1..1 per line
- folders ``0`` .. ``9``: one picture per digit, the folder's name is the label
- ``labels.csv``: pictures with any number of digits, columns ``file`` and ``digits`` or ``text``
- the names ``sklearn``: scikit-learn's 1 797 digits of 8x8; ``mnist``: what ``neocog data fetch`` fetched

Digits of other sizes are brought to MNIST's form: the longer side 20, centred by their centre of mass.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from neocog.errors import InputError, UsageError
from neocog.learning import fetch
from neocog.learning.formats import (
    Digits,
    LabelledPictures,
    begins_as_idx,
    read_class_folders,
    read_idx,
    read_labels_csv,
    read_sklearn,
    read_text,
    read_usps,
)

__all__ = ["Digits", "LabelledPictures", "open_dataset", "open_digits"]

SPLITS = ("train", "test", "validation", "learning")

SETS = ("mnist", "usps", "photos", "strings")  # folders of a folder of sets
VALIDATION = 5_000  # the last 5 000 of MNIST's 60 000 training digits
VALIDATION_SHARE = 12  # and never more than a twelfth of a smaller set
WRITERS_SHARE = 5  # of writers, a fifth is kept apart
_TEST = ("t10k-images", "test-images", "zip.test")  # how files of a test part begin
_WRITERS = "train-writers.txt"  # a writer a line, beside IDX files; plain or gz


def open_dataset(path: str | Path, *, split: str | None = None) -> Digits | LabelledPictures:
    """Read a part (``split``) of the labelled set at ``path``: a file, a folder, sklearn or mnist.

    Without one: the test part where there is one, else all. A set without parts may be learned from as a
    whole. UsageError if there is no part of that name; InputError if the set or that part cannot be read.
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
            return _whole(read_usps(place), split)
        if begins_as_idx(place):
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
        raise InputError(
            f"{path}: a folder of pictures with labels.csv, expected isolated digits; "
            "give IDX files, USPS text or folders 0 to 9"
        )
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
    if str(path) == "mnist" and not place.exists():
        return fetched_mnist() or place
    return place


def rows_of_part(folder: Path, labels: NDArray[np.int64], split: str | None) -> NDArray[np.int64]:
    """Return which digits of a training file, with these labels, a part holds; InputError if it is empty.

    The validation part is the last 5 000, but at most a twelfth. Where a file beside them tells who wrote
    each it is the last fifth of the writers (`last_writers`), or of one writer the last fifth of each label.
    """
    kept = np.zeros(len(labels), bool)
    if split not in ("learning", "validation"):
        return np.flatnonzero(~kept)
    files = [folder / name for name in (_WRITERS, f"{_WRITERS}.gz") if (folder / name).is_file()]
    if files:
        writers = read_text(files[0], "a name a line").splitlines()
        if len(writers) != len(labels):
            raise InputError(f"{files[0]}: {len(writers)} writers of {len(labels)} digits, expected one each")
        of_last = last_writers(writers)
        for label in range(10) if of_last is None else ():
            rows = np.flatnonzero(labels == label)
            kept[rows[len(rows) - len(rows) // WRITERS_SHARE :]] = True
        kept = kept if of_last is None else of_last
    else:
        kept[len(labels) - min(VALIDATION, len(labels) // VALIDATION_SHARE) :] = True
        if split == "validation" and not kept.any():
            raise InputError(
                f"{folder.name} {split}: {len(labels)} training digits are too few; at least "
                f"{VALIDATION_SHARE} are needed (1/{VALIDATION_SHARE} is used for validation)"
            )
    return np.flatnonzero(kept == (split == "validation"))


def last_writers(writers: Sequence[str]) -> NDArray[np.bool_] | None:
    """Tell which digits the last fifth of the writers wrote; None where all are of one writer."""
    names, first, own = np.unique(writers, return_index=True, return_inverse=True)
    turn = np.argsort(np.argsort(first))[own]
    return turn >= len(names) - -(-len(names) // WRITERS_SHARE) if len(names) > 1 else None


def _open_folder(folder: Path, split: str | None) -> Digits | LabelledPictures:
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror}") from error
    if "labels.csv" in names:
        return _whole(read_labels_csv(folder / "labels.csv"), split)
    for usps, is_kind in ((False, _is_idx_images), (True, _is_usps)):
        if files := [name for name in names if is_kind(name)]:
            return _part(folder, files, split, usps=usps)
    if any((folder / str(label)).is_dir() for label in range(10)):
        return _whole(read_class_folders(folder), split)
    for name in SETS:
        if name in names:
            raise InputError(
                f"{folder}: holds several sets, expected one; give {folder / name} or the "
                f"like, or measure all of them: neocog eval {folder} --report DIR"
            )
    raise InputError(
        f"{folder}: no data set here, expected IDX files (train-images...), USPS text (zip.train), "
        "folders 0 to 9, or a labels.csv"
    )


def _part(folder: Path, files: list[str], split: str | None, *, usps: bool) -> Digits:
    """Read a part of a folder of IDX or USPS files; without a split the test part, or else any."""
    begin = _TEST if split in (None, "test") else ("train-images", "zip.train")
    # where both a plain and a gz file lie there, the plain one comes first and is faster
    of_part = [name for name in files if name.startswith(begin)] or (files if split is None else [])
    if not of_part:
        raise InputError(f"{folder}: no file for its {split} part, only {', '.join(files)}")
    file = of_part[0]
    if usps:
        digits = read_usps(folder / file)
        return replace(digits if split == "test" else _whole(digits, split), name=f"{folder.name} {file}")
    part = split or file.partition("-")[0].replace("t10k", "test")
    digits = replace(read_idx(folder / file), name=f"{folder.name} {part}")
    return digits[rows_of_part(folder, digits.labels, split)]


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
