"""Where records go: stdout or a file; each is written at once, and none is torn by Ctrl-C."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from neocog.batch.resume import Done
from neocog.errors import EndedEarly, UsageError
from neocog.files import AppendFile, check_output
from neocog.reading.formats import Format
from neocog.reading.records import PageReading


class Sink:
    """Takes one record after another, for a file or for stdout.

    A file that exists is locked at once, and written over when the first record comes, or when all is done. A
    document that needs its end (json, hocr, alto) is written as ``.NAME.part`` beside it, and takes its place
    at the end. UsageError if another run has the file; EndedEarly if it cannot be written any more, or is
    removed, replaced or shortened by others.
    """

    def __init__(self, form: Format, path: str | Path | None = None) -> None:
        self.form, self.seconds = form, 0.0
        self.again = False  # whether the last input of an earlier run has been written anew
        self._path, self._stdout = path, sys.stdout  # which others may turn elsewhere, to keep it clean
        self._files, self._part = list[AppendFile](), ""  # the one that is written is the last
        self._size, self._watched = 0, False  # bytes that the file has at least; whether its path leads to it
        self._begun = self._ended = False
        self._tail = self._last = b""  # records of the last input of an earlier run, and how they begin

    def open(self) -> None:
        """Open and lock what is there; UsageError if it cannot be written."""
        if self._path is None:
            return
        try:
            if not os.path.exists(self._path):
                check_output(os.path.realpath(self._path) if os.path.islink(self._path) else self._path, "-o")
            elif os.path.isfile(self._path) or os.path.isdir(self._path):  # a pipe would wait for its reader
                self._open(self._path)
            if self.form.tail and (self._files or not os.path.exists(self._path)):
                folder, name = os.path.split(os.path.realpath(self._path))
                part = os.path.join(folder, f".{name}.part")
                if not self._open(part).stands():  # renamed by a run that ends at this moment
                    raise UsageError(f"{self._path}: another run has just ended; start again")
                self._part = part
        except OSError as error:
            why = f"cannot be written ({error.strerror})"
            raise UsageError(f"{self._path}: {why}; choose another -o") from None

    def resume(self, done: Done) -> None:
        """Go on behind the records that the file has, without what was torn at its end.

        The records of the last input stay at the end, until new ones take their place.
        """
        if self._path is None or not self._files or done.last is None:
            return
        self._begun, file = True, self._files[-1]
        self._last = PageReading(done.last).to_json().partition('"page":')[0].encode() + b'"page":0,'
        with self._writing(), open(self._path, "rb") as stream:
            stream.seek(done.end)
            self._tail = stream.read(done.size - done.end).rstrip(b"\n") + b"\n"
            os.ftruncate(file.handle, done.size - 1)  # what was torn, and the last line's end, if it has one
            file.write(b"\n")

    def put(self, text: str) -> None:
        """Write records that have their format already, and flush them."""
        start = time.perf_counter()
        if self.form.kind == "json":  # a comma before all but the first
            text = "".join(f",\n{line}" for line in text.split("\n") if line)
            text = text if self._begun else text[1:]
        self._put(text)
        self.seconds += time.perf_counter() - start

    def finish(self) -> None:
        """Have the file tell of this run, though no record came, and see that it is still there."""
        with defer_interrupt(), self._writing():
            if self._path is not None or self._begun or self.form.tail:
                self._put(self.form.tail)
            self._ended = True
            if self._files and self._files[-1].regular:
                os.fsync(self._files[-1].handle)
            if self._part and self._path is not None:
                if len(self._files) > 1:
                    os.chmod(self._part, os.fstat(self._files[0].handle).st_mode & 0o7777)
                while os.name == "nt" and self._files:  # no open file can be renamed there
                    self._files.pop().close()
                os.replace(self._part, os.path.realpath(self._path))
                self._part = ""

    def close(self) -> None:
        """Close the file; a document that has begun is ended, and takes its place."""
        try:
            if self._begun and self.form.tail and not self._ended:  # the run ended early
                with suppress(EndedEarly):
                    self.finish()
        finally:
            if self._part:
                Path(self._part).unlink(missing_ok=True)
            while self._files:
                with suppress(OSError):  # a pipe cannot be brought to the disk
                    os.fsync(self._files[-1].handle)
                self._files.pop().close()

    def _open(self, path: str | Path) -> AppendFile:
        self._files.append(AppendFile(path, lock="-o"))
        self._watched = self._files[-1].regular and self._files[-1].stands()  # not on every network folder
        return self._files[-1]

    def _put(self, text: str) -> None:
        with defer_interrupt(), self._writing():
            data = (text if self._begun else self.form.head + text).encode()
            if self._path is None:
                self._begun = True
                self._stdout.write(data.decode())
                self._stdout.flush()
                return
            if not self._files and self._open(self._path).regular and self._files[0].size:
                raise UsageError(f"{self._path}: another run has written it meanwhile; choose another -o")
            file = self._files[-1]
            if file.size < self._size or (self._watched and not file.stands()):
                what = "was removed, replaced or shortened during the run"
                raise EndedEarly(f"{self._path}: {what}; records are missing, read again")
            if not self._begun and file.regular:
                os.ftruncate(file.handle, 0)
            self._begun = True
            if self._tail:
                os.ftruncate(file.handle, file.size - len(self._tail))
                if data.startswith(self._last) or b"\n" + self._last in data:
                    self._tail, self.again = b"", True
            file.write(data + self._tail)
            self._size = file.size

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except EndedEarly:
            self._ended = True
            raise
        except OSError as error:
            self._ended = True
            if self._path is None:
                raise
            rest = "what it holds is valid"
            if self.form.tail:
                rest = "no document is written, what stood there stays" if self._part else "it has no end"
            elif self.form.kind == "jsonl":
                rest += ", continue it with --resume"
            raise EndedEarly(f"{self._path}: cannot be written ({error.strerror or error}); {rest}") from None


@contextmanager
def open_sink(form: Format, path: str | Path | None = None) -> Iterator[Sink]:
    """Open a sink that writes to ``path``, or to stdout; UsageError if it cannot be written."""
    sink = Sink(form, path)
    try:
        sink.open()
        yield sink
        sink.finish()
    finally:
        sink.close()


@contextmanager
def defer_interrupt() -> Iterator[None]:
    """Put Ctrl-C off to the end of the block."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, FrameType | None]] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append((number, frame))
        if len(came) > 1 and callable(before):  # it is asked for twice
            before(number, frame)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came and callable(before):
            before(*came[0])
