"""Read lines beside written ones: digits, signs, silent losses, intervals, pairs of readers."""

import numpy as np
import pytest

from experiments.lines import measure
from experiments.lines.score import by_line, compared, of_signs, paired, plain, share, summary


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
