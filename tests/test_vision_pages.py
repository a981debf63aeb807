"""Made pages: the generator keeps its word, and the finder counts their digits."""

import numpy as np
import pytest

from neocog.learning.datasets import open_dataset
from neocog.learning.pages.conditions import BLANK, BLANK_HELD_BACK, CONDITIONS, HELD_BACK, WITHOUT_DIGITS
from neocog.learning.pages.page import make_page
from neocog.learning.pages.pen import skeleton
from neocog.reading.reader import Reader
from neocog.vision.decode import to_grey
from tests.support import few, run

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
    assert not set(BLANK) & set(BLANK_HELD_BACK)


@pytest.mark.parametrize("condition", few(CONDITIONS, *list(CONDITIONS)[::6]))
def test_pages_are_seeded(condition, digits):
    picture, text = page(condition, digits)
    again, same = page(condition, digits)
    assert np.array_equal(picture, again)
    assert text == same
    assert picture.shape == (960, 1280, 3)
    assert bool(text) != (condition in WITHOUT_DIGITS)


@pytest.fixture(scope="module")
def reader():
    return Reader(device="cpu")


@pytest.mark.parametrize("condition", ["plain", "defocus", "white_on_black", "drawn_box"])
def test_digits_are_found(condition, digits, reader):
    picture, text = page(condition, digits)
    found = sum(len(line.digits) for line in reader.find(to_grey(picture)).lines)
    assert found == pytest.approx(len(text.replace("\n", "")), rel=0.15)


@pytest.mark.parametrize("condition", few([c for c in BLANK if c != "drawing"], "print"))
def test_nothing_is_found_where_nothing_is_written(condition, digits, reader):
    pages = [page(condition, digits, seed)[0] for seed in (1, 2, 3)]
    assert sum(bool(reader.find(to_grey(picture)).lines) for picture in pages) <= 1


def test_skeleton_is_one_pixel_wide():
    bar = np.zeros((20, 40), bool)
    bar[6:13, 4:36] = True
    line = skeleton(bar)
    assert 20 <= line.sum() <= 34
    assert line.any(axis=0).sum() >= 20
    assert (line.sum(axis=0) <= 2).all()


@pytest.fixture
def no_mnist(monkeypatch, tmp_path):
    """Not even what is missing: a folder of that name without the files."""
    monkeypatch.setenv("NEOCOG_DATA", str(tmp_path / "nothing"))
    (tmp_path / "nothing" / "mnist").mkdir(parents=True)


def make(*words):
    return run("data", "make-pages", *words)


def test_command_writes_pages_that_are_a_labelled_set(tmp_path, no_mnist):
    done = make(tmp_path / "a", "--count", 3, "--conditions", "one_digit,empty_paper")
    assert done.exit_code == 0, done.output
    assert "scikit-learn" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    labelled = open_dataset(tmp_path / "a")
    assert [file.name for file in labelled.files] == [
        "one_digit_000.png", "empty_paper_000.png", "one_digit_001.png",
    ]  # fmt: skip
    assert [len(text) for text in labelled.expected] == [1, 0, 1]


def test_same_seed_writes_the_same_pages(tmp_path, no_mnist):
    for name, seed, count in (("a", 5, 1), ("b", 5, 2), ("c", 6, 1)):
        words = ("--conditions", "one_digit", "--seed", seed, "--count", count)
        assert make(tmp_path / name, *words).exit_code == 0
    a, b, c = (next((tmp_path / name).glob("*_000.png")).read_bytes() for name in "abc")
    assert a == b
    assert a != c


def test_pages_are_written_with_the_digits_given(tmp_path):
    done = make(tmp_path, "--count", 1, "--conditions", "plain", "--digits", "sklearn")
    assert done.exit_code == 0
    assert done.stderr == ""


@pytest.mark.parametrize(("words", "code"), [
    (("--conditions", "sunny"), 2), (("--digits", __file__), 1), (("--count", "0"), 2),
])  # fmt: skip
def test_what_cannot_be_made_is_said_in_one_line(tmp_path, words, code):
    done = make(tmp_path, "--conditions", "plain", *words)
    assert done.exit_code == code
    assert done.stderr.strip()
