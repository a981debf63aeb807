"""Writing files: whole or not at all, records at the end of one, by one program at a time."""

import errno
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import IO, Self

from neocog.errors import UsageError

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None  # type: ignore[assignment]


@contextmanager
def atomic_write(path: str | Path, *, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """Open a binary file that takes the name ``path`` only when the block ends well.

    The bytes go to a temporary file in the same folder, are flushed to the disk, and replace
    ``path`` in one step. If the block raises, the temporary file is removed and whatever stood
    at ``path`` stays as it was.

    Parameters
    ----------
    path : str or Path
        Where the finished file shall lie; its folder must exist.
    mode : int
        Its permissions, less those that the umask takes away.

    Raises
    ------
    OSError
        If the folder cannot be written to.
    """
    path = Path(path)
    handle, temporary = _beside(path)
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, mode & ~umask)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def check_output(path: str | Path, option: str, *, folder: bool = False, make: bool = False) -> None:
    """Refuse at once what `atomic_write` could not write when the work is done.

    Parameters
    ----------
    path : str or Path
        A file that is going to be written; what stands there is left as it is.
    option : str
        The option that names it.
    folder : bool
        Whether it is a folder that files are going to be written to.
    make : bool
        Whether to make the folder that is written to.

    Raises
    ------
    UsageError
        It tells what is there and to choose another ``option``.
    """
    path = Path(path)
    if path.is_dir() and not folder:
        raise UsageError(f"{path}: is a folder, expected a file; choose another {option}")
    place = path if folder else path.parent
    try:
        if make:
            place.mkdir(parents=True, exist_ok=True)
        handle, temporary = _beside(path / "file" if folder else path)
        os.close(handle)
        os.unlink(temporary)
    except (FileExistsError, NotADirectoryError):
        reason = "not a folder"
    except FileNotFoundError:
        reason = "no such folder"
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
    else:
        return
    where = "there" if folder else f"in {os.path.abspath(place)}"
    raise UsageError(f"{path}: files cannot be written {where} ({reason}); choose another {option}")


def _beside(path: Path) -> tuple[int, str]:
    """Open a temporary file in the folder of another: its descriptor and its name."""
    return tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)


class AppendFile:
    """A file that data are appended to, each piece whole or not at all; a context manager.

    Others may append to it as well. A pipe is opened as soon as somebody reads it. Without ``keep``
    what stands there goes. OSError if it cannot be opened.
    """

    def __init__(self, path: str | Path, *, keep: bool = True) -> None:
        self.path = path
        special = os.path.exists(path) and not os.path.isfile(path)
        mode = os.O_WRONLY if special else os.O_RDWR | os.O_CREAT | os.O_APPEND
        mode |= 0 if keep or special else os.O_TRUNC
        self.handle = os.open(path, mode | getattr(os, "O_BINARY", 0), 0o666)
        about = os.fstat(self.handle)
        self.regular = stat.S_ISREG(about.st_mode)
        self._size = about.st_size  # bytes that it has at least
        # on file systems where that holds from the start, it is to hold to the end
        self._watched = self.regular and self._stands()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close it."""
        os.close(self.handle)

    def write(self, data: bytes) -> None:
        """Append data; OSError if there is no room for them: what stood before stays."""
        end = os.fstat(self.handle).st_size
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self.handle, left) :]
        except OSError:
            with suppress(OSError):
                os.ftruncate(self.handle, end)
            raise
        self._size += len(data)

    def trouble(self) -> str | None:
        """What others did to it: it "was cut ...", or what stands at its path is another file."""
        if not self.regular:
            return None
        held = os.fstat(self.handle).st_size
        if held < self._size:
            return f"was shortened by another program during the run, from {self._size} bytes to {held}"
        if self._watched and not self._stands():
            was = "replaced" if os.path.lexists(self.path) else "removed"
            return f"was {was} during the run"
        return None

    def save_beside(self) -> str | None:
        """Save all that the open file holds under the first free name beside its path; return that.

        None if nothing of it is lost. OSError, with ``filename``, if it cannot be saved.
        """
        if self._stands():
            return None
        stem, suffix = os.path.splitext(str(self.path))
        names = (f"{stem}.{number}{suffix}" for number in count(1))
        place = next(name for name in names if not os.path.lexists(name))
        try:
            with atomic_write(place) as copy, open(self.handle, "rb", closefd=False) as stream:
                stream.seek(0)
                shutil.copyfileobj(stream, copy)
            os.chmod(place, stat.S_IMODE(os.fstat(self.handle).st_mode))
        except OSError as error:
            raise OSError(error.errno, error.strerror, place) from None
        return place

    def sync(self) -> None:
        """Bring it to the disk."""
        if self.regular:
            os.fsync(self.handle)

    def _stands(self) -> bool:
        """Whether it is the file that its path leads to."""
        with suppress(OSError):
            return os.path.samestat(os.fstat(self.handle), os.stat(self.path))
        return False


@contextmanager
def file_lock(path: str | Path | None, option: str = "-o") -> Iterator[None]:
    """Keep other runs of this machine from a file, to the end of the block or of the process.

    The lock is on a file in a folder for temporary files that is this user's alone, named after
    the path: the file itself is neither made nor touched. Pipes and devices are for anyone, and so
    is everything where there are no locks, or no such folder. UsageError if another run has it.
    """
    with ExitStack() as files:
        if path is not None and (os.path.isfile(path) or not os.path.exists(path)):
            try:
                files.callback(os.close, _locked(path))
            except BlockingIOError:
                raise UsageError(
                    f"{path}: another run is writing to it; wait for it to end, or choose another {option}"
                ) from None
            except OSError:  # written without a lock
                pass
        yield


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
    except OSError:
        os.close(held)
        raise
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
