"""Fetching MNIST: two mirrors, lengths and checksums."""

import hashlib
import http.client
import os
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from neocog.errors import InputError, UsageError
from neocog.files import atomic_write

TIMEOUT = 30.0  # seconds without a byte
_CHUNK = 1 << 16

Progress = Callable[[str, int, int], None]  # called with a file's name, its bytes so far and in all


class RemoteFile(NamedTuple):
    name: str
    size: int
    md5: str

    def is_right(self, data: bytes | bytearray) -> bool:
        return len(data) == self.size and hashlib.md5(data, usedforsecurity=False).hexdigest() == self.md5

    def there(self, place: Path) -> bytes | None:
        """Return the file of a place, None if it is not this one."""
        there = place.is_file() and place.stat().st_size == self.size
        return data if there and self.is_right(data := place.read_bytes()) else None


SETS = {
    "mnist": (
        RemoteFile("train-images-idx3-ubyte.gz", 9912422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        RemoteFile("train-labels-idx1-ubyte.gz", 28881, "d53e105ee54ea40749a09fcbcd1e9432"),
        RemoteFile("t10k-images-idx3-ubyte.gz", 1648877, "9fb629c4189551a2d022fa330f9573f3"),
        RemoteFile("t10k-labels-idx1-ubyte.gz", 4542, "ec29112dd5afa0611ce80d1b7f02629c"),
    )
}
MIRRORS = ("https://ossci-datasets.s3.amazonaws.com/mnist/",
           "https://storage.googleapis.com/cvdf-datasets/mnist/")  # fmt: skip


def default_folder(name: str) -> Path:
    """``$NEOCOG_DATA/NAME``, else ``$XDG_CACHE_HOME/neocog/NAME``, else ``~/.cache/neocog/NAME``."""
    if data := os.environ.get("NEOCOG_DATA"):
        return Path(data) / name
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "neocog" / name


def fetch(
    name: str, *, to: str | Path | None = None, source: str | Path | None = None,
    mirrors: Sequence[str] = MIRRORS, progress: Progress = lambda name, here, size: None,
) -> Path:  # fmt: skip
    """Bring a set of `SETS` into a folder from ``source`` or mirrors, but what is there; return the folder.
    UsageError if the set is not known; InputError if no source has a right copy, or the folder is closed.
    """
    if name not in SETS:
        raise UsageError(f"'{name}' cannot be fetched: choose one of {', '.join(SETS)}")
    folder = Path(to) if to is not None else default_folder(name)
    try:
        for file in SETS[name]:
            place = folder / file.name
            if file.there(place) is None:
                data = _copy(file, Path(source)) if source is not None else _download(file, mirrors, progress)
                folder.mkdir(parents=True, exist_ok=True)
                with atomic_write(place) as stream:
                    stream.write(data)
            progress(file.name, file.size, file.size)
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror or error}; choose another --to") from error
    return folder


def _copy(file: RemoteFile, source: Path) -> bytes:
    origin, wanted = source / file.name, f"{file.size} bytes, md5 {file.md5}"
    if not origin.is_file():
        raise InputError(f"{origin}: does not exist; --from needs the folder with the four .gz files")
    if (data := file.there(origin)) is None:
        raise InputError(f"{origin}: not the expected file ({wanted}); get another copy")
    return data


def _download(file: RemoteFile, mirrors: Sequence[str], report: Progress) -> bytearray:
    reasons = []
    for mirror in mirrors:
        data = bytearray()
        try:
            with urllib.request.urlopen(mirror.rstrip("/") + "/" + file.name, timeout=TIMEOUT) as response:
                # one byte more than is wanted is too long already
                while piece := response.read(min(_CHUNK, file.size + 1 - len(data))):
                    data += piece
                    if len(data) < file.size:
                        report(file.name, len(data), file.size)
            if file.is_right(data):
                return data
            reasons.append(f"{mirror} sent another file (wrong length or checksum)")
        except (OSError, http.client.HTTPException) as error:  # a URLError and a time-out are OSErrors
            reasons.append(f"{mirror} failed ({error})")
    instead = "try again later, or copy the files by hand and use --from DIR"
    raise InputError(f"{file.name}: download failed from all mirrors: {'; '.join(reasons)}; {instead}")
