"""The ten layers: published geometry and sums; their float64 equations beside plain loops and laws; U0."""

import cv2
import numpy as np
import pytest

from neocog.errors import InputError, UsageError
from neocog.learning.selforganise import edge_references, ideal_edge
from neocog.network import reference
from neocog.network.blurs import blur_kernel, c_kernel
from neocog.network.spec import PRESETS, bell, contrast_kernel, pooled, preset
from neocog.network.u0 import made_digits, u0_from_digits
from tests.support import tiny_model

# Ikeda et al. 2011, Table 2, with 26/78/70 planes.
LAYERS = "U0 UG US1 UC1 US2 UC2 US3 UC3 US4 UC4".split()
PLANES = [1, 2, 16, 16, 26, 26, 78, 78, 70, 10]
SIZES = [65, 71, 68, 37, 38, 21, 22, 13, 5, 1]


@pytest.mark.parametrize("name", PRESETS)
def test_geometry_is_the_table_of_2011(name: str) -> None:
    rows = [(layer.name, layer.planes, layer.size) for layer in preset(name).layers((26, 78, 70))]
    assert rows == list(zip(LAYERS, PLANES, SIZES, strict=True))
    layers = preset(name).layers()
    assert [layer.planes for layer in layers][4:9] == [None] * 5, "open before learning"
    if name != "ikeda2011":
        return
    assert [layer.kernel for layer in layers] == [None, 7, 6, 6, 6, 6, 6, 8, 9, 5]
    assert [layer.padding for layer in layers] == [0, 6, 1, 5, 3, 4, 3, 5, 0, 0]
    assert [layer.stride for layer in layers] == [1, 1, 1, 2, 1, 2, 1, 2, 1, 1]
    assert [c.kernel for c in preset("fukushima2003").c] == [18, 14, 8]
    with pytest.raises(UsageError, match="fukushima2003, ikeda2011, neocog"):
        preset("lenet")


@pytest.mark.parametrize("name", PRESETS)
def test_published_a_c_is_a_blur_and_a_box(name: str) -> None:
    kernels = [c_kernel(c) for c in preset(name).c]
    for c, a in zip(preset(name).c, kernels, strict=True):
        blur = blur_kernel(c)
        assert np.abs(pooled(blur) - a).max() <= 1e-12 * np.abs(a).max()
        assert (blur.min() >= 0) == (name == "neocog")  # published quotients have negative taps, ours none
        assert name != "neocog" or blur.sum() == pytest.approx(1)
    if name != "neocog":
        assert [a[a > 0].sum() for a in kernels] == pytest.approx([110.108, 110.108, 202.272], abs=5e-4)
    if name == "fukushima2003":  # surrounds cancel their centres
        assert [a.sum() for a in kernels[:2]] == pytest.approx([0, 0], abs=1e-10)


def test_lobes_of_the_contrast_kernel_balance_and_inhibitory_weights_end_at_the_rim() -> None:
    a = contrast_kernel(preset("fukushima2003").contrast)
    assert (a[a > 0].sum(), a[a < 0].sum()) == (pytest.approx(1), pytest.approx(-1))
    assert (a[0, 0], a[3, 3]) == (0, a.max()), "nothing outside the disc"
    c6, c9 = (bell(s.kernel, s.c) for s in preset("ikeda2011").s[2:])
    assert (c6 == 0).sum() == 4  # the corners, r^2 = 12.5 > 3.4^2
    assert c6[2, 2] == pytest.approx(0.7 ** (0.5 / 3.4**2))
    assert c9[4, 4] == 1
    assert (c9[0, [1, 3, 4]] > 0).tolist() == [False, True, True]


def test_us1_learned_from_ideal_edges_has_the_published_strengths() -> None:
    """b = sqrt(sum a^2 / c) always holds; a quarter turn turns the weights."""
    s = preset("fukushima2003").s[0]
    edges, c = edge_references(preset("fukushima2003")).astype(np.float64), bell(s.kernel, s.c)
    a, b = reference.excitatory_weights(edges, c, s.q), reference.inhibitory_weights(edges, c, s.q)
    assert b[:3] == pytest.approx([134.1, 112.6, 114.6], rel=0.01)
    inside = c > 0
    np.testing.assert_allclose(b, np.sqrt((a[:, :, inside] ** 2 / c[inside]).sum(axis=(1, 2))), rtol=1e-12)
    np.testing.assert_allclose(edges[4], np.rot90(edges[0], k=-1, axes=(1, 2)), atol=1e-6)
    np.testing.assert_allclose(edges[8], edges[0][:, ::-1, ::-1], atol=1e-6)
    edge = ideal_edge(0, centre=32.5)  # straight, and anti-aliased
    assert (edge == (np.arange(65) > 32)).all()
    assert ideal_edge(90, centre=32)[32] == pytest.approx(0.5)


def test_s_response_is_equation_1() -> None:
    rng = np.random.default_rng(0)
    u, x = rng.random((1, 2, 7, 7)), rng.random((3, 2, 6, 6))
    c, theta, q, padding = bell(6, preset("ikeda2011").s[1].c), 0.51, 100.0, 3
    got = reference.s_response(u, x, c, threshold=theta, q=q, padding=padding)
    wide = np.pad(u[0], ((0, 0), (padding, padding), (padding, padding)))
    for y, column, k in [(0, 0, 0), (4, 5, 1), (7, 7, 2), (3, 4, 2)]:
        excitation = square = length = 0.0
        for kappa, dy, dx in np.ndindex(2, 6, 6):
            seen = wide[kappa, y + dy, column + dx]
            excitation += q * c[dy, dx] * x[k, kappa, dy, dx] * seen
            square += c[dy, dx] * seen**2
            length += c[dy, dx] * x[k, kappa, dy, dx] ** 2
        b, v = q * np.sqrt(length), np.sqrt(square)
        want = theta / (1 - theta) * max(0.0, (1 + excitation) / (1 + theta * b * v) - 1)
        assert got[0, k, y, column] == pytest.approx(want, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("name", PRESETS)
def test_blur_and_pool_is_one_strided_sum_with_a_c(name: str) -> None:
    spec, u = preset(name).c[1], np.random.default_rng(2).random((1, 2, 38, 38))
    got = reference.c_response(u, blur_kernel(spec), padding=spec.padding, kind="sqrt")
    seen = reference.windows(u, spec.kernel, spec.padding, stride=2)
    total = np.einsum("bkhwij,ij->bkhw", seen, c_kernel(spec))
    np.testing.assert_allclose(got**2, np.maximum(total, 0), atol=1e-9 * np.abs(total).max())


def test_silence_in_no_answer_out_and_each_layer_has_its_shape() -> None:
    model = tiny_model()
    maps = reference.respond(np.zeros((2, 65, 65)), model)
    for layer in model.spec.layers(model.planes):
        assert maps[layer.name].shape == (2, layer.planes, layer.size, layer.size)
        assert not maps[layer.name].any()
    ug = reference.contrast(np.ones((1, 65, 65)), preset("neocog").contrast)
    assert not ug[:, :, 10:-10, 10:-10].any(), "a uniform picture is silent inside"


def test_a_shift_of_eight_pixels_shifts_uc3_by_one_cell() -> None:
    u0 = np.zeros((1, 65, 65))
    u0[:, 20:44, 20:40] = u0_from_digits(made_digits(1))[:, 18:42, 18:38]
    maps = reference.respond(u0, tiny_model())["UC3"]
    moved = reference.respond(np.roll(u0, (8, -8), axis=(1, 2)), tiny_model())["UC3"]
    assert maps.max() > 0.1
    np.testing.assert_allclose(moved[:, :, 4:10, 3:9], maps[:, :, 3:9, 4:10], atol=1e-12)


def test_u0_is_bilinear_enlargement_with_paper_around() -> None:
    digits = np.random.default_rng(1).integers(0, 256, (3, 28, 28)).astype(np.uint8)
    got = u0_from_digits(digits)
    assert got.dtype == np.float32
    for u0, digit in zip(got, digits, strict=True):
        enlarged = cv2.resize(digit.astype(np.float32) / 255, (56, 56), interpolation=cv2.INTER_LINEAR)
        np.testing.assert_allclose(u0, np.pad(enlarged, (4, 5)), atol=1e-6)
    for shape, kind in (((28, 28), "u1"), ((1, 27, 28), "u1"), ((1, 28, 28), "f4")):
        with pytest.raises(InputError, match=r"expected uint8 \(B, 28, 28\)"):
            u0_from_digits(np.zeros(shape, kind))
