"""Read lines beside written ones: digits, signs, silent losses, intervals, pairs of readers."""

import numpy as np
import pytest

from experiments.lines import measure, risk
from experiments.lines.score import by_line, compared, of_signs, paired, plain, share, summary
from neocog.evaluation.confidence import upper_limit
from neocog.evaluation.evaluate import own_parts


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


def numbers(*rows):
    return [{"p": p, "right": right, "sign": False} for p, right in rows]


def test_what_is_written_where_a_word_was_read():
    assert own_parts("12,50", ["12", "50"]) == ["12,", ",50"]
    assert own_parts("3750", ["37", "50"]) == ["37", "50"]
    assert own_parts("750", ["50"]) == ["750"]
    assert own_parts("19 07 01", ["19", "0", "01"]) == ["19", "07", "01"]
    assert own_parts("587", ["587", "7"]) == ["587", ""]
    assert own_parts("12 500", ["12500"]) == ["12500"]
    assert own_parts("", ["3"]) == [""]


def test_numbers_are_judged_with_their_signs_where_the_label_has_them():
    told = [("12,5", 0.9), ("-", 0.0), ("7", 0.8)]
    assert risk.judged("lectaurep", "12.57", told)[0] == {"p": 0.9, "right": True, "sign": True}  # no doubt
    assert risk.judged("drawn", "12:50", [("1250", 0.9)]) == [{"p": 0.9, "right": False, "sign": True}]
    assert [row["right"] for row in risk.judged("strings:even", "1257", told)] == [True, True]
    (lost,) = risk.judged("drawn", "1257", [("257", 0.7)])
    assert (lost["right"], lost["sign"]) == (False, False)
    assert risk.judged("drawn", "12", []) == [{"p": 0.0, "right": False, "sign": False}]


def test_each_set_counts_the_same_in_the_table():
    few = numbers(*[(0.9, True)] * 100, *[(0.5, False)] * 10)
    many = numbers(*[(0.9, True)] * 990, *[(0.9, False)] * 10)
    row = risk.table({"few": few, "many": many})[-1]
    assert 0.5 < row["p"] <= 0.9
    assert row["risk"] == pytest.approx((0 + 10 / 1000) / 2)
    assert row["error"] == pytest.approx(upper_limit(363 / 200, 363), abs=1e-5)  # 4 / (1/100 + 1/1000)
    assert risk.curve(many)["at_0.01"] == 1
    assert risk.curve(few)["at_0.05"] == pytest.approx(100 / 110)
