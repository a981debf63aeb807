"""An input (`Item`), and those in zip and tar archives: nothing is unpacked to the disk."""

import bz2
import gzip
import io
import lzma
import os
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from numpy.typing import NDArray

from neocog.errors import InputError
from neocog.reading.addresses import MAX_BYTES, fetch, is_address
from neocog.reading.pictures import HIDDEN, why_skipped
from neocog.text import reason_of

MAX_UNPACKED = 2**32  # bytes that an archive may unpack to; or
MAX_RATIO = 300  # times its own, if that is more
MAX_DICTIONARY = 2**27  # bytes that unpacking xz may take: twice what xz -9 asks for
MAX_DIRECTORY = 2**26  # bytes of a zip archive's directory, which is held in memory: some 600 000 members
MAX_HEADERS = 2**20  # bytes of names and properties that a member of a tar archive may have

ZIP, TAR = (".zip",), (".tar",)
PACKED_TAR = (".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")

_BLOCK = 2**16
_XZ = (b"\xfd7zXZ\0", b"\x5d\0\0\x80")

Skipped = Callable[[str, str], None]  # told of a file that is not read, and why
_Member = tuple[str, int, str | None, Callable[[], dict[str, Any]]]  # name, size, trouble, place


class Item(NamedTuple):
    """One input: a picture file, one at an address, or one in an archive."""

    source: str  # as records name it; of a member: archive/path/in/it
    key: str  # path relative to what was named: the same on every machine
    archive: str | None = None  # that it lies in; else ``source`` is a file
    start: int = 0  # where its bytes lie there; in a zip archive, the header before them
    size: int = 0  # of its bytes in a plain tar archive
    data: bytes | NDArray[Any] | None = None  # of the file, or pixels, where they are at hand
    trouble: str | None = None  # why it cannot be read, where that is known already
    packed: zipfile.ZipInfo | None = None  # how a zip archive holds it

    @property
    def held(self) -> int:
        """Bytes that are at hand."""
        data = b"" if self.data is None else self.data
        return len(data) if isinstance(data, bytes) else data.nbytes

    def picture(self) -> Path | bytes | NDArray[Any]:
        """Return what can be decoded: the file, its bytes or pixels; InputError if it cannot be had."""
        if self.trouble is not None:
            raise InputError(self.trouble)
        if self.data is not None:
            return self.data
        if self.archive is None:
            return fetch(self.source) if is_address(self.source) else Path(self.source)
        try:
            with open(self.archive, "rb") as stream:
                stream.seek(self.start)
                if self.packed is None:
                    data, size = stream.read(self.size), self.size
                else:
                    head, size = stream.read(30), self.packed.file_size
                    if head[:4] != b"PK\3\4":
                        raise EOFError("its header is not where the archive says; was the archive replaced?")
                    # the header's last four bytes are the lengths of its name and of extra fields
                    lengths = int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:], "little")
                    stream.seek(lengths, os.SEEK_CUR)
                    with zipfile.ZipExtFile(stream, "r", self.packed) as member:
                        data = member.read(size)
            if len(data) < size:
                raise EOFError(f"got {len(data):,} bytes, the archive promises {size:,}")
            return data
        except Exception as error:
            raise InputError(f"cannot be extracted from its archive: {reason_of(error)}") from None


def is_archive_name(name: str) -> bool:
    """Whether a file of this name is looked into when it is named as an input."""
    return name.lower().endswith(ZIP + TAR + PACKED_TAR)


def members(path: str, skipped: Skipped = lambda name, why: None) -> Iterator[Item]:
    """Yield the pictures of an archive in its order; other files are ``skipped``; InputError at a damage."""
    try:
        room = max(MAX_UNPACKED, MAX_RATIO * os.path.getsize(path))
        too_much = f"the archive unpacks to more than {room:,} bytes; split it"
        listed = _zip(path) if path.lower().endswith(ZIP) else _tar(path, room, too_much)
        for name, size, trouble, place in listed:
            *folders, last = name.split("/")
            hidden = any(f.startswith(".") and f not in (".", "..") for f in folders)
            if why := HIDDEN if hidden else why_skipped(last):
                skipped(name, why)
                continue
            if trouble is None and size > MAX_BYTES:
                trouble = f"unpacks to {size:,} bytes, at most {MAX_BYTES:,} are allowed; make it smaller"
            elif trouble is None:
                room -= size
                trouble = f"is left out: {too_much}" if room < 0 else None
            item = Item(f"{path}/{name}", name, path, trouble=trouble)
            yield item if trouble else item._replace(**place())
    except Exception as error:  # a broken archive can fail in ways nobody lists
        raise InputError(f"the archive cannot be read to its end: {reason_of(error)}") from None


class _Directory(io.FileIO):
    def read(self, size: int | None = -1) -> bytes:
        if (size or 0) > MAX_DIRECTORY:
            most = f"at most {MAX_DIRECTORY:,} are allowed; split it"
            raise zipfile.BadZipFile(f"its directory would have {size:,} bytes, {most}")
        return super().read(-1 if size is None else size)


def _zip(path: str) -> Iterator[_Member]:
    with _Directory(path) as stream, zipfile.ZipFile(cast(IO[bytes], stream)) as archive:
        infos = archive.infolist()
    left = os.path.getsize(path)
    for info in infos:
        if info.is_dir():
            continue
        trouble = None
        left -= info.compress_size
        if info.flag_bits & 1:
            trouble = "is encrypted in its archive; pack it without a password"
        elif info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or info.flag_bits & 0x20:
            trouble = "is packed with an unusual method; pack it with zip's own (deflate)"
        elif left < 0:
            trouble = "lies within the bytes of others in its archive; pack it again"
        yield info.filename, info.file_size, trouble, partial(dict, start=info.header_offset, packed=info)


def _tar(path: str, room: int, too_much: str) -> Iterator[_Member]:
    packers = ((b"\x1f\x8b", gzip.open), (b"BZh", bz2.open), (_XZ, lambda f: io.BufferedReader(_Xz(f))))
    with open(path, "rb") as plain:
        begin = plain.read(6)
        plain.seek(0)
        unpacked: Any = next((opened(plain) for mark, opened in packers if begin.startswith(mark)), plain)
        stream = _Forward(unpacked, room, too_much, skips=unpacked is plain)
        archive = tarfile.TarFile(fileobj=cast(IO[bytes], stream))
        while (info := archive.next()) is not None:
            archive.members = []  # type: ignore[attr-defined]  # nothing is kept of what is passed
            archive.pax_headers = {}
            if not info.isdir():
                whole = info.isreg() and not info.issparse()
                trouble = "is a link, a device or full of holes in its archive; pack the file itself"
                yield info.name, info.size, None if whole else trouble, partial(stream.member, info)
            stream.headers = 0
        if stream.header.strip(b"\0"):  # for tarfile a header that is none is the end
            raise tarfile.ReadError("a header is damaged")
        try:
            while unpacked is not plain and stream.take(_BLOCK):  # a packer's checksum comes at the end
                pass
        except gzip.BadGzipFile as error:
            if not str(error).startswith("Not a gzipped file"):  # that is none of its bytes
                raise


class _Forward:
    """The bytes of a tar archive as `tarfile` asks for them; it cannot go back, and takes bounded memory."""

    def __init__(self, stream: IO[bytes], room: int, too_much: str, *, skips: bool) -> None:
        self._stream, self._room, self._too_much, self._skips = stream, room, too_much, skips
        self._at = self.headers = 0
        self.header = b""

    def tell(self) -> int:
        return self._at

    def read(self, size: int) -> bytes:
        """Read headers: `tarfile` reads nothing else."""
        self.headers += size
        if self.headers > MAX_HEADERS:
            raise tarfile.ReadError(f"a member has more than {MAX_HEADERS:,} bytes of names and properties")
        self.header = self.take(size)
        return self.header

    def seek(self, place: int) -> None:
        if place < self._at:
            raise tarfile.ReadError("a member has a negative size")
        if self._skips:
            self._at = self._stream.seek(place)
        while self._at < place and self.take(min(_BLOCK, place - self._at)):
            pass

    def take(self, size: int) -> bytes:
        data = self._stream.read(size)
        self._at += len(data)
        if self._at > self._room:
            raise tarfile.ReadError(self._too_much)
        return data

    def member(self, info: tarfile.TarInfo) -> dict[str, Any]:
        """Where a member lies, or its bytes where they are packed."""
        if self._skips:
            return {"start": info.offset_data, "size": info.size}
        self.seek(info.offset_data)
        if len(data := self.take(info.size)) < info.size:
            raise EOFError("the archive is cut short")
        return {"data": data}


class _Xz(io.RawIOBase):
    """Unpacks the xz or lzma streams of a file in bounded memory, which `lzma.open` does not."""

    def __init__(self, packed: IO[bytes]) -> None:
        self._packed, self._stream = packed, lzma.LZMADecompressor(memlimit=MAX_DICTIONARY)

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        data = block = b""
        while not data:
            if self._stream.eof:  # another stream may follow, behind zeros
                block = self._stream.unused_data.lstrip(b"\0")
                if len(block) < len(_XZ[0]):
                    block = (block + self._packed.read(_BLOCK)).lstrip(b"\0")
                if not block.startswith(_XZ):
                    return 0
                self._stream = lzma.LZMADecompressor(memlimit=MAX_DICTIONARY)
            elif self._stream.needs_input and not (block := self._packed.read(_BLOCK)):
                raise EOFError("the archive is cut short")
            try:
                data = self._stream.decompress(block, len(into))
            except lzma.LZMAError as error:
                raise OSError(f"{error}; compress it with xz -9 or less") from None
            block = b""
        into[: len(data)] = data
        return len(data)
