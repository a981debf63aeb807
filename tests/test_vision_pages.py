"""Made pages: the generator keeps its word, the finder counts digits, joined ones are read."""

import numpy as np
import pytest

from neocog.learning.datasets import open_dataset
from neocog.learning.pages.conditions import BLANK, BLANK_HELD_BACK, CONDITIONS, WITHOUT_DIGITS
from neocog.learning.pages.page import make_page
from neocog.reading.reader import Reader
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


@pytest.mark.parametrize("condition", few(CONDITIONS, *list(CONDITIONS)[::6]))
def test_pages_are_seeded(condition, digits):
    picture, text = page(condition, digits)
    again, same = page(condition, digits)
    assert np.array_equal(picture, again)
    assert (text, picture.shape) == (same, (960, 1280, 3))
    assert bool(text) != (condition in WITHOUT_DIGITS)
    assert not set(BLANK) & set(BLANK_HELD_BACK)


@pytest.fixture(scope="module")
def reader():
    return Reader(device="cpu")


@pytest.mark.parametrize("condition", ["plain", "defocus", "white_on_black", "drawn_box"])
def test_digits_are_found(condition, digits, reader):
    picture, text = page(condition, digits)
    found = len(reader.read(picture).digits)
    assert found == pytest.approx(len(text.replace("\n", "")), rel=0.15)


@pytest.mark.parametrize("condition", few([c for c in BLANK if c != "drawing"], "print"))
def test_nothing_is_found_where_nothing_is_written(condition, digits, reader):
    pages = [page(condition, digits, seed)[0] for seed in (1, 2, 3)]
    assert sum(bool(reader.read(picture).digits) for picture in pages) <= 1


@pytest.fixture
def no_mnist(monkeypatch, tmp_path):
    """Not even what is missing: a folder of that name without the files."""
    monkeypatch.setenv("NEOCOG_DATA", str(tmp_path / "nothing"))
    (tmp_path / "nothing" / "mnist").mkdir(parents=True)


def test_command_writes_pages_that_are_a_labelled_set(tmp_path, no_mnist):
    for name, seed, count in (("a", 5, 1), ("b", 5, 3), ("c", 6, 1)):
        words = ("--conditions", "one_digit,empty_paper", "--seed", seed, "--count", count)
        done = run("data", "make-pages", tmp_path / name, *words)
        assert done.exit_code == 0, done.output
        assert "scikit-learn" in done.stderr
        assert len(done.stderr.splitlines()) == 1
    labelled = open_dataset(tmp_path / "b")
    assert [(f.name, len(text)) for f, text in zip(labelled.files, labelled.expected, strict=True)] == [
        ("one_digit_000.png", 1), ("empty_paper_000.png", 0), ("one_digit_001.png", 1),
    ]  # fmt: skip
    a, b, c = ((tmp_path / name / "one_digit_000.png").read_bytes() for name in "abc")
    assert a == b != c


@pytest.mark.parametrize(("words", "code"), [
    (("--digits", "sklearn"), 0), (("--digits", __file__), 1),
    (("--conditions", "sunny"), 2), (("--count", "0"), 2),
])  # fmt: skip
def test_what_cannot_be_made_is_said_in_one_line(tmp_path, words, code):
    done = run("data", "make-pages", tmp_path, "--conditions", "plain", "--count", "1", *words)
    assert done.exit_code == code
    assert bool(done.stderr.strip()) == bool(code)
