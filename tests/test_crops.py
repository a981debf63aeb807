"""Crops of made pages: what holds a digit of the page, what holds none, and what is neither."""

from pathlib import Path

import numpy as np
import pytest

from experiments.learning import crops as made
from neocog.learning.teacher.bank import Bank
from neocog.learning.teacher.page import Page
from neocog.vision.finder import SIGNS, Finding, overlaps

HIGH = 30


def page(*marks: tuple[float, float, float]) -> Page:
    """A page of bars; of each its label and middle."""
    image = np.full((256, 256), 220, np.uint8)
    for _, x, y in marks:
        image[int(y) - HIGH // 2 : int(y) + HIGH // 2, int(x) - 3 : int(x) + 3] = 30
    rows = [(label, x, y, 12, HIGH) for label, x, y in marks]
    return Page(image, np.array(rows, np.float32).reshape(-1, 5), (256, 256))


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """Crops of one page in which a finder sees boxes around middles."""

    def crops_of(page: Page, *middles: tuple[float, float]) -> made.Crops:
        boxes = np.array([(x - 6, y - HIGH / 2, 12, HIGH) for x, y in middles], np.float32)
        n = len(middles)
        found = Finding(boxes, np.ones(n, np.float32), np.zeros(n, np.int64), np.zeros((n, 10), np.float32))
        bank = Bank(*(np.zeros(0, np.int64),) * 11)  # type: ignore[arg-type]
        for name, value in {
            "load_bank": bank, "load_finder": None, "OpenCV": None, "draw_page": page, "find": found
        }.items():  # fmt: skip
            monkeypatch.setattr(made, name, lambda *args, value=value, **more: value)
        monkeypatch.setattr(made, "_between", lambda boxes, rng: boxes[:0])
        monkeypatch.setattr(made, "_JITTER", 0.01)
        return made.crops(1, Path("bank"), Path("finder"))

    return crops_of


def test_a_digit_is_cut_where_it_is_and_where_it_was_found(cut) -> None:  # type: ignore[no-untyped-def]
    found = cut(page((7, 100, 100)), (101, 101))
    assert (found.digits.shape, found.labels.tolist()) == ((2, 28, 28), [7, 7])
    assert not len(found.marks)
    assert (found.digits.reshape(2, -1).max(axis=1) > 200).all()


def test_signs_and_strokes_are_no_digits_and_what_is_unsure_is_neither(cut) -> None:  # type: ignore[no-untyped-def]
    plus, slash = 10 + SIGNS.index("+"), 10 + SIGNS.index("/")
    found = cut(page((plus, 60, 60), (slash, 150, 60)), (60, 60), (150, 60))
    assert (len(found.digits), len(found.marks)) == (0, 1), "a slash passes for a digit"
    drawn = page((3, 60, 60), (-1, 150, 60))
    drawn.image[180:210, 100:106] = 30  # a stroke that nobody told of
    found = cut(drawn, (103, 195), (150, 60), (66, 60))
    assert (found.labels.tolist(), len(found.marks)) == ([3], 1)
    blank = cut(page(), (50, 50))
    assert (len(blank.digits), len(blank.marks)) == (0, 0)  # no ink


def test_boxes_between_digits_leave_both() -> None:
    rng = np.random.default_rng(0)
    one = np.array([[100, 50, 12, 30]], np.float32)
    for _ in range(20):
        assert overlaps(made._between(one, rng), one)[0].max(axis=1)[0] < 0.4
