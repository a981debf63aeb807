"""Where records go: text, JSON lines or CSV; every record is written out at once."""

import csv
import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal, Protocol, TextIO, get_args

from neocog.batch.records import REJECTED, PageReading
from neocog.errors import UsageError

Format = Literal["text", "jsonl", "csv"]
FORMATS: tuple[Format, ...] = get_args(Format)

CSV_COLUMNS = ("source", "page", "text", "n_digits", "n_rejected", "min_p", "model", "error")


class Sink(Protocol):
    """Takes one record after another."""

    def write(self, reading: PageReading) -> None:
        """Write ``reading`` and flush it."""


class TextSink:
    """The digits alone, or one line per page with the picture's name before them.

    Pages that could not be read are left out: they have no text.
    """

    def __init__(self, stream: TextIO, *, names: bool) -> None:
        self._stream = stream
        self._names = names
        self._first = True

    def write(self, reading: PageReading) -> None:
        """Write ``reading`` and flush it."""
        if reading.error is not None:
            return
        if self._names:
            page = f" page {reading.page}" if reading.page else ""
            lines = reading.text.replace("\n", " | ")
            print(f"{printable(reading.source)}{page}: {lines}", file=self._stream, flush=True)
            return
        if not self._first:
            print(file=self._stream)
        self._first = False
        print(reading.text, file=self._stream, flush=True)


class JsonlSink:
    """One JSON object per line."""

    def __init__(self, stream: TextIO, *, timings: bool) -> None:
        self._stream = stream
        self._timings = timings

    def write(self, reading: PageReading) -> None:
        """Write ``reading`` and flush it."""
        print(reading.to_json(timings=self._timings), file=self._stream, flush=True)


class CsvSink:
    """A table with one row per page."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._writer = csv.writer(stream, lineterminator="\n")
        self._writer.writerow(CSV_COLUMNS)
        stream.flush()

    def write(self, reading: PageReading) -> None:
        """Write ``reading`` and flush it."""
        lowest = min((digit.p for digit in reading.digits), default=None)
        self._writer.writerow(
            [
                printable(reading.source),
                reading.page,
                reading.text,
                len(reading.digits),
                sum(digit.char == REJECTED for digit in reading.digits),
                "" if lowest is None else f"{lowest:.4f}",
                reading.model,
                reading.error or "",
            ]
        )
        self._stream.flush()


class _FileSink:
    """Opens its file when the first record comes: what stood there is kept until then."""

    def __init__(self, path: str | Path, make: Callable[[TextIO], Sink], files: ExitStack) -> None:
        self._path, self._make, self._files = path, make, files
        self._sink: Sink | None = None

    def write(self, reading: PageReading) -> None:
        """Write ``reading`` and flush it."""
        if self._sink is None:
            with _writing(self._path):
                stream = open(self._path, "w", encoding="utf-8", newline="")  # noqa: SIM115
            self._sink = self._make(self._files.enter_context(stream))
        self._sink.write(reading)


@contextmanager
def open_sink(
    kind: str,
    path: str | Path | None = None,
    *,
    names: bool = True,
    timings: bool = False,
) -> Iterator[Sink]:
    """Open a sink that writes to ``path``, or to stdout.

    Parameters
    ----------
    kind : {"text", "jsonl", "csv"}
        The form of a record.
    path : str or Path, optional
        A file, written over if it is there, when the first record comes.
    names : bool
        Whether text has the picture's name before the digits.
    timings : bool
        Whether JSON records carry ``ms``.

    Raises
    ------
    UsageError
        If the form is not known or the file cannot be written.
    """
    if kind not in FORMATS:
        raise UsageError(f"format '{kind}' is unknown: choose one of {', '.join(FORMATS)}")

    def make(stream: TextIO) -> Sink:
        return _sink(kind, stream, names, timings)

    if path is None:
        yield make(sys.stdout)
        return
    with _writing(path):
        _check(Path(path))
    with ExitStack() as files:
        yield _FileSink(path, make, files)


@contextmanager
def _writing(path: str | Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror}); give another -o") from None


def _check(path: Path) -> None:
    """Say at once what opening the file would say later, and leave the file as it is."""
    if path.is_file() or path.is_dir():  # a pipe would wait for its reader
        path.open("a").close()
    elif not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))


def printable(name: str) -> str:
    """A file name that any stream takes: bytes that are no UTF-8 and line ends are escaped."""
    escaped = name.encode("utf-8", "backslashreplace").decode("utf-8")
    return escaped.replace("\n", "\\n").replace("\r", "\\r")


def _sink(kind: str, stream: TextIO, names: bool, timings: bool) -> Sink:
    if kind == "jsonl":
        return JsonlSink(stream, timings=timings)
    if kind == "csv":
        return CsvSink(stream)
    return TextSink(stream, names=names)
