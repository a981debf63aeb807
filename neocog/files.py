"""Writing files so that a reader never sees half of one."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def atomic_write(path: str | Path) -> Iterator[IO[bytes]]:
    """Open a binary file that takes the name ``path`` only when the block ends well.

    The bytes go to a temporary file in the same folder, are flushed to the disk, and replace
    ``path`` in one step. If the block raises, the temporary file is removed and whatever stood
    at ``path`` stays as it was.

    Parameters
    ----------
    path : str or Path
        Where the finished file shall lie; its folder must exist.

    Raises
    ------
    OSError
        If the folder cannot be written to.
    """
    path = Path(path)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent or Path("."))
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
