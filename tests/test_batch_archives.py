"""Pictures in zip and tar archives: read where they lie, within bounds, whatever is damaged."""

import bz2
import gzip
import io
import lzma
import os
import struct
import tarfile
import tracemalloc
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from neocog.batch import archives
from neocog.batch.inputs import find_inputs
from neocog.errors import InputError, NothingToRead
from neocog.reading.addresses import MAX_BYTES
from tests.support import save_page

KINDS = ["zip", "tar", "tar.gz", "tar.xz"]
PACKERS = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "": bytes}
BAD_HEADER = b"\x1f\x8b\x08\x04" + bytes(6)  # of gzip, and more is told to come


def pack(path: Path, kind: str, files: dict[str, bytes]) -> Path:
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in files.items():
                archive.writestr(name, data)
        return path
    with tarfile.open(path, {"tar": "w", "tar.gz": "w:gz", "tar.xz": "w:xz"}[kind]) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def taken(path: Path, data: bytes | None = None, *, below: int = 2**40) -> tuple[list[str], list[str]]:
    """Names of the pictures of an archive that can be had, and what is said of the others.

    No more than ``below`` bytes are taken at a time.
    """
    if data is not None:
        path.write_bytes(data)
    had, said = [], []
    tracemalloc.start()
    with suppress(NothingToRead):
        for item in find_inputs([str(path)]):
            try:
                item.picture()
                had.append(item.key)
            except InputError as error:
                said.append(str(error))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < below
    return had, said


def header(kind: bytes, size: int, name: str = "a.png") -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    return info.tobuf(tarfile.USTAR_FORMAT)


def with_holes(header: bytes) -> bytes:
    """A header that says that more of it follows."""
    block = bytearray(header)
    block[482], block[148:156] = 1, b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def properties(**values: str) -> bytes:
    """A tar header of properties, as in pax archives."""
    lines = b""
    for name, value in values.items():
        rest = f" {name.replace('_', '.')}={value}\n".encode()
        length = next(n for n in range(len(rest), len(rest) + 9) if n == len(rest) + len(str(n)))
        lines += str(length).encode() + rest
    return lines + bytes(-len(lines) % 512)


@pytest.fixture
def six(tmp_path: Path) -> bytes:
    """A tar archive of six pictures, each in 1536 bytes."""
    files = {f"{number}.png": os.urandom(700) for number in range(6)}
    return pack(tmp_path / "six.tar", "tar", files).read_bytes()


@pytest.mark.parametrize("kind", KINDS)
def test_archives_are_read_where_they_lie(kind: str, tmp_path: Path) -> None:
    picture = save_page(tmp_path / "p.png", "7").read_bytes()
    files = {"x/b.png": picture, "x/a.png": b"broken", "x/notes.txt": b"", ".x/c.png": b"",
             "__MACOSX/._b.png": b"", "../up.png": b"up"}  # fmt: skip
    path = pack(tmp_path / f"scans.{kind}", kind, files)
    items = list(find_inputs([str(path)]))
    assert [item.key for item in items] == ["x/b.png", "x/a.png", "../up.png"]
    assert items[0].source == f"{path}/x/b.png"
    assert [item.picture() for item in items] == [picture, b"broken", b"up"]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["p.png", path.name]


@pytest.mark.parametrize("kind", KINDS)
def test_a_broken_archive_is_a_record(kind: str, tmp_path: Path) -> None:
    noise = {f"{i}.png": os.urandom(20_000) for i in range(5)}
    path = pack(tmp_path / f"scans.{kind}", kind, noise)
    cut = path.read_bytes()[:50_000]
    for data in (b"no archive" * 99, cut, b"", BAD_HEADER):
        had, said = taken(path, data)
        assert said
        assert all("archive" in line and "\n" not in line for line in said)
        assert had or data is not cut or kind == "zip"  # what is whole is read


@pytest.mark.parametrize("kind", ["zip", "tar.gz", "tar.xz"])
def test_all_of_an_archive_has_a_bound(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {f"{number}.png": bytes(90_000) for number in range(9)}
    path = pack(tmp_path / f"a.{kind}", kind, files)
    assert len(taken(path)[0]) == 9
    monkeypatch.setattr(archives, "MAX_UNPACKED", 400_000)
    monkeypatch.setattr(archives, "MAX_RATIO", 100)
    had, said = taken(path)
    assert had == [f"{number}.png" for number in range(4)]
    assert said
    assert all("unpacks to more than 400,000 bytes" in line for line in said)
    noise = {f"{number}.png": os.urandom(90_000) for number in range(9)}
    assert len(taken(pack(tmp_path / f"b.{kind}", kind, noise))[0]) == 9


@pytest.mark.parametrize(
    ("place", "form", "value", "words"),
    [  # of the directory's entry
        (8, "<H", 1, "is encrypted"),
        (8, "<H", 0x20, "unusual method"),  # the difference from another
        (10, "<H", zipfile.ZIP_BZIP2, "unusual method"),
        (24, "<I", MAX_BYTES + 1, "unpacks to 268,435,457 bytes"),
    ],
)
def test_members_that_are_refused(place: int, form: str, value: int, words: str, tmp_path: Path) -> None:
    path = pack(tmp_path / "odd.zip", "zip", {"a.png": b"1"})
    data = bytearray(path.read_bytes())
    struct.pack_into(form, data, data.rindex(b"PK\x01\x02") + place, value)
    had, (said,) = taken(path, data)
    assert (had, words in said) == ([], True)


def test_zips_of_any_kind(tmp_path: Path) -> None:
    files = {"a.png": b"", "\u00e9/b.png": os.urandom(999), "c.png": bytes(2**16)}
    written = io.BytesIO(b"#!/bin/sh\n" * 9)
    written.seek(0, os.SEEK_END)
    with zipfile.ZipFile(written, "w") as archive:
        for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            for name, data in files.items():
                info = zipfile.ZipInfo(f"{method}/{name}")
                info.compress_type, info.extra, archive.comment = method, b"\x99\x99\x04\x00dear", b"reader"
                with archive.open(info, "w", force_zip64=True) as stream:
                    stream.write(data)
    path = tmp_path / "a.zip"
    path.write_bytes(written.getvalue())
    found = {item.key: item.picture() for item in find_inputs([str(path)])}
    assert found == {f"{m}/{name}": data for m in (0, 8) for name, data in files.items()}
    damaged = bytearray(written.getvalue())
    damaged[damaged.index(files["\u00e9/b.png"]) + 9] ^= 1
    said = ["cannot be extracted from its archive: Bad CRC-32 for file '0/\u00e9/b.png'"]
    assert taken(path, damaged)[1] == said
    first, second, third = find_inputs([str(pack(path, "zip", {f"{c}.png": b"22" for c in "abc"}))])
    assert first.picture() == b"22"
    pack(path, "zip", {"z.png": b"1", "b.png": b"333"})  # while it is read
    for item in (second, third):
        with pytest.raises(InputError, match="cannot be extracted"):
            item.picture()


def test_zips_that_lie_or_have_a_large_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = pack(tmp_path / "a.zip", "zip", {"a.png": bytes(2**26), "b.png": b"b"})
    whole = path.read_bytes()
    data = bytearray(whole)
    for mark, place in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):  # it has more bytes than it says
        struct.pack_into("<I", data, data.index(mark) + place, 1000)
    assert taken(path, data, below=2**22)[0] == ["b.png"]
    first, second, end = whole.index(b"PK\1\2"), whole.rindex(b"PK\1\2"), whole.rindex(b"PK\5\6")
    entries = whole[second:end] + whole[first:second] * 1000  # members lie within others
    told = struct.pack("<4s8xLLH", b"PK\5\6", len(entries), first, 0)
    had, said = taken(path, whole[:first] + entries + told)
    assert (had, len(said)) == (["b.png", "a.png"], 999)
    assert all("within the bytes of others" in line for line in said)
    monkeypatch.setattr(archives, "MAX_DIRECTORY", 20_000)
    had, (line,) = taken(path)
    assert (had, "directory would have" in line) == ([], True)


@pytest.mark.parametrize("packer", PACKERS)
def test_headers_that_are_none_and_what_lies_behind_the_end(packer: str, six: bytes, tmp_path: Path) -> None:
    path, pack = tmp_path / f"scans.tar.{packer}".rstrip("."), PACKERS[packer]
    for data in (six[: 3072 + 148] + b"9999999\0" + six[3072 + 156 :], six[: 3072 + 99]):
        had, (said,) = taken(path, pack(data))
        assert (had, "the archive cannot be read to its end" in said) == (["0.png", "1.png"], True)
    cuts = (3 * 1536, 3 * 1536 + 600, len(six) - 512) if packer else ()
    several = [b"".join(map(pack, (six[:cut], six[cut:], bytes(4096)))) for cut in cuts]
    for more in (bytes(512), bytes(999), b"of another file"):
        for data in (pack(six) + more, pack(six + more), *several):
            assert taken(path, data) == ([f"{n}.png" for n in range(6)], [])


def endless_headers(kind: str) -> Iterator[bytes]:
    """Blocks of a tar archive whose headers claim what memory there is."""
    if kind == "holes":
        yield with_holes(header(b"S", 0))
        yield from [(b"00000000001\0" * 42 + b"\1" + bytes(7)) * 2048] * 12
    elif kind == "pax holes":
        told = properties(GNU_sparse_major="1", GNU_sparse_minor="0", GNU_sparse_realsize="1")
        yield header(b"x", len(told)) + told
        yield header(b"0", 2**25) + b"999999999999\n"
        yield from [b"1\n" * 2**19] * 12
    elif kind == "chain":
        told = properties(comment="v" * 2**18)
        yield from [header(b"x", len(told)) + told] * 64
    elif kind == "for all":
        for number in range(64):
            told = properties(**{f"k{number}": "v" * 2**18})
            yield header(b"g", len(told)) + told + header(b"0", 0, "notes.txt")
    else:
        yield header(kind.encode(), 2**25)
        yield from [bytes(2**20)] * 32
    yield bytes(1024)


@pytest.mark.parametrize("kind", [*"xgLK", "holes", "pax holes", "chain", "for all"])
def test_headers_that_are_bombs(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "bomb.tar.gz"
    with gzip.open(path, "wb", 1) as stream:
        for block in endless_headers(kind):
            stream.write(block)
    taken(path, below=2**23)


def test_packed_archives_of_any_kind(six: bytes, tmp_path: Path) -> None:
    large = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 2**29}]
    had, (said,) = taken(tmp_path / "a.tar.xz", lzma.compress(six, filters=large))
    assert had == []
    assert "Memory usage limit exceeded; compress it with xz -9 or less" in said
    assert len(taken(tmp_path / "a.tar.xz", lzma.compress(six, preset=9))[0]) == 6
    assert taken(tmp_path / "a.tar.xz", lzma.compress(six, lzma.FORMAT_ALONE)[:1] + b"no xz")[0] == []
    data = bytearray(gzip.compress(six))
    data[-8] ^= 1  # of the checksum
    had, (said,) = taken(tmp_path / "a.tgz", data)
    assert (len(had), "CRC" in said) == (6, True)  # some of them may be damaged, none is lost
    long = "/".join(["x" * 200] * 5) + "/long.png"
    for kind in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        with tarfile.open(tmp_path / "a.tgz", "w:gz", format=kind) as archive:
            archive.addfile(tarfile.TarInfo(long))
        assert taken(tmp_path / "a.tgz") == ([long], [])
    block = with_holes(header(b"S", 512, "holes.png"))
    more = bytes(504) + b"\1" + bytes(7) + bytes(512)
    last = header(tarfile.SYMTYPE, 0) + header(b"0", 0, "last.png") + bytes(1024)
    had, lines = taken(tmp_path / "a.tgz", gzip.compress(block + more + b"1" * 512 + last))
    assert had == ["last.png"]
    assert ["is a link, a device or full of holes" in line for line in lines] == [True, True]
