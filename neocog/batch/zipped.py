"""The directory of a zip archive, entry after entry: nothing of it is kept."""

import os
import struct
from collections.abc import Iterator
from typing import IO, NamedTuple
from zipfile import BadZipFile

_TAIL = 2**16 + 97  # bytes at the end that may hold the end record: a remark may follow it
_END = struct.Struct("<4s8xLLH")  # lengths and places of the directory
_END_64 = struct.Struct("<4s36xQQ")  # the same in archives of more than 4 GB
_BEFORE_END = 20 + _END_64.size  # this one, and the record that tells where it is
_ENTRY = struct.Struct("<4s4x2H4x3L3H8xL")
_LONG = 0xFFFFFFFF  # a number that stands in a field of its own
_UTF_8 = 0x800  # a flag


class Entry(NamedTuple):
    """What the directory says of a member; ``start`` is the place of the header before it."""

    name: str
    start: int
    size: int
    packed: int
    method: int
    flags: int
    crc: int


def entries(stream: IO[bytes]) -> Iterator[Entry]:
    """Yield the entries of a zip archive in the order of its directory.

    BadZipFile if that is missing or broken; what came before has been yielded.
    """
    end = max(0, stream.seek(0, os.SEEK_END) - _TAIL)
    stream.seek(end)
    tail = stream.read()
    place = tail.rfind(b"PK\5\6")
    if place < 0 or len(tail) < place + _END.size:
        raise BadZipFile("its end is missing")
    _, length, start, _ = _END.unpack_from(tail, place)
    end += place
    if place >= _BEFORE_END and tail[place - _BEFORE_END :][:4] == b"PK\6\6":
        _, length, start = _END_64.unpack_from(tail, place - _BEFORE_END)
        end -= _BEFORE_END
    begin = end - length - start  # what the archive was appended to lies before it
    if begin < 0:
        raise BadZipFile("its directory would lie before its beginning")
    at = begin + start
    while at < end:
        stream.seek(at)
        head = stream.read(_ENTRY.size)
        if len(head) < _ENTRY.size or head[:4] != b"PK\1\2":
            raise BadZipFile("its directory is damaged")
        *_, name, extra, remark, _ = fields = _ENTRY.unpack(head)
        yield _entry(fields, stream.read(name), stream.read(extra), begin)
        at += len(head) + name + extra + remark
    if at > end:
        raise BadZipFile("its directory is damaged")


def _entry(fields: tuple[int, ...], name: bytes, extra: bytes, begin: int) -> Entry:
    _, flags, method, crc, packed, size, _, _, _, start = fields
    while len(extra) >= 4:
        kind, length = struct.unpack_from("<HH", extra)
        if kind == 1:
            long = struct.iter_unpack("<Q", extra[4 : 4 + length - length % 8])
            size, packed, start = (
                next(long, (_LONG,))[0] if number == _LONG else number
                for number in (size, packed, start)
            )
        extra = extra[4 + length :]
    text = name.decode("utf-8" if flags & _UTF_8 else "cp437", "surrogateescape")
    return Entry(text.partition("\0")[0], begin + start, size, packed, method, flags, crc)
