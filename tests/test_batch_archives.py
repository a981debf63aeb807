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
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from neocog.batch import archives
from neocog.batch.inputs import find_inputs
from neocog.errors import InputError, NothingToRead
from neocog.reading.addresses import MAX_BYTES
from tests.support import save_page

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


def taken(path: Path) -> tuple[list[str], list[str]]:
    """Names of the pictures of an archive that can be had, and what is said of the others."""
    had, said = [], []
    with suppress(NothingToRead):
        for item in find_inputs([str(path)]):
            try:
                item.picture()
                had.append(item.key)
            except InputError as error:
                said.append(str(error))
    return had, said


def headers(whole: bytes) -> list[int]:
    """Where the members of a tar archive begin."""
    with tarfile.open(fileobj=io.BytesIO(whole)) as archive:
        return [member.offset for member in archive]


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


@contextmanager
def memory_below(bound: int) -> Iterator[None]:
    """Fail if more bytes than that are taken at a time."""
    tracemalloc.start()
    yield
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < bound


@pytest.fixture
def six(tmp_path: Path) -> bytes:
    """A tar archive of six pictures."""
    files = {f"{number}.png": os.urandom(700) for number in range(6)}
    return pack(tmp_path / "six.tar", "tar", files).read_bytes()


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz", "tar.xz"])
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


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz", "tar.xz"])
@pytest.mark.parametrize("broken", ["text", "cut", "empty", "header"])
def test_a_broken_archive_is_a_record(kind: str, broken: str, tmp_path: Path) -> None:
    noise = {f"{i}.png": os.urandom(20_000) for i in range(5)}
    path = pack(tmp_path / f"scans.{kind}", kind, noise)
    whole = path.read_bytes()
    data = {"text": b"no archive" * 99, "cut": whole[:50_000], "empty": b"", "header": BAD_HEADER}
    path.write_bytes(data[broken])
    had, said = taken(path)
    assert said
    assert all("archive" in line and "\n" not in line for line in said)
    assert had or broken != "cut" or kind == "zip"  # what is whole is read


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
    path.write_bytes(data)
    had, (said,) = taken(path)
    assert had == []
    assert words in said


# --- zip -------------------------------------------------------------------------------------


def test_a_zip_replaced_while_it_is_read(tmp_path: Path) -> None:
    path = pack(tmp_path / "a.zip", "zip", {"a.png": b"1", "b.png": b"22", "c.png": b"3"})
    first, second, third = find_inputs([str(path)])
    assert first.picture() == b"1"
    pack(path, "zip", {"z.png": b"1", "b.png": b"333"})
    for item in (second, third):
        with pytest.raises(InputError, match="cannot be extracted"):
            item.picture()
    assert [item.picture() for item in find_inputs([str(path)])] == [b"1", b"333"]


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
    path.write_bytes(damaged)
    assert taken(path)[1] == ["cannot be extracted from its archive: Bad CRC-32 for file '0/\u00e9/b.png'"]


def test_zips_that_lie(tmp_path: Path) -> None:
    path = pack(tmp_path / "a.zip", "zip", {"a.png": bytes(2**26), "b.png": b"b"})
    whole = path.read_bytes()
    data = bytearray(whole)
    for mark, place in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):  # it has more bytes than it says
        struct.pack_into("<I", data, data.index(mark) + place, 1000)
    path.write_bytes(data)
    with memory_below(2**22):
        assert taken(path)[0] == ["b.png"]
    first, second, end = whole.index(b"PK\1\2"), whole.rindex(b"PK\1\2"), whole.rindex(b"PK\5\6")
    entries = whole[second:end] + whole[first:second] * 1000  # members lie within others
    told = struct.pack("<4s8xLLH", b"PK\5\6", len(entries), first, 0)
    path.write_bytes(whole[:first] + entries + told)
    had, said = taken(path)
    assert (had, len(said)) == (["b.png", "a.png"], 999)
    assert all("within the bytes of others" in line for line in said)


def test_the_directory_of_a_zip_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = pack(tmp_path / "a.zip", "zip", {f"{number}.png": b"1" for number in range(1000)})
    assert len(taken(path)[0]) == 1000
    monkeypatch.setattr(archives, "MAX_DIRECTORY", 20_000)
    had, (said,) = taken(path)
    assert had == []
    assert "directory would have" in said


# --- tar -------------------------------------------------------------------------------------


@pytest.mark.parametrize("packer", PACKERS)
@pytest.mark.parametrize("how", ["damaged", "cut"])
def test_a_header_that_is_none_is_not_the_end(packer: str, how: str, six: bytes, tmp_path: Path) -> None:
    place = headers(six)[2]
    damaged = six[: place + 148] + b"9999999\0" + six[place + 156 :]
    path = tmp_path / f"scans.tar.{packer}".rstrip(".")
    path.write_bytes(PACKERS[packer](damaged if how == "damaged" else six[: place + 99]))
    had, said = taken(path)
    assert had == ["0.png", "1.png"]
    assert len(said) == 1
    assert "the archive cannot be read to its end" in said[0]


@pytest.mark.parametrize("packer", PACKERS)
@pytest.mark.parametrize("more", [bytes(512), bytes(999), b"of another file"])
def test_what_lies_behind_the_end(packer: str, more: bytes, six: bytes, tmp_path: Path) -> None:
    path, pack = tmp_path / f"scans.tar.{packer}".rstrip("."), PACKERS[packer]
    cuts = (headers(six)[3], headers(six)[3] + 600, len(six) - 512) if packer else ()
    several = [b"".join(map(pack, (six[:cut], six[cut:], bytes(4096)))) for cut in cuts]
    for data in (pack(six) + more, pack(six + more), *several):
        path.write_bytes(data)
        assert taken(path) == ([f"{n}.png" for n in range(6)], [])


def test_all_before_a_wrong_checksum_is_read(six: bytes, tmp_path: Path) -> None:
    data = bytearray(gzip.compress(six))
    data[-8] ^= 1
    (tmp_path / "a.tgz").write_bytes(data)
    had, said = taken(tmp_path / "a.tgz")
    assert len(had) == 6  # some of them may be damaged, none is lost
    assert ["CRC" in line for line in said] == [True]


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
    with memory_below(2**23):
        taken(path)


def test_unpacking_takes_bounded_memory(six: bytes, tmp_path: Path) -> None:
    large = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 2**29}]
    path = tmp_path / "a.tar.xz"
    path.write_bytes(lzma.compress(six, filters=large))
    had, (said,) = taken(path)
    assert had == []
    assert "Memory usage limit exceeded; compress it with xz -9 or less" in said
    path.write_bytes(lzma.compress(six, preset=9))
    assert len(taken(path)[0]) == 6
    path.write_bytes(lzma.compress(six, lzma.FORMAT_ALONE)[:1] + b"no xz")
    assert taken(path)[0] == []


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


def test_long_names_links_and_files_with_holes(tmp_path: Path) -> None:
    long = "/".join(["x" * 200] * 5) + "/long.png"
    for kind in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        with tarfile.open(tmp_path / "a.tar.gz", "w:gz", format=kind) as archive:
            archive.addfile(tarfile.TarInfo(long))
        assert taken(tmp_path / "a.tar.gz") == ([long], [])
    block = with_holes(header(b"S", 512, "holes.png"))
    more = bytes(504) + b"\1" + bytes(7) + bytes(512)
    last = header(tarfile.SYMTYPE, 0) + header(b"0", 0, "last.png") + bytes(1024)
    (tmp_path / "a.tgz").write_bytes(gzip.compress(block + more + b"1" * 512 + last))
    had, said = taken(tmp_path / "a.tgz")
    assert had == ["last.png"]
    assert ["is a link, a device or full of holes" in line for line in said] == [True, True]
