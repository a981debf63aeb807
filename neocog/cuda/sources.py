"""The text of a kernel with all that it includes, as a fingerprint: what a build depends on."""

import hashlib
import re
from pathlib import Path

from neocog.cuda.kernel import Kernel, kernel_folder
from neocog.errors import DeviceError

_INCLUDE = re.compile(rb'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def source_path(kernel: Kernel) -> Path:
    """Return the path of the kernel's source.

    Raises
    ------
    DeviceError
        If there is no such file.
    """
    path = kernel_folder() / kernel.file
    if not path.is_file():
        raise DeviceError(f"kernel source {kernel.file!r} is not in {kernel_folder()}: reinstall")
    return path


def fingerprint(kernel: Kernel, *more: str, headers: Path | None = None) -> str:
    """Return a hash of the source, of all it includes, of name and defines, and of ``more``.

    ``headers`` is another folder of files that are included.
    """
    digest = hashlib.sha256()
    for path in _files(source_path(kernel), headers):
        text = path.read_bytes()
        digest.update(f"{path.name} {len(text)}\n".encode() + text)
    for word in (kernel.name, *define_options(kernel), *more):
        digest.update(f"{len(word)} {word}\n".encode())
    return digest.hexdigest()


def define_options(kernel: Kernel) -> list[str]:
    """Return the defines as options of a compiler, ``-DNAME=value``."""
    return [f"-D{name}={value}" for name, value in kernel.defines]


def included(source: Path) -> dict[bytes, bytes]:
    """Return the text of all that a source includes, by the names that it is included by.

    A compiler that gets them so looks for none of them where the program happens to run.
    """
    return {path.name.encode(): path.read_bytes() for path in _files(source)[1:]}


def _files(source: Path, headers: Path | None = None) -> list[Path]:
    """Return the source and the files that it includes: beside it, of ``kernels/``, of headers."""
    found = [source]
    more = (kernel_folder(), *([headers] if headers else ()))
    for path in found:  # grows while it is walked
        for name in _INCLUDE.findall(path.read_bytes()):
            for folder in (path.parent, *more):
                included = folder / name.decode()
                if included.is_file():
                    if included not in found:
                        found.append(included)
                    break
    return found
