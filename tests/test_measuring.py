"""What measures: the sets, apart from what is learned from; commands in result files; cards and tables."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from experiments.accuracy.cards import merged, result, write_card
from experiments.accuracy.hands import measure, sets_of
from experiments.harness.record import spread, without_places, write_results
from experiments.reading import freeze
from experiments.reading.measure import faults, placed, summary
from experiments.reading.sets import samples
from neocog.cli.learn import _fonts
from neocog.errors import InputError, NeocogError, UsageError
from neocog.evaluation.report import find_sets
from neocog.learning.datasets import Digits
from neocog.learning.drawing import glyphs
from neocog.network.model import load_model
from neocog.reading.records import DigitReading
from neocog.reading.results import PageReading
from tests.support import digits_of, page, save_page, tiny_model
from tests.test_report import write_sets


def test_no_page_that_is_learned_from_has_what_measures(tmp_path):
    text = "".join(file.read_text() for file in Path(glyphs.__file__).parent.glob("*.py"))
    assert not [word for word in ("crohme", "ardis", "unipen", "orand", "minichazer", "usps") if word in text]
    for face in glyphs.HELD_OUT["faces"]:
        (font := tmp_path / f"{face}.ttf").touch()
        with pytest.raises(UsageError, match="held out"):
            _fonts(str(tmp_path))
        font.unlink()


@pytest.mark.parametrize(("read", "written", "found"), [
    ("123", "123", {"wrong": 0}), ("12", "123", {"wrong": 1, "missed": 1}),
    ("1923", "123", {"wrong": 1, "extra": 1}), ("1?3", "123", {"wrong": 1, "refused": 1}),
    ("173", "123", {"wrong": 1, "misread": 1}), ("", "12", {"wrong": 2, "missed": 2}),
])  # fmt: skip
def test_errors_are_told_apart(read, written, found):
    assert faults(read, written).items() >= found.items()


def test_a_sign_that_is_printed_is_counted():
    marks = np.array([[1, 20, 20, 10, 20], [10, 40, 20, 10, 24]], np.float32)
    right, sign = (DigitReading("1", 1.0, 1.0, box) for box in ((15, 10, 10, 20), (35, 9, 10, 22)))
    found = [placed(PageReading("a", digits=some), marks) for some in ((right,), (right, sign))]
    assert [own["signs_printed"] for own in found] == [0, 1]
    row = {"set": "amounts", "kind": "dates", "written": "1", "turn": 0, "left_out": 0, "printed": 2,
           "wrong": 1, "extra": 1}  # fmt: skip
    line = summary([row | own for own in found])[0]
    assert (line["signs_kept"], line["false"], line["recall"]) == (1, 1, 1.0)


def test_frozen_pages_are_read_from_their_folder(tmp_path):
    with pytest.raises(UsageError, match=r"experiments\.reading\.freeze"):
        list(samples(tmp_path, tmp_path, ["forms"]))
    for name, table in (("strings", "file,text,digits\na.png,0/7,07\n"),
                        ("forms", 'file,kind,text,marks\na.png,heavy,07,"[[1,20,20,10,20]]"\n')):  # fmt: skip
        (tmp_path / name).mkdir()
        save_page(tmp_path / name / "a.png", "07")
        (tmp_path / name / "labels.csv").write_text(table)
    one, other = samples(tmp_path, tmp_path, ["forms:heavy", "strings:even", "forms:dots", "strings:odd"])
    assert (one.kind, one.text, np.asarray(one.picture).shape) == ("heavy", "07", page("07").shape)
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
    with pytest.raises(NeocogError, match="expected 2 files with digest 0123"):
        freeze.draw("one", known=known | {"sha256": "0123"}, **ways)
    with pytest.raises(NeocogError, match="nothing was drawn"):
        freeze.draw("none", known=None, **ways)
    monkeypatch.setattr(freeze, "FONTS", {"fonts-none": "None"})
    with pytest.raises(InputError, match="apt-get install fonts-none"):
        freeze.fonts(tmp_path)


def test_a_result_file_holds_the_command_and_of_places_only_that_of_the_data_by_a_name(tmp_path, monkeypatch):
    for name in ("data", "run/neocog", "run/models", "run/data"):  # folders called as models are
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "run")
    data = tmp_path / "data"
    for typed, told in (
        (f"{data} neocog neocog-small --jobs 2", "DATA neocog neocog-small --jobs 2"),
        (f"--models models {data} neocog", "--models models DATA neocog"), (f"--gpu {data}", "--gpu DATA"),
        ("../data neocog", "DATA neocog"),
        (f"{data} -o {data}/a.json --models={data}/models", "DATA -o a.json --models=models"),
        (f"{data} -o/a/b.json --only ../b.png", "DATA -ob.json --only b.png"),
    ):  # fmt: skip
        assert without_places(typed.split()) == told.split()
    words = ["/a/experiments/accuracy/reject.py", str(data), "neocog", "-o", "a.json"]
    monkeypatch.setattr("sys.argv", words)
    write_results(Path("a.json"), [{"n": 1}], columns={"n": "n"})
    result = json.loads(Path("a.json").read_text())
    assert result["command"] == "python -m experiments.accuracy.reject DATA neocog -o a.json"
    assert result["rows"] == [{"n": 1}]


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_of_processes_come_in_order(jobs):
    assert list(spread(partial(pow, 2), range(7), jobs)) == [2**n for n in range(7)]


def test_a_card_is_written(tmp_path):
    data, path = write_sets(tmp_path), tmp_path / "tiny.safetensors"
    card = {"digits": 10, "rejection": {"table": [{"p": 0.9, "error": 0.1}]}, "command": "old"}
    replace(tiny_model(), card=card).save(path)
    saved = write_card(path, find_sets(data, limit=20), device="cpu", limit=10, reports=tmp_path / "r")
    found = load_model(path)
    assert (found.id, found.card) == (saved.id, json.loads(json.dumps(saved.card)))
    assert found.card.items() >= {key: card[key] for key in ("rejection", "command")}.items()  # others' stays
    assert found.card["accuracy"]["test"] == found.card["accuracy"]["validation"] == 1.0
    assert np.array(found.card["confusion"]).trace() == 20
    assert set(found.card["robustness"]) >= {"noise", "background", "mean"}
    assert found.card["risk_coverage"][0]["coverage"] == 1.0
    assert found.card["pictures"]["photos"]["cer"] == 0.5
    assert (tmp_path / "r" / "tiny" / "report.html").is_file()
    for got, want in zip(found.s, tiny_model().s, strict=True):
        np.testing.assert_array_equal(got.reference, want.reference.astype(np.float16))

    row = result(found, path.stat().st_size)
    other = tmp_path / "models.json"
    other.write_text(json.dumps({"rows": [row | {"name": "a", "mnist": 0.5}, row | {"mnist": 0}]}))
    rows = merged(other, [row])
    assert [(own["name"], own["mnist"]) for own in rows] == [("a", 0.5), ("tiny", 1.0)]


def test_a_model_is_measured_on_each_set_by_hands(tmp_path):
    apart = sets_of(write_sets(tmp_path), validation=True)
    saved = tiny_model().save(tmp_path / "tiny.safetensors")
    wrong = Digits(digits_of("4411"), np.array([9, 9, 7, 1]), "d")
    rows = measure(str(tmp_path / "tiny.safetensors"), sets={**apart, "b": wrong}, gpu=False)
    assert [(r["model"], r["set"], r["digits"], r["right"]) for r in rows] == [
        (saved.id, "mnist, kept apart", 10, 1.0), (saved.id, "b", 4, 0.25)]  # fmt: skip
    assert rows[1]["confused"] == "9 as 4: 2, 7 as 1: 1"
