"""What one does with a page from Python: inputs, text, data frame, plot, files, the notebook."""

import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from neocog.errors import InputError, UsageError
from neocog.reading.pictures import is_several
from tests.support import page, save_page

DOCS = Path(__file__).resolve().parent.parent / "docs"


def test_a_changed_reader_decodes_as_one_made_so(reader):
    assert reader.changed(long_side=512).longest == 512 != reader.longest


def test_every_kind_of_picture_reads_the_same(tmp_path, reader):
    file = save_page(tmp_path / "a.png", "07946")
    wanted = reader.read(file)
    assert str(wanted) == wanted.text
    assert wanted.plain == "07946"
    with file.open("rb") as stream:
        kinds = [str(file), file.read_bytes(), stream, io.BytesIO(file.read_bytes()),
                 Image.open(file), np.asarray(Image.open(file))]  # fmt: skip
        assert not any(map(is_several, kinds))
        for picture in kinds:
            assert reader.read(picture).digits == wanted.digits
        assert reader.read(stream).source == str(file)
        several = reader.read(iter(kinds))
    assert [one.text for one in several] == [wanted.text] * len(kinds)
    pixels = np.asarray(Image.open(file))
    for mode in ("P", "CMYK"):
        assert reader.read(Image.fromarray(pixels).convert(mode)).text == wanted.text
    assert reader.read(np.repeat(pixels[..., None], 3, axis=2)).text == wanted.text
    assert reader.read(pixels).source == "<ndarray>"
    missing = tmp_path / "missing.png"
    good, bad = reader.read([file, missing])
    assert (good.digits, good.error) == (wanted.digits, None)
    assert "cannot be opened" in (bad.error or "")
    assert bad.source == str(missing)
    with pytest.raises(InputError):
        reader.read(missing)
    assert reader.read([]) == []
    with file.open(encoding="latin-1") as words, pytest.raises(InputError, match="mode 'rb'"):
        reader.read(words)
    for odd in (7, None):
        with pytest.raises(InputError, match="expected a file name"):
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
    monkeypatch.chdir(DOCS)
    cells = json.loads((DOCS / "tour.ipynb").read_text())["cells"]
    names: dict[str, object] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert str(names["page"]) == "20619\n7384\n055192"
