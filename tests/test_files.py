"""Files are written whole or not at all; JSON has no NaN; texts have a distance."""

import json
import os
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import neocog
from neocog.errors import UsageError
from neocog.files import atomic_write, check_output
from neocog.text import edit_distance, to_json


def test_a_block_that_raises_leaves_what_was_there(tmp_path):
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


def test_what_can_be_written_stays_as_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a").write_bytes(b"old")
    for name, more in (("a", {}), ("b", {}), ("deep/er/c", {"make": True}),
                       ("figures", {"folder": True, "make": True})):  # fmt: skip
        check_output(name, "-o", **more)
    assert Path("a").read_bytes() == b"old"
    assert sorted(os.listdir()) == ["a", "deep", "figures"]
    assert os.listdir("deep/er") == os.listdir("figures") == []


@pytest.mark.parametrize(("place", "more", "words"), [
    ("", {}, "is a folder, expected a file"),
    ("no/b", {}, "(no such folder)"),
    ("a/b", {}, "/a (not a folder)"),
    ("a/b/c", {"make": True}, "/a/b (not a folder)"),
    ("a", {"make": True, "folder": True}, "files cannot be written there (not a folder)"),
    ("b" * 250, {}, "(file name too long)"),
])  # fmt: skip
def test_what_cannot_be_written(place, more, words, tmp_path):
    (tmp_path / "a").touch()
    with pytest.raises(UsageError) as told:
        check_output(tmp_path / place, "--there", **more)
    assert str(told.value).startswith(f"{tmp_path / place}: ")
    assert words in str(told.value)
    assert str(told.value).endswith("; choose another --there")
    assert os.listdir(tmp_path) == ["a"]


def test_numbers_that_are_not_finite_are_null_in_json():
    value = {"a": [1.5, np.nan, (np.inf, None)], "b": {"c": -np.inf, "d": np.float64("nan")}}
    assert json.loads(to_json(value)) == {"a": [1.5, None, [None, None]], "b": {"c": None, "d": None}}
    assert to_json({"a": 1}, indent=1) == json.dumps({"a": 1}, indent=1)
    assert to_json({float("nan"): 1}) == '{"nan": 1}'
    # and nothing else writes it, but the model file, which refuses such numbers
    own = [path for path in Path(neocog.__file__).parent.rglob("*.py") if "json.dump" in path.read_text()]
    assert {path.name for path in own} == {"text.py", "model.py"}


@pytest.mark.parametrize(
    ("left", "right", "edits"),
    [("", "123", 3), ("1234", "134", 1), ("12", "21", 2), ("07946", "0?94", 2), ("?7", "07946", 4)],
)
def test_edit_distance(left, right, edits):
    assert edit_distance(left, right) == edits
