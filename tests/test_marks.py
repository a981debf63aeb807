"""Variants of digits and marks that are none: seeded, in MNIST's form; styles that other schools teach."""

import numpy as np
import pytest

from neocog.errors import UsageError
from neocog.learning.datasets import open_digits
from neocog.learning.drawing.glyphs import allograph, styles_of
from neocog.learning.drawing.marks import HELD, KINDS, negatives, variants, written
from neocog.learning.mix import Mix
from neocog.network.engine import Engine
from neocog.network.model import load_model
from neocog.vision.normalise import normalise


@pytest.mark.parametrize("held", [False, True])
def test_marks_of_every_kind(held):
    found = open_digits("sklearn", split="train")[:260]
    marks, kind, names = negatives(150, found.images, found.labels, seed=3, held=held)
    assert marks.shape == (150, 28, 28)
    assert set(kind) == set(range(len(names)))
    assert marks.reshape(150, -1).sum(axis=1).min() > 0
    if held:
        again, other = (negatives(150, found.images, found.labels, seed=k, held=True)[0] for k in (3, 4))
        np.testing.assert_array_equal(marks, again)
        assert not np.array_equal(marks, other)
    assert KINDS.keys() & HELD.keys() == {"letter", "sign"}  # in other fonts
    with pytest.raises(UsageError, match="no digits"):
        negatives(3, np.zeros((0, 28, 28), np.uint8), np.zeros(0, np.int64), seed=0)


@pytest.mark.parametrize(("ink", "count"), [(0, 4), (255, 4), (0, 0)])
def test_no_ink_and_nothing_but_ink_are_taken(ink, count):
    made, labels = variants(count, Mix.of(np.full((1, 28, 28), ink, np.uint8), np.array([5])))
    assert (made.shape, labels.dtype) == ((count, 28, 28), np.int64)
    assert set(labels) <= set(range(10))


def test_some_variants_are_drawn():
    image = np.zeros((1, 28, 28), np.uint8)
    image[0, 8:20, 10:18] = 255
    made, labels = variants(300, Mix.of(image, np.array([5])), seed=1)
    assert (made.shape, made.dtype) == ((300, 28, 28), np.uint8)
    drawn = labels != 5
    assert set(labels[drawn]) == {*range(10)} - {5}
    assert 30 < drawn.sum() < 90  # a fifth, but for drawn 5s
    assert (made[drawn].reshape(-1, 784).max(axis=1) > 150).all()


@pytest.mark.parametrize("name", ["neocog", "neocog-small"])
def test_the_shipped_models_read_nearly_all_styles(name):
    """Three of four of each style, but for a long leaning 1, which alone may be a slash."""
    rng, each = np.random.default_rng(5), 12
    styles = [(d, k) for d in range(10) for k in range(styles_of(d)) if (d, k) != (1, 0)]
    digits = [normalise(written(allograph(*style, rng), rng)) for style in styles for _ in range(each)]
    best = Engine(load_model(name)).recognise(np.stack(digits)).score[:, :10].argmax(axis=1)
    right = best.reshape(-1, each) == np.array([digit for digit, _ in styles])[:, None]
    poor = [style for style, share in zip(styles, right.mean(axis=1), strict=True) if share < 0.75]
    assert len(poor) <= 2, poor
    assert right.mean() > 0.94
