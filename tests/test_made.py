"""Made pages: the generator keeps its word, most of what is written is found."""

import numpy as np
import pytest

from neocog.errors import InputError
from neocog.learning.datasets import Digits, open_dataset, read_sklearn
from neocog.learning.drawing.hands import hands_of
from neocog.learning.drawing.made import CONDITIONS, make_page
from neocog.reading.reader import Reader
from tests.support import few, run


@pytest.fixture(scope="module")
def hands():
    return hands_of(read_sklearn()[:60])


@pytest.mark.parametrize("condition", few(CONDITIONS, "surface", "empty"))
def test_pages_of_every_condition(condition, hands):
    picture, text = make_page(hands, condition, np.random.default_rng(1))
    assert picture.shape == (960, 960)
    assert any(map(str.isdigit, text)) != (condition == "empty")


def test_digits_are_found(hands):
    reader, counts = Reader(device="cpu"), []
    for seed in range(3):
        picture, text = make_page(hands, "plain", np.random.default_rng(seed))
        found = len(reader.read(picture).digits)
        counts.append((found, sum(map(str.isdigit, text))))
    found, written = np.sum(counts, axis=0)
    assert found == pytest.approx(written, rel=0.25)


def test_a_set_without_a_digit_writes_others_and_one_without_ink_nothing():
    digits = read_sklearn()[:80]
    hands = hands_of(Digits(digits.images, np.full(80, 7), "all are sevens"))
    _, text = make_page(hands, "plain", np.random.default_rng(0))
    assert "7" in text
    with pytest.raises(InputError, match="no digit has ink"):
        hands_of(Digits(np.zeros((2, 28, 28), np.uint8), np.array([1, 2]), "blank"))


def test_command_writes_pages_that_are_a_labelled_set(tmp_path, monkeypatch):
    monkeypatch.setenv("NEOCOG_DATA", str(tmp_path / "nothing"))
    (tmp_path / "nothing" / "mnist").mkdir(parents=True)  # a folder of that name without the files
    for name, seed, count in (("a", 5, 1), ("b", 5, 3), ("c", 6, 1)):
        words = ("--conditions", "plain,empty", "--seed", seed, "--count", count)
        done = run("data", "make-pages", tmp_path / name, *words)
        assert done.exit_code == 0, done.output
        assert "scikit-learn" in done.stderr
        assert len(done.stderr.splitlines()) == 1
    labelled = open_dataset(tmp_path / "b")
    assert [(f.name, bool(text)) for f, text in zip(labelled.files, labelled.expected, strict=True)] == [
        ("plain_000.png", True), ("empty_000.png", False), ("plain_001.png", True),
    ]  # fmt: skip
    a, b, c = ((tmp_path / name / "plain_000.png").read_bytes() for name in "abc")
    assert a == b != c


@pytest.mark.parametrize(("words", "code"), [
    (("--digits", "sklearn"), 0), (("--digits", __file__), 1),
    (("--conditions", "sunny"), 2), (("--count", "0"), 2),
])  # fmt: skip
def test_what_cannot_be_made_is_said_in_one_line(tmp_path, words, code):
    done = run("data", "make-pages", tmp_path, "--conditions", "plain", "--count", "1", *words)
    assert done.exit_code == code
    assert bool(done.stderr.strip()) == bool(code)
