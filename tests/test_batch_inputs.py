"""Inputs of a batch: files, folders, patterns, lists, stdin, zip and tar archives, and shares of them."""

import bz2
import errno
import gzip
import inspect
import io
import lzma
import os
import struct
import sys
import tarfile
import threading
import time
import tracemalloc
import zipfile
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from unittest.mock import Mock

import pytest

from neocog.batch import archives
from neocog.batch.inputs import MAX_NAME, Shard, find_inputs, is_one_file
from neocog.batch.run import Request
from neocog.errors import EndedEarly, InputError, NothingToRead, UsageError
from neocog.reading import addresses
from neocog.reading.addresses import MAX_BYTES
from neocog.reading.formats import Format
from neocog.vision.decode import FORMATS, decode
from tests.live_support import RawServer
from tests.support import failing, page_file, refused, run, save_page, until


def names(words: list[str], **options: object) -> list[str]:
    return [item.source for item in find_inputs(words, **options)]  # type: ignore[arg-type]


@pytest.fixture
def scans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("b.png", "a.jpg", "notes.txt", "deep/c.png", "deep/er/d.tif", ".git/e.png"):
        (tmp_path / "scans" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "scans" / name).write_bytes(name.encode())
    monkeypatch.chdir(tmp_path)
    return tmp_path / "scans"


ALL = ["a.jpg", "b.png", "deep/c.png", "deep/er/d.tif"]


def test_keys_are_relative_to_what_was_named_which_is_not_nothing(scans: Path) -> None:
    refused("neocog: '': this name is empty, expected a picture or a folder; leave it out, or name one\n",
            "read", "", "--model", "neocog", code=1)  # fmt: skip
    for word, wanted in ((str(scans), ALL), ("scans", ALL), ("scans/b.png", ["scans/b.png"])):
        assert [item.key for item in find_inputs([word])] == wanted
    assert names(["scans/"]) == [f"scans/{name}" for name in ALL]


def test_links_and_folders_of_any_depth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    deep = "/".join("a" * 200)
    for name in ("x.png", "a/x.png", f"{deep}/x.png", "b/c.png", "b/a/y.png", "b.png"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()
    Path("f.png").mkdir()
    Path("b/g.png").symlink_to("nowhere")
    Path("b/self").symlink_to(".", target_is_directory=True)  # a circle
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 150)
    try:
        found = [item.key for item in find_inputs(["."])]
        with pytest.raises(UsageError, match="name the folder itself"):
            list(find_inputs(["**"]))
    finally:
        sys.setrecursionlimit(limit)
    assert found == ["b.png", "x.png", "a/x.png", f"{deep}/x.png", "b/c.png", "b/g.png", "b/a/y.png"]
    assert [name for name in names(["**"]) if "self" not in name] == sorted(found)


def test_a_folder_that_cannot_be_listed(scans: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fails, scandir = failing(PermissionError(errno.EACCES, "Permission denied")), os.scandir
    monkeypatch.setattr(os, "scandir", lambda name: (fails if name.endswith("deep") else scandir)(name))
    *_, last = find_inputs(["scans"])
    assert (last.source, last.key) == ("scans/deep", "deep/")
    with pytest.raises(InputError, match=r"cannot be listed .permission denied"):
        last.picture()


def test_a_server_that_drips_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte of a header now and then: the download ends in time, with its thread and its socket."""

    def drip(request: bytes) -> Iterator[bytes]:
        while True:
            yield b"H"
            time.sleep(0.05)

    monkeypatch.setattr(addresses, "MAX_SECONDS", 0.4)
    with closing(RawServer(drip)) as server:
        threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
        begun = time.perf_counter()
        with pytest.raises(InputError, match=r"took more than 0\.4 seconds"):
            addresses.fetch(server.address)
        assert time.perf_counter() - begun < 2
        until(lambda: threading.active_count() == threads, 5)
        until(lambda: len(os.listdir("/proc/self/fd")) <= files, 5)


def test_patterns_lists_and_stdin(scans: Path) -> None:
    assert names(["scans/*.png"]) == ["scans/b.png"]
    for words in (["scans/**"], ["scans/[ab]*", "scans/de?p"]):
        assert names(words) == [f"scans/{name}" for name in ALL]
    (scans / "[1].png").touch()
    assert names(["scans/[1].png"]) == ["scans/[1].png"]
    with pytest.raises(NothingToRead):
        names(["scans/*.gif"])
    Path("list.txt").write_bytes(b"scans/b.png\r\n\nscans/deep\nlast[1].png")
    wanted = ["scans/b.png", "scans/deep/c.png", "scans/deep/er/d.tif", "last[1].png"]
    assert names(["@list.txt"]) == wanted
    with pytest.raises(UsageError, match="@none"):
        names(["@none"])
    for data, null, wanted in (
        (b"a\nb\n\nc", False, ["a", "b", "c"]), (b"a\nb\0c\0", True, ["a\nb", "c"]),
        ("é.png\n".encode(), False, ["é.png"]),
    ):  # fmt: skip
        assert names(["-"], null=null, stdin=io.BytesIO(data)) == wanted
    zipfile.ZipFile("b.zip", "w").close()
    for data in (Path("b.zip").read_bytes(), b"a.png\n\xff\xfe\n", b"a.png\nb\0"):
        with pytest.raises(UsageError, match=r"^-: got binary data, expected names in UTF-8 .*; give"):
            names(["-"], stdin=io.BytesIO(data))
    with pytest.raises(UsageError, match=r"^@b\.zip: got binary data"):
        names(["@b.zip"])
    if sys.platform == "linux":
        Path("\udcff.png").touch()  # an old name
        assert names(["-"], stdin=io.BytesIO(b"\xff.png\n")) == ["\udcff.png"]


def test_names_on_stdin_are_not_waited_for_may_be_long_and_break_off(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb", buffering=0) as stream:
        found = find_inputs(["-"], stdin=stream)
        os.write(writer, b"first.png\nsec")
        assert next(found).source == "first.png"
        os.write(writer, b"ond.png\n")
        os.close(writer)
        assert [item.source for item in found] == ["second.png"]
    for null, end in ((False, b"\n"), (True, b"\0")):
        data, begun = io.BytesIO(b"a" * 2**22 + end + b"1.png"), time.perf_counter()
        long, good = find_inputs(["-"], null=null, stdin=data)
        assert time.perf_counter() - begun < 1.0
        assert len(long.source) <= 2 * MAX_NAME
        assert good.source == "1.png"
        with pytest.raises(InputError, match="name too long"):
            next(decode(long.picture()))
    broken = Mock(read1=Mock(side_effect=[b"a.png\nb.p", OSError(errno.EIO, "Input/output error")]))
    items = find_inputs(["-"], stdin=broken)
    assert next(items).source == "a.png"
    with pytest.raises(EndedEarly, match=r"the list breaks off \(input/output error\)"):
        next(items)


@pytest.mark.parametrize("null", [False, True])
def test_a_picture_on_stdin_and_names_that_begin_as_pictures_do(null: bool) -> None:
    for kind in FORMATS:
        data = page_file("7", kind=kind, mode="RGB")
        (item,) = find_inputs(["-"], null=null, stdin=io.BytesIO(data))
        assert (item.source, item.data) == ("-", data)
    end = "\0" if null else "\n"
    for name in ("BMW.jpg", "GIF89a.gif", "II.tif", "P5.pgm", "P5 1 2.pgm", "RIFF"):
        stream = io.BytesIO(f"{name}{end}b.png{end}".encode())
        assert names(["-"], null=null, stdin=stream) == [name, "b.png"]


def count_inputs(*words: str, shard: Shard | None = None) -> int | None:
    return Request(words, Format("text"), shard=shard).count()


def test_counting_and_shares(scans: Path) -> None:
    words = (["scans"], ["scans", "-"], ["a.tar.gz"], ["@missing"])
    assert [count_inputs(*some) for some in words] == [4, None, None, None]
    assert sum(count_inputs("scans", shard=Shard(i, 3)) or 0 for i in (1, 2, 3)) == 4
    assert is_one_file(["missing.png"])
    assert not any(map(is_one_file, (["scans"], ["-"], ["@list"], ["scans/*"], ["a.zip"], ["a", "b"])))
    keys = [f"deep/{i:05}.png" for i in range(3000)]
    shares = [[key for key in keys if Shard(i, 3).holds(key)] for i in (1, 2, 3)]
    assert sorted(key for share in shares for key in share) == keys
    assert all(900 < len(share) < 1100 for share in shares)
    for text in ("0/2", "3/2", "1", "a/b", "1/0", "-1/2", "1/2/3", ""):
        with pytest.raises(UsageError, match="expected I/N"):
            Shard.parse(text)


def test_no_input_is_written_over(scans: Path) -> None:
    Path("list.txt").write_text("scans/b.png")
    Path("plain").write_bytes(b"a picture")
    for name in ("link.png", "symbolic"):
        Path(name).symlink_to("scans/b.png")
    for name in ("a.zip", "c.zip"):
        zipfile.ZipFile(name, "w").close()
    os.link("scans/b.png", "hard")
    os.link("c.zip", "archive")
    for words, option in (
        ("scans -o symbolic --force", "-o"),
        ("scans -o hard --force", "-o"),
        ("scans/*.png -o hard --force", "-o"),
        ("@list.txt --report hard --force", "--report"),
        ("*.zip -o archive --force", "-o"),
        ("scans -o scans/b.png", "-o"),
        ("scans -o link.png", "-o"),
        ("scans --report scans/a.jpg", "--report"),
        ("plain -o ./plain --force", "-o"),
        ("@list.txt -o list.txt --force", "-o"),
        ("a.zip -o a.zip", "-o"),
        ("scans -o scans/notes.txt --report scans/../scans/notes.txt --force", "--report"),
    ):
        place = Path(words.split()[2])
        before = place.read_bytes()
        refused(f"; choose another {option}\n", "read", *words.split())
        assert place.read_bytes() == before


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX pipes")
def test_a_list_in_a_pipe_is_read_once_and_no_input_of_it_is_written_over(model: str, tmp_path: Path) -> None:
    picture, out = save_page(tmp_path / "p.png", "7"), tmp_path / "out.jsonl"
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.write(picture, "p.png")
    out.write_text("old")

    def piped(name: Path) -> list[str]:
        reader, writer = os.pipe()
        os.write(writer, f"{name}\n".encode())
        os.close(writer)
        assert count_inputs(f"@/dev/fd/{reader}") is None
        return ["read", f"@/dev/fd/{reader}", "--model", model, "--workers", "0", "--force"]

    assert run(*piped(picture), "-o", out).exit_code == 0
    assert '"text":"7"' in out.read_text()
    for name in (picture, tmp_path / "a.zip"):
        before, link = name.read_bytes(), tmp_path / f"{name.name}.txt"
        os.link(name, link)
        for option in ("-o", "--report"):
            refused(f"is also an input; choose another {option}", *piped(name), option, link)
            assert name.read_bytes() == before


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


def with_properties(size: int = 0, **values: str) -> bytes:
    """Headers of a picture in a pax archive, 512 bytes of them its own."""
    info = tarfile.TarInfo("a.png")
    info.size, info.pax_headers = size, {name.replace("_", "."): value for name, value in values.items()}
    return info.tobuf(tarfile.PAX_FORMAT)


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


@pytest.mark.parametrize(("place", "form", "value", "words"), [  # of the directory's entry
    (8, "<H", 1, "is encrypted"),
    (8, "<H", 0x20, "unusual method"),  # the difference from another
    (10, "<H", zipfile.ZIP_BZIP2, "unusual method"),
    (24, "<I", MAX_BYTES + 1, "unpacks to 268,435,457 bytes"),
])  # fmt: skip
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
        yield with_properties(2**25, GNU_sparse_major="1", GNU_sparse_minor="0", GNU_sparse_realsize="1")
        yield b"999999999999\n"
        yield from [(b"9" * 31 + b"\n") * 2**15] * 12
    elif kind == "chain":
        yield from [with_properties(comment="v" * 2**18)[:-512]] * 64
    elif kind == "for all":
        for number in range(128):
            yield tarfile.TarInfo.create_pax_global_header({f"k{number}": "v" * 2**18})
            yield header(b"0", 0, "notes.txt")
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
    taken(path, below=2**24)


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
