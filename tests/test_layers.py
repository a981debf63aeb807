"""Single layers in float32 against the reference, on odd sizes and on patches."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neocog.network import line_engine, reference
from neocog.network.blurs import blur_kernel
from neocog.network.engine import Layers
from neocog.network.layers import CLayer, ContrastLayer, Patch, SLayer
from neocog.network.model import Model, SWeights
from neocog.network.spec import PRESETS, Bell, CSpec, SSpec, bell, preset


def error(got: Patch, want: np.ndarray) -> float:
    """Largest difference over largest response; channel-last against planes-first.

    Random inputs may leave every cell just above its threshold, where float32 cannot tell a response of 0.002
    better: such maps are held to the same absolute error as one of 0.1.
    """
    assert got.full().shape == (len(want), *want.shape[2:], want.shape[1])
    return float(np.abs(got.full().transpose(0, 3, 1, 2) - want).max() / max(np.abs(want).max(), 0.1))


def sparse_maps(rng: np.random.Generator, size: int, planes: int) -> np.ndarray:
    """Maps of two digits with responses in a random rectangle and silence around it."""
    u = np.zeros((2, size, size, planes), dtype=np.float32)
    rows, columns = (slice(*sorted(rng.integers(0, size + 1, 2))) for _ in range(2))
    inside = rng.random(u[:, rows, columns].shape, dtype=np.float32)
    u[:, rows, columns] = inside * (rng.random(inside.shape) < 0.5)
    return u


def planes_first(u: np.ndarray) -> np.ndarray:
    return u.transpose(0, 3, 1, 2).astype(np.float64)


@given(
    seed=st.integers(0, 10**6), size=st.integers(5, 14), kernel=st.integers(2, 12), padding=st.integers(0, 5),
    planes=st.sampled_from([1, 2, 3, 8, 11]), transformed=st.booleans(),
)  # fmt: skip
@settings(max_examples=120, deadline=None)
def test_s_layer(seed: int, size: int, kernel: int, padding: int, planes: int, transformed: bool) -> None:
    if size + 2 * padding < kernel or padding >= kernel:
        return
    rng, spec = np.random.default_rng(seed), SSpec(kernel, padding, Bell.gaussian(2.0), threshold=0.4)
    x, c = rng.random((5, planes, kernel, kernel), dtype=np.float32), bell(kernel, spec.c).astype(np.float32)
    x[4] = 0  # a plane that learned nothing stays silent
    u = sparse_maps(rng, size, planes)
    want = reference.s_response(
        planes_first(u), x.astype(float), c.astype(float), threshold=0.4, q=100.0, padding=padding
    )
    with mock.patch.object(line_engine, "MAX_VALUES", line_engine.MAX_VALUES if transformed else 0):
        got = SLayer(spec, SWeights(x, c, 0.4, 100.0), size)(Patch.whole(u).tight())
    assert error(got, want) < 1e-5
    assert not got.full()[..., 4].any()


def made_model(name: str) -> Model:
    """A preset whose cells have seen noise: most of them respond to anything."""
    spec, rng = preset(name), np.random.default_rng(8)
    planes = (2, 13, 19, 11, 10)
    s1, s2, s3, s4 = (
        SWeights(
            rng.random((planes[i + 1], planes[i], s.kernel, s.kernel), dtype=np.float32),
            bell(s.kernel, s.c).astype(np.float32), 0.2, s.q,
        )
        for i, s in enumerate(spec.s)
    )  # fmt: skip
    w1, w2, w3 = (blur_kernel(c).astype(np.float32) for c in spec.c)
    return Model("made", spec, (s1, s2, s3, s4), (w1, w2, w3), np.arange(10), psi=spec.psi)


def inked(rng: np.random.Generator, rows: slice, columns: slice) -> np.ndarray:
    """A picture with noise in a rectangle."""
    u0 = np.zeros((65, 65), dtype=np.float32)
    u0[rows, columns] = rng.random(u0[rows, columns].shape)
    return u0


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("ink", [slice(20, 44), slice(30, 33), slice(40, 65)])
@pytest.mark.parametrize("place", [2, 5])
def test_what_stands_beside_a_digit_changes_nothing(name: str, ink: slice, place: int) -> None:
    """The others differ in ink and in its rectangle, and so in the places where cells respond."""
    rng, layers = np.random.default_rng(7), Layers(made_model(name))
    wanted: dict[str, np.ndarray] = {}
    digit = inked(rng, ink, ink)
    ends = [(0, 0), (0, 65), (31, 34), (62, 65), (11, 50), (0, 9)]
    for rows, columns in zip(ends, [*ends[1:], ends[0]], strict=True):
        u = np.stack([inked(rng, slice(*rows), slice(*columns)) for _ in range(6)])
        u[place] = digit
        for layer, respond in layers.stages:
            u = respond(u)
            maps = u.full()[place]
            assert maps.any(), layer
            assert np.array_equal(maps, wanted.setdefault(layer, maps)), layer


@given(seed=st.integers(0, 10**6), size=st.integers(6, 15), stage=st.integers(0, 3))
@settings(max_examples=60, deadline=None)
@pytest.mark.parametrize("name", PRESETS)
def test_c_layer(name: str, seed: int, size: int, stage: int) -> None:
    """Of each preset, and one with a blur of no symmetry."""
    rng, psi, odd = np.random.default_rng(seed), preset(name).psi, CSpec(6, 4, Bell.gaussian(1.0), blur=True)
    spec = (*preset(name).c, odd)[stage]
    blur = rng.random((5, 5), dtype=np.float32) if spec is odd else blur_kernel(spec).astype(np.float32)
    u = sparse_maps(rng, size, 3)
    want = reference.c_response(planes_first(u), blur.astype(float), padding=spec.padding, kind=psi)
    assert error(CLayer(spec, blur, size, psi)(Patch.whole(u).tight()), want) < 1e-5


@pytest.mark.parametrize("ink", [slice(0, 65), slice(20, 44), slice(62, 65), slice(0, 0)])
def test_contrast_layer(ink: slice) -> None:
    u0, spec = np.zeros((3, 65, 65), dtype=np.float32), preset("neocog").contrast
    u0[:, ink, ink] = np.random.default_rng(4).normal(size=u0[:, ink, ink].shape)  # below 0 too
    assert error(ContrastLayer(spec)(u0), reference.contrast(u0, spec)) < 1e-6
