"""Builds kept on the disk: each file ends in a digest of itself, so that a damaged one is seen."""

import hashlib
import os
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from neocog.files import atomic_write

_DIGEST = hashlib.sha256().digest_size


def cache_folder() -> Path:
    """Return the folder of builds.

    ``NEOCOG_CACHE``, or ``neocog/cubins`` below ``XDG_CACHE_HOME``, or below ``~/.cache``; for a
    user without a home a folder that goes with this process.
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
    """Return what was stored as ``name``, or None if there is nothing or it is damaged."""
    try:
        data = (cache_folder() / name).read_bytes()
    except OSError:
        return None
    content, digest = data[:-_DIGEST], data[-_DIGEST:]
    return content if hashlib.sha256(content).digest() == digest else None


def store(name: str, content: bytes) -> Path | None:
    """Write ``content`` as ``name``; None if the folder cannot be written to.

    A file comes to be in one step, so two processes may store the same name.
    """
    with suppress(OSError):
        path = cache_folder() / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as stream:
            stream.write(content + hashlib.sha256(content).digest())
        return path
    return None
