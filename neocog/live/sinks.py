"""A file of JSON lines of which every line is complete, and a check of the outputs."""

import json
import mmap
import os
import stat
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from neocog.errors import InputError, UsageError
from neocog.jsontext import to_json

_BEGINS = b'{"schema":'  # a record of ours


def line(record: dict[str, Any]) -> str:
    """Return a record as one line of JSON, without its end."""
    return to_json(record, ensure_ascii=True, separators=(",", ":"))


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
            with ExitStack() as failed:
                failed.callback(os.close, self._handle)
                self._mend()
                failed.pop_all()
        except OSError as error:
            raise UsageError(
                f"{path}: cannot be written ({error.strerror}); give another --jsonl"
            ) from None

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
        with mmap.mmap(self._handle, 0, access=mmap.ACCESS_READ) as held:
            start = held.rfind(b"\n") + 1
            first, last = held[:1], held[start:]
        if first != b"{" or last[: len(_BEGINS)] != _BEGINS[: len(last)]:
            raise UsageError(f"{self._path}: holds something else than records; give another file")
        if _whole(last):
            os.write(self._handle, b"\n")
        elif last:
            os.ftruncate(self._handle, start)

    def __enter__(self) -> "LineFile":
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._handle)


def _whole(last: bytes) -> bool:
    try:
        return isinstance(json.loads(last), dict)
    except ValueError:
        return False


def check_outputs(inputs: Iterable[str | Path], outputs: dict[str, str | None]) -> None:
    """Raise UsageError for outputs (by option) that would destroy what is read, or each other."""
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
