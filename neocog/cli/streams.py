"""Standard streams: closed ones are as good as full ones, and who reads stdout may leave."""

import io
import os
import sys
from collections.abc import Callable
from typing import Any, TextIO

from neocog.errors import EndedEarly
from neocog.messages import printable


class ReaderLeft(Exception):
    """Whoever read stdout has enough: no error."""


class _Watched(io.RawIOBase):
    """The raw stream of a standard stream; once it cannot be written, what comes is dropped.

    The stream is kept, or its raw stream would be closed. ``failed`` gets the first error.
    """

    def __init__(self, stream: io.TextIOWrapper, failed: Callable[[OSError], None]) -> None:
        self._stream, self._failed = stream, failed
        self._raw: io.RawIOBase = getattr(stream.buffer, "raw", stream.buffer)  # type: ignore[arg-type]
        self._lost = False

    def write(self, data: Any) -> int | None:
        if not self._lost:
            try:
                return self._raw.write(data)
            except OSError as error:
                self._lost = True
                self._failed(error)
        return len(data)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._raw.fileno()

    def isatty(self) -> bool:
        return self._raw.isatty()


class _Screen(io.TextIOWrapper):
    """Text for a terminal: whatever strangers put into it, it obeys none."""

    def write(self, text: str) -> int:
        return super().write("\n".join(map(printable, text.split("\n"))))


def open_streams() -> None:
    """Open the standard streams for a command: they write UTF-8, whatever the locale says.

    A closed one gets its descriptor back, or the next file that is opened would take it: what is
    said on stderr is dropped, using stdin or stdout is an error. Where stdout cannot be written,
    `ReaderLeft` is raised if it is a pipe that nobody reads any more, else `EndedEarly`.
    """
    for name, flags in (("stdin", os.O_WRONLY), ("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY)):
        if getattr(sys, name) is None:  # opened the wrong way: each use fails
            number = os.open(os.devnull, flags)
            os.set_inheritable(number, True)
            stream = open(number, "r" if name == "stdin" else "w", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
    sys.stdout = _watched(sys.stdout, _end, screen=True)
    sys.stderr = _watched(sys.stderr, lambda error: None, screen=False)  # bars draw there


def _watched(stream: TextIO, failed: Callable[[OSError], None], *, screen: bool) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper):  # a test's
        return stream
    kind = _Screen if screen and stream.isatty() else io.TextIOWrapper
    return kind(
        io.BufferedWriter(_Watched(stream, failed)),
        encoding="utf-8",
        errors="backslashreplace",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _end(error: OSError) -> None:
    if isinstance(error, BrokenPipeError):
        raise ReaderLeft
    why = error.strerror or str(error)
    raise EndedEarly(f"stdout: cannot be written ({why}); what was written is valid")
