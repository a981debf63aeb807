"""Spatial weights: published sums, and the blur that makes up each a_C."""

import numpy as np
import pytest

from neocog.network.fields import bell, blur_kernel, c_kernel, contrast_kernel, pooled
from neocog.network.spec import PRESETS, preset


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


def test_surrounds_cancel_their_centres() -> None:
    first, second, third = (c_kernel(c) for c in preset("fukushima2003").c)
    assert first.sum() == pytest.approx(0, abs=1e-10)
    assert second.sum() == pytest.approx(0, abs=1e-10)
    assert third.min() >= 0


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
    assert c9[0, 3] > 0
    assert c9[0, 4] > 0
    assert c9[0, 1] == 0
