"""Fetching MNIST: mirrors, checksums, and going on where a transfer broke off."""

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from neocog.errors import InputError, UsageError
from neocog.files import atomic_write

TIMEOUT = 30.0  # seconds without a byte
TRIES = 3  # of one file at one mirror
_CHUNK = 1 << 16
_BROKEN = (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError)

Progress = Callable[[str, int, int], None]
"""Called with a file's name, its bytes that are here, and the bytes that it has in all."""


class RemoteFile(NamedTuple):
    """One file of a set: its name, its length in bytes and its MD5 sum."""

    name: str
    size: int
    md5: str


SETS = {
    "mnist": (
        RemoteFile("train-images-idx3-ubyte.gz", 9912422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        RemoteFile("train-labels-idx1-ubyte.gz", 28881, "d53e105ee54ea40749a09fcbcd1e9432"),
        RemoteFile("t10k-images-idx3-ubyte.gz", 1648877, "9fb629c4189551a2d022fa330f9573f3"),
        RemoteFile("t10k-labels-idx1-ubyte.gz", 4542, "ec29112dd5afa0611ce80d1b7f02629c"),
    )
}
MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)


def default_folder(name: str) -> Path:
    """Where a set lies when no place is given.

    ``$NEOCOG_DATA/NAME``, else ``$XDG_CACHE_HOME/neocog/NAME``, else ``~/.cache/neocog/NAME``.
    """
    if data := os.environ.get("NEOCOG_DATA"):
        return Path(data) / name
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "neocog" / name


def fetch(
    name: str,
    *,
    to: str | Path | None = None,
    source: str | Path | None = None,
    mirrors: Sequence[str] = MIRRORS,
    progress: Progress = lambda name, here, size: None,
) -> Path:
    """Bring the files of a set into a folder, checked by length and MD5 sum; return the folder.

    A file that is there and right is left alone. A transfer that breaks off leaves ``FILE.part``,
    and the next one goes on from there. A file gets its name only when it is whole; the folder is
    made with the first bytes that are written to it.

    ``name`` is a key of `SETS`; ``to`` is made if need be, without it it is `default_folder`. From
    the folder ``source`` files are copied, without it they come from the mirrors, tried in this
    order. ``progress`` is called after each piece. UsageError if the set is not known; InputError
    if no source has a right copy of some file, or the folder cannot be written.
    """
    if name not in SETS:
        raise UsageError(f"'{name}' cannot be fetched: choose one of {', '.join(SETS)}")
    folder = Path(to) if to is not None else default_folder(name)
    try:
        for file in SETS[name]:
            if _is_right(folder / file.name, file):
                progress(file.name, file.size, file.size)
            elif source is not None:
                _copy(file, Path(source), folder, progress)
            else:
                _download(file, mirrors, folder, progress)
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror or error}; choose another --to") from error
    return folder


def _is_right(path: Path, file: RemoteFile) -> bool:
    if _length(path) != file.size:
        return False
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False))
    return digest.hexdigest() == file.md5


def _copy(file: RemoteFile, source: Path, folder: Path, report: Progress) -> None:
    origin = source / file.name
    if not origin.is_file():
        raise InputError(f"{origin}: does not exist; --from needs the folder with the four .gz files")
    if not _is_right(origin, file):
        raise InputError(
            f"{origin}: not the expected file ({file.size} bytes, md5 {file.md5}); get another copy"
        )
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(folder / file.name) as stream:
        stream.write(origin.read_bytes())
    report(file.name, file.size, file.size)


def _download(file: RemoteFile, mirrors: Sequence[str], folder: Path, report: Progress) -> None:
    part, reasons = folder / f"{file.name}.part", []
    for mirror in mirrors:
        for _ in range(TRIES):
            before = _length(part)
            try:
                _go_on(file, mirror, part, report)
            except _BROKEN as error:
                reason = _why(error)
                if _length(part) <= before:  # nothing came: no use in asking this mirror again
                    break
                continue
            if _is_right(part, file):
                os.replace(part, folder / file.name)
                return
            reason = "sent another file (wrong length or checksum)"
            part.unlink(missing_ok=True)
            if not before:  # or else what lay here may have been wrong
                break
        reasons.append(f"{mirror} {reason}")
    raise InputError(
        f"{file.name}: download failed from all mirrors: {'; '.join(reasons)}; "
        "try again later, or copy the files by hand and use --from DIR"
    )


def _go_on(file: RemoteFile, mirror: str, part: Path, report: Progress) -> None:
    """Add to ``part`` what is missing, by a range request if something is there already."""
    here = _length(part)
    if here >= file.size:  # whole, or overlong: the checksum decides
        return
    request = urllib.request.Request(mirror.rstrip("/") + "/" + file.name)
    if here:
        request.add_header("Range", f"bytes={here}-")
    with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
        told = response.headers.get("Content-Range", "").replace("=", " ")
        if response.status != 206 or not told.startswith(f"bytes {here}-"):
            here = 0  # the server knows no ranges and sends the whole file
        part.parent.mkdir(parents=True, exist_ok=True)
        with part.open("r+b" if here else "wb") as stream:
            stream.seek(here)
            # one byte more than is wanted is too long already
            while piece := response.read(min(_CHUNK, file.size + 1 - here)):
                stream.write(piece)
                here += len(piece)
                report(file.name, here, file.size)
    if here < file.size:
        raise http.client.IncompleteRead(b"", file.size - here)


def _length(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _why(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"answered {error.code} {error.reason}"
    if isinstance(error, urllib.error.URLError):
        return f"cannot be reached ({error.reason})"
    if isinstance(error, http.client.IncompleteRead):
        return f"broke off {error.expected} bytes before the end"
    return f"failed ({error})"
