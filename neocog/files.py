"""Writing files so that a reader never sees half of one, and seeing first whether it will do."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from neocog.errors import UsageError


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


def check_output(
    path: str | Path, option: str, *, folder: bool = False, make: bool = False
) -> None:
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
        It tells what is there and to give another ``option``.
    """
    path = Path(path)
    if path.is_dir() and not folder:
        raise UsageError(f"{path}: is a folder, a file is wanted; give another {option}")
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
    raise UsageError(
        f"{path}: files cannot be written {where} ({reason}), a folder that takes them is wanted; "
        f"give another {option}"
    )


def _beside(path: Path) -> tuple[int, str]:
    """Open a temporary file in the folder of another: its descriptor and its name."""
    return tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
