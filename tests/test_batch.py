"""Pictures and pages from Python: what is read, in which order, failures; text, data frame, plot, files."""

import asyncio
import io
import json
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
from tests.support import failing, page, page_file, save_page, tiny_model


def test_boxes_count_in_pixels_of_the_picture(reader: Reader, tmp_path: Path) -> None:
    small = Image.fromarray(page("38"))
    large = small.resize((small.width * 9, small.height * 9), Image.Resampling.BICUBIC)
    large.save(tmp_path / "large.png")
    boxes = [digit.box for digit in reader.read(small).digits]
    nine = [digit.box for digit in reader.read(tmp_path / "large.png").digits]
    union, _, _ = overlaps(np.float32(boxes), np.float32(nine) / 9)
    assert (np.diag(union) > 0.7).all()


def test_wrong_arguments() -> None:
    with pytest.raises(ModelError):
        Reader("no-such-model")
    for options in ({"min_p": 2.0}, {"device": "abacus"}, {"rotate": 45}):
        with pytest.raises(UsageError):
            Reader(tiny_model(), **options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="shape"):
        Reader(tiny_model()).read(np.zeros((2, 3, 4, 5), np.uint8))


def test_pictures_are_taken_one_by_one_and_what_nobody_foresaw_is_a_record(reader, monkeypatch):
    taken = []

    def pictures() -> Iterator[Any]:
        for number in range(2):
            taken.append(number)
            yield page("1")
        raise NothingToRead("no more")  # which is not a picture's error

    readings = reader.read_many(pictures(), workers=0)
    assert next(readings).text == "1"
    assert taken == [0]

    monkeypatch.setattr("neocog.reading.reader.read_page", failing(ZeroDivisionError("at once\nand twice")))
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
    both = [(0, "12"), (1, "345")]
    told = [(one.source, one.page, None if one.error else one.text) for one in readings]
    assert told == [
        *((str(path), *one) for one in both), (str(lost), 0, None), *(("<bytes>", *one) for one in both),
        *((str(path), *one) for one in both), ("<Image>", 0, "07"), ("<ndarray>", 0, "946"),
        ("<int>", 0, None), *((str(path), *one) for one in both),
    ]  # fmt: skip
    first, second = reader.read_pages(path)
    assert (first.digits, second.digits) == (readings[0].digits, readings[1].digits)
    assert (first.source, first.model, list(first.ms)) == (
        str(path),
        reader.model.id,
        ["decode", "find", "recognise"],
    )


def test_reading_need_not_block(reader: Reader, tmp_path: Path) -> None:
    async def several() -> list[Any]:
        works = (reader.read_async(one) for one in (page("07"), page("946"), tmp_path / "lost.png"))
        return await asyncio.gather(*works, return_exceptions=True)

    *readings, error = asyncio.run(several())
    assert [one.text for one in readings] == ["07", "946"]
    assert isinstance(error, InputError)


def test_doubtful_answers_become_question_marks() -> None:
    reading = Reader(tiny_model(), min_p=1.0).read(page("30"))
    assert set(reading.text) == {"?"}
    assert all(digit.reason and 0 < digit.p < 1 for digit in reading.digits)
    assert Reader(tiny_model(), min_p=0.0).read(page("30")).text == "30"


def test_learning_asks_for_its_device_here(monkeypatch: pytest.MonkeyPatch) -> None:
    assert module_of_device("cpu") is np
    with pytest.raises(UsageError, match="choose one of auto, cpu, cuda"):
        module_of_device("abacus")
    monkeypatch.setitem(sys.modules, "cupy", None)  # importing it fails
    assert module_of_device("auto") is np
    with pytest.raises(DeviceError, match="CuPy is not installed"):
        module_of_device("cuda")


def test_a_changed_reader_decodes_as_one_made_so(reader):
    assert reader.changed(long_side=512).longest == 512 != reader.longest


def test_every_kind_of_picture_reads_the_same(tmp_path, reader):
    file, missing = save_page(tmp_path / "a.png", "07946"), tmp_path / "missing.png"
    wanted = reader.read(file)
    assert str(wanted) == wanted.text == wanted.plain == "07946"
    with file.open("rb") as stream:
        kinds = [str(file), file.read_bytes(), stream, io.BytesIO(file.read_bytes()),
                 Image.open(file), np.asarray(Image.open(file))]  # fmt: skip
        for picture in kinds:
            assert reader.read(picture).digits == wanted.digits
        assert reader.read(stream).source == str(file)
        several = reader.read(iter(kinds))
    assert [one.text for one in several] == [wanted.text] * len(kinds)
    pixels = np.asarray(Image.open(file))
    grey = Image.fromarray(pixels)
    for picture in (grey.convert("P"), grey.convert("CMYK"), np.stack([pixels] * 3, 2)):
        assert reader.read(picture).text == wanted.text
    assert reader.read(pixels).source == "<ndarray>"
    good, bad = reader.read([file, missing])
    assert (good.digits, good.error, bad.source) == (wanted.digits, None, str(missing))
    assert bad.error.startswith("cannot be opened")
    assert reader.read([]) == []
    with file.open(encoding="latin-1") as words, pytest.raises(InputError, match="mode 'rb'"):
        reader.read(words)
    for odd, told in ((missing, f"^{missing}: cannot be opened"), (b"none", "^<bytes>: "),
                      (7, "expected a file name"), (None, "expected a file name")):  # fmt: skip
        with pytest.raises(InputError, match=told):
            reader.read(odd)


def test_a_result_shows_itself_and_can_be_saved(tmp_path, reader):
    file = save_page(tmp_path / "a.png", "07\n946")
    result = reader.read(file)
    assert "data:image/jpeg;base64," in result._repr_html_()
    for name in ("b.json", "b.jsonl", "b.csv", "b.tsv", "b.hocr", "b.xml", "b.txt", "b.png"):
        result.save(tmp_path / name)
    assert json.loads((tmp_path / "b.json").read_text()) == [result.to_dict()]
    assert json.loads((tmp_path / "b.jsonl").read_text()) == result.to_dict()
    assert (tmp_path / "b.txt").read_text() == (tmp_path / "b.tsv").read_text() == "07\n946\n"
    with Image.open(tmp_path / "b.png") as image:
        assert (image.size, image.mode) == (Image.open(file).size, "RGB")
    with pytest.raises(UsageError, match="choose another"):
        result.save(tmp_path / "b.xlsx")
    file.unlink()
    assert result._repr_html_() == "<pre>07\n946</pre>", "the picture is gone, the text is not"
    from_array = reader.read(page("07"))
    from_array.save(tmp_path / "c.jpg")
    assert Image.open(tmp_path / "c.jpg").size == page("07").shape[::-1]
    large = np.repeat(np.repeat(page("07946"), 4, 0), 4, 1)  # overlays are in colour, at full size
    blue = np.stack([large // 2, large // 2, large], axis=2)
    Image.fromarray(blue).save(tmp_path / "a.png")
    reader.read(tmp_path / "a.png").save(tmp_path / "b.png")
    seen = np.asarray(Image.open(tmp_path / "b.png"))
    assert seen.shape == blue.shape
    assert (seen[:5] == blue[:5]).all()


def test_data_frame_and_plot_and_that_what_is_missing_is_named(tmp_path, reader, monkeypatch):
    pytest.importorskip("pandas")
    pytest.importorskip("matplotlib").use("Agg")
    result = reader.read(save_page(tmp_path / "a.png", "07\n946"))
    frame = result.to_pandas()
    assert "".join(frame["char"]) == "07946"
    assert frame["line"].tolist() == [0, 0, 1, 1, 1]
    assert frame.loc[0, ["x", "y", "width", "height"]].tolist() == list(result.digits[0].box)
    assert frame["source"].tolist() == [str(tmp_path / "a.png")] * 5
    empty = reader.read(save_page(tmp_path / "none.png", "")).to_pandas()
    assert (len(empty), list(empty)) == (0, list(frame))
    assert len(result.plot().images) == 1
    for name, use in (("pandas", result.to_pandas), ("matplotlib", result.plot)):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(UsageError, match=f"pip install {name}"):
            use()


def test_the_notebook_runs(monkeypatch):
    pytest.importorskip("pandas")
    pytest.importorskip("matplotlib").use("Agg")
    monkeypatch.chdir(Path(__file__).resolve().parent.parent / "docs")
    cells = json.loads(Path("tour.ipynb").read_text())["cells"]
    names: dict[str, object] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert str(names["page"]) == "20619\n7384\n055192"
