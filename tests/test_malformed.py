"""Inputs that are broken in every way that came to mind.

Each must give one line that says what came, leave the others to be read, and end with the exit
code that is documented; none may show a traceback, hang, or take the memory it asks for.
"""

import gzip
import os
import pickle
import resource
import struct
import sys
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save

from tests.picture_files import page_file
from tests.support import page, run, save_page, tiny_model

Maker = Callable[[Path], object]
"""Makes what shall lie at a path, or returns its bytes."""


def make(maker: Maker, path: Path) -> None:
    data = maker(path)
    if isinstance(data, bytes | bytearray):
        path.write_bytes(data)


def check_line(line: str) -> None:
    assert line.startswith("neocog: ")
    assert "Traceback" not in line
    assert "please report" not in line
    assert len(line) > 30


# --- pictures that cannot be read -------------------------------------------------------------


def encoded(kind: str) -> bytes:
    return page_file("123", kind=kind, mode="RGB")


def half(kind: str) -> Maker:
    return lambda path: encoded(kind)[: len(encoded(kind)) // 2]


def replaced(kind: str, place: slice, data: bytes) -> bytes:
    whole = bytearray(encoded(kind))
    whole[place] = data
    return bytes(whole)


def huge_png(path: Path) -> bytes:
    """A 20 000 x 20 000 picture in a few bytes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 20_000, 20_000, 8, 0, 0, 0, 0)
    rows = zlib.compress(bytes(1000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def secret(path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("needs a user who may not read everything")
    save_page(path, "1")
    path.chmod(0)


PICTURES: dict[str, Maker] = {
    "empty.png": lambda path: b"",
    "one_byte.jpg": lambda path: b"\xff",
    "header_only.png": lambda path: b"\x89PNG\r\n\x1a\n",
    "text.png": lambda path: b"this is not a picture\n" * 50,
    "binary.tif": lambda path: np.random.default_rng(0).bytes(5000),
    "page.html.jpg": lambda path: b"<!DOCTYPE html><html><body>404</body></html>",
    "cut.png": lambda path: encoded("PNG")[:2000],
    "cut.jpg": half("JPEG"),
    "cut.tif": half("TIFF"),
    "cut.bmp": lambda path: encoded("BMP")[:500],
    "cut.webp": half("WEBP"),
    "cut.gif": lambda path: encoded("GIF")[:40],
    "wrong_checksum.png": lambda path: replaced("PNG", slice(20, 21), b"\x55"),  # of the header
    "huge.png": huge_png,
    "huge.ppm": lambda path: b"P6 4000000000 4000000000 255\n" + bytes(100),
    "no_columns.bmp": lambda path: replaced("BMP", slice(18, 22), bytes(4)),
    "pickle.png": lambda path: pickle.dumps({"a": 1}),
    "archive.jpg": lambda path: b"PK\x03\x04" + bytes(200),
    "gz.png": lambda path: gzip.compress(encoded("PNG")),
    "dangling.png": lambda path: path.symlink_to(path.parent / "nowhere.png"),
    "circle.png": lambda path: path.symlink_to(path),
    "pipe.png": os.mkfifo,
    "folder_in_a_file.png/x.png": lambda path: path.parent.touch(),
    "missing.png": lambda path: None,
    "n" * 300 + ".png": lambda path: None,  # a name longer than any file's
    "secret.png": secret,
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_broken_picture_is_one_line(name: str, tmp_path: Path, model: str) -> None:
    broken, good = tmp_path / name, save_page(tmp_path / "good.png", "42")
    make(PICTURES[name], broken)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = run("read", broken, good, "--model", model)
    assert result.exit_code == 1
    assert result.stdout == f"{good}: 42\n"
    line, summary = result.stderr.splitlines()
    check_line(line)
    assert str(broken) in line
    assert ", 1 failed; " in summary
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 300_000 * (1024 if sys.platform == "darwin" else 1)


# --- pictures that are odd, but can be read ---------------------------------------------------


def test_odd_pictures_are_read(tmp_path: Path, model: str) -> None:
    def save(name: str, image: Image.Image, kind: str | None = None, **options: object) -> None:
        image.save(tmp_path / name, kind, **options)

    written = Image.fromarray(page("123"))
    save("dot.png", Image.new("L", (1, 1)))
    save("row.png", Image.new("L", (3000, 1), 255))
    save("column.bmp", Image.new("L", (1, 3000), 255))
    save("wrong_suffix.jpg", written, "PNG")
    save("no_suffix", written, "JPEG")
    save("moving.gif", written, save_all=True, append_images=[Image.fromarray(page("999"))])
    save("moving.webp", written, save_all=True, append_images=[Image.fromarray(page("999"))])
    save("deep.png", Image.fromarray(page("123").astype(np.uint16) * 257))
    save("palette.png", written.convert("P"))
    with (tmp_path / "longer.png").open("wb") as stream:
        written.save(stream, "PNG")
        stream.write(b"more than a picture" * 100)
    files = sorted(path for path in tmp_path.iterdir() if path.name != "no_suffix")
    result = run("read", *files, tmp_path / "no_suffix", "--model", model)
    assert result.exit_code == 0, result.stderr
    read = dict(line.rsplit(": ", 1) for line in result.stdout.splitlines())
    texts = {Path(name).name: text for name, text in read.items()}
    empty = {"dot.png", "row.png", "column.bmp"}
    assert {name for name, text in texts.items() if text == ""} == empty
    assert {text for name, text in texts.items() if name not in empty} == {"123"}


def test_a_folder_named_like_a_picture(tmp_path: Path, model: str) -> None:
    (tmp_path / "x.png").mkdir()
    result = run("read", tmp_path / "x.png", "--model", model)
    assert result.exit_code == 3
    check_line(result.stderr.strip())
    good = save_page(tmp_path / "good.png", "42")
    both = run("read", tmp_path / "x.png", good, "--model", model)
    assert (both.exit_code, both.stdout) == (0, f"{good}: 42\n")


def test_names_that_are_not_text(tmp_path: Path, model: str) -> None:
    try:
        save_page(tmp_path / "bad\udcff\n.png", "42")
    except OSError:
        pytest.skip("needs a file system whose names may be no text")
    result = run("read", tmp_path, "--model", model)
    assert result.exit_code == 0
    assert result.stdout == f"{tmp_path}/bad\\udcff\\n.png: 42\n"


# --- models -----------------------------------------------------------------------------------


def spoiled(change: Callable[[np.ndarray], np.ndarray]) -> Maker:
    from neocog.network.model import to_bytes

    def make(path: Path) -> bytes:
        whole = tiny_model()
        s1, s2, s3, s4 = whole.s
        s2 = replace(s2, reference=np.ascontiguousarray(change(s2.reference)))
        return to_bytes(replace(whole, s=(s1, s2, s3, s4)))

    return make


def cut_model(path: Path) -> bytes:
    tiny_model().save(path)
    return path.read_bytes()[:-1000]


MODELS: dict[str, Maker] = {
    "cut": cut_model,
    "empty": lambda path: b"",
    "text": lambda path: b"a model",
    "a false length": lambda path: struct.pack("<Q", 2**60) + b"{}",
    "pickle": lambda path: pickle.dumps({"US1": [1.0]}),
    "not a number": spoiled(lambda reference: np.full_like(reference, np.nan)),
    "negative": spoiled(lambda reference: -reference),
    "wrong shape": spoiled(lambda reference: reference[:, :-1]),
    "no planes": spoiled(lambda reference: reference[:0]),
    "flat": spoiled(lambda reference: reference.ravel()),
    "of another program": lambda path: save({"weight": np.zeros((3, 3), np.float32)}),
    "folder": Path.mkdir,
    "missing": lambda path: None,
}


@pytest.mark.parametrize("name", MODELS)
def test_a_broken_model_is_one_line(name: str, tmp_path: Path) -> None:
    file, good = tmp_path / "m.safetensors", save_page(tmp_path / "good.png", "42")
    make(MODELS[name], file)
    result = run("read", good, "--model", file)
    assert (result.exit_code, result.stdout) == (4, "")
    (line,) = result.stderr.splitlines()
    check_line(line)
    assert str(file) in line


# --- labelled sets ----------------------------------------------------------------------------


def write(data: bytes, path: Path) -> None:
    path.write_bytes(data)


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
FILES: dict[str, tuple[str, Maker]] = {
    "IDX images are a folder": ("t10k-images-idx3-ubyte", Path.mkdir),
    "USPS cut short": ("zip.test", lambda path: b"7 " + b"0.5 " * 255),
    "USPS of words": ("zip.test", lambda path: b"seven " * 257),
    "USPS out of range": ("zip.test", lambda path: b"7 " + b"128 " * 256),
    "USPS not a number": ("zip.test", lambda path: b"nan " * 257),
    "USPS empty": ("zip.test.gz", lambda path: gzip.compress(b"\n\n")),
    "labels.csv without columns": ("labels.csv", lambda path: b"picture,answer\na.png,12\n"),
    "labels.csv empty": ("labels.csv", lambda path: b""),
    "labels.csv with a header alone": ("labels.csv", lambda path: b"file,text\n"),
    "labels.csv cut short": ("labels.csv", lambda path: b"file,text\na.png,12\nb.pn"),
    "labels.csv not text": ("labels.csv", lambda path: b"file,text\n\xff\xfe,12\n"),
    "labels.csv with an open quote": ("labels.csv", lambda path: b'file,text\n"a.png,12\n'),
    "labels.csv with zero bytes": ("labels.csv", lambda path: b"file,text\na\0.png,12\n"),
    "folders 0 to 9 without pictures": ("3", Path.mkdir),
    "folders 0 to 9 with a broken picture": ("3/a.png", lambda path: b"\x89PNG"),
    "folders 0 to 9 with a pipe": ("3/a.png", os.mkfifo),
    "an empty folder": ("x", lambda path: None),
}
SETS: dict[str, list[tuple[str, Maker]]] = {name: [made] for name, made in FILES.items()}
for name, datas in IDX.items():
    SETS[f"IDX {name}"] = [
        (f"t10k-{what}-ubyte", partial(write, data))
        for what, data in zip(("images-idx3", "labels-idx1"), datas, strict=True)
        if data is not None
    ]


@pytest.mark.parametrize("name", SETS)
def test_a_broken_set_is_one_line(name: str, tmp_path: Path, model: str) -> None:
    folder = tmp_path / "set"
    for place, maker in SETS[name]:
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        make(maker, folder / place)
    result = run("eval", folder, "--model", model)
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    check_line(line)
    assert str(folder) in line
    assert result.stdout == ""


def test_a_set_that_is_not_there(tmp_path: Path, model: str) -> None:
    for place in (tmp_path / "none", tmp_path / "none.csv"):
        result = run("eval", place, "--model", model)
        assert result.exit_code == 1
        check_line(result.stderr.strip())
