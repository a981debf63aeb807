"""Inputs: which names are pictures, which lead to the same file, which can be read at all."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from neocog.errors import InputError
from neocog.reading.pictures import PICTURE_SUFFIXES

if TYPE_CHECKING:
    from zipfile import ZipInfo

ZIP, TAR = (".zip",), (".tar",)
PACKED_TAR = (".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
"""How the names of archives that are read end."""

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
        from neocog.batch.archives import read_member
        from neocog.reading.addresses import fetch, is_address

        if self.trouble is not None:
            raise InputError(self.trouble)
        if self.data is not None:
            return self.data
        if self.archive is not None:
            return read_member(self)
        return fetch(self.source) if is_address(self.source) else Path(self.source)
