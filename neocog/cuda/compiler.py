"""Kernels for a GPU: built by NVRTC, with no GPU and no CUDA toolkit, and kept on the disk.

Each file that is kept ends in a digest of itself, so that a damaged one is seen. It is code that will be run:
a folder that others can write to is not used.
"""

import hashlib
import os
import re
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from neocog.cuda.devices import first_line
from neocog.cuda.kernel import Kernel, kernel_folder
from neocog.errors import DeviceError
from neocog.files import atomic_write

_INCLUDE = re.compile(rb'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
_OPTIONS = ("-std=c++17", "-ftz=true", "--ptxas-options=-v")
#: NVRTC may keep builds of its own, and has no figures of one that it takes from there.
_NO_CACHE, _NO_CACHE_SINCE = "--no-cache", (13, 0)
_DIGEST = hashlib.sha256().digest_size


class Built(NamedTuple):
    cubin: bytes  # what the driver loads: a cubin, or PTX for a GPU newer than this NVRTC
    log: str  # what NVRTC printed, as registers and spills


def build(
    kernel: Kernel, arch: int | str, *, defines: tuple[tuple[str, int | float | str], ...] = ()
) -> Built:
    """Build a kernel for an architecture (90, or in full ``"sm_90a"``), or take an earlier build.

    A DeviceError says that NVRTC is not there, does not know the architecture, or cannot build the kernel.
    """
    _, version = nvrtc_library()
    target = arch if isinstance(arch, str) else _target(kernel, arch)
    options = (*_OPTIONS, f"-arch={target}", *(f"-D{name}={v}" for name, v in (*kernel.defines, *defines)))
    name = f"{fingerprint(kernel, *options, 'NVRTC', *map(str, version))}.built"
    content = load(name)
    if content is not None:
        log, _, cubin = content.partition(b"\0")
        return Built(cubin, log.decode())
    built = _compile(kernel, options)
    store(name, built.log.encode() + b"\0" + built.cubin)
    return built


@cache
def nvrtc_library() -> tuple[Any, tuple[int, int]]:
    """Return CuPy's binding of NVRTC, the library loaded, and its version; a DeviceError if it is missing."""
    try:
        from cupy.cuda import nvrtc

        major, minor = nvrtc.getVersion()
    except Exception as error:  # CuPy's own errors cannot be named before it is imported
        why = f"NVRTC is missing ({first_line(error)}); install neocog[cuda13] (or [cuda12])"
        raise DeviceError(f"kernels cannot be built because {why}") from None
    return nvrtc, (int(major), int(minor))


def _target(kernel: Kernel, arch: int) -> str:
    """Return the architecture to name: ``arch``, or the next older one whose cubins run there."""
    nvrtc, version = nvrtc_library()
    if kernel.features:
        if arch != kernel.arch:
            alone = f"is for compute capability {kernel.arch / 10:.1f} alone, the device has {arch / 10:.1f}"
            raise DeviceError(f"kernel {kernel.name} {alone}: choose another plan")
        return f"sm_{arch}{kernel.features}"
    known = sorted(nvrtc.getSupportedArchs())
    same_major = [a for a in known if a // 10 == arch // 10 and a <= arch]
    if same_major:
        return f"sm_{same_major[-1]}"
    if arch > known[-1]:
        return f"compute_{known[-1]}"  # PTX: the driver does the rest
    what = f"NVRTC {'.'.join(map(str, version))} does not build for compute capability {arch / 10:.1f}"
    raise DeviceError(f"kernel {kernel.name}: {what}; use --device cpu")


def _compile(kernel: Kernel, options: tuple[str, ...]) -> Built:
    nvrtc, version = nvrtc_library()
    source, *headers = sources(kernel)
    # given so, the compiler looks for no file where the program happens to run
    names = tuple(file.name.encode() for file in headers)
    texts = tuple(file.read_bytes() for file in headers)
    program = nvrtc.createProgram(source.read_text(encoding="utf-8"), source.name, texts, names)
    try:
        try:
            nvrtc.compileProgram(program, (*options, *[_NO_CACHE] * (version >= _NO_CACHE_SINCE)))
        except nvrtc.NVRTCError as error:
            lines = nvrtc.getProgramLog(program).splitlines()
            first = next((line for line in lines if "error" in line), str(error)).strip()
            raise DeviceError(f"kernel {kernel.name} does not build: {first}; use --device cpu") from None
        log = str(nvrtc.getProgramLog(program)).rstrip("\0")
        if any(option.startswith("-arch=compute") for option in options):
            return Built(nvrtc.getPTX(program), log)
        cubin = nvrtc.getCUBIN(program)
        if f".text.{kernel.name}\0".encode() not in cubin:  # the name of its section
            raise DeviceError(f"kernel {kernel.name} is not in {kernel.file}; reinstall neocog")
        return Built(cubin, log)
    finally:
        nvrtc.destroyProgram(program)


def sources(kernel: Kernel, headers: Path | None = None) -> list[Path]:
    """Return a kernel's source and the files that it includes: beside it, of ``kernels/``, of headers.

    A DeviceError if there is no such source.
    """
    found = [kernel_folder() / kernel.file]
    if not found[0].is_file():
        raise DeviceError(f"kernel source {kernel.file!r} is not in {kernel_folder()}: reinstall")
    folders = (kernel_folder(), *([headers] if headers else ()))
    for path in found:  # grows while it is walked
        for name in _INCLUDE.findall(path.read_bytes()):
            places = (folder / name.decode() for folder in (path.parent, *folders))
            file = next((place for place in places if place.is_file()), None)
            if file is not None and file not in found:
                found.append(file)
    return found


def fingerprint(kernel: Kernel, *more: str, headers: Path | None = None) -> str:
    """Return a hash of the source, of all it includes (also from ``headers``), of the options and more."""
    digest = hashlib.sha256()
    for path in sources(kernel, headers):
        text = path.read_bytes()
        digest.update(f"{path.name} {len(text)}\n".encode() + text)
    for word in (kernel.name, *(f"-D{name}={value}" for name, value in kernel.defines), *more):
        digest.update(f"{len(word)} {word}\n".encode())
    return digest.hexdigest()


def cache_folder() -> Path:
    """Return the folder of builds: ``NEOCOG_CACHE``, or ``neocog/cubins`` below ``XDG_CACHE_HOME`` or
    ``~/.cache``; for a user without a home a folder that goes with this process.
    """
    if named := os.environ.get("NEOCOG_CACHE"):
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "neocog" / "cubins"
    except RuntimeError:
        return Path(_of_this_process().name)


_of_this_process = cache(partial(TemporaryDirectory, prefix="neocog-"))


def load(name: str) -> bytes | None:
    """Return what was stored as ``name``; None if there is nothing, or it is damaged."""
    folder = cache_folder()
    try:
        data = (folder / name).read_bytes() if _ours(folder) else b""
    except OSError:
        return None
    content, digest = data[:-_DIGEST], data[-_DIGEST:]
    return content if hashlib.sha256(content).digest() == digest else None


def store(name: str, content: bytes) -> None:
    """Write ``content`` as ``name`` in one step; a folder that takes no file is no error."""
    with suppress(OSError):
        folder = cache_folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if _ours(folder):
            with atomic_write(folder / name, mode=0o600) as stream:
                stream.write(content + hashlib.sha256(content).digest())


def _ours(folder: Path) -> bool:
    """Whether nobody but this user and root can put files into a folder."""
    about = folder.stat()
    return not hasattr(os, "geteuid") or (about.st_uid in (0, os.geteuid()) and not about.st_mode & 0o022)
