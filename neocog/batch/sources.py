"""Which inputs a command line names: files as they are, folders with all pictures in them."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from neocog.errors import NothingToRead

PICTURE_SUFFIXES = frozenset(
    {
        ".bmp", ".gif", ".jfif", ".jp2", ".jpeg", ".jpg", ".pbm", ".pgm",
        ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp",
    }
)  # fmt: skip


def is_picture_name(name: str) -> bool:
    """Whether a file of this name is looked at when a folder is read."""
    return not name.startswith(".") and Path(name).suffix.lower() in PICTURE_SUFFIXES


class Files:
    """Which files some paths lead to, by any name: another spelling, a link.

    Parameters
    ----------
    paths : iterable of str or Path
        Those that lead nowhere count for nothing.
    """

    def __init__(self, paths: Iterable[str | Path]) -> None:
        self._known = {_identity(path) for path in paths} - {None}

    def __contains__(self, path: str | Path) -> bool:
        return _identity(path) in self._known


def _identity(path: str | Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):  # ValueError: a name that no file can have
        return None
    return found.st_dev, found.st_ino


def expand(inputs: Iterable[str | Path]) -> Iterator[Path]:
    """Yield the files that the inputs stand for.

    A file is taken whatever its name, also one that is not there: it becomes a record with an
    error. A folder stands for every picture in it and below it, sorted by name, hidden ones
    and files of other suffixes left out.

    Raises
    ------
    NothingToRead
        After the last input, if none of them stood for any file.
    """
    found = False
    for entry in inputs:
        # os.path.isdir takes names that no file can have, Path.is_dir raises on them
        for path in _folder(Path(entry)) if os.path.isdir(entry) else (Path(entry),):
            found = True
            yield path
    if not found:
        raise NothingToRead(
            "no pictures found; give picture files, or folders that hold some (png, jpg, tif, ...)"
        )


def _folder(folder: Path) -> Iterator[Path]:
    """Pictures below ``folder``, its own before those of its sub-folders."""
    try:
        entries = sorted(folder.iterdir(), key=lambda entry: entry.name)
    except OSError:
        yield folder  # reading it will say why not
        return
    folders = []
    for entry in entries:
        if entry.is_dir() and not entry.is_symlink():
            if not entry.name.startswith("."):
                folders.append(entry)
        elif is_picture_name(entry.name):
            yield entry
    for below in folders:
        yield from _folder(below)
