"""Variants of digits: seeded, digits still, in MNIST's form."""

import numpy as np
import pytest

from neocog.learning.datasets import open_digits
from neocog.learning.drawing.marks import variants
from neocog.learning.mix import Hand, Mix


def test_variants_are_seeded_digits_of_all_kinds() -> None:
    mix = Mix((Hand(open_digits("sklearn")[:60]),))
    made, labels = variants(90, mix, seed=3)
    again, _ = variants(90, mix, seed=3)
    other, _ = variants(90, mix, seed=4)
    assert made.shape == (90, 28, 28)
    assert made.dtype == np.uint8
    assert np.array_equal(made, again)
    assert not np.array_equal(made, other)
    counts = np.bincount(labels, minlength=10)
    assert counts.min() >= 3
    assert (made.reshape(90, -1).max(axis=1) > 150).all()


@pytest.mark.parametrize(("ink", "count"), [(0, 4), (255, 4), (0, 0)])
def test_no_ink_and_nothing_but_ink_are_taken(ink: int, count: int) -> None:
    made, labels = variants(count, Mix.of(np.full((1, 28, 28), ink, np.uint8), np.array([5])))
    assert made.shape == (count, 28, 28)
    assert labels.dtype == np.int64
    assert set(labels) <= set(range(10))


def test_some_are_drawn() -> None:
    image = np.zeros((1, 28, 28), np.uint8)
    image[0, 8:20, 10:18] = 255
    made, labels = variants(300, Mix.of(image, np.array([5])), seed=1)
    drawn = labels != 5
    assert set(labels[drawn]) == {*range(10)} - {5}
    assert 30 < drawn.sum() < 90  # a fifth, but for drawn 5s
    assert (made[drawn].reshape(-1, 784).max(axis=1) > 150).all()
