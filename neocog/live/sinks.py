"""Where numbers go: stdout, and a file of JSON lines of which every line is complete."""

import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from neocog.errors import InputError, UsageError
from neocog.live.records import line


class LineFile:
    """JSON lines appended to a file, each all at once or not at all.

    Parameters
    ----------
    path : str or Path
        The file; what stands there already is kept. A last line that was torn is taken off.

    Raises
    ------
    UsageError
        If it cannot be written to.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = str(path)
        try:
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise UsageError(
                f"{path}: cannot be written ({error.strerror}); give another --jsonl"
            ) from None
        self._end = _whole_lines(self._handle)

    def write(self, record: dict[str, Any]) -> None:
        """Append a record.

        Raises
        ------
        InputError
            If there is no room for it; the lines before stay whole.
        """
        data = (line(record) + "\n").encode()
        try:
            done = 0
            while done < len(data):
                done += self._put(data[done:], self._end + done)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._handle, self._end)
            raise InputError(
                f"{self._path}: the reading could not be written ({error.strerror})"
            ) from None
        self._end += len(data)

    def _put(self, data: bytes, at: int) -> int:
        if not _seekable(self._handle):
            return os.write(self._handle, data)
        return os.pwrite(self._handle, data, at)

    def __enter__(self) -> "LineFile":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._handle)


def _seekable(handle: int) -> bool:
    try:
        os.lseek(handle, 0, os.SEEK_CUR)
    except OSError:
        return False
    return True


def _whole_lines(handle: int) -> int:
    """Cut a file after its last complete line; return its length."""
    if not _seekable(handle):
        return 0
    end = os.lseek(handle, 0, os.SEEK_END)
    at = end
    while at > 0:
        start = max(0, at - 4096)
        piece = os.pread(handle, at - start, start)
        newline = piece.rfind(b"\n")
        if newline >= 0:
            at = start + newline + 1
            break
        at = start
    if at != end:
        os.ftruncate(handle, at)
    return at
