"""Corrupted digits: the same each time, harder from strength to strength, ink where it belongs."""

import numpy as np
import pytest

from neocog.errors import InputError, UsageError
from neocog.evaluation.corruptions import CORRUPTIONS, STRENGTHS, corrupt
from tests.support import digits_of

DIGITS = digits_of("0123456789")


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_the_same_each_time_and_stronger_by_strength(name):
    before, changed = DIGITS.copy(), []
    for strength in STRENGTHS:
        out = corrupt(DIGITS, name, strength)
        assert (out.shape, out.dtype) == (DIGITS.shape, np.uint8)
        np.testing.assert_array_equal(out, corrupt(DIGITS, name, strength))
        changed.append(np.abs(out.astype(int) - DIGITS).mean())
    np.testing.assert_array_equal(DIGITS, before)
    assert 0 < changed[0] < changed[4]
    drawn = name not in ("blur", "contrast")
    assert np.array_equal(corrupt(DIGITS, name, 3, seed=1), corrupt(DIGITS, name, 3, seed=2)) is not drawn
    assert corrupt(DIGITS[:0], name, 5).shape == (0, 28, 28)
    corrupt(np.zeros((1, 28, 28), np.uint8), name, 5)  # empty digits are no trouble


def test_what_each_does_to_the_ink():
    def middle(image):
        weights, at = image / image.sum(), np.arange(28)
        return np.array([(weights.sum(axis=1) * at).sum(), (weights.sum(axis=0) * at).sum()])

    for strength in (1, 2, 3):
        for one, other in zip(DIGITS, corrupt(DIGITS, "shift", strength), strict=True):
            assert np.hypot(*(middle(other) - middle(one))) == pytest.approx(strength, abs=0.1)
    np.testing.assert_allclose(corrupt(DIGITS, "rotation", 3).sum((1, 2)), DIGITS.sum((1, 2)), rtol=0.05)
    factor = CORRUPTIONS["scale"].amounts[1]
    share = corrupt(DIGITS, "scale", 2).sum((1, 2)) / DIGITS.sum((1, 2))
    assert np.minimum(abs(share - factor**2), abs(share - factor**-2)).max() < 0.1
    ink = DIGITS.astype(np.float32)
    turned = CORRUPTIONS["rotation"].change(ink, 90.0, np.random.default_rng(0))
    both = np.stack([np.rot90(ink, 1, (1, 2)), np.rot90(ink, -1, (1, 2))])
    assert (np.abs(turned - both).max(axis=(2, 3)).min(axis=0) < 0.01).all()
    for strength, side in enumerate(CORRUPTIONS["occlusion"].amounts, 1):
        paper = corrupt(np.full((30, 28, 28), 255, np.uint8), "occlusion", strength) == 0
        assert paper.sum((1, 2)).max() == side**2
    assert corrupt(DIGITS, "contrast", 5).max() == round(255 * 0.15)
    paper = corrupt(np.zeros((3, 28, 28), np.uint8), "background", 5)
    assert 0 < paper.max() <= 128
    assert (paper.std(axis=(1, 2)) > 5).all()


def test_what_is_wrong_is_told():
    with pytest.raises(UsageError, match="unknown: choose noise, blur"):
        corrupt(DIGITS, "rain", 1)
    with pytest.raises(UsageError, match="got strength 6, expected 1 to 5"):
        corrupt(DIGITS, "blur", 6)
    with pytest.raises(InputError):
        corrupt(DIGITS[:, :20], "blur", 1)
