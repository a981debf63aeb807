"""Variants of digits: seeded, digits still, in MNIST's form."""

import numpy as np
import pytest

from neocog.learning.datasets import open_digits
from neocog.learning.variants import variants


def test_variants_are_seeded_digits_of_all_kinds() -> None:
    digits = open_digits("sklearn")[:60]
    made, labels = variants(90, digits.images, digits.labels, seed=3)
    again, _ = variants(90, digits.images, digits.labels, seed=3)
    other, _ = variants(90, digits.images, digits.labels, seed=4)
    assert made.shape == (90, 28, 28)
    assert made.dtype == np.uint8
    assert np.array_equal(made, again)
    assert not np.array_equal(made, other)
    counts = np.bincount(labels, minlength=10)
    assert counts.min() >= 3
    assert (made.reshape(90, -1).max(axis=1) > 150).all()


def test_no_variants_may_be_wanted() -> None:
    made, labels = variants(0, np.zeros((3, 28, 28), np.uint8), np.arange(3))
    assert made.shape == (0, 28, 28)
    assert labels.shape == (0,)
    assert labels.dtype == np.int64


def test_each_digit_comes_about_equally_often() -> None:
    images = np.zeros((3, 28, 28), np.uint8)
    for i in range(3):
        images[i, 8:20, 8 + 3 * i : 11 + 3 * i] = 255
    _, labels = variants(7, images, np.arange(3), seed=0)
    assert np.bincount(labels).max() <= 5


@pytest.mark.parametrize("ink", [0, 255])
def test_no_ink_and_nothing_but_ink_are_taken(ink: int) -> None:
    made, labels = variants(4, np.full((1, 28, 28), ink, np.uint8), np.array([5]))
    assert made.shape == (4, 28, 28)
    assert set(labels) <= {0, 1, 5, 7}


def test_some_are_drawn() -> None:
    image = np.zeros((1, 28, 28), np.uint8)
    image[0, 8:20, 10:18] = 255
    made, labels = variants(300, image, np.array([5]), seed=1)
    drawn = labels != 5
    assert set(labels[drawn]) == {0, 1, 7}
    assert 5 < drawn.sum() < 40
    assert (made[drawn].reshape(-1, 784).max(axis=1) > 150).all()
