"""Inputs: which names are pictures, which lead to the same file, which can be read at all."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from neocog.errors import InputError, UsageError

if TYPE_CHECKING:
    from zipfile import ZipInfo

PICTURE_SUFFIXES = frozenset(
    ".avif .bmp .gif .heic .heif .hif .jfif .jp2 .jpeg .jpg .pbm .pdf .pgm .png .pnm .ppm .tif .tiff "
    ".webp".split()
)

MAX_BYTES = 2**28
"""Bytes of a picture's file that are held in memory at most."""

DOCUMENT_SUFFIXES = frozenset((".avif", ".heic", ".heif", ".hif", ".pdf"))
"""Pictures among them that `neocog live` does not read."""

ZIP = (".zip",)
TAR = (".tar",)
PACKED_TAR = (".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
"""How the names of archives that are read end."""

_KINDS = {
    "a picture": PICTURE_SUFFIXES,
    "a video": ".avi .m4v .mkv .mov .mp4 .mpeg .mpg .webm .wmv".split(),
    "an archive": ".7z .rar .zip .tar .gz .tgz .bz2 .tbz2 .xz .txz".split(),
    "a model": [".safetensors"],
    "a workbook (neocog writes .csv)": ".ods .xls .xlsx".split(),
}  # what no words are written to

STDIN = "-"
"""The input that is what comes on stdin."""

Skipped = Callable[[str, str], None]
"""Told of a file that is not read, and why."""

HIDDEN = "hidden"


def is_picture_name(name: str) -> bool:
    """Whether a file of this name is looked at when a folder is read."""
    return why_skipped(name) is None


def why_skipped(name: str) -> str | None:
    """Why a file of this name is left out when a folder is read; None if it is not."""
    if name.startswith("."):
        return HIDDEN
    return None if os.path.splitext(name)[1].lower() in PICTURE_SUFFIXES else "not a picture, by its name"


def check_written(name: str | Path, option: str) -> None:
    """Refuse names that say picture, video, archive or model for words (UsageError)."""
    suffix = Path(name).suffix.lower()
    for kind, suffixes in _KINDS.items():
        if suffix in suffixes:
            raise UsageError(f"{name}: this is the suffix of {kind}; choose another {option}")


class Item(NamedTuple):
    """One input: a picture file, one at an address, or one in an archive."""

    source: str  # as records name it; of a member: archive/path/in/it
    key: str  # path relative to what was named: the same on every machine
    archive: str | None = None  # that it lies in; else ``source`` is a file
    start: int = 0  # where its bytes lie there; in a zip archive, the header before them
    size: int = 0  # of its bytes in a plain tar archive
    data: bytes | None = None  # the bytes of the file, where they are at hand
    trouble: str | None = None  # why it cannot be read, where that is known already
    packed: "ZipInfo | None" = None  # how a zip archive holds it

    def picture(self) -> Path | bytes:
        """What can be decoded: the file, or its bytes; InputError if it cannot be had."""
        from neocog.batch.addresses import fetch, is_address
        from neocog.batch.archives import read_member

        if self.trouble is not None:
            raise InputError(self.trouble)
        if self.data is not None:
            return self.data
        if self.archive is not None:
            return read_member(self)
        return fetch(self.source) if is_address(self.source) else Path(self.source)


class Files:
    """Which files paths lead to, by any name; those that lead nowhere count for nothing."""

    def __init__(self, paths: Iterable[str | Path]) -> None:
        self._known = {identity(path) for path in paths} - {None}

    def __contains__(self, path: str | Path) -> bool:
        return identity(path) in self._known


def identity(path: str | Path) -> tuple[int, int] | None:
    """Return what all names of a file have in common; None if there is no such file."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):  # ValueError: a name that no file can have
        return None
    return found.st_dev, found.st_ino
