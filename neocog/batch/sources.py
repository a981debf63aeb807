"""Files: which names are pictures, which lead to the same file, which can be read at all."""

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from neocog.errors import InputError, UsageError

PICTURE_SUFFIXES = frozenset(
    {
        ".bmp", ".gif", ".jfif", ".jp2", ".jpeg", ".jpg", ".pbm", ".pgm",
        ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp",
    }
)  # fmt: skip

ZIP = (".zip",)
TAR = (".tar",)
PACKED_TAR = (".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
"""How the names of archives that are read end."""

_KINDS = {
    "a picture": PICTURE_SUFFIXES,
    "a video": frozenset(
        {".avi", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".webm", ".wmv"}
    ),
    "an archive": frozenset(
        {".7z", ".rar", *("." + name.rpartition(".")[2] for name in ZIP + TAR + PACKED_TAR)}
    ),
    "a model": frozenset({".safetensors"}),
}  # what no words are written to


def is_picture_name(name: str) -> bool:
    """Whether a file of this name is looked at when a folder is read."""
    return not name.startswith(".") and Path(name).suffix.lower() in PICTURE_SUFFIXES


def check_written(name: str | Path, option: str) -> None:
    """Refuse names that say picture, video, archive or model for words (UsageError)."""
    suffix = Path(name).suffix.lower()
    for kind, suffixes in _KINDS.items():
        if suffix in suffixes:
            raise UsageError(f"{name}: {suffix} is the name of {kind}; give another {option}")


class Files:
    """Which files paths lead to, by any name; those that lead nowhere count for nothing."""

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


def check_file(path: str | Path) -> None:
    """Refuse what cannot be opened, and what would wait for ever (InputError)."""
    try:
        kind = os.stat(path).st_mode
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(f"cannot be opened ({reason}); check its name and its rights") from None
    except ValueError:
        raise InputError("no file can have this name: it holds a zero byte") from None
    if stat.S_ISDIR(kind):
        raise InputError("a folder, where a picture file is wanted")
    if not stat.S_ISREG(kind):
        raise InputError("a pipe or device, where a picture file is wanted")
