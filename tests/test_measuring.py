"""The sets that measure reading: what they are made of, apart from what is learned from."""

from pathlib import Path

import numpy as np
import pytest

from experiments.reading import freeze
from experiments.reading.measure import faults, placed, summary
from experiments.reading.sets import samples
from neocog.cli.learn import _fonts
from neocog.errors import InputError, NeocogError, UsageError
from neocog.learning.drawing import glyphs
from neocog.reading.records import DigitReading
from neocog.reading.results import PageReading
from tests import support


def test_no_page_that_is_learned_from_has_what_measures(tmp_path):
    text = "".join(file.read_text() for file in Path(glyphs.__file__).parent.glob("*.py"))
    assert not [word for word in ("crohme", "ardis", "unipen", "orand", "minichazer", "usps") if word in text]
    for face in glyphs.HELD_OUT["faces"]:
        (tmp_path / f"{face}.ttf").touch()
        with pytest.raises(UsageError, match="held out"):
            _fonts(str(tmp_path))
        (tmp_path / f"{face}.ttf").unlink()


@pytest.mark.parametrize(
    ("read", "written", "found"),
    [
        ("123", "123", {"wrong": 0}),
        ("12", "123", {"wrong": 1, "missed": 1}),
        ("1923", "123", {"wrong": 1, "extra": 1}),
        ("1?3", "123", {"wrong": 1, "refused": 1}),
        ("173", "123", {"wrong": 1, "misread": 1}),
        ("", "12", {"wrong": 2, "missed": 2}),
    ],
)
def test_errors_are_told_apart(read, written, found):
    assert faults(read, written).items() >= found.items()


def test_a_sign_that_is_printed_is_counted():
    marks = np.array([[1, 20, 20, 10, 20], [10, 40, 20, 10, 24]], np.float32)
    right = DigitReading("1", 1.0, 1.0, (15, 10, 10, 20))
    sign = DigitReading("1", 1.0, 1.0, (35, 9, 10, 22))
    assert placed(PageReading("a", digits=(right,)), marks)["signs_printed"] == 0
    assert placed(PageReading("a", digits=(right, sign)), marks)["signs_printed"] == 1
    rows = [{"set": "amounts", "kind": "dates", "written": "1", "turn": 0, "left_out": 0,
             "printed": 2, "wrong": 1, "extra": 1, **placed(PageReading("a", digits=some), marks)}
            for some in ((right,), (right, sign))]  # fmt: skip
    line = summary(rows)[0]
    assert (line["signs_kept"], line["false"], line["recall"]) == (1, 1, 1.0)


def test_frozen_pages_are_read_from_their_folder(tmp_path):
    with pytest.raises(UsageError, match=r"experiments\.reading\.freeze"):
        list(samples(tmp_path, tmp_path, ["forms"]))
    for name, table in (("strings", "file,text,digits\na.png,0/7,07\n"),
                        ("forms", 'file,kind,text,marks\na.png,heavy,07,"[[1,20,20,10,20]]"\n')):  # fmt: skip
        (tmp_path / name).mkdir()
        support.save_page(tmp_path / name / "a.png", "07")
        (tmp_path / name / "labels.csv").write_text(table)
    one, other = samples(tmp_path, tmp_path, ["forms:heavy", "strings:even", "forms:dots", "strings:odd"])
    assert (one.kind, one.text, np.asarray(one.picture).shape) == ("heavy", "07", support.page("07").shape)
    assert one.marks is not None
    assert one.marks.tolist() == [[1, 20, 20, 10, 20]]
    assert (other.kind, other.text, other.picture) == ("even", "07", other.file)


def test_a_frozen_set_is_drawn_where_it_is_not_right(tmp_path, monkeypatch):
    code = "rows = [('a.txt', 'k', 't', '')]; Path(sys.argv[2], 'a.txt').touch()"
    monkeypatch.setattr(freeze, "SETS", {"one": code + freeze._TABLE, "none": "rows = []" + freeze._TABLE})
    ways = {"out": tmp_path, "data": tmp_path, "code": tmp_path}
    known = freeze.draw("one", known=None, **ways)
    assert known == {"count": 2, "sha256": freeze.told(tmp_path / "one")["sha256"]}
    (tmp_path / "one/a.txt").write_text("other")
    assert freeze.draw("one", known=known, **ways) == known
    assert (tmp_path / "one/a.txt").read_text() == ""
    with pytest.raises(NeocogError, match="expected 2 and 0123"):
        freeze.draw("one", known=known | {"sha256": "0123"}, **ways)
    with pytest.raises(NeocogError, match="nothing was drawn"):
        freeze.draw("none", known=None, **ways)
    monkeypatch.setattr(freeze, "FONTS", {"fonts-none": "None"})
    with pytest.raises(InputError, match="apt-get install fonts-none"):
        freeze.fonts(tmp_path)
