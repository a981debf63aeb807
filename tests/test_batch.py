"""From pictures to records: what is read, in which order, and what becomes of failures."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from neocog import Reader
from neocog.batch.report import PictureFolder
from neocog.errors import DeviceError, InputError, ModelError, NothingToRead, UsageError
from neocog.network.arrays import module_of_device
from neocog.reading.device import choose_device
from neocog.reading.records import PageReading
from neocog.vision.finder import overlaps
from tests.support import page, save_page, tiny_model


def test_lines_are_read_in_order(reader: Reader, tmp_path: Path) -> None:
    text = "0123\n45\n6789"
    reading = reader.read(save_page(tmp_path / "a.png", text))
    assert reading.text == text
    assert "".join(digit.char for digit in reading.digits) == "0123456789"
    assert reading.source == str(tmp_path / "a.png")
    assert reading.model == reader.model.id
    assert reading.error is None
    assert reading.ms is not None
    assert list(reading.ms) == ["decode", "find", "recognise"]


def test_boxes_count_in_pixels_of_the_picture(reader: Reader, tmp_path: Path) -> None:
    small = Image.fromarray(page("38"))
    large = small.resize((small.width * 9, small.height * 9), Image.Resampling.BICUBIC)
    large.save(tmp_path / "large.png")
    boxes = [digit.box for digit in reader.read(small).digits]
    nine = [digit.box for digit in reader.read(tmp_path / "large.png").digits]
    union, _, _ = overlaps(np.float32(boxes), np.float32(nine) / 9)
    assert (np.diag(union) > 0.7).all()


def test_pixels_are_reduced_as_a_file_is(reader: Reader, tmp_path: Path) -> None:
    strip = Image.fromarray(page("3810479265")[60:180])
    large = strip.resize((strip.width * 4, strip.height * 4), Image.Resampling.BICUBIC)
    large.save(tmp_path / "large.png")
    wanted = reader.read(tmp_path / "large.png")
    assert wanted.text == "3810479265"
    deep = np.asarray(large).astype(np.uint16) * 257
    for pixels in (large, np.asarray(large), np.asarray(large.convert("RGB")), deep):
        reading = reader.read(pixels)
        assert (reading.text, reading.digits) == (wanted.text, wanted.digits)


def test_pages_of_a_tiff(reader: Reader, tmp_path: Path) -> None:
    first, second = (Image.fromarray(page(text)) for text in ("12", "345"))
    first.save(tmp_path / "two.tif", save_all=True, append_images=[second])
    readings = list(reader.read_pages(tmp_path / "two.tif"))
    assert [(reading.page, reading.text) for reading in readings] == [(0, "12"), (1, "345")]


def test_what_nobody_foresaw_is_a_record_too(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("at once\nand twice")

    monkeypatch.setattr("neocog.reading.reader.lay_out", fail)
    (reading,) = reader.read_many([page("1")])
    assert reading.error == "cannot be read: ZeroDivisionError: at once; please report this"


def test_pictures_are_taken_one_by_one(reader: Reader) -> None:
    taken = []

    def pictures() -> Iterator[Any]:
        for number in range(2):
            taken.append(number)
            yield page("1")
        raise NothingToRead("no more")  # which is not a picture's error

    readings = reader.read_many(pictures())
    assert next(readings).text == "1"
    assert taken == [0]
    with pytest.raises(NothingToRead):
        list(readings)


def test_a_page_asks_once_for_each_digit(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    recognise = reader.engine.recognise

    def count(digits: Any, **options: Any) -> Any:
        sizes.append(len(digits))
        return recognise(digits, **options)

    monkeypatch.setattr(reader.engine, "recognise", count)
    reader.read(page("123\n45"))
    assert sum(sizes) == 5
    assert len(sizes) <= 2, "the doubtful digits, then the others"


def test_doubtful_answers_become_question_marks() -> None:
    strict = Reader(tiny_model(), min_p=1.0)
    reading = strict.read(page("30"))
    assert set(reading.text) == {"?"}
    assert all(digit.reason == "two answers" for digit in reading.digits)
    assert all(0 < digit.p < 1 for digit in reading.digits)
    assert Reader(tiny_model(), min_p=0.0).read(page("30")).text == "30"


def test_wrong_arguments() -> None:
    with pytest.raises(ModelError):
        Reader("no-such-model")
    with pytest.raises(UsageError):
        Reader(tiny_model(), min_p=2.0)
    with pytest.raises(UsageError):
        Reader(tiny_model(), device="abacus")
    with pytest.raises(InputError, match="got a int"):
        Reader(tiny_model()).read(12)  # type: ignore[call-overload]
    with pytest.raises(InputError, match="shape"):
        Reader(tiny_model()).read(np.zeros((2, 3, 4, 5), np.uint8))


def test_learning_asks_for_its_device_here(monkeypatch: pytest.MonkeyPatch) -> None:
    assert module_of_device("cpu") is np
    with pytest.raises(UsageError, match="choose one of auto, cpu, cuda"):
        module_of_device("abacus")
    monkeypatch.setitem(sys.modules, "cupy", None)  # importing it fails
    assert module_of_device("auto") is np
    with pytest.raises(DeviceError, match="CuPy is not installed"):
        module_of_device("cuda")
    cupy: Any = ModuleType("cupy")
    cupy.cuda = SimpleNamespace(is_available=lambda: True)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    assert module_of_device("auto") is cupy
    assert module_of_device("cuda") is cupy
    assert choose_device("auto") == "cpu"  # nothing reads on CUDA yet


def test_pages_are_decoded_once_for_their_overlays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from neocog.vision import decode

    pages = [Image.fromarray(page("1")) for _ in range(6)]
    pages[0].save(tmp_path / "a.tif", save_all=True, append_images=pages[1:])
    made, make = [], decode._page
    monkeypatch.setattr(decode, "_page", lambda *a: made.append(a[1]) or make(*a))
    readings = [PageReading(str(tmp_path / "a.tif"), number) for number in range(5)]
    folder = PictureFolder(tmp_path / "seen")
    folder.save(PageReading("gone.png", error="missing"))
    folder.save(*readings, PageReading("", 5, error="broken"))
    assert made == [0, 1, 2, 3, 4]
    assert len(list((tmp_path / "seen").iterdir())) == 5
