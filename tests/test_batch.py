"""From pictures to records: what is read, in which order, and what becomes of failures."""

import asyncio
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from neocog import Reader
from neocog.errors import DeviceError, InputError, ModelError, NothingToRead, UsageError
from neocog.network.arrays import module_of_device
from neocog.vision.finder import overlaps
from tests.support import page, page_file, tiny_model


def test_boxes_count_in_pixels_of_the_picture(reader: Reader, tmp_path: Path) -> None:
    small = Image.fromarray(page("38"))
    large = small.resize((small.width * 9, small.height * 9), Image.Resampling.BICUBIC)
    large.save(tmp_path / "large.png")
    boxes = [digit.box for digit in reader.read(small).digits]
    nine = [digit.box for digit in reader.read(tmp_path / "large.png").digits]
    union, _, _ = overlaps(np.float32(boxes), np.float32(nine) / 9)
    assert (np.diag(union) > 0.7).all()


def test_pages_of_a_tiff(reader: Reader, tmp_path: Path) -> None:
    (tmp_path / "two.tif").write_bytes(page_file("12\n0", "345", kind="TIFF"))
    first, second = reader.read_pages(tmp_path / "two.tif")
    assert (first.page, first.text, second.page, second.text) == (0, "12\n0", 1, "345")
    assert (first.source, first.model, first.error) == (str(tmp_path / "two.tif"), reader.model.id, None)
    assert list(first.ms or ()) == ["decode", "find", "recognise"]


def test_pictures_are_taken_one_by_one_and_what_nobody_foresaw_is_a_record(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []

    def pictures() -> Iterator[Any]:
        for number in range(2):
            taken.append(number)
            yield page("1")
        raise NothingToRead("no more")  # which is not a picture's error

    readings = reader.read_many(pictures(), workers=0)
    assert next(readings).text == "1"
    assert taken == [0]

    def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("at once\nand twice")

    monkeypatch.setattr("neocog.reading.reader.read_page", fail)
    assert next(readings).error == "cannot be read: ZeroDivisionError: at once; please report this"
    with pytest.raises(NothingToRead):
        list(readings)


@pytest.mark.parametrize("workers", [None, 0, 2])
def test_many_pictures_are_read_as_one_is(reader: Reader, workers: int | None, tmp_path: Path) -> None:
    path, lost = tmp_path / "two.tif", tmp_path / "lost.png"
    path.write_bytes(page_file("12", "345", kind="TIFF"))
    picture = Image.fromarray(page("07"))
    with path.open("rb") as stream:
        pictures: list[Any] = [path, str(lost), path.read_bytes(), stream, picture, page("946"), 7, path]
        readings = list(reader.read_many(pictures, workers=workers))
    sources = [*[str(path)] * 2, str(lost), *["<bytes>"] * 2, *[str(path)] * 2, "<Image>", "<ndarray>",
               "<int>", *[str(path)] * 2]  # fmt: skip
    assert [one.source for one in readings] == sources
    assert [one.page for one in readings] == [0, 1, 0, 0, 1, 0, 1, 0, 0, 0, 0, 1]
    assert [one.text for one in readings if one.error is None] == [
        *["12", "345"] * 3,
        "07",
        "946",
        "12",
        "345",
    ]
    assert [one.source for one in readings if one.error] == [str(lost), "<int>"]
    assert readings[0].digits == reader.read(path).digits


def test_errors_name_the_picture_and_reading_need_not_block(reader: Reader, tmp_path: Path) -> None:
    for picture, name in ((tmp_path / "lost.png", str(tmp_path / "lost.png")), (b"none", "<bytes>")):
        with pytest.raises(InputError, match=f"^{re.escape(name)}: "):
            reader.read(picture)

    async def several() -> list[Any]:
        works = (reader.read_async(one) for one in (page("07"), page("946"), tmp_path / "lost.png"))
        return await asyncio.gather(*works, return_exceptions=True)

    *readings, error = asyncio.run(several())
    assert [one.text for one in readings] == ["07", "946"]
    assert isinstance(error, InputError)


def test_doubtful_answers_become_question_marks() -> None:
    strict = Reader(tiny_model(), min_p=1.0)
    reading = strict.read(page("30"))
    assert set(reading.text) == {"?"}
    assert all(digit.reason for digit in reading.digits)
    assert all(0 < digit.p < 1 for digit in reading.digits)
    assert Reader(tiny_model(), min_p=0.0).read(page("30")).text == "30"


def test_wrong_arguments() -> None:
    with pytest.raises(ModelError):
        Reader("no-such-model")
    for options in ({"min_p": 2.0}, {"device": "abacus"}, {"rotate": 45}):
        with pytest.raises(UsageError):
            Reader(tiny_model(), **options)  # type: ignore[arg-type]
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
