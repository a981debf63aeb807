"""Digits drawn in other styles: each is of one scale, follows from its seed, and is read."""

import numpy as np
import pytest

from neocog.learning.drawing.glyphs import allograph, any_allograph, styles_of
from neocog.learning.drawing.marks import written
from neocog.network.engine import Engine
from neocog.network.model import load_model
from neocog.vision.normalise import normalise


def test_a_style_follows_from_its_seed_and_stands_upright() -> None:
    lines, again, other = (allograph(9, 0, np.random.default_rng(k)) for k in (1, 1, 2))
    whole = np.concatenate(lines)
    np.testing.assert_array_equal(whole, np.concatenate(again))
    assert not np.array_equal(whole, np.concatenate(other))
    assert 5 < np.ptp(whole[:, 1]) < 7
    assert np.argmin(whole[:, 1]) > len(whole) / 4  # a 9 like a P begins at its foot


def test_all_styles_come() -> None:
    rng = np.random.default_rng(0)
    seen = {any_allograph(rng) for _ in range(3000)}
    assert len(seen) == sum(styles_of(digit) for digit in range(10))


@pytest.mark.parametrize("name", ["neocog", "neocog-small"])
def test_the_shipped_models_read_nearly_all_styles(name: str) -> None:
    """Three of four of each style, but for a long leaning 1, which alone may be a slash."""
    rng, each = np.random.default_rng(5), 12
    styles = [(d, k) for d in range(10) for k in range(styles_of(d)) if (d, k) != (1, 0)]
    digits = np.stack([
        normalise(written(allograph(*style, rng), rng))
        for style in styles for _ in range(each)
    ])  # fmt: skip
    best = Engine(load_model(name)).recognise(digits).score[:, :10].argmax(axis=1)
    right = best.reshape(-1, each) == np.array([digit for digit, _ in styles])[:, None]
    poor = [style for style, share in zip(styles, right.mean(axis=1), strict=True) if share < 0.75]
    assert len(poor) <= 2, poor
    assert right.mean() > 0.94
