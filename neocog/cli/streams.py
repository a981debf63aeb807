"""Handle closed standard streams, a full disk behind stdout, and a reader of stdout that leaves."""

import io
import os
import sys
from typing import Any

from neocog.errors import EndedEarly
from neocog.text import printable


class ReaderLeft(Exception):
    """Whoever read stdout has enough: no error."""


class _Standard(io.FileIO):
    """stdout or stderr. After an error all that follows is dropped; an error of stdout is raised once."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            if self.fileno() == 2:
                return len(data)
            if isinstance(error, BrokenPipeError):
                raise ReaderLeft from None
            why = f"stdout: cannot be written ({error.strerror}); what was written is valid"
            raise EndedEarly(why) from None


class _Screen(io.TextIOWrapper):
    """Text for a terminal: whatever strangers put into it, it obeys none."""

    def write(self, text: str) -> int:
        return super().write("\n".join(map(printable, text.split("\n"))))


def open_streams() -> None:
    """Open the standard streams for a command: they write UTF-8, whatever the locale says.

    A closed one gets its descriptor back, or the next file that is opened would take it. It is opened
    the wrong way: using stdin or stdout is an error. Where stdout cannot be written, `ReaderLeft` is
    raised if it is a pipe that nobody reads any more, else `EndedEarly`.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            os.set_inheritable(os.open(os.devnull, os.O_RDONLY if name == "stdout" else os.O_WRONLY), True)
            if name == "stdin":
                sys.stdin = open(0, closefd=False)  # noqa: SIM115
        if number and (stream is None or isinstance(stream, io.TextIOWrapper)):  # else a test's
            raw = _Standard(number, "w", closefd=False)
            kind = _Screen if name == "stdout" and raw.isatty() else io.TextIOWrapper
            buffer, lines = io.BufferedWriter(raw), name == "stderr" or raw.isatty()
            opened = kind(buffer, encoding="utf-8", errors="backslashreplace", line_buffering=lines)
            setattr(sys, name, opened)
