"""Spatial weights: published sums, the blur that makes up each a_C, and US1's ideal edges."""

import numpy as np
import pytest

from neocog.learning.selforganise import edge_references, ideal_edge
from neocog.network.reference import excitatory_weights, inhibitory_weights
from neocog.network.spec import PRESETS, bell, blur_kernel, c_kernel, contrast_kernel, pooled, preset


def test_lobes_of_the_contrast_kernel_balance() -> None:
    a = contrast_kernel(preset("fukushima2003").contrast)
    assert a[a > 0].sum() == pytest.approx(1)
    assert a[a < 0].sum() == pytest.approx(-1)
    assert a[0, 0] == 0  # outside the disc
    assert a[3, 3] == a.max()


@pytest.mark.parametrize("name", ["fukushima2003", "ikeda2011"])
def test_positive_sums_of_the_published_a_c(name: str) -> None:
    sums = [c_kernel(c)[c_kernel(c) > 0].sum() for c in preset(name).c]
    assert sums == pytest.approx([110.108, 110.108, 202.272], abs=5e-4)
    if name == "fukushima2003":  # surrounds cancel their centres
        assert [c_kernel(c).sum() for c in preset(name).c[:2]] == pytest.approx([0, 0], abs=1e-10)


@pytest.mark.parametrize("name", PRESETS)
def test_blur_then_box_is_a_c(name: str) -> None:
    for c in preset(name).c:
        a = c_kernel(c)
        assert np.abs(pooled(blur_kernel(c)) - a).max() <= 1e-12 * np.abs(a).max()


def test_published_quotients_have_negative_taps_and_our_blurs_none() -> None:
    assert all(blur_kernel(c).min() < 0 for c in preset("ikeda2011").c)
    for c in preset("neocog").c:
        assert blur_kernel(c).min() >= 0
        assert blur_kernel(c).sum() == pytest.approx(1)


def test_inhibitory_weights_end_at_the_rim() -> None:
    c6, c9 = (bell(s.kernel, s.c) for s in preset("ikeda2011").s[2:])
    assert (c6 == 0).sum() == 4  # the corners, r^2 = 12.5 > 3.4^2
    assert c6[2, 2] == pytest.approx(0.7 ** (0.5 / 3.4**2))
    assert c9[4, 4] == 1
    assert (c9[0, [1, 3, 4]] > 0).tolist() == [False, True, True]


# --- US1: learned from ideal edges, it has the published strengths ------------------------------


@pytest.fixture(scope="module")
def edges() -> np.ndarray:
    return edge_references(preset("fukushima2003")).astype(np.float64)


def test_published_values_of_b_and_its_law(edges: np.ndarray) -> None:
    """b = sqrt(sum a^2 / c) always holds."""
    s = preset("fukushima2003").s[0]
    c = bell(s.kernel, s.c)
    a, b = excitatory_weights(edges, c, s.q), inhibitory_weights(edges, c, s.q)
    assert b[:3] == pytest.approx([134.1, 112.6, 114.6], rel=0.01)
    inside = c > 0
    np.testing.assert_allclose(b, np.sqrt((a[:, :, inside] ** 2 / c[inside]).sum(axis=(1, 2))), rtol=1e-12)


def test_a_quarter_turn_turns_the_weights(edges: np.ndarray) -> None:
    np.testing.assert_allclose(edges[4], np.rot90(edges[0], k=-1, axes=(1, 2)), atol=1e-6)
    np.testing.assert_allclose(edges[8], edges[0][:, ::-1, ::-1], atol=1e-6)


def test_the_edge_is_straight_and_anti_aliased() -> None:
    edge = ideal_edge(0, centre=32.5)
    assert (edge[:, :33] == 0).all()
    assert (edge[:, 33:] == 1).all()
    half = ideal_edge(90, centre=32)
    assert half[32] == pytest.approx(0.5)
