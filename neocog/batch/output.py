"""Where records go: stdout or a file; each is written at once, and none is torn by Ctrl-C.

A file that is removed, replaced or cut while it is written ends the run, as a full disk does: what
is still there is saved, and named.
"""

import errno
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from neocog.batch.formats import Format, lay_out
from neocog.batch.resume import Done
from neocog.errors import EndedEarly, UsageError
from neocog.files import AppendFile
from neocog.reading.records import PageReading

_SYNC = 5.0  # seconds after which what is written is brought to the disk


class Sink:
    """Takes one record after another, for a file or for stdout.

    With ``done`` it goes on behind what the file has. Without it the file is written over when the
    first record comes, or when all is done: what stood there is kept until then.
    """

    def __init__(self, form: Format, path: str | Path | None = None, *, done: Done | None = None) -> None:
        self.form, self.seconds = form, 0.0
        self._path, self._done = path, done
        self._stdout = sys.stdout  # others may turn it elsewhere later, to keep it clean
        self._file: AppendFile | None = None
        self._begun = done is not None
        self._rows: list[str] = []
        self._open = False  # a document has begun and not ended
        self._synced = time.monotonic()

    def write(self, reading: PageReading) -> None:
        """Write a record and flush it."""
        self.put(self.form.render(reading))

    def put(self, text: str) -> None:
        """Write records that have their format already, and flush them."""
        start = time.perf_counter()
        if self.form.kind == "table":
            self._rows.append(text)
        elif self.form.kind == "json":
            for line in text.removesuffix("\n").split("\n") if text else ():
                self._put(("," if self._open else "[") + f"\n{line}")
                self._open = True
        else:
            self._put(text)  # though it be empty: what stood in the file goes
            self._open = bool(self.form.tail)
        self.seconds += time.perf_counter() - start

    def finish(self) -> None:
        """Have the file tell of this run, though no record came, and see that it is still there."""
        if self.form.tail:
            self._end_document()
        with defer_interrupt(), self._writing():
            if self._path is not None and self._file is None:
                self._append("")
            self._check()

    def close(self) -> None:
        """Write what is still to be written, and close the file."""
        try:
            if self._open:  # the run ended early
                with suppress(EndedEarly):
                    self._end_document()
            if self._rows:
                on_screen = self._path is None and self._stdout.isatty()
                width = shutil.get_terminal_size().columns if on_screen else None
                rows, self._rows = "".join(self._rows), []
                self._put(lay_out(rows, self.form.columns, width=width))
            if self._file is not None:
                with self._writing():
                    self._file.sync()
        finally:
            if self._file is not None:
                self._file.close()

    def _end_document(self) -> None:
        empty = self.form.kind == "json" and not self._open
        self._open = False
        self._put("[]\n" if empty else self.form.tail)

    def _put(self, text: str) -> None:
        with defer_interrupt(), self._writing():
            if self._done is not None and self._path is not None:
                anew, text = self._done.part(text)
                if anew and self._done.differs(self._path, anew.encode()):
                    if self._file is not None:
                        self._file.close()  # it is of the file that goes
                        self._file = None
                    self._done.replace_last(self._path, anew.encode())
            self._append(text)
            self._check()

    def _append(self, text: str) -> None:
        if not self._begun:
            text, self._begun = self.form.head + text, True
        if self._path is None:
            self._stdout.write(text)
            self._stdout.flush()
            return
        if self._file is None:
            self._file = AppendFile(self._path, keep=self._done is not None)
        self._file.write(text.encode())
        if time.monotonic() - self._synced > _SYNC:  # a power cut takes seconds, not hours
            self._file.sync()
            self._synced = time.monotonic()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """End the run where its file cannot be written any more."""
        try:
            yield
        except OSError as error:
            if self._path is None:
                raise
            why = error.strerror or str(error)
            raise EndedEarly(f"{self._path}: cannot be written ({why}); {self._rest}") from None

    def _check(self) -> None:
        """See that the open file is the one at its path and has all that was written."""
        if self._file is None or (trouble := self._file.trouble()) is None:
            return
        try:
            saved = self._file.save_beside()
            held = self._rest if saved is None else f"what it held is in {saved}{self._go_on}"
        except OSError as error:
            held = f"what it held cannot be saved as {error.filename} ({error.strerror})"
        raise EndedEarly(f"{self._path}: {trouble}; {held}")

    @property
    def _rest(self) -> str:
        if self.form.tail:
            return "its document is not complete"
        return f"what it holds is valid{self._go_on}"

    @property
    def _go_on(self) -> str:
        return ", continue it with --resume" if self.form.kind == "jsonl" else ""


@contextmanager
def open_sink(form: Format, path: str | Path | None = None, *, done: Done | None = None) -> Iterator[Sink]:
    """Open a sink that writes to ``path``, or to stdout; UsageError if it cannot be written.

    With ``done`` a torn line is cut off at once, and the last input's records leave only when new
    ones take their place, in one step.
    """
    if path is not None:
        try:
            _check(Path(path))
            if done is not None and os.path.isfile(path):
                done.mend(path)
        except OSError as error:
            raise UsageError(f"{path}: cannot be written ({error.strerror}); choose another -o") from None
    sink = Sink(form, path, done=done)
    try:
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
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came and callable(before):
            before(*came[0])


def _check(path: Path) -> None:
    """Say at once what opening the file would say later, and leave the file as it is."""
    if path.is_file() or path.is_dir():  # a pipe would wait for its reader
        path.open("a").close()
    elif not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
