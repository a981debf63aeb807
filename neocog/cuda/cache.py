"""Builds kept on the disk: each file ends in a digest of itself, so that a damaged one is seen.

What is kept is code that will be run. So a folder or a file is taken only if it belongs to this
user (or to root) and nobody else may write to it; a link is no file. Without such a folder every
process builds anew, and says so once.
"""

import hashlib
import json
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar, cast

from neocog.files import atomic_write
from neocog.text import tell, to_json

T = TypeVar("T")
_DIGEST = hashlib.sha256().digest_size
_OPEN = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


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
    """Return what was stored as ``name``; None if there is nothing that can be trusted."""
    folder = cache_folder()
    try:
        if not _trusted(folder):
            return None
        with open(os.open(folder / name, _OPEN), "rb") as stream:
            about = os.fstat(stream.fileno())
            if not stat.S_ISREG(about.st_mode) or _foreign(about):
                return None
            data = stream.read()
    except OSError:
        return None
    content, digest = data[:-_DIGEST], data[-_DIGEST:]
    return content if hashlib.sha256(content).digest() == digest else None


def store(name: str, content: bytes) -> Path | None:
    """Write ``content`` as ``name`` in one step; None if the folder cannot be written to or trusted."""
    with suppress(OSError):
        folder = cache_folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if _trusted(folder):
            with atomic_write(folder / name, mode=0o600) as stream:
                stream.write(content + hashlib.sha256(content).digest())
            return folder / name
    return None


def kept(name: str, kind: type[T], make: Callable[[], T]) -> T:
    """Return the dataclass that was stored as ``name``; if there is none, make and store it."""
    content = load(name)
    if content is not None:
        return kind(**json.loads(content))
    made = make()
    store(name, to_json(asdict(cast(Any, made))).encode())
    return made


def _trusted(folder: Path) -> bool:
    """Whether nobody but this user and root can put files into a folder; says so if not."""
    why = _foreign(folder.stat())
    if why:
        _tell_once(
            f"{folder} is not used for built kernels: {why}; kernels are built again; "
            "set NEOCOG_CACHE to use another folder"
        )
    return not why


def _foreign(about: os.stat_result) -> str:
    """Why what lies there may be others'; empty where it is this user's or root's alone."""
    if not hasattr(os, "geteuid"):
        return ""  # Windows: a user's folders are his own
    if about.st_uid not in (os.geteuid(), 0):
        return "it belongs to another user"
    return "others may write to it (chmod go-w)" if about.st_mode & _OTHERS else ""


_tell_once = cache(tell)
