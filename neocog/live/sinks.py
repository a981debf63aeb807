"""Where numbers go: stdout, and a file of JSON lines of which every line is complete."""

import json
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from neocog.errors import InputError, UsageError
from neocog.live.records import line

_BEGINS = b'{"schema":'  # a record of ours


class LineFile:
    """JSON lines appended to a file, each all at once or not at all.

    Parameters
    ----------
    path : str or Path
        The file; what stands there already is kept. A last record that was torn is taken off. A
        pipe is opened as soon as somebody reads it.

    Raises
    ------
    UsageError
        If it cannot be written to, or holds something else than records.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = str(path)
        special = os.path.exists(path) and not os.path.isfile(path)
        mode = os.O_WRONLY if special else os.O_RDWR | os.O_CREAT | os.O_APPEND
        try:
            self._handle = os.open(path, mode | getattr(os, "O_BINARY", 0), 0o666)
        except OSError as error:
            raise UsageError(
                f"{path}: cannot be written ({error.strerror}); give another --jsonl"
            ) from None
        try:
            self._mend()
        except UsageError:
            os.close(self._handle)
            raise

    def write(self, record: dict[str, Any]) -> None:
        """Append a record, behind what others have appended meanwhile.

        Raises
        ------
        InputError
            If there is no room for it; the lines before stay whole.
        """
        data = (line(record) + "\n").encode()
        end = os.fstat(self._handle).st_size
        try:
            done = 0
            while done < len(data):
                done += os.write(self._handle, data[done:])
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._handle, end)
            raise InputError(
                f"{self._path}: the reading could not be written ({error.strerror})"
            ) from None

    def _mend(self) -> None:
        """Take a torn record off the end; a whole one that lacks its newline gets it."""
        about = os.fstat(self._handle)
        if not stat.S_ISREG(about.st_mode) or about.st_size == 0:
            return
        start = _last_line(self._handle, about.st_size)
        tail = _read(self._handle, about.st_size - start, start)
        ours = tail[: len(_BEGINS)] == _BEGINS[: len(tail)]
        if _read(self._handle, 1, 0) != b"{" or not ours:
            raise UsageError(f"{self._path}: holds something else than records; give another file")
        if _whole(tail):
            os.write(self._handle, b"\n")
        elif tail:
            os.ftruncate(self._handle, start)

    def __enter__(self) -> "LineFile":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._handle)


def check_outputs(inputs: Iterable[str | Path], outputs: dict[str, str | None]) -> None:
    """Refuse outputs that would destroy what is read, or each other.

    Parameters
    ----------
    inputs : iterable of str or Path
        The files that are read.
    outputs : dict
        Options, and the files that they name; None where an option was not given.

    Raises
    ------
    UsageError
        If a file is named twice.
    """
    taken = {_identity(path): "is what is read" for path in inputs}
    for option, path in outputs.items():
        if path is None:
            continue
        me = _identity(path)
        if me in taken:
            raise UsageError(f"{path}: {taken[me]}; give another {option}")
        taken[me] = f"is the file of {option} already"


def _identity(path: str | Path) -> tuple[int, int] | str:
    """Return what two names of one file have in common."""
    try:
        about = os.stat(path)
    except OSError:
        return os.path.realpath(path)
    return about.st_dev, about.st_ino


def _last_line(handle: int, end: int) -> int:
    """Return where the line begins that ends at the file's end; its end if that is a newline."""
    at = end
    while at > 0:
        start = max(0, at - 4096)
        newline = _read(handle, at - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        at = start
    return 0


def _read(handle: int, count: int, at: int) -> bytes:
    """Read so many bytes from a place on; Windows knows no pread."""
    os.lseek(handle, at, os.SEEK_SET)
    data = b""
    while len(data) < count and (more := os.read(handle, count - len(data))):
        data += more
    return data


def _whole(tail: bytes) -> bool:
    try:
        return isinstance(json.loads(tail), dict)
    except ValueError:
        return False
