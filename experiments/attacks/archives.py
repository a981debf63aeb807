"""Archives that attack their reader: bombs of every packer, members that overlap or lead out."""

import bz2
import gzip
import io
import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from copy import copy

import numpy as np

from experiments.attacks.pictures import Case, changed, whole

_PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "tar": bytes, "tar.gz": gzip.compress, "tar.bz2": bz2.compress, "tar.xz": lzma.compress,
}  # fmt: skip


def damaged(count: int, *, seed: int = 0) -> Iterator[Case]:
    """Yield so many archives of three pictures, each kind in turn, with bits flipped or cut off."""
    random = np.random.default_rng(seed)
    kinds = {"zip": zip_of([(f"{name}.png", whole("PNG")) for name in "abc"])}
    plain = tar_of([(f"{name}.png", whole("PNG")) for name in "abc"])
    kinds |= {kind: pack(plain) for kind, pack in _PACKERS.items()}
    for number in range(count):
        kind = list(kinds)[number % len(kinds)]
        data, cut = kinds[kind], random.random() < 0.3
        yield f"{number:04}.{kind}", changed(data, random, flips=random.integers(6), reach=len(data), cut=cut)


def hostile() -> Iterator[Case]:
    """Yield archives that were made to do harm; each has a picture or something like one."""
    picture = whole("PNG")
    yield "overlap.zip", _overlapping(20_000)
    yield "ratio.zip", zip_of([("a.png", picture), ("b.png", bytes(2**28))], zipfile.ZIP_DEFLATED)
    true, lie = struct.pack("<I", len(picture)), struct.pack("<I", 2**32 - 2)
    yield "lies.zip", zip_of([("a.png", picture)]).replace(true, lie)
    yield "inner.zip", zip_of([("a.zip", zip_of([("a.png", picture)])), ("b.png", picture)])
    yield "names.zip", zip_of([(name, picture) for name in hostile_names()])
    yield "names.tar", tar_of([(name, picture) for name in hostile_names()])
    yield "links.tar", _links(picture)
    yield "holes.tar", _holes()
    head = _tar_header("././@LongLink", 2**27, tarfile.GNUTYPE_LONGNAME)
    yield "long.tar.gz", gzip.compress(head + b"a" * 2**27 + _tar_header("a.png", 0) + bytes(1024), 1)
    header = _tar_header("a.png", 2**33)
    yield "bomb.tar.gz", gzip.compress(header) + 40 * gzip.compress(bytes(2**26), 1)
    yield "bomb.tar.bz2", bz2.compress(header) + 40 * bz2.compress(bytes(2**26), 9)
    zeros = 32 * lzma.compress(bytes(2**26), preset=0)
    yield "bomb.tar.xz", lzma.compress(header) + zeros
    yield "skip.tar.xz", lzma.compress(_tar_header("notes.txt", 2**33)) + zeros
    yield "dictionary.tar.xz", _large_dictionary(tar_of([("a.png", picture)]))


def hostile_names() -> list[str]:
    """Names that lead elsewhere, that a terminal obeys, or that a spreadsheet calculates."""
    return ["../up.png", "/etc/root.png", "a/../../b.png", "..\\up.png", "C:\\a.png",
            "\x1b]0;x\x07.png", "\x1b[2J.png", "line\nend.png", "\u202egnp.png", "=cmd().png",
            "+1.png", "-o.png", "@list.png", "\x9b31m.png", "\u2066a\u2069.png", "'a'.png",
            "$(id).png", "a;b.png", "%s%n.png", "x" * 250 + ".png"]  # fmt: skip


def zip_of(members: Iterable[tuple[str, bytes]], packer: int = zipfile.ZIP_STORED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in members:
            archive.writestr(zipfile.ZipInfo(name), data, packer, 1)
    return stream.getvalue()


def tar_of(members: Iterable[tuple[str | tarfile.TarInfo, bytes]]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, data in members:
            about = tarfile.TarInfo(name) if isinstance(name, str) else name
            about.size = len(data)
            archive.addfile(about, io.BytesIO(data))
    return stream.getvalue()


def _member(name: str, size: int = 0, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    about = tarfile.TarInfo(name)
    about.size, about.type, about.linkname = size, kind, link
    return about


def _tar_header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    return _member(name, size, kind).tobuf(tarfile.GNU_FORMAT)


def _overlapping(count: int) -> bytes:
    """So many names for one member that unpacks to 5 MB."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("0.png", bytes(5_000_000))
        for number in range(1, count):
            archive.filelist.append(copy(archive.filelist[0]))
            archive.filelist[-1].filename = f"{number}.png"
    return stream.getvalue()


def _links(picture: bytes) -> bytes:
    """Members that are links to files outside, pipes and devices, with names of pictures."""
    kinds = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE)
    targets = ("/etc/passwd", "../../a.png", "self.png")
    links = [(_member(f"self{kind.decode()}{number}.png", kind=kind, link=target), b"")
             for kind in kinds for number, target in enumerate(targets)]  # fmt: skip
    return tar_of([*links, ("a.png", picture)])


def _holes() -> bytes:
    """A member that is a hole of 8 GiB but for its last bytes."""
    head = bytearray(_tar_header("a.png", 512, tarfile.GNUTYPE_SPARSE))
    head[386:410] = b"%011o\0%011o\0" % (2**33 - 513, 512)
    head[483:495] = b"%011o\0" % (2**33 - 1)
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head) + b"x" * 512 + bytes(1024)


def _large_dictionary(data: bytes) -> bytes:
    """An .xz file whose header asks for a dictionary of 2 GiB."""
    packed = bytearray(lzma.compress(data))
    end = 12 + 4 * packed[12]  # of the header of the block, before its checksum
    packed[packed.index(b"\x21\1", 12, end) + 2] = 38  # LZMA2, one byte of properties
    packed[end : end + 4] = struct.pack("<I", zlib.crc32(packed[12:end]))
    return bytes(packed)
