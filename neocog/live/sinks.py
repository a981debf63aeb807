"""A file of JSON lines of which every line is complete, and a check of the outputs."""

import json
import mmap
import os
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from neocog.errors import InputError, UsageError
from neocog.files import AppendFile
from neocog.jsontext import to_json

_BEGINS = b'{"schema":'  # a record of ours


def line(record: dict[str, Any]) -> str:
    """Return a record as one line of JSON, without its end."""
    return to_json(record, ensure_ascii=True, separators=(",", ":"))


class LineFile(AppendFile):
    """JSON lines appended to a file, each all at once or not at all.

    What stands there already is kept; a last record that was torn is taken off. UsageError if it
    cannot be written to, or holds something else than records.
    """

    def __init__(self, path: str | Path) -> None:
        try:
            super().__init__(path)
            with ExitStack() as failed:
                failed.callback(self.close)
                self._mend()
                failed.pop_all()
        except OSError as error:
            raise UsageError(
                f"{path}: cannot be written ({error.strerror}); choose another --jsonl"
            ) from None

    def put(self, record: dict[str, Any]) -> None:
        """Append a record; InputError if there is no room for it."""
        try:
            self.write((line(record) + "\n").encode())
        except OSError as error:
            raise InputError(
                f"{self.path}: the reading could not be written ({error.strerror})"
            ) from None

    def _mend(self) -> None:
        """Take a torn record off the end; a whole one that lacks its newline gets it."""
        if not self.regular or not os.fstat(self.handle).st_size:
            return
        with mmap.mmap(self.handle, 0, access=mmap.ACCESS_READ) as held:
            start = held.rfind(b"\n") + 1
            first, last = held[:1], held[start:]
        if first != b"{" or last[: len(_BEGINS)] != _BEGINS[: len(last)]:
            raise UsageError(f"{self.path}: is not a file of records; choose another file")
        if _whole(last):
            self.write(b"\n")
        elif last:
            os.ftruncate(self.handle, start)


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
            raise UsageError(f"{path}: {taken[me]}; choose another {option}")
        taken[me] = f"is the file of {option} already"


def _identity(path: str | Path) -> tuple[int, int] | str:
    """Return what two names of one file have in common."""
    try:
        about = os.stat(path)
    except OSError:
        return os.path.realpath(path)
    return about.st_dev, about.st_ino
