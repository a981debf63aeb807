"""Files are written whole or not at all; what cannot be written is refused before the work."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from neocog.errors import UsageError
from neocog.files import atomic_write, check_output


def test_a_block_that_raises_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with suppress(ZeroDivisionError), atomic_write(path) as stream:
        stream.write(b"new")
        raise ZeroDivisionError
    assert path.read_bytes() == b"old"
    with atomic_write(path) as stream:
        stream.write(b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["a"]


def test_what_can_be_written_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a").write_bytes(b"old")
    check_output("a", "-o")
    check_output("b", "-o")
    check_output("deep/er/c", "-o", make=True)
    check_output("figures", "--figures", folder=True, make=True)
    assert Path("a").read_bytes() == b"old"
    assert sorted(os.listdir()) == ["a", "deep", "figures"]
    assert os.listdir("deep/er") == os.listdir("figures") == []


@pytest.mark.parametrize(
    ("place", "more", "words"),
    [
        ("", {}, "is a folder, expected a file"),
        ("no/b", {}, "(no such folder)"),
        ("a/b", {}, "/a (not a folder)"),
        ("a/b", {"make": True}, "/a (not a folder)"),
        ("a/b/c", {"make": True}, "/a/b (not a folder)"),
        ("a", {"make": True, "folder": True}, "files cannot be written there (not a folder)"),
        ("b" * 250, {}, "(file name too long)"),
    ],
)
def test_what_cannot_be_written(place: str, more: dict[str, Any], words: str, tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(UsageError) as told:
        check_output(tmp_path / place, "--there", **more)
    assert str(told.value).startswith(f"{tmp_path / place}: ")
    assert words in str(told.value)
    assert str(told.value).endswith("; choose another --there")
    assert os.listdir(tmp_path) == ["a"]
