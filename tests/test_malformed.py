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
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.support import page, run, save_page, tiny_model

Maker = Callable[[Path], None]
PICTURES: dict[str, Maker] = {}
MODELS: dict[str, Maker] = {}
SETS: dict[str, Maker] = {}


def picture(name: str) -> Callable[[Maker], Maker]:
    return lambda make: PICTURES.setdefault(name, make)


def a_model(name: str) -> Callable[[Maker], Maker]:
    return lambda make: MODELS.setdefault(name, make)


def a_set(name: str) -> Callable[[Maker], Maker]:
    return lambda make: SETS.setdefault(name, make)


def check_line(line: str) -> None:
    assert line.startswith("neocog: ")
    assert "Traceback" not in line
    assert "please report" not in line
    assert len(line) > 30


# --- pictures that cannot be read -------------------------------------------------------------


def encoded(kind: str, folder: Path, **options: object) -> bytes:
    Image.fromarray(page("123")).convert("RGB").save(folder / "whole", kind, **options)
    data = (folder / "whole").read_bytes()
    (folder / "whole").unlink()
    return data


@picture("empty.png")
def _(path: Path) -> None:
    path.touch()


@picture("one_byte.jpg")
def _(path: Path) -> None:
    path.write_bytes(b"\xff")


@picture("header_only.png")
def _(path: Path) -> None:
    path.write_bytes(b"\x89PNG\r\n\x1a\n")


@picture("text.png")
def _(path: Path) -> None:
    path.write_text("this is not a picture\n" * 50)


@picture("binary.tif")
def _(path: Path) -> None:
    path.write_bytes(np.random.default_rng(0).bytes(5000))


@picture("page.html.jpg")
def _(path: Path) -> None:
    path.write_text("<!DOCTYPE html><html><body>404</body></html>")


@picture("cut.png")
def _(path: Path) -> None:
    path.write_bytes(encoded("PNG", path.parent)[:2000])


@picture("cut.jpg")
def _(path: Path) -> None:
    data = encoded("JPEG", path.parent)
    path.write_bytes(data[: len(data) // 2])


@picture("cut.tif")
def _(path: Path) -> None:
    data = encoded("TIFF", path.parent)
    path.write_bytes(data[: len(data) // 2])


@picture("cut.bmp")
def _(path: Path) -> None:
    path.write_bytes(encoded("BMP", path.parent)[:500])


@picture("cut.webp")
def _(path: Path) -> None:
    data = encoded("WEBP", path.parent)
    path.write_bytes(data[: len(data) // 2])


@picture("cut.gif")
def _(path: Path) -> None:
    path.write_bytes(encoded("GIF", path.parent)[:40])


@picture("wrong_checksum.png")
def _(path: Path) -> None:
    data = bytearray(encoded("PNG", path.parent))
    data[20] ^= 0x55  # inside the header
    path.write_bytes(data)


@picture("huge.png")
def _(path: Path) -> None:
    """A 20 000 x 20 000 picture in a few bytes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", 20_000, 20_000, 8, 0, 0, 0, 0)
    rows = zlib.compress(bytes(1000))
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    )


@picture("huge.ppm")
def _(path: Path) -> None:
    path.write_bytes(b"P6 4000000000 4000000000 255\n" + bytes(100))


@picture("none.bmp")
def _(path: Path) -> None:
    """A BMP of no columns."""
    data = bytearray(encoded("BMP", path.parent))
    data[18:22] = bytes(4)
    path.write_bytes(data)


@picture("pickle.png")
def _(path: Path) -> None:
    path.write_bytes(pickle.dumps({"a": 1}))


@picture("archive.jpg")
def _(path: Path) -> None:
    path.write_bytes(b"PK\x03\x04" + bytes(200))


@picture("gz.png")
def _(path: Path) -> None:
    path.write_bytes(gzip.compress(encoded("PNG", path.parent)))


@picture("dangling.png")
def _(path: Path) -> None:
    path.symlink_to(path.parent / "nowhere.png")


@picture("circle.png")
def _(path: Path) -> None:
    path.symlink_to(path)


@picture("pipe.png")
def _(path: Path) -> None:
    os.mkfifo(path)


@picture("folder_in_a_file.png/x.png")
def _(path: Path) -> None:
    path.parent.touch()


@picture("missing.png")
def _(path: Path) -> None:
    pass


@picture("n" * 300 + ".png")
def _(path: Path) -> None:
    """A name longer than any file's."""


@picture("secret.png")
def _(path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("needs a user who may not read everything")
    save_page(path, "1")
    path.chmod(0)


@pytest.mark.parametrize("name", PICTURES)
def test_a_broken_picture_is_one_line(name: str, tmp_path: Path, model: str) -> None:
    broken, good = tmp_path / name, save_page(tmp_path / "good.png", "42")
    PICTURES[name](broken)
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


@a_model("cut")
def _(path: Path) -> None:
    tiny_model().save(path)
    path.write_bytes(path.read_bytes()[:-1000])


@a_model("empty")
def _(path: Path) -> None:
    path.touch()


@a_model("text")
def _(path: Path) -> None:
    path.write_text("a model")


@a_model("a false length")
def _(path: Path) -> None:
    path.write_bytes(struct.pack("<Q", 2**60) + b"{}")


@a_model("pickle")
def _(path: Path) -> None:
    path.write_bytes(pickle.dumps({"US1": [1.0]}))


@a_model("not a number")
def _(path: Path) -> None:
    _spoil(path, lambda reference: np.full_like(reference, np.nan))


@a_model("negative")
def _(path: Path) -> None:
    _spoil(path, lambda reference: -reference)


@a_model("wrong shape")
def _(path: Path) -> None:
    _spoil(path, lambda reference: reference[:, :-1])


@a_model("no planes")
def _(path: Path) -> None:
    _spoil(path, lambda reference: reference[:0])


@a_model("flat")
def _(path: Path) -> None:
    _spoil(path, lambda reference: reference.ravel())


@a_model("of another program")
def _(path: Path) -> None:
    from safetensors.numpy import save_file

    save_file({"weight": np.zeros((3, 3), np.float32)}, path)


@a_model("folder")
def _(path: Path) -> None:
    path.mkdir()


@a_model("missing")
def _(path: Path) -> None:
    pass


def _spoil(path: Path, change: Callable[[np.ndarray], np.ndarray]) -> None:
    whole = tiny_model()
    s1, s2, s3, s4 = whole.s
    s2 = replace(s2, reference=np.ascontiguousarray(change(s2.reference)))
    from neocog.network.model import to_bytes

    path.write_bytes(to_bytes(replace(whole, s=(s1, s2, s3, s4))))


@pytest.mark.parametrize("name", MODELS)
def test_a_broken_model_is_one_line(name: str, tmp_path: Path) -> None:
    file, good = tmp_path / "m.safetensors", save_page(tmp_path / "good.png", "42")
    MODELS[name](file)
    result = run("read", good, "--model", file)
    assert (result.exit_code, result.stdout) == (4, "")
    (line,) = result.stderr.splitlines()
    check_line(line)
    assert str(file) in line


# --- labelled sets ----------------------------------------------------------------------------


def images_file(folder: Path, *, count: int = 10, name: str = "t10k") -> Path:
    head = struct.pack(">4I", 0x803, count, 28, 28)
    path = folder / f"{name}-images-idx3-ubyte"
    path.write_bytes(head + bytes(10 * 784))
    return path


def labels_file(folder: Path, data: bytes = bytes(range(10)), *, count: int = 10) -> Path:
    path = folder / "t10k-labels-idx1-ubyte"
    path.write_bytes(struct.pack(">2I", 0x801, count) + data)
    return path


@a_set("IDX without labels")
def _(folder: Path) -> None:
    images_file(folder)


@a_set("IDX images cut short")
def _(folder: Path) -> None:
    labels_file(folder)
    path = images_file(folder)
    path.write_bytes(path.read_bytes()[:-1])


@a_set("IDX labels too long")
def _(folder: Path) -> None:
    images_file(folder)
    labels_file(folder, bytes(11))


@a_set("IDX header cut short")
def _(folder: Path) -> None:
    labels_file(folder)
    images_file(folder).write_bytes(b"\0\0\x08")


@a_set("IDX of four billion digits")
def _(folder: Path) -> None:
    labels_file(folder)
    images_file(folder, count=2**32 - 1)


@a_set("IDX labels beyond 9")
def _(folder: Path) -> None:
    images_file(folder)
    labels_file(folder, bytes([65] * 10))


@a_set("IDX of another size")
def _(folder: Path) -> None:
    labels_file(folder)
    images_file(folder).write_bytes(struct.pack(">4I", 0x803, 10, 32, 32) + bytes(10 * 1024))


@a_set("IDX labels where images are wanted")
def _(folder: Path) -> None:
    images_file(folder).write_bytes(labels_file(folder).read_bytes())


@a_set("IDX with no digits")
def _(folder: Path) -> None:
    labels_file(folder, b"", count=0)
    images_file(folder).write_bytes(struct.pack(">4I", 0x803, 0, 28, 28))


@a_set("IDX gz cut short")
def _(folder: Path) -> None:
    labels_file(folder)
    path = images_file(folder)
    noise = np.random.default_rng(0).bytes(7840)
    path.write_bytes(gzip.compress(path.read_bytes()[:16] + noise)[:-500])


@a_set("IDX gz damaged")
def _(folder: Path) -> None:
    labels_file(folder)
    path = images_file(folder)
    data = bytearray(gzip.compress(path.read_bytes()))
    data[12:40] = b"\xff" * 28
    path.write_bytes(data)


@a_set("IDX images are a folder")
def _(folder: Path) -> None:
    (folder / "t10k-images-idx3-ubyte").mkdir()


@a_set("USPS cut short")
def _(folder: Path) -> None:
    (folder / "zip.test").write_text("7 " + "0.5 " * 255)


@a_set("USPS of words")
def _(folder: Path) -> None:
    (folder / "zip.test").write_text("seven " * 257)


@a_set("USPS out of range")
def _(folder: Path) -> None:
    (folder / "zip.test").write_text("7 " + "128 " * 256)


@a_set("USPS not a number")
def _(folder: Path) -> None:
    (folder / "zip.test").write_text("nan " * 257)


@a_set("USPS empty")
def _(folder: Path) -> None:
    (folder / "zip.test.gz").write_bytes(gzip.compress(b"\n\n"))


@a_set("labels.csv without columns")
def _(folder: Path) -> None:
    (folder / "labels.csv").write_text("picture,answer\na.png,12\n")


@a_set("labels.csv empty")
def _(folder: Path) -> None:
    (folder / "labels.csv").touch()


@a_set("labels.csv with a header alone")
def _(folder: Path) -> None:
    (folder / "labels.csv").write_text("file,text\n")


@a_set("labels.csv cut short")
def _(folder: Path) -> None:
    (folder / "labels.csv").write_text("file,text\na.png,12\nb.pn")


@a_set("labels.csv not text")
def _(folder: Path) -> None:
    (folder / "labels.csv").write_bytes(b"file,text\n\xff\xfe,12\n")


@a_set("labels.csv with an open quote")
def _(folder: Path) -> None:
    (folder / "labels.csv").write_text('file,text\n"a.png,12\n')


@a_set("labels.csv with zero bytes")
def _(folder: Path) -> None:
    (folder / "labels.csv").write_bytes(b"file,text\na\0.png,12\n")


@a_set("folders 0 to 9 without pictures")
def _(folder: Path) -> None:
    (folder / "3").mkdir()


@a_set("folders 0 to 9 with a broken picture")
def _(folder: Path) -> None:
    (folder / "3").mkdir()
    (folder / "3" / "a.png").write_bytes(b"\x89PNG")


@a_set("folders 0 to 9 with a pipe")
def _(folder: Path) -> None:
    (folder / "3").mkdir()
    os.mkfifo(folder / "3" / "a.png")


@a_set("an empty folder")
def _(folder: Path) -> None:
    pass


@pytest.mark.parametrize("name", SETS)
def test_a_broken_set_is_one_line(name: str, tmp_path: Path, model: str) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    SETS[name](folder)
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


def test_there_are_enough_of_them() -> None:
    assert len(PICTURES) + len(MODELS) + len(SETS) >= 60
