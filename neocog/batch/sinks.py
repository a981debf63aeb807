"""Where records go: stdout or a file; each is written at once, and none is torn by Ctrl-C.

A file that is removed, replaced or cut while it is written ends the run, as a full disk does: what
is still there is saved, and named.
"""

import errno
import hashlib
import os
import shutil
import signal
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from types import FrameType
from typing import IO, Any, TextIO

from neocog.batch.forms import Form, lay_out
from neocog.batch.records import PageReading
from neocog.batch.resume import Done
from neocog.errors import EndedEarly, UsageError
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
        self._size = 0 if done is None else done.size  # bytes that the file has at least
        self._regular = self._watched = False
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
        """Have the file tell of this run, though no record came, and see that it is still there."""
        with unbroken(), self._writing():
            if self._path is not None and self._stream is None:
                self._stream = self._open()
            self._check()

    def close(self) -> None:
        """Write what is still to be written, and close the file."""
        try:
            if self._rows:
                width = shutil.get_terminal_size().columns if self._on_screen() else None
                rows, self._rows = "".join(self._rows), []
                self._put(lay_out(rows, self.form.columns, width=width))
            with self._writing():
                self._sync(at_once=True)
        finally:
            with suppress(OSError):  # of what could not be written
                self._files.close()

    def _put(self, text: str) -> None:
        with unbroken(), self._writing():
            if self._done is not None:
                anew, text = self._done.part(text)
                self._replace_last(anew)
            if self._stream is None:
                self._stream = self._open()
            self._stream.write(text)
            self._size += len(text.encode())
            self._check()
            self._sync()

    def _open(self) -> TextIO:
        if self._path is None:
            stream = self._stdout
        else:
            self._regular = _is_regular(self._path)
            # read back where it is removed; a pipe would then never see that its reader has left
            mode = ("w" if self._done is None else "a") + ("+" if self._regular else "")
            stream = open(  # noqa: SIM115
                self._path, mode, encoding="utf-8", newline="", opener=_open_to_append
            )
            self._files.enter_context(stream)
            # on file systems where it holds from the start, it is to hold to the end
            self._watched = self._regular and _stands(self._path, stream)
        if self._done is None:
            stream.write(self.form.head)
            self._size = len(self.form.head)
        return stream

    def _replace_last(self, anew: str) -> None:
        """Put records of the last input where its old ones stand, in one step.

        A run that is killed leaves the old ones or the new ones, never neither.
        """
        if not anew or self._path is None or self._done is None:
            return
        records = anew.encode()
        if _holds(self._path, self._done, records):
            return
        self._files.close()  # the stream is of the file that goes
        self._stream = None
        _exchange(self._path, self._done, records)
        self._size += len(records) - (self._done.size - self._done.end)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """End the run where its file cannot be written any more."""
        try:
            yield
        except OSError as error:
            if self._path is None:
                raise
            why = error.strerror or str(error)
            raise EndedEarly(
                f"{self._path}: cannot be written ({why}); what it holds stands{self._go_on}"
            ) from None

    def _check(self) -> None:
        """Flush, and see that the open file is the one at its path and has all that was written."""
        if self._stream is None:
            return
        self._stream.flush()
        if self._path is None or not self._regular:
            return
        held = os.fstat(self._stream.fileno())
        if held.st_size < self._size:
            raise EndedEarly(
                f"{self._path}: was cut while it was written, from {self._size} bytes to "
                f"{held.st_size}; what it holds stands{self._go_on}"
            )
        if self._watched and not _stands(self._path, self._stream):
            was = "replaced" if os.path.lexists(self._path) else "removed"
            raise EndedEarly(f"{self._path}: was {was} while it was written; {self._saved(held)}")

    def _saved(self, held: os.stat_result) -> str:
        """Write all that the open file holds beside its path, and say where."""
        assert self._stream is not None
        stem, suffix = os.path.splitext(str(self._path))
        names = (f"{stem}.{number}{suffix}" for number in count(1))
        place = next(name for name in names if not os.path.lexists(name))
        try:
            with atomic_write(place) as stream:
                self._stream.seek(0)
                shutil.copyfileobj(self._stream.buffer, stream)
            os.chmod(place, stat.S_IMODE(held.st_mode))
        except OSError as error:
            return f"what it held cannot be saved as {place} ({error.strerror})"
        return f"what it held is in {place}{self._go_on}"

    @property
    def _go_on(self) -> str:
        return ", go on there with --resume" if self.form.kind == "jsonl" else ""

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
        if self._regular:
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

    The lock is on a file in a folder for temporary files that is this user's alone, named after
    the path: the file itself is neither made nor touched. Pipes and devices are for anyone, and so
    is everything where there are no locks, or no such folder.

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
        if path is not None and _is_regular(path):
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
    folder = _own_folder()
    try:
        held = os.open(f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600, dir_fd=folder)
    finally:
        os.close(folder)
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


def _own_folder() -> int:
    """Open a folder for locks that is this user's alone, whoever else made one of its name."""
    user = os.geteuid()
    for place in filter(None, (tempfile.gettempdir(), os.environ.get("XDG_RUNTIME_DIR"))):
        name = os.path.join(place, f"neocog-{user}")
        with suppress(OSError):
            os.mkdir(name, 0o700)
        with suppress(OSError):
            folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            found = os.fstat(folder)
            if found.st_uid == user and not found.st_mode & 0o077:
                return folder
            os.close(folder)
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _is_regular(path: str | Path) -> bool:
    """Whether a path leads to a file, or will when it is opened: no pipe, no device."""
    return os.path.isfile(path) or not os.path.exists(path)


def _stands(path: str | Path, stream: IO[Any]) -> bool:
    """Whether an open file is the one that a path leads to."""
    with suppress(OSError):
        return os.path.samestat(os.fstat(stream.fileno()), os.stat(path))
    return False


def _open_to_append(path: str, flags: int) -> int:
    """Open a file so that records are always put at its end, whoever else cuts or writes it."""
    return os.open(path, flags | os.O_APPEND, 0o666)


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
