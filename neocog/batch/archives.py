"""Pictures in zip and tar archives: nothing is unpacked to the disk."""

import bz2
import gzip
import io
import lzma
import os
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import IO, Any, cast

from neocog.batch.sources import HIDDEN, PACKED_TAR, TAR, ZIP, Item, Skipped, why_skipped
from neocog.errors import InputError
from neocog.reading.addresses import MAX_BYTES
from neocog.text import reason_of

MAX_UNPACKED, MAX_RATIO = 2**32, 300
"""An archive may unpack to 4 GB, or to 300 times its own bytes where that is more."""

MAX_DICTIONARY = 2**27
"""Bytes that unpacking xz may take: twice what xz -9 asks for."""

MAX_DIRECTORY = 2**26
"""Bytes of a zip archive's directory, which is held in memory: some 600 000 members."""

MAX_HEADERS = 2**20
"""Bytes of names and properties that a member of a tar archive may have."""

_BLOCK = 2**16
_XZ = (b"\xfd7zXZ\0", b"\x5d\0\0\x80")

Member = tuple[str, int, str | None, Callable[[], dict[str, Any]]]
"""Name, size, why it cannot be read, and what tells its `Item` where the bytes are."""


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


def read_member(item: Item) -> bytes:
    """Return the bytes of a member of a zip or plain tar archive; InputError if they cannot be had."""
    info = item.packed
    try:
        with open(cast(str, item.archive), "rb") as stream:
            stream.seek(item.start)
            if info is None:
                data, size = stream.read(item.size), item.size
            else:
                head = stream.read(30)  # the last four bytes: lengths of the fields that follow
                if head[:4] != b"PK\3\4":
                    raise EOFError("its header is not where the archive says; was the archive replaced?")
                stream.seek(int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:], "little"), 1)
                with zipfile.ZipExtFile(stream, "r", info) as member:
                    data, size = member.read(info.file_size), info.file_size
        if len(data) < size:
            raise EOFError(f"got {len(data):,} bytes, the archive promises {size:,}")
        return data
    except Exception as error:
        raise InputError(f"cannot be extracted from its archive: {reason_of(error)}") from None


class _Directory(io.FileIO):
    """A zip archive, of which `zipfile` reads the directory at once."""

    def read(self, size: int | None = -1) -> bytes:
        if (size or 0) > MAX_DIRECTORY:
            raise zipfile.BadZipFile(
                f"its directory would have {size:,} bytes, at most {MAX_DIRECTORY:,} are allowed; split it"
            )
        return super().read(-1 if size is None else size)


def _zip(path: str) -> Iterator[Member]:
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


def _tar(path: str, room: int, too_much: str) -> Iterator[Member]:
    with open(path, "rb") as plain:
        begin = plain.read(6)
        plain.seek(0)
        unpacked: Any = next((opened(plain) for mark, opened in _PACKERS if begin.startswith(mark)), plain)
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
        data = self.take(info.size)
        if len(data) < info.size:
            raise EOFError("the archive is cut short")
        return {"data": data}


class _Xz(io.RawIOBase):
    """Unpacks the xz or lzma streams of a file in bounded memory, which `lzma.open` does not."""

    def __init__(self, packed: IO[bytes]) -> None:
        self._packed = packed
        self._stream = lzma.LZMADecompressor(memlimit=MAX_DICTIONARY)

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


_PACKERS: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (b"\x1f\x8b", gzip.open),
    (b"BZh", bz2.open),
    (_XZ, lambda packed: io.BufferedReader(_Xz(packed))),
)
"""How a packed file begins, and what unpacks it."""
