"""Inputs that are broken in every way that came to mind.

Each gives one line that says what came, leaves the others to be read, and ends with the exit code that is
documented; none shows a traceback, hangs, or takes the memory it asks for.
"""

import gzip
import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from neocog.vision.decode import FORMATS
from tests.support import page, page_file, refused, run, save_page

Maker = Callable[[Path], object]
"""Makes what shall lie at a path."""


def make(made: bytes | Maker | None, path: Path) -> None:
    if callable(made):
        made(path)
    elif made is not None:
        path.write_bytes(made)


def check_line(line: str) -> None:
    assert line.startswith("neocog: ")
    assert "Traceback" not in line
    assert "please report" not in line
    assert len(line) > 30


PICTURES: dict[str, bytes | Maker | None] = {
    "empty.png": b"",
    "text.png": b"this is not a picture\n" * 50,
    **{f"cut.{kind}": page_file("123", kind=kind, mode="RGB")[:800] for kind in FORMATS},
    "huge.ppm": b"P6 4000000000 4000000000 255\n" + bytes(100),
    "pickle.png": pickle.dumps({"a": 1}),
    "dangling.png": lambda path: path.symlink_to(path.parent / "nowhere.png"),
    "circle.png": lambda path: path.symlink_to(path),
    "folder_in_a_file.png/x.png": lambda path: path.parent.touch(),
    "missing.png": None,
    "n" * 300 + ".png": None,  # a name longer than any file's
}  # fmt: skip
if sys.platform != "win32":
    PICTURES["pipe.png"] = os.mkfifo
    if os.geteuid():  # who may not read everything
        PICTURES["secret.png"] = lambda path: save_page(path, "1").chmod(0)


def test_broken_pictures_are_a_line_each(tmp_path: Path, model: str) -> None:
    resource, good = pytest.importorskip("resource"), save_page(tmp_path / "good.png", "42")
    for name, made in PICTURES.items():
        make(made, tmp_path / name)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = run("read", *(tmp_path / name for name in PICTURES), good, "--model", model, "--workers", "0")
    assert (result.exit_code, result.stdout) == (1, f"{good}: 42\n")
    *lines, summary = result.stderr.splitlines()
    assert f", {len(lines)} failed; " in summary
    for name in PICTURES:
        (line,) = (line for line in lines if line.startswith(f"neocog: {tmp_path / name}: "))
        check_line(line)
        lines.remove(line)
    assert lines == []
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 300_000 * (1024 if sys.platform == "darwin" else 1)


def test_odd_pictures_are_read(tmp_path: Path, model: str) -> None:
    written, other = Image.fromarray(page("123")), Image.fromarray(page("999"))
    Image.new("L", (1, 1)).save(tmp_path / "dot.png")
    Image.new("L", (3000, 1), 255).save(tmp_path / "row.png")
    Image.new("L", (1, 3000), 255).save(tmp_path / "column.bmp")
    for name in ("moving.gif", "moving.webp"):
        written.save(tmp_path / name, save_all=True, append_images=[other])
    (tmp_path / "wrong_suffix.jpg").write_bytes(page_file("123"))
    (tmp_path / "no_suffix").write_bytes(page_file("123", kind="JPEG"))
    (tmp_path / "longer.png").write_bytes(page_file("123") + b"more than a picture" * 100)
    files = sorted(path for path in tmp_path.iterdir())
    result = run("read", *files, "--model", model)
    assert result.exit_code == 0, result.stderr
    read = dict(line.rsplit(": ", 1) for line in result.stdout.splitlines())
    texts = {Path(name).name: text for name, text in read.items()}
    empty = {"dot.png", "row.png", "column.bmp"}
    assert texts == {path.name: "" if path.name in empty else "123" for path in files}


def test_names_of_folders_and_names_that_are_not_text(tmp_path: Path, model: str) -> None:
    words = ("read", tmp_path / "x.png", "--model", model)
    (tmp_path / "x.png").mkdir()
    check_line(refused("", *words, code=3))
    good = save_page(tmp_path / "x.png" / "good.png", "42")
    assert run(*words).stdout == f"{good}: 42\n"
    try:
        save_page(tmp_path / "bad\udcff\n.png", "42")
    except OSError:
        pytest.skip("needs a file system whose names may be no text")
    good.unlink()
    result = run("read", tmp_path, "--model", model)
    assert (result.exit_code, result.stdout) == (0, f"{tmp_path}/bad\\udcff\\n.png: 42\n")


@pytest.mark.skipif(sys.platform == "win32", reason="needs pseudo-terminals")
def test_a_bar_where_stderr_is_a_terminal(model: str, tmp_path: Path) -> None:
    import pty

    save_page(tmp_path / "a.png", "7")
    (tmp_path / "bad.png").touch()
    own, theirs = pty.openpty()
    command = [sys.executable, "-m", "neocog", "read", str(tmp_path), "--model", model]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, text=True)
    seen = os.read(own, 2**16)
    os.close(own)
    os.close(theirs)
    assert (done.returncode, done.stdout) == (1, f"{tmp_path}/a.png: 7\n")
    assert b"reading" in seen
    assert b"bad.png: the file is empty" in seen


IMAGES = struct.pack(">4I", 0x803, 10, 28, 28) + bytes(10 * 784)
LABELS = struct.pack(">2I", 0x801, 10) + bytes(range(10))
NOISE = gzip.compress(IMAGES[:16] + np.random.default_rng(0).bytes(7840))
WHOLE = gzip.compress(IMAGES)
IDX: dict[str, tuple[bytes, bytes | None]] = {
    "without labels": (IMAGES, None),
    "images cut short": (IMAGES[:-1], LABELS),
    "labels too long": (IMAGES, LABELS + b"\0"),
    "header cut short": (b"\0\0\x08", LABELS),
    "of four billion digits": (struct.pack(">2I", 0x803, 2**32 - 1) + IMAGES[8:], LABELS),
    "labels beyond 9": (IMAGES, LABELS[:8] + bytes([65] * 10)),
    "of another size": (struct.pack(">4I", 0x803, 10, 32, 32) + bytes(10 * 1024), LABELS),
    "labels where images are wanted": (LABELS, LABELS),
    "with no digits": (struct.pack(">4I", 0x803, 0, 28, 28), struct.pack(">2I", 0x801, 0)),
    "gz cut short": (NOISE[:-500], LABELS),
    "gz damaged": (WHOLE[:12] + b"\xff" * 28 + WHOLE[40:], LABELS),
}
TABLES = {
    "cut short": b"file,text\na.png,12\nb.pn", "not text": b"file,text\n\xff\xfe,12\n",
    "with an open quote": b'file,text\n"a.png,12\n', "with zero bytes": b"file,text\na\0.png,12\n",
}  # fmt: skip
SETS: dict[str, list[tuple[str, bytes | Maker | None]]] = {
    "IDX images are a folder": [("t10k-images-idx3-ubyte", Path.mkdir)],
    "USPS cut short": [("zip.test", b"7 " + b"0.5 " * 255)],
    "USPS empty": [("zip.test.gz", gzip.compress(b"\n\n"))],
    **{f"labels.csv {name}": [("labels.csv", data)] for name, data in TABLES.items()},
    "folders 0 to 9 without pictures": [("3", Path.mkdir)],
    "folders 0 to 9 with a broken picture": [("3/a.png", b"\x89PNG")],
    **({"folders 0 to 9 with a pipe": [("3/a.png", os.mkfifo)]} if hasattr(os, "mkfifo") else {}),
    "an empty folder": [("x", None)],
    **{f"IDX {name}": [("t10k-images-idx3-ubyte", images), ("t10k-labels-idx1-ubyte", labels)]
       for name, (images, labels) in IDX.items()},
}  # fmt: skip


@pytest.mark.parametrize("name", [*SETS, "none", "none.csv"])
def test_a_broken_set_is_one_line(name: str, tmp_path: Path, model: str) -> None:
    folder = tmp_path / name.replace(" ", "-")
    for place, made in SETS.get(name, []):
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        make(made, folder / place)
    check_line(refused(str(folder), "eval", folder, "--model", model, code=1))
