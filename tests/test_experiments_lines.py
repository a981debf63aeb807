"""What experiments with lines, forms and recipes count: right, lost, intervals, broken rules, near points."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.forms.drawn import layout, texts
from experiments.forms.measure import RULED, count, form_of, spoil
from experiments.learning import curve
from experiments.learning.curve import Interpolated
from experiments.lines import measure, risk
from experiments.lines.score import by_line, compared, of_signs, paired, plain, share, summary
from neocog.evaluation.confidence import upper_limit
from neocog.evaluation.evaluate import own_parts
from neocog.learning.calibrate import score
from neocog.learning.datasets import open_digits
from neocog.learning.recipes import RECIPES, train
from neocog.network.decision import Decision
from neocog.reading.records import CellReading, SheetReading
from tests.support import tiny_model


def of(written, read, signs=True):
    return compared(plain(written), plain(read), signs=signs, spaces=True)


@pytest.mark.parametrize(("written", "read", "wrong", "text", "lost"), [
    ("12,50", "12,50", 0, True, False),
    ("12,50", "1250", 0, False, True),
    ("12,50", "12150", 1, False, True),
    ("12,50", "12.50", 0, False, False),
    ("10/30", "10?30", 1, False, False),
    ("-5:", "—5：€", 0, True, False),
    ("09:51", "", 4, False, False),
    ("65 29", "6529", 0, False, None),
])  # fmt: skip
def test_a_line(written, read, wrong, text, lost):
    row = of(written, read)
    assert (row["wrong"], row["text"], row.get("lost")) == (wrong, text, lost)


def test_signs_and_sums():
    rows = [of("1.5", "1.5"), of("2,5", "2.5"), of("3.5", "35"), of("12", "13", signs=False)]
    point, comma = (next(row for row in of_signs(rows) if row["sign"] == sign) for sign in ".,")
    assert (point["recall"], point["precision"]) == (0.5, 0.5)
    assert (comma["recall"], comma["precision"]) == (0, None)
    want = {"lines": 4, "exact": 3 / 4, "cer": 1 / 8, "text": 1 / 3, "lost": 1 / 3}
    assert want.items() <= summary(rows).items()


def test_lines_of_a_page():
    assert by_line(["35/30", "9/15"], ["9115"]) == ["", "9115"]
    assert by_line(["35/30", "9/15"], ["35130", "77", "9/15"]) == ["35130 77", "9/15"]


def test_pairs_are_compared_line_by_line():
    right = np.random.default_rng(1).random(400) < 0.8
    better = right | (np.arange(400) % 4 == 0)
    found, apart = paired(better, right), better.mean() - right.mean()
    assert found["difference"] == pytest.approx(apart)
    assert found["error"] == pytest.approx((better ^ right).std() / 20, rel=0.1)
    assert 0 < found["low"] < apart < found["high"] < share(right)[2] - share(right)[1]
    assert set(paired(right, right).values()) == {0}


def test_answers_of_odd_rows_are_not_shown(capsys):
    reader = type("Reader", (), {"line": lambda pixels: "7"})
    for name in ("strings:even", "strings:odd"):
        assert measure.read(reader, name, ("a.png", None, "8"), "reader")[0]["wrong"] == 1
    assert capsys.readouterr().out == "reader, a.png: 8 read as 7\n"


@pytest.mark.parametrize(("label", "read", "parts"), [
    ("12,50", "12 50", ["12,", ",50"]), ("3750", "37 50", ["37", "50"]), ("750", "50", ["750"]),
    ("19 07 01", "19 0 01", ["19", "07", "01"]), ("587", "587 7", ["587", ""]),
    ("12 500", "12500", ["12500"]), ("", "3", [""]),
])  # fmt: skip
def test_what_is_written_where_a_word_was_read(label, read, parts):
    assert own_parts(label, read.split()) == parts


def test_numbers_are_judged_with_their_signs_where_the_label_has_them():
    told = [("12,5", 0.9), ("-", 0.0), ("7", 0.8)]
    assert risk.judged("lectaurep", "12.57", told)[0] == {"p": 0.9, "right": True, "sign": True}  # no doubt
    assert risk.judged("drawn", "12:50", [("1250", 0.9)]) == [{"p": 0.9, "right": False, "sign": True}]
    assert [row["right"] for row in risk.judged("strings:even", "1257", told)] == [True, True]
    (lost,) = risk.judged("drawn", "1257", [("257", 0.7)])
    assert (lost["right"], lost["sign"]) == (False, False)
    assert risk.judged("drawn", "12", []) == [{"p": 0.0, "right": False, "sign": False}]


def test_each_set_counts_the_same_in_the_table():
    few, many = (
        [{"p": p, "right": right, "sign": False} for p, right, n in rows for _ in range(n)]
        for rows in ([(0.9, True, 100), (0.5, False, 10)], [(0.9, True, 990), (0.9, False, 10)])
    )
    row = risk.table({"few": few, "many": many})[-1]
    assert 0.5 < row["p"] <= 0.9
    assert row["risk"] == pytest.approx((0 + 10 / 1000) / 2)
    assert row["error"] == pytest.approx(upper_limit(363 / 200, 363), abs=1e-5)  # 4 / (1/100 + 1/1000)
    assert risk.curve(many)["at_0.01"] == 1
    assert risk.curve(few)["at_0.05"] == pytest.approx(100 / 110)


# --- forms ---


VALID = ["012345", "678901"]


def test_rules_of_a_drawn_layout_hold_until_a_digit_is_spoiled(tmp_path):
    form = form_of([layout(np.random.default_rng(1), VALID)], tmp_path, ruled=True)
    rng, broken = np.random.default_rng(2), 0
    for _ in range(20):
        said = texts(rng, VALID)
        assert all(rule.holds(*(said[name] for name in rule.names)) for rule in form.layouts[0].rules)
        for rule in RULED:
            spoil(said, str(rng.choice(rule)), rng)
        broken += sum(not rule.holds(*(said[name] for name in rule.names)) for rule in form.layouts[0].rules)
    assert broken >= 20 * len(RULED)
    (free,) = form_of([layout(np.random.default_rng(1), VALID)], tmp_path / "free", ruled=False).layouts
    assert free.rules == ()


def test_cells_are_counted_by_what_they_should_be():
    said = {"a": "1,50", "b": "2", "total": "3,60", "date": "1", "note": "", "year": "1990"}
    read = {"a": "?", "b": "2", "total": "?", "date": "7", "note": "", "year": "19?0"}

    def counted(read, bad, how):
        cells = {name: CellReading(text) for name, text in read.items()}
        return count(SheetReading("1.png", fields=cells), said, {bad}, how)

    replaced = {"replaced": 1, "replaced ?": 1, "beside": 2, "beside ?": 1}
    assert counted(read, "total", "replaced") == replaced | {"cells": 3, "right": 1, "wrong": 1, "doubt": 1}
    crossed = counted(read | {"a": "1.50"}, "date", "crossed")
    assert crossed == {"crossed": 1, "cells": 5, "right": 3, "doubt": 2}


# --- interpolating vectors ---


def model_with(references, labels):
    """A model whose US4 has these reference vectors, (K4, K3, 9, 9)."""
    base = tiny_model()
    top = replace(base.s[3], reference=references.astype(np.float32))
    return replace(base, s=(*base.s[:3], top), labels=np.array(labels))


def cosines(x, references, c):
    weight = np.sqrt(c)
    a, b = (x * weight).ravel(), (references * weight).reshape(len(references), -1)
    return b @ a / np.linalg.norm(a) / np.linalg.norm(b, axis=1)


def interpolated(model, cosine):
    """Cosines by label where one place of the 5x5 responds, the others are silent."""
    theta, us4 = model.s[3].threshold, np.zeros((1, 5, 5, len(cosine)), dtype=np.float32)
    us4[0, 1, 3] = np.maximum(cosine - theta, 0) / (1 - theta)
    return Interpolated(model)(us4)[0] * (1 - theta) + theta


@pytest.mark.parametrize("seed", range(3))
def test_interpolation_is_the_nearest_point(seed):
    """Against a fine grid over the segment between the vectors."""
    rng = np.random.default_rng(seed)
    references = rng.random((2, 3, 9, 9)) ** 3
    x = np.einsum("k,kcij->cij", rng.dirichlet(np.ones(2)), references)
    x = x + 0.1 * rng.random(x.shape)
    model = model_with(references, [4, 4])
    c = model.s[3].c.astype(np.float64)
    got = interpolated(model, cosines(x, references, c))
    lengths = np.sqrt((c * references**2).sum(axis=(1, 2, 3)))
    shares = np.linspace([0, 1], [1, 0], 4001)
    nearest = cosines(x, np.einsum("nk,kcij->ncij", shares / lengths, references), c).max()
    assert got[4] == pytest.approx(nearest, abs=1e-4)
    np.testing.assert_allclose(np.delete(got, 4), model.s[3].threshold)


@pytest.mark.parametrize("off", [0.0, 1e-7, 1e-4])
def test_two_copies_of_a_vector_are_one(off):
    one, other = np.random.default_rng(9).random((2, 3, 9, 9))
    model = model_with(np.stack([one, one * (1 + off * other)]), [6, 6])
    assert interpolated(model, np.array([0.8, 0.8]))[6] == pytest.approx(0.8, rel=3e-4)


def test_many_planes_are_cut_to_the_strongest(monkeypatch):
    rng = np.random.default_rng(8)
    model = model_with(rng.random((12, 3, 9, 9)) ** 4, [0] * 6 + [1] * 6)
    us4 = rng.random((5, 5, 5, 12), dtype=np.float32)
    whole = Interpolated(model)(us4)
    monkeypatch.setattr(curve, "PAIR_PLANES", 3)
    fewer = Interpolated(model)(us4)
    assert (fewer <= whole + 1e-6).all()
    assert (fewer[:, :2] >= Decision(model).scores(us4)[:, :2] - 1e-6).all()


def test_pairs_read_what_was_learned():
    digits = open_digits("sklearn", split="train")
    images, labels = digits.images[:140], digits.labels[:140]
    model = train(replace(RECIPES["nearest"], middle_digits=20, limits=(16, 30)), images[:100], labels[:100])
    found = score(model, images[100:], scores=Interpolated(model)).argmax(axis=1)
    assert (found == labels[100:]).mean() > 0.75
