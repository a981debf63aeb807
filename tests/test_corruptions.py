"""Corrupted digits: the same each time, harder from strength to strength, ink where it belongs."""

import numpy as np
import pytest

from neocog.errors import InputError, UsageError
from neocog.evaluation.corruptions import CORRUPTIONS, STRENGTHS, corrupt
from tests.support import digits_of

DIGITS = digits_of("0123456789")


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_the_same_each_time_and_stronger_by_strength(name: str) -> None:
    before = DIGITS.copy()
    changed = []
    for strength in STRENGTHS:
        out = corrupt(DIGITS, name, strength)
        assert out.shape == DIGITS.shape
        assert out.dtype == np.uint8
        np.testing.assert_array_equal(out, corrupt(DIGITS, name, strength))
        changed.append(np.abs(out.astype(int) - DIGITS).mean())
    np.testing.assert_array_equal(DIGITS, before)
    assert changed[0] > 0
    assert changed[4] > changed[0]
    assert not np.array_equal(corrupt(DIGITS, name, 3, seed=1), corrupt(DIGITS, name, 3, seed=2)) or name in (
        "blur",
        "contrast",
    )  # nothing in these is drawn


def middle(image: np.ndarray) -> np.ndarray:
    weights = image / image.sum()
    return np.array([(weights.sum(axis=1) * np.arange(28)).sum(),
                     (weights.sum(axis=0) * np.arange(28)).sum()])  # fmt: skip


def test_a_shift_moves_the_middle_by_its_amount() -> None:
    for strength in (1, 2, 3):
        moved = corrupt(DIGITS, "shift", strength)
        for one, other in zip(DIGITS, moved, strict=True):
            assert np.hypot(*(middle(other) - middle(one))) == pytest.approx(strength, abs=0.1)


def test_rotation_keeps_the_ink_and_scale_changes_it() -> None:
    turned = corrupt(DIGITS, "rotation", 3)
    np.testing.assert_allclose(turned.sum((1, 2)), DIGITS.sum((1, 2)), rtol=0.05)
    factor = CORRUPTIONS["scale"].amounts[1]
    area = corrupt(DIGITS, "scale", 2).sum((1, 2)) / DIGITS.sum((1, 2))
    near = np.minimum(np.abs(area - factor**2), np.abs(area - factor**-2))
    assert near.max() < 0.1  # thin strokes fall between pixels


def test_a_quarter_turn_is_exact() -> None:
    ink = DIGITS.astype(np.float32)
    turned = CORRUPTIONS["rotation"].change(ink, 90.0, np.random.default_rng(0))
    both = np.stack([np.rot90(ink, 1, (1, 2)), np.rot90(ink, -1, (1, 2))])
    assert (np.abs(turned - both).max(axis=(2, 3)).min(axis=0) < 0.01).all()


def test_what_is_missing_is_a_square_of_paper() -> None:
    full = np.full((20, 28, 28), 255, np.uint8)
    for strength, side in zip(STRENGTHS, CORRUPTIONS["occlusion"].amounts, strict=True):
        gone = corrupt(full, "occlusion", strength) == 0
        assert (gone.sum((1, 2)) <= side**2).all()
        assert gone.sum((1, 2)).max() == side**2


def test_contrast_and_background() -> None:
    assert corrupt(DIGITS, "contrast", 5).max() == round(255 * 0.15)
    paper = corrupt(np.zeros((3, 28, 28), np.uint8), "background", 5)
    assert 0 < paper.max() <= 128
    assert (paper.std(axis=(1, 2)) > 5).all()


def test_empty_digits_are_no_trouble() -> None:
    for name in CORRUPTIONS:
        assert corrupt(DIGITS[:0], name, 5).shape == (0, 28, 28)
        corrupt(np.zeros((1, 28, 28), np.uint8), name, 5)


def test_what_is_wrong_is_told() -> None:
    with pytest.raises(UsageError, match="unknown: choose noise, blur"):
        corrupt(DIGITS, "rain", 1)
    with pytest.raises(UsageError, match="got strength 6, expected 1 to 5"):
        corrupt(DIGITS, "blur", 6)
    with pytest.raises(InputError):
        corrupt(DIGITS[:, :20], "blur", 1)
