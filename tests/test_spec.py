"""The ten layers: published geometry and sums, the blur that makes up each a_C, and US1's ideal edges."""

import numpy as np
import pytest

from neocog.errors import UsageError
from neocog.learning.selforganise import edge_references, ideal_edge
from neocog.network.blurs import blur_kernel, c_kernel
from neocog.network.reference import excitatory_weights, inhibitory_weights
from neocog.network.spec import PRESETS, bell, contrast_kernel, pooled, preset

# Ikeda et al. 2011, Table 2, with 26/78/70 planes.
LAYERS = "U0 UG US1 UC1 US2 UC2 US3 UC3 US4 UC4".split()
PLANES = [1, 2, 16, 16, 26, 26, 78, 78, 70, 10]
SIZES = [65, 71, 68, 37, 38, 21, 22, 13, 5, 1]


@pytest.mark.parametrize("name", PRESETS)
def test_geometry_is_the_table_of_2011(name: str) -> None:
    layers = preset(name).layers((26, 78, 70))
    rows = [(layer.name, layer.planes, layer.size) for layer in layers]
    assert rows == list(zip(LAYERS, PLANES, SIZES, strict=True))
    assert [layer.planes for layer in preset(name).layers()][4:9] == [None] * 5, "open before learning"


def test_connections_of_the_papers() -> None:
    layers = preset("ikeda2011").layers()
    assert [layer.kernel for layer in layers] == [None, 7, 6, 6, 6, 6, 6, 8, 9, 5]
    assert [layer.padding for layer in layers] == [0, 6, 1, 5, 3, 4, 3, 5, 0, 0]
    assert [layer.stride for layer in layers] == [1, 1, 1, 2, 1, 2, 1, 2, 1, 1]
    assert [c.kernel for c in preset("fukushima2003").c] == [18, 14, 8]
    with pytest.raises(UsageError, match="fukushima2003, ikeda2011, neocog"):
        preset("lenet")


def test_lobes_of_the_contrast_kernel_balance() -> None:
    a = contrast_kernel(preset("fukushima2003").contrast)
    assert (a[a > 0].sum(), a[a < 0].sum()) == (pytest.approx(1), pytest.approx(-1))
    assert a[0, 0] == 0  # outside the disc
    assert a[3, 3] == a.max()


@pytest.mark.parametrize("name", ["fukushima2003", "ikeda2011"])
def test_positive_sums_of_the_published_a_c(name: str) -> None:
    kernels = [c_kernel(c) for c in preset(name).c]
    assert [a[a > 0].sum() for a in kernels] == pytest.approx([110.108, 110.108, 202.272], abs=5e-4)
    if name == "fukushima2003":  # surrounds cancel their centres
        assert [a.sum() for a in kernels[:2]] == pytest.approx([0, 0], abs=1e-10)


@pytest.mark.parametrize("name", PRESETS)
def test_blur_then_box_is_a_c(name: str) -> None:
    for c in preset(name).c:
        a, blur = c_kernel(c), blur_kernel(c)
        assert np.abs(pooled(blur) - a).max() <= 1e-12 * np.abs(a).max()
        if name == "neocog":  # published quotients have negative taps, ours none
            assert (blur.min() >= 0, blur.sum()) == (True, pytest.approx(1))
        else:
            assert blur.min() < 0


def test_inhibitory_weights_end_at_the_rim() -> None:
    c6, c9 = (bell(s.kernel, s.c) for s in preset("ikeda2011").s[2:])
    assert (c6 == 0).sum() == 4  # the corners, r^2 = 12.5 > 3.4^2
    assert c6[2, 2] == pytest.approx(0.7 ** (0.5 / 3.4**2))
    assert c9[4, 4] == 1
    assert (c9[0, [1, 3, 4]] > 0).tolist() == [False, True, True]


def test_us1_learned_from_ideal_edges_has_the_published_strengths() -> None:
    """b = sqrt(sum a^2 / c) always holds; a quarter turn turns the weights."""
    s = preset("fukushima2003").s[0]
    edges, c = edge_references(preset("fukushima2003")).astype(np.float64), bell(s.kernel, s.c)
    a, b = excitatory_weights(edges, c, s.q), inhibitory_weights(edges, c, s.q)
    assert b[:3] == pytest.approx([134.1, 112.6, 114.6], rel=0.01)
    inside = c > 0
    np.testing.assert_allclose(b, np.sqrt((a[:, :, inside] ** 2 / c[inside]).sum(axis=(1, 2))), rtol=1e-12)
    np.testing.assert_allclose(edges[4], np.rot90(edges[0], k=-1, axes=(1, 2)), atol=1e-6)
    np.testing.assert_allclose(edges[8], edges[0][:, ::-1, ::-1], atol=1e-6)
    edge = ideal_edge(0, centre=32.5)  # straight, and anti-aliased
    assert (edge[:, :33] == 0).all()
    assert (edge[:, 33:] == 1).all()
    assert ideal_edge(90, centre=32)[32] == pytest.approx(0.5)
