"""The sets that measure reading: what they are made of, apart from what is learned from."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from experiments.documents import signs
from experiments.reading.made import CELLS, FORMATS, faces, make_amounts, make_letters
from experiments.reading.measure import faults, honest, placed, summary, sure
from experiments.reading.sets import SETS, Task, digits_of, sample
from neocog.cli.learn import _fonts
from neocog.errors import InputError, UsageError
from neocog.jsontext import to_json
from neocog.learning.formats import Digits
from neocog.learning.pages.conditions import FACES
from neocog.learning.pages.pen import write_digit
from neocog.learning.teacher import bank, layouts
from neocog.reading.records import DigitReading, PageReading
from neocog.reading.words import SURE
from neocog.vision.finder import FinderSettings
from neocog.vision.weigh import SearchSettings, Weights
from tests import support

LABELS = np.array([1, 7], np.uint8)


@pytest.fixture(scope="module")
def digits() -> np.ndarray:
    field = np.zeros((2, 28, 28), np.uint8)
    field[0, 4:24, 13:16] = 255
    field[1, 4:7, 7:20] = field[1, 7:24, 16:19] = 255
    return field


def test_no_page_that_is_learned_from_has_what_measures(tmp_path: Path) -> None:
    folder = Path(layouts.__file__).parent
    text = "".join(file.read_text() for file in folder.glob("*.py"))
    assert not [word for word in ("experiments", "conditions", "putText", "load_default")
                if word in text]  # fmt: skip
    assert not {f for some in FORMATS.values() for f in some.split()} & set(layouts.FORMATS)
    assert not [name for name in CELLS if f'"{name}"' in text]
    assert not {"crohme", "ardis", "unipen", "orand", "minichazer", "usps"} & set(bank.SOURCES)
    for face in " ".join(FACES.values()).split():
        (tmp_path / f"{face}.ttf").touch()
        with pytest.raises(UsageError, match="held out"):
            _fonts(str(tmp_path))
        (tmp_path / f"{face}.ttf").unlink()


@pytest.mark.parametrize("kind", FORMATS)
def test_amounts_tell_where_every_mark_stands(kind: str, digits: np.ndarray) -> None:
    formats = {"".join("#" if c.isdigit() else c for c in f) for f in FORMATS[kind].split()}
    for seed in range(6):
        grey, text, marks = make_amounts(kind, digits, LABELS, np.random.default_rng(seed))
        again = make_amounts(kind, digits, LABELS, np.random.default_rng(seed))[0]
        assert np.array_equal(grey, again)
        assert len(marks) == len(text.replace("\n", ""))
        known = ["#" if label < 10 else "" for label in marks[:, 0]]
        assert known.count("#") == sum(c.isdigit() for c in text)
        for line in text.split("\n"):
            shape = "".join("#" if c.isdigit() else c for c in line)
            assert any(each.startswith(shape) for each in formats)
        for _, x, y, wide, high in marks:
            box = grey[int(y - high / 2) : int(y + high / 2) + 1,
                       int(x - wide / 2) : int(x + wide / 2) + 1]  # fmt: skip
            assert int(box.min()) < float(np.median(grey)) - 20


def test_letters_need_a_typeface(tmp_path: Path) -> None:
    assert faces(tmp_path) == {}
    (tmp_path / "dkg.ttf").write_bytes(b"no")
    file = faces(tmp_path)["by hand"][0]
    with pytest.raises(InputError, match="as a font"):
        make_letters(file, np.random.default_rng(0))
    matplotlib = pytest.importorskip("matplotlib", reason="brings a typeface")
    file = Path(matplotlib.get_data_path(), "fonts", "ttf", "DejaVuSans.ttf")
    grey, text = make_letters(file, np.random.default_rng(0))
    assert grey.shape == (720, 960)
    assert 20 < sum(map(str.isalpha, text)) < 150
    assert digits_of(text) == ""


def test_a_loop_that_ran_full_stays_full_under_a_thin_pen() -> None:
    nine = np.zeros((28, 28), np.uint8)
    rows, columns = np.mgrid[:28, :28]
    nine[np.hypot(rows - 9, columns - 14) < 5] = 255
    nine[9:24, 16:18] = 255
    cover = write_digit(nine, 80, 0.04)
    head, leg = cover[: len(cover) // 3].max(0), cover[-len(cover) // 3 :].max(0)
    assert (head > 0.5).sum() > 2 * (leg > 0.5).sum() > 0


def test_errors_are_told_apart() -> None:
    assert faults("123", "123")["wrong"] == 0
    assert faults("12", "123") == {"wrong": 1, "missed": 1}
    assert faults("1923", "123") == {"wrong": 1, "extra": 1}
    assert faults("1?3", "123") == {"wrong": 1, "refused": 1}
    assert faults("173", "123") == {"wrong": 1, "misread": 1}
    assert faults("231", "123")["out_of_order"] == 1
    assert faults("", "12") == {"wrong": 2, "missed": 2}


def test_probabilities_stand_beside_what_is_right() -> None:
    digits = [DigitReading(char, p, 1.0, (0, 0, 9, 9)) for char, p in
              (("1", 0.97), ("7", 0.5), ("?", 0.1), ("3", 0.98))]  # fmt: skip
    found = sure(PageReading("a", digits=tuple(digits)), "17?3", "1243")
    assert found == [(0.97, True), (0.5, False), (0.98, True)]
    rows = [{"set": "photos", "sure": found}, {"set": "forms", "sure": found[:1]}]
    lines = honest(rows)
    assert [(line["from"], line["digits"], line["right"]) for line in lines] == [
        (0.4, 1, 0.0), (0.95, 2, 1.0), (0.95, 1, 1.0)]  # fmt: skip
    assert lines[1]["p"] == pytest.approx(0.975)


def test_a_sign_that_is_printed_is_counted() -> None:
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


def test_every_set_is_made_of_its_number(tmp_path: Path, digits: np.ndarray,
                                         monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    from experiments.reading import sets as reading_sets

    known = Digits(digits, LABELS.astype(np.int64), "made")
    monkeypatch.setattr(reading_sets, "hands", lambda data, number: known)
    for name, kind in (("conditions", "plain"), ("blank", "grain"), ("forms", "heavy"),
                       ("amounts", "times"), ("turned", "180")):  # fmt: skip
        one, again = (sample(Task(name, kind, 4), tmp_path) for _ in range(2))
        assert np.array_equal(np.asarray(one.picture), np.asarray(again.picture))
        assert one.text == again.text == digits_of(one.text)
        assert len(one.text) >= {"turned": 12, "blank": 0}.get(name, 1)
        assert kind in SETS[name][1](tmp_path)


def test_a_sign_stands_from_the_score_at_which_one_in_twenty_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [(0.55, False), (0.6, False), *((0.7, True) for _ in range(20))]
    assert (signs.least(found), signs.least(found[:3])) == (0.61, None)
    known = Digits(support.digits_of("0123456789"), np.arange(10), "made")
    monkeypatch.setattr(signs, "open_digits", lambda *_, **__: known)
    output = tmp_path / "signs.json"
    monkeypatch.setattr(sys, "argv", ["signs.py", "data", "-o", str(output), "--pages", "2"])
    signs.main()
    result = json.loads(output.read_text())
    assert result["pages"] == 2
    assert result["finder"].startswith("finder@")
    assert all(set(row) == set(result["columns"]) for row in result["rows"])
    assert {"/", "-", "."} & {row["sign"] for row in result["rows"]}


def test_what_was_chosen_is_in_the_code() -> None:
    results = Path(signs.__file__).parents[1]
    tuned = json.loads((results / "reading/results/tune_reading.json").read_text())
    assert tuned["weights"] == json.loads(to_json(asdict(Weights())))
    settings = json.loads(to_json(asdict(SearchSettings())))
    assert [settings[name] == tuned[name] for name in ("told", "asked", "upright")] == [True] * 3
    vary = json.loads((results / "reading/results/tune_vary.json").read_text())
    assert vary["weights"] == tuned["weights"]
    assert vary["settings"] == settings
    small = json.loads((results / "reading/results/tune_small.json").read_text())
    assert FinderSettings().small == small["small"]
    coarse = json.loads((results / "reading/results/tune_coarse.json").read_text())
    assert f"{FinderSettings().fine:g}, {FinderSettings().clear:g}" == coarse["best"]
    rows = json.loads((results / "documents/results/signs.json").read_text())["rows"]
    assert {row["sign"]: row["least"] for row in rows if row["least"] is not None} == SURE


def test_every_setting_was_varied() -> None:
    pytest.importorskip("torch", reason="needs PyTorch: neocog[train]")
    from experiments.reading import tune

    found = json.loads((Path(tune.__file__).parent / "results/tune_vary.json").read_text())
    values: dict[str, list[float]] = {}
    for row in found["rows"]:
        values.setdefault(row["setting"], []).append(row["value"])
    usual = asdict(SearchSettings())
    for name in tune.VARIED:
        low, high = values[name]
        assert low < usual[name] < high or (name == "sure" and low > usual[name] > high)
    assert {*usual} - {*tune.VARIED} == {"asked", "upright", "most"}
