"""Writing files: whole or not at all, records at the end of one, by one program at a time."""

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Self

from neocog.errors import UsageError
from neocog.text import reason_of

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None  # type: ignore[assignment]

_UMASK = os.umask(0o077)  # asked once: to ask is to set it, for every thread
os.umask(_UMASK)


@contextmanager
def atomic_write(path: str | Path, *, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """Open a binary file that takes the name ``path`` only when the block ends well.

    The bytes go to a temporary file in the same folder, are flushed to the disk, and replace ``path`` in one
    step; its permissions are ``mode`` less the umask. If the block raises, what stood there stays. OSError if
    the folder cannot be written to.
    """
    path = Path(path)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, mode & ~_UMASK)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def check_output(path: str | Path, option: str, *, folder: bool = False, make: bool = False) -> None:
    """Refuse at once what `atomic_write` could not write when the work is done (UsageError).

    ``folder``: ``path`` is a folder that files are going to be written to; ``make``: the folder that is
    written to is made. What stands there is left as it is.
    """
    path = Path(path)
    if path.is_dir() and not folder:
        raise UsageError(f"{path}: is a folder, expected a file; choose another {option}")
    place = path if folder else path.parent
    try:
        if make:
            place.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(prefix=f".{'file' if folder else path.name}.", dir=place):
            return
    except (FileExistsError, NotADirectoryError):
        reason = "not a folder"
    except FileNotFoundError:
        reason = "no such folder"
    except OSError as error:
        reason = reason_of(error).lower()
    where = "there" if folder else f"in {os.path.abspath(place)}"
    raise UsageError(f"{path}: files cannot be written {where} ({reason}); choose another {option}")


@contextmanager
def saving(path: str | Path | None, option: str) -> Iterator[None]:
    """Say of an OSError of the block that the file of an option cannot be written (UsageError)."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror}); choose another {option}") from None


class AppendFile:
    """A file that data are appended to, each piece whole or not at all; a context manager.

    A pipe is opened as soon as somebody reads it. With ``lock``, the option that names it, no other program
    has its lock (UsageError). OSError if it cannot be opened.
    """

    def __init__(self, path: str | Path, *, lock: str | None = None) -> None:
        self.path = path
        special = os.path.exists(path) and not os.path.isfile(path)
        mode = os.O_WRONLY if special else os.O_RDWR | os.O_CREAT | os.O_APPEND
        self.handle = os.open(path, mode | getattr(os, "O_BINARY", 0), 0o666)
        self.regular = stat.S_ISREG(os.fstat(self.handle).st_mode)
        try:
            if lock is not None and self.regular:
                _lock(self.handle, path, lock)
        except UsageError:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def size(self) -> int:
        return os.fstat(self.handle).st_size

    def write(self, data: bytes) -> None:
        """Append data; OSError if there is no room for them: what stood before stays."""
        end, left = self.size, memoryview(data)
        try:
            while left:
                left = left[os.write(self.handle, left) :]
        except OSError:
            with suppress(OSError):
                os.ftruncate(self.handle, end)
            raise

    def stands(self) -> bool:
        """Whether it is the file that its path leads to."""
        with suppress(OSError):
            return os.path.samestat(os.fstat(self.handle), os.stat(self.path))
        return False

    def close(self) -> None:
        os.close(self.handle)


@contextmanager
def file_lock(path: str | Path | None, option: str) -> Iterator[None]:
    """Keep other programs of this machine from a file or folder that exists, to the end of the block.

    UsageError if another program has the lock. What cannot be opened is not locked.
    """
    with ExitStack() as stack:
        if path is not None and fcntl is not None:
            with suppress(OSError):
                handle = os.open(path, os.O_RDONLY)
                stack.callback(os.close, handle)
                _lock(handle, path, option)
        yield


def _lock(handle: int, path: str | Path, option: str) -> None:
    """Lock an open file or folder until it is closed; where there are no locks, nothing is done."""
    try:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        who, place = "another process", f":{os.fstat(handle).st_ino}"
        with suppress(OSError):  # Linux tells who
            for line in Path("/proc/locks").read_text().splitlines():
                words = line.split()  # 1: FLOCK ADVISORY WRITE 4711 08:01:1234 0 EOF
                if words[1] == "FLOCK" and words[5].endswith(place) and words[4].isdecimal():
                    who = f"process {words[4]}"
        why = f"{who} is writing to it; wait for it to end, or choose another {option}"
        raise UsageError(f"{path}: {why}") from None
    except OSError:  # e.g. a network folder without locks
        pass
