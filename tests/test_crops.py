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
    rows = []
    for label, x, y in marks:
        image[int(y) - HIGH // 2 : int(y) + HIGH // 2, int(x) - 3 : int(x) + 3] = 30
        rows.append((label, x, y, 12, HIGH))
    return Page(image, np.array(rows, np.float32).reshape(-1, 5), (256, 256))


def boxes(*middles: tuple[float, float]) -> Finding:
    found = np.array([(x - 6, y - HIGH / 2, 12, HIGH) for x, y in middles], np.float32)
    found = found.reshape(-1, 4)
    count = len(found)
    return Finding(found, np.ones(count, np.float32), np.zeros(count, np.int64),
                   np.zeros((count, 10), np.float32))  # fmt: skip


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """Crops of one page that a finder answers with some boxes."""
    empty = np.zeros(0, np.int64)
    bank = Bank(*(empty,) * 11)  # type: ignore[arg-type]

    def crops_of(page: Page, found: Finding) -> made.Crops:
        monkeypatch.setattr(made, "load_bank", lambda path: bank)
        monkeypatch.setattr(made, "load_finder", lambda path: None)
        monkeypatch.setattr(made, "OpenCV", lambda finder: None)
        monkeypatch.setattr(made, "draw_page", lambda *args, **more: page)
        monkeypatch.setattr(made, "find", lambda image, network: found)
        monkeypatch.setattr(made, "_between", lambda boxes, rng: boxes[:0])
        monkeypatch.setattr(made, "_JITTER", 0.01)
        return made.crops(1, Path("bank"), Path("finder"))

    return crops_of


def test_a_digit_is_cut_where_it_is_and_where_it_was_found(cut) -> None:  # type: ignore[no-untyped-def]
    found = cut(page((7, 100, 100)), boxes((101, 101)))
    assert found.digits.shape == (2, 28, 28)
    assert found.labels.tolist() == [7, 7]
    assert not len(found.marks)
    assert (found.digits.reshape(2, -1).max(axis=1) > 200).all()


def test_signs_are_no_digits_but_those_that_pass_for_one(cut) -> None:  # type: ignore[no-untyped-def]
    plus, slash = 10 + SIGNS.index("+"), 10 + SIGNS.index("/")
    found = cut(page((plus, 60, 60), (slash, 150, 60)), boxes((60, 60), (150, 60)))
    assert (len(found.digits), len(found.marks)) == (0, 1)


def test_what_stands_on_no_mark_is_none_and_what_is_unsure_is_neither(cut) -> None:  # type: ignore[no-untyped-def]
    drawn = page((3, 60, 60), (-1, 150, 60))
    drawn.image[180:210, 100:106] = 30  # a stroke that nobody told of
    found = cut(drawn, boxes((103, 195), (150, 60), (66, 60)))
    assert found.labels.tolist() == [3]
    assert len(found.marks) == 1
    blank = cut(page(), boxes((50, 50)))
    assert (len(blank.digits), len(blank.marks)) == (0, 0)  # no ink


def test_boxes_between_digits_leave_both() -> None:
    rng = np.random.default_rng(0)
    one = np.array([[100, 50, 12, 30]], np.float32)
    for _ in range(20):
        assert overlaps(made._between(one, rng), one)[0].max(axis=1)[0] < 0.4
