"""Work spread over processes, and what the reading benchmark makes of it."""

from functools import partial

import pytest

from benchmarks.reading import THRESHOLDS, Seen, curve, measure, together
from benchmarks.spread import spread
from neocog.batch.records import DigitReading, PageReading


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_come_in_order(jobs: int) -> None:
    assert list(spread(partial(pow, 2), range(7), jobs)) == [2**n for n in range(7)]


def seen(expected: str, text: str, *curve: str, other: str | None = None) -> Seen:
    digits = tuple(DigitReading(char, 1.0, 1.0, (0, 0, 5, 9)) for char in text)
    return Seen("a", expected, PageReading("a", text=text, digits=digits), other, curve)


def test_a_row_counts_edits_by_digits() -> None:
    row = measure([seen("123", "123", other="12"), seen("45", "4?", other="45")])
    assert (row["pictures"], row["digits"], row["exact"]) == (2, 5, 1)
    assert (row["cer"], row["cer_other"]) == (0.2, 0.2)
    assert row["wrong"] == [{"picture": "a", "written": "45", "read": "4?", "cause": "given_up"}]
    assert "cer_tesseract" not in row
    assert together([row, row], set="all")["cer"] == 0.2


def test_pages_without_digits_count_what_is_printed() -> None:
    row = measure([seen("", ""), seen("", "?1?"), seen("", "??")])
    assert (row["any"], row["marks"], row["printed"]) == (1, 5, 1)


def test_a_string_with_a_question_mark_is_not_answered() -> None:
    texts = ["12"] * (len(THRESHOLDS) - 1) + ["1?"]
    first, *_, last = curve([seen("12", "12", *texts), seen("34", "33", *["33"] * len(THRESHOLDS))])
    assert (first["answered"], first["wrong"], first["refused"]) == (2, 1, 0)
    assert (last["answered"], last["wrong"], last["refused"], last["risk"]) == (1, 1, 1, 1.0)
