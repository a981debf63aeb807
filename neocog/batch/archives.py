"""Pictures in zip and tar archives, read where they lie: nothing is unpacked to the disk."""

import bz2
import gzip
import lzma
import os
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import IO, Any, Self, cast

from neocog.batch.sources import HIDDEN, MAX_BYTES, PACKED_TAR, TAR, ZIP, Entry, Item, Skipped, why_skipped
from neocog.errors import InputError
from neocog.messages import printable

MAX_UNPACKED, MAX_RATIO = 2**32, 300
"""An archive may unpack to 4 GB, or to 300 times its own bytes where that is more."""

MAX_DICTIONARY = 2**27
"""Bytes that unpacking xz may take: twice what xz -9 asks for."""

_PLAIN = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # the others may unpack without any bound
_PATCHED = 0x20  # a flag of members that are the difference from others
_ZIP_MARK = b"PK\3\4"
_ZIP_HEADER = struct.Struct("<26x2H")  # before a member: the lengths of two more fields

_TAIL = 2**16 + 97  # bytes at the end that may hold the end record: a remark may follow it
_DIRECTORY = struct.Struct("<4s8xLLH")  # lengths and places of the directory
_DIRECTORY_64 = struct.Struct("<4s36xQQ")  # the same in archives of more than 4 GB
_BEFORE_END = 20 + _DIRECTORY_64.size  # this one, and the record that tells where it is
_ENTRY = struct.Struct("<4s4x2H4x3L3H8xL")
_IN_EXTRA = 0xFFFFFFFF  # a number that stands in a field of its own
_UTF_8 = 0x800  # a flag

_BLOCK = 2**15  # bytes that are unpacked at a time
_LONG = (
    tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)  # fmt: skip
_MOST_HEADERS = 2**20  # bytes of such headers that a member may have
_END = (tarfile.EOFHeaderError, tarfile.EmptyHeaderError)  # type: ignore[attr-defined]


def is_archive_name(name: str) -> bool:
    """Whether a file of this name is looked into when it is named as an input."""
    return name.lower().endswith(ZIP + TAR + PACKED_TAR)


def members(path: str, skipped: Skipped = lambda name, why: None) -> Iterator[Item]:
    """Yield the pictures of an archive, in its own order; other files are ``skipped``.

    InputError if the archive is broken; what came before has been yielded.
    """
    if path.lower().endswith(ZIP):
        yield from _zip_members(path, skipped)
    else:
        yield from _tar_members(path, skipped, packed=not path.lower().endswith(TAR))


def read_member(path: str, start: int, size: int, packed: Entry | None) -> bytes:
    """Return the bytes of a member that begins at ``start``; no other one is looked at.

    ``packed`` is how a zip archive holds it. InputError if they cannot be had.
    """
    with _broken("cannot be extracted from its archive"), open(path, "rb") as stream:
        stream.seek(start)
        if packed is not None:
            return _unzipped(stream, packed)
        data = stream.read(size)
        if len(data) < size:
            raise EOFError("the archive is cut short")
        return data


def _unzipped(stream: IO[bytes], entry: Entry) -> bytes:
    """Unpack a member, never more of it than the archive says that there is."""
    header = stream.read(_ZIP_HEADER.size)
    if header[: len(_ZIP_MARK)] != _ZIP_MARK:
        raise zipfile.BadZipFile("its header is not where the archive says; was the archive replaced?")
    stream.seek(sum(_ZIP_HEADER.unpack(header)), os.SEEK_CUR)
    info = zipfile.ZipInfo(entry.name)
    info.compress_type, info.compress_size, info.CRC = entry.method, entry.packed, entry.crc
    info.file_size = entry.size
    with zipfile.ZipExtFile(stream, "r", info) as unpacked:
        data = unpacked.read(entry.size + 1)
    if len(data) != entry.size:
        raise EOFError(f"got {len(data):,} bytes, the archive promises {entry.size:,}")
    return data


@contextmanager
def _broken(what: str) -> Iterator[None]:
    """Turn any failure into an `InputError`: a broken archive can fail in ways nobody lists."""
    try:
        yield
    except Exception as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise InputError(f"{what}: {printable(reason.splitlines()[0][:120])}") from None


def _zip_members(path: str, skipped: Skipped) -> Iterator[Item]:
    size = left = os.path.getsize(path)
    room = _room(size)
    with ExitStack() as files:
        with _broken("not a zip archive, or a damaged one"):
            found = _entries(files.enter_context(open(path, "rb")))
        while True:
            with _broken("a damaged zip archive: it cannot be read to its end"):
                entry = next(found, None)
            if entry is None:
                return
            if (why := _why_not(entry.name)) is not None:
                if not entry.name.endswith("/"):
                    skipped(entry.name, why)
                continue
            trouble = _zip_trouble(entry)
            if trouble is None:
                left -= entry.packed + _ZIP_HEADER.size
                room -= entry.size
                if left < 0:
                    trouble = "lies within the bytes of others in its archive; pack it again"
                elif room < 0:
                    trouble = f"is left out: {_too_much(size)}"
            source = f"{path}/{entry.name}"
            yield Item(source, entry.name, path, entry.start, entry.size, None, trouble, entry)


def _zip_trouble(entry: Entry) -> str | None:
    if entry.flags & 1:
        return "is encrypted in its archive; pack it without a password"
    if entry.method not in _PLAIN or entry.flags & _PATCHED:
        return "is packed with an unusual method; pack it with zip's own (deflate)"
    return _too_large(entry.size)


def _entries(stream: IO[bytes]) -> Iterator[Entry]:
    """Yield the entries of a zip archive in the order of its directory.

    BadZipFile if that is missing or broken; what came before has been yielded.
    """
    end = max(0, stream.seek(0, os.SEEK_END) - _TAIL)
    stream.seek(end)
    tail = stream.read()
    place = tail.rfind(b"PK\5\6")
    if place < 0 or len(tail) < place + _DIRECTORY.size:
        raise zipfile.BadZipFile("its end is missing")
    _, length, start, _ = _DIRECTORY.unpack_from(tail, place)
    end += place
    if place >= _BEFORE_END and tail[place - _BEFORE_END :][:4] == b"PK\6\6":
        _, length, start = _DIRECTORY_64.unpack_from(tail, place - _BEFORE_END)
        end -= _BEFORE_END
    begin = end - length - start  # what the archive was appended to lies before it
    if begin < 0:
        raise zipfile.BadZipFile("its directory would lie before its beginning")
    at = begin + start
    while at < end:
        stream.seek(at)
        head = stream.read(_ENTRY.size)
        if len(head) < _ENTRY.size or head[:4] != b"PK\1\2":
            raise zipfile.BadZipFile("its directory is damaged")
        *_, name, extra, remark, _ = fields = _ENTRY.unpack(head)
        yield _entry(fields, stream.read(name), stream.read(extra), begin)
        at += len(head) + name + extra + remark
    if at > end:
        raise zipfile.BadZipFile("its directory is damaged")


def _entry(fields: tuple[int, ...], name: bytes, extra: bytes, begin: int) -> Entry:
    _, flags, method, crc, packed, size, _, _, _, start = fields
    while len(extra) >= 4:
        kind, length = struct.unpack_from("<HH", extra)
        if kind == 1:
            long = struct.iter_unpack("<Q", extra[4 : 4 + length - length % 8])
            size, packed, start = (
                next(long, (_IN_EXTRA,))[0] if number == _IN_EXTRA else number
                for number in (size, packed, start)
            )
        extra = extra[4 + length :]
    text = name.decode("utf-8" if flags & _UTF_8 else "cp437", "surrogateescape")
    return Entry(text.partition("\0")[0], begin + start, size, packed, method, flags, crc)


def _room(size: int) -> int:
    """Bytes that an archive of a size may unpack to."""
    return max(MAX_UNPACKED, MAX_RATIO * size)


def _too_much(size: int) -> str:
    return f"the archive unpacks to more than {_room(size):,} bytes; split it"


class _Info(tarfile.TarInfo):
    """A member's header; one that is damaged or cut is not taken for the end of the archive."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> Self:
        try:
            return super().fromtarfile(archive)
        except _END:
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(str(error)) from None

    def _proc_member(self, archive: "_Tar") -> tarfile.TarInfo:
        """Go on to what it says of the next header: long names, properties, in memory."""
        if self.type in _LONG:
            archive.headers += self.size
            if archive.headers > _MOST_HEADERS:
                raise tarfile.ReadError(
                    f"a member has {archive.headers:,} bytes of names and properties, at most "
                    f"{_MOST_HEADERS:,} are allowed"
                )
        member: tarfile.TarInfo = super()._proc_member(archive)  # type: ignore[misc]
        return member

    # Files with holes are refused: where these are is not kept, it may be told without any end.

    _sparse_structs: tuple[list[tuple[int, int]], bool, int]

    def _proc_sparse(self, archive: Any) -> tarfile.TarInfo:
        _, more, size = self._sparse_structs
        while more:
            more = archive.fileobj.read(tarfile.BLOCKSIZE)[504:505] not in (b"", b"\0")
        self._sparse_structs = ([], False, size)
        member: tarfile.TarInfo = super()._proc_sparse(archive)  # type: ignore[misc]
        return member

    def _proc_gnusparse_10(self, member: tarfile.TarInfo, *_: object) -> None:
        member.sparse = b""


class _Tar(tarfile.TarFile):
    """A tar archive that keeps nothing of the members that it has passed."""

    tarinfo = _Info
    headers = 0
    """Bytes of headers that are kept: of the next member, and those that hold for all."""

    def next(self) -> tarfile.TarInfo | None:
        self.members: list[tarfile.TarInfo] = []
        self.headers = sum(map(len, (*self.pax_headers.keys(), *self.pax_headers.values())))
        return super().next()


def _tar_members(path: str, skipped: Skipped, *, packed: bool) -> Iterator[Item]:
    with ExitStack() as files:
        with _broken("not a tar archive, or a damaged one"):
            mode: Any = "r|" if packed else "r:"
            pieces: Any = None
            if packed:
                pieces = _Pieces(files.enter_context(_unpacked(path)), os.path.getsize(path))
            archive = files.enter_context(_Tar.open(path, mode, pieces, _BLOCK))
        while True:
            with _broken("the archive cannot be read to its end"):
                info = archive.next()
                if info is None:
                    if packed:
                        _read_on(pieces)
                    return
                if info.isdir():
                    continue
                if (why := _why_not(info.name)) is not None:
                    skipped(info.name, why)
                    continue
                trouble, data = _too_large(info.size), None
                if not info.isreg() or info.issparse():
                    trouble = "is a link, a device or full of holes in its archive; pack the file itself"
                if packed and trouble is None:
                    data = cast(IO[bytes], archive.extractfile(info)).read()
            source = f"{path}/{info.name}"
            yield Item(source, info.name, path, info.offset_data, info.size, data, trouble)


def _unpacked(path: str) -> Any:
    """The bytes that a packed file stands for, of all streams in it."""
    with open(path, "rb") as stream:
        begin = stream.read(6)
    for mark, opened in _PACKERS.items():
        if begin.startswith(mark):
            return opened(path)
    return open(path, "rb")


class _Xz:
    """A file that xz or lzma has packed, unpacked in bounded memory."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "rb")  # noqa: SIM115
        self._left = b""
        self._stream = lzma.LZMADecompressor(memlimit=MAX_DICTIONARY)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read1(self, size: int) -> bytes:
        """Up to ``size`` bytes, none at the end."""
        while not self._stream.eof or self._another():
            block = b""
            if self._stream.needs_input:
                block, self._left = self._left or self._file.read(_BLOCK), b""
                if not block:
                    raise EOFError("the archive is cut short")
            try:
                data = self._stream.decompress(block, size)
            except lzma.LZMAError as error:
                raise OSError(f"{error}; compress it with xz -9 or less") from None
            if data:
                return data
        return b""

    def _another(self) -> bool:
        """Turn to the next stream, if there is one: zeros may lie before it."""
        rest = self._stream.unused_data.lstrip(b"\0")
        while len(rest) < 6 and (block := self._file.read(_BLOCK)):
            rest = (rest + block).lstrip(b"\0")
        if not rest.startswith(_XZ):
            return False
        self._left, self._stream = rest, lzma.LZMADecompressor(memlimit=MAX_DICTIONARY)
        return True


_XZ = (b"\xfd7zXZ\0", b"\x5d\0\0\x80")
_PACKERS: dict[bytes, Callable[[str], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    **dict.fromkeys(_XZ, _Xz),
}
"""How a packed file begins, and what unpacks it."""


class _Pieces:
    """Bytes as they are unpacked: those before a damage do not wait for those behind it.

    ``size`` is that of the packed file.
    """

    def __init__(self, stream: Any, size: int) -> None:
        self._stream, self._size, self._left = stream, size, _room(size)

    def read(self, size: int) -> bytes:
        """Up to ``size`` bytes, none at the end."""
        piece: bytes = self._stream.read1(size)
        self._left -= len(piece)
        if self._left < 0:
            raise tarfile.ReadError(_too_much(self._size))
        return piece


def _read_on(pieces: _Pieces) -> None:
    """Read what lies behind the last member: a packer's checksum comes at the end.

    Bytes that no packer has written may follow.
    """
    try:
        while pieces.read(_BLOCK):
            pass
    except gzip.BadGzipFile as error:
        if not str(error).startswith("Not a gzipped file"):
            raise


def _too_large(size: int) -> str | None:
    """Why a member is not unpacked, by what the archive says of it."""
    if size <= MAX_BYTES:
        return None
    return f"unpacks to {size:,} bytes, at most {MAX_BYTES:,} are allowed; make it smaller"


def _why_not(name: str) -> str | None:
    """Why a member is not read: it is hidden, in a hidden folder, or not a picture."""
    *folders, last = name.split("/")
    if any(f.startswith(".") and f not in (".", "..") for f in folders):
        return HIDDEN
    return why_skipped(last)
