"""Made pages: the generator keeps its word, and the finder counts their digits."""

import numpy as np
import pytest

from benchmarks.conditions import CONDITIONS, WITHOUT_DIGITS
from benchmarks.pages import HELD_BACK, make_page
from benchmarks.pen import skeleton
from neocog.vision.decode import to_grey
from neocog.vision.find import find_digits

LABELS = np.array([0, 1, 7], np.uint8)


@pytest.fixture(scope="module")
def digits():
    """A zero, a one and a seven in the form of MNIST."""
    field = np.zeros((3, 28, 28), np.uint8)
    rows, columns = np.mgrid[:28, :28] - 13.5
    radius = np.hypot(rows, columns * 1.5)
    field[0] = 255 * (np.abs(radius - 8.5) < 1.4)
    field[1, 4:24, 13:16] = 255
    field[2, 4:7, 7:20] = 255
    for row in range(7, 24):
        start = 18 - (row - 5) // 2
        field[2, row, start : start + 3] = 255
    return field


def page(condition, digits, seed=1):
    rng = np.random.default_rng([seed, *condition.encode()])
    return make_page(condition, digits, LABELS, rng)


def test_at_least_twenty_conditions_and_five_held_back():
    assert len(CONDITIONS) - len(WITHOUT_DIGITS) >= 20
    assert len(HELD_BACK) >= 5
    assert set(HELD_BACK) | set(WITHOUT_DIGITS) <= set(CONDITIONS)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_pages_are_seeded(condition, digits):
    picture, text = page(condition, digits)
    again, same = page(condition, digits)
    assert np.array_equal(picture, again)
    assert text == same
    assert picture.shape == (960, 1280, 3)
    assert bool(text) != (condition in WITHOUT_DIGITS)


@pytest.mark.parametrize(
    "condition",
    ["plain", "defocus", "show_through", "squared", "ruled", "low_light", "white_on_black",
     "thin_pencil", "one_digit", "drawn_box", "slanting", "text_nearby"],
)  # fmt: skip
def test_every_digit_is_found(condition, digits):
    picture, text = page(condition, digits)
    found = [len(line.digits) for line in find_digits(to_grey(picture))]
    assert found == [len(line) for line in text.split("\n")]


@pytest.mark.parametrize("condition", [c for c in WITHOUT_DIGITS if c != "drawing"])
def test_nothing_is_found_where_nothing_is_written(condition, digits):
    picture, _ = page(condition, digits)
    assert find_digits(to_grey(picture)) == []


def test_skeleton_is_one_pixel_wide():
    bar = np.zeros((20, 40), bool)
    bar[6:13, 4:36] = True
    line = skeleton(bar)
    assert 20 <= line.sum() <= 34
    assert line.any(axis=0).sum() >= 20
    assert (line.sum(axis=0) <= 2).all()
