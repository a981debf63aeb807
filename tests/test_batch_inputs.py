"""Inputs of a batch: files, folders, patterns, lists and stdin, and shares of them."""

import errno
import inspect
import io
import os
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from neocog.batch.inputs import MAX_NAME, Shard, find_inputs, is_one_file
from neocog.batch.run import Request
from neocog.errors import EndedEarly, InputError, NothingToRead, UsageError
from neocog.reading import addresses
from neocog.reading.formats import Format
from neocog.vision.decode import FORMATS, decode
from tests.live_support import RawServer
from tests.support import page_file, refused, run, save_page, until


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
    scandir = os.scandir

    def fail(folder: str) -> object:
        if folder.endswith("deep"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", fail)
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
        for _ in range(3):
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
    left = [b"a.png\nb.p"]

    class Broken(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            if not left:
                raise OSError(errno.EIO, "Input/output error")
            return left.pop()

    items = find_inputs(["-"], stdin=Broken())  # type: ignore[arg-type]
    assert next(items).source == "a.png"
    with pytest.raises(EndedEarly, match=r"the list breaks off \(input/output error\)"):
        next(items)


@pytest.mark.parametrize("null", [False, True])
def test_a_picture_on_stdin_and_names_that_begin_as_pictures_do(null: bool) -> None:
    for kind in FORMATS:
        data = page_file("7", kind=kind)
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
