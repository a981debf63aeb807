"""Where records go: stdout or a file; each is written at once, and none is torn by Ctrl-C."""

import errno
import hashlib
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TextIO

from neocog.batch.forms import Form, lay_out
from neocog.batch.records import PageReading
from neocog.batch.resume import Done
from neocog.errors import UsageError
from neocog.files import atomic_write

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None  # type: ignore[assignment]

_SYNC = 5.0  # seconds after which what is written is brought to the disk


class Sink:
    """Takes one record after another.

    Parameters
    ----------
    form : Form
        The form of a record.
    path : str or Path, optional
        A file; stdout without it.
    done : Done, optional
        Go on behind what the file has. Without it the file is written over when the first record
        comes, or when all is done: what stood there is kept until then.
    """

    def __init__(
        self, form: Form, path: str | Path | None = None, *, done: Done | None = None
    ) -> None:
        self.form, self.seconds = form, 0.0
        self._path, self._done = path, done
        self._stdout = sys.stdout  # others may turn it elsewhere later, to keep it clean
        self._stream: TextIO | None = None
        self._files = ExitStack()
        self._rows: list[str] = []
        self._synced = time.monotonic()

    def write(self, reading: PageReading) -> None:
        """Write a record and flush it."""
        self.put(self.form.render(reading))

    def put(self, text: str) -> None:
        """Write records that have their form already, and flush them."""
        start = time.perf_counter()
        if self.form.kind == "table":
            self._rows.append(text)
        else:
            self._put(text)  # though it be empty: what stood in the file goes
        self.seconds += time.perf_counter() - start

    def finish(self) -> None:
        """Have the file tell of this run, though no record came."""
        if self._path is not None and self._stream is None:
            with unbroken():
                self._stream = self._open()

    def close(self) -> None:
        """Write what is still to be written, and close the file."""
        with self._files:
            if self._rows:
                width = shutil.get_terminal_size().columns if self._on_screen() else None
                rows, self._rows = "".join(self._rows), []
                self._put(lay_out(rows, self.form.columns, width=width))
            self._sync(at_once=True)

    def _put(self, text: str) -> None:
        with unbroken():
            if self._done is not None:
                anew, text = self._done.part(text)
                self._replace_last(anew)
            if self._stream is None:
                self._stream = self._open()
            self._stream.write(text)
            self._stream.flush()
            self._sync()

    def _open(self) -> TextIO:
        if self._path is None:
            stream = self._stdout
        else:
            with _writing(self._path):
                mode = "w" if self._done is None else "a"
                stream = open(self._path, mode, encoding="utf-8", newline="")  # noqa: SIM115
                self._files.enter_context(stream)
        if self._done is None:
            stream.write(self.form.head)
        return stream

    def _replace_last(self, anew: str) -> None:
        """Put records of the last input where its old ones stand, in one step.

        A run that is killed leaves the old ones or the new ones, never neither.
        """
        if not anew or self._path is None or self._done is None:
            return
        with _writing(self._path):
            if _holds(self._path, self._done, anew.encode()):
                return
            self._files.close()  # the stream is of the file that goes
            self._stream = None
            _exchange(self._path, self._done, anew.encode())

    def _on_screen(self) -> bool:
        return self._path is None and self._stdout.isatty()

    def _sync(self, *, at_once: bool = False) -> None:
        """Bring a file to the disk now and then: a power cut takes seconds, not hours."""
        now = time.monotonic()
        if (
            self._path is None
            or self._stream is None
            or not (at_once or now - self._synced > _SYNC)
        ):
            return
        self._synced = now
        self._stream.flush()
        if os.path.isfile(self._path):
            os.fsync(self._stream.fileno())


@contextmanager
def open_sink(
    form: Form, path: str | Path | None = None, *, done: Done | None = None
) -> Iterator[Sink]:
    """Open a sink that writes to ``path``, or to stdout.

    Parameters
    ----------
    form : Form
        The form of a record.
    path : str or Path, optional
        A file, written over if it is there, when the first record comes or the block ends well.
    done : Done, optional
        Go on behind what the file has: a torn line is cut off at once, and the last input's
        records leave only when new ones take their place, in one step.

    Raises
    ------
    UsageError
        If the file cannot be written.
    """
    sink = Sink(form, path, done=done)
    if path is not None:
        with _writing(path):
            _check(Path(path))
            if done is not None and os.path.isfile(path):
                _mend(path, done.size)
    try:
        yield sink
        sink.finish()
    finally:
        sink.close()


@contextmanager
def alone(path: str | Path | None) -> Iterator[None]:
    """Keep other runs of this machine from a file, to the end of the block or of the process.

    The lock is on a file beside the temporary ones, named after the path: the file itself is
    neither made nor touched. Pipes and devices are for anyone, and so is everything where there
    are no locks, or where the lock's file is another user's.

    Parameters
    ----------
    path : str or Path or None
        The file; None: there is nothing to keep.

    Raises
    ------
    UsageError
        If another run has it.
    """
    with ExitStack() as files:
        if path is not None and (os.path.isfile(path) or not os.path.exists(path)):
            with suppress(OSError):  # written without a lock
                files.callback(os.close, _locked(path))
        yield


@contextmanager
def unbroken() -> Iterator[None]:
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


def _locked(path: str | Path) -> int:
    """Lock what stands for a file, and return it open."""
    if fcntl is None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
    name = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()
    place = os.path.join(tempfile.gettempdir(), f"neocog-{name}.lock")
    held = os.open(place, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(held)
        if not isinstance(error, BlockingIOError):
            raise
        raise UsageError(
            f"{path}: another run writes there; wait for its end, or give another -o"
        ) from None
    return held


def _mend(path: str | Path, size: int) -> None:
    """Cut off what was torn behind ``size`` bytes, or end a line that lacks but its end."""
    with open(path, "r+b") as stream:
        held = stream.seek(0, os.SEEK_END)
        if held > size:
            stream.truncate(size)
        stream.write(b"\n" * (size - held))  # none where that is negative


def _holds(path: str | Path, done: Done, records: bytes) -> bool:
    """Whether the last input's old records are the same."""
    with open(path, "rb") as stream:
        stream.seek(done.end)
        return stream.read(done.size - done.end) == records


def _exchange(path: str | Path, done: Done, records: bytes) -> None:
    """Write a file anew, with other records of the last input."""
    place = os.path.realpath(path)
    mode = os.stat(place).st_mode
    with open(place, "rb") as old, atomic_write(place) as new:
        shutil.copyfileobj(old, new)
        new.truncate(done.end)
        new.seek(done.end)
        new.write(records)
        old.seek(done.size)
        shutil.copyfileobj(old, new)
    os.chmod(place, mode)


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
