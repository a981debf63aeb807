"""A mark is judged by its company: numbers, digits among signs, words."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from neocog.batch.context import odds_of_page, runs_of
from neocog.batch.reader import Reader
from neocog.network.decision import Answers, answers
from neocog.vision.find import Found, Line
from tests.support import tiny_model

T = 0.05
MODEL = replace(tiny_model(), labels=np.append(np.arange(8), [10, 10]), temperature=T)
SURE = {"d": 9.0, "l": 4.0, "?": -9.0}  # log of how much likelier a digit is than none


def seen(text: str) -> tuple[Answers, NDArray[np.int64]]:
    """Answers to marks: digits, letters that look like one, and marks that do not; runs."""
    marks = [(sign, run) for run, word in enumerate(text.split()) for sign in word]
    score = np.full((len(marks), 11), 0.1, np.float32)
    for row, (sign, _) in enumerate(marks):
        score[row, 10] = 1.0
        score[row, 3] = 1.0 + T * SURE[sign]
    return answers(score, temperature=T), np.array([run for _, run in marks])


def read(text: str, *, strip: bool = False) -> str:
    found, runs = seen(text)
    reader = Reader(MODEL, device="cpu", min_p=0.4)
    boxes = [(0, 0, 1, 1)] * len(runs)
    chars = [digit.char for digit in reader.judge(found, boxes, runs=runs, strip=strip)]
    return "".join("d" if char.isdigit() else char for char in chars)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("l", "d"),  # alone it is a digit for all that is known
        ("dddd", "dddd"),
        ("dd?dd", "dd?dd"),
        ("d?d?d", "d?d?d"),  # 3 + 4 = 7
        ("?l? ?ll? ??l", "???" "????" "???"),
        ("?l? dddd ?ll? dd", "???" "dddd" "????" "dd"),
        ("???? ??? dddd", "????" "???" "dddd"),
        ("???? ??? l", "????" "???" "?"),
        ("???? ??? d", "????" "???" "?"),  # one digit among words might be a letter
    ],
)  # fmt: skip
def test_letters_like_digits_go_by_their_word(text: str, wanted: str) -> None:
    assert read(text) == wanted


def test_a_strip_is_no_page_of_words() -> None:
    assert read("lll ??ll?") == "????????"
    assert read("lll ??ll?", strip=True) == "ddd??dd?"


def test_the_cleaner_a_page_the_surer_its_digits() -> None:
    few, many, among = (_odds(text) for text in ("d", "dddd dddd dddd", "dddd ?l? ?ll?"))
    assert np.max(many) < np.min(few)
    assert np.max(few) < np.min(among[4:])


def _odds(text: str) -> NDArray[np.float64]:
    found, runs = seen(text)
    return np.asarray(odds_of_page(found, MODEL, 0.3, runs))


def test_runs_are_parted_by_gaps_and_lines() -> None:
    def line(*places: tuple[int, int]) -> Line:
        digit = np.zeros((28, 28), np.uint8)
        return Line(tuple(Found((left, 0, 10, high), digit) for left, high in places))

    lines = [line((0, 20), (25, 20), (60, 10), (75, 20)), line((90, 20))]
    assert runs_of(lines).tolist() == [0, 0, 1, 1, 2]
    assert runs_of([]).tolist() == []
