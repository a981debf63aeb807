"""Builds kept on the disk: each file ends in a digest of itself, so that a damaged one is seen.

What is kept is code that will be run: a folder that others can write to is not used.
"""

import hashlib
import os
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from neocog.files import atomic_write

_DIGEST = hashlib.sha256().digest_size


def cache_folder() -> Path:
    """Return the folder of builds: ``NEOCOG_CACHE``, or ``neocog/cubins`` below ``XDG_CACHE_HOME`` or
    ``~/.cache``; for a user without a home a folder that goes with this process.
    """
    if named := os.environ.get("NEOCOG_CACHE"):
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "neocog" / "cubins"
    except RuntimeError:
        return Path(_passing().name)


@cache
def _passing() -> "TemporaryDirectory[str]":
    return TemporaryDirectory(prefix="neocog-")


def load(name: str) -> bytes | None:
    """Return what was stored as ``name``; None if there is nothing, or it is damaged."""
    folder = cache_folder()
    try:
        if not _ours(folder):
            return None
        data = (folder / name).read_bytes()
    except OSError:
        return None
    content, digest = data[:-_DIGEST], data[-_DIGEST:]
    return content if hashlib.sha256(content).digest() == digest else None


def store(name: str, content: bytes) -> None:
    """Write ``content`` as ``name`` in one step; a folder that takes no file is no error."""
    with suppress(OSError):
        folder = cache_folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if _ours(folder):
            with atomic_write(folder / name, mode=0o600) as stream:
                stream.write(content + hashlib.sha256(content).digest())


def _ours(folder: Path) -> bool:
    """Whether nobody but this user and root can put files into a folder."""
    about = folder.stat()
    return not hasattr(os, "geteuid") or (about.st_uid in (0, os.geteuid()) and not about.st_mode & 0o022)
