"""The float64 equations, against plain loops and against the laws of the network."""

import numpy as np
import pytest

from neocog.network import reference
from neocog.network.blurs import blur_kernel, c_kernel
from neocog.network.spec import PRESETS, bell, preset
from neocog.network.u0 import made_digits, u0_from_digits
from tests.support import tiny_model


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
    spec = preset(name).c[1]
    u = np.random.default_rng(2).random((1, 2, 38, 38))
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
