"""Single layers in float32 against the reference, on odd sizes and on patches."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neocog.network import reference
from neocog.network.engine import Layers
from neocog.network.layers import CLayer, ContrastLayer, Patch, SLayer
from neocog.network.model import Model, SWeights
from neocog.network.spec import PRESETS, Bell, CSpec, SSpec, bell, blur_kernel, pooled, preset


def error(got: np.ndarray, want: np.ndarray) -> float:
    """Largest difference over largest response; channel-last against planes-first.

    Random inputs may leave every cell just above its threshold, where float32 cannot tell a
    response of 0.002 better: such maps are held to the same absolute error as one of 0.1.
    """
    scale = max(np.abs(want).max(), 0.1)
    return float(np.abs(got.transpose(0, 3, 1, 2) - want).max() / scale)


def sparse_maps(rng: np.random.Generator, batch: int, size: int, planes: int) -> np.ndarray:
    """Maps with responses in a random rectangle and silence around it."""
    u = np.zeros((batch, size, size, planes), dtype=np.float32)
    top, bottom = sorted(rng.integers(0, size + 1, 2))
    left, right = sorted(rng.integers(0, size + 1, 2))
    inside = rng.random((batch, bottom - top, right - left, planes), dtype=np.float32)
    u[:, top:bottom, left:right] = inside * (rng.random(inside.shape) < 0.5)
    return u


def s_layer(
    rng: np.random.Generator, size: int, kernel: int, padding: int, planes: int
) -> tuple[SLayer, SWeights]:
    """A layer of five planes with random reference vectors."""
    spec = SSpec(kernel, padding, Bell.gaussian(2.0), threshold=0.4)
    x = rng.random((5, planes, kernel, kernel), dtype=np.float32)
    weights = SWeights(x, bell(kernel, spec.c).astype(np.float32), 0.4, 100.0)
    return SLayer(spec, weights, size), weights


def s_error(layer: SLayer, weights: SWeights, u: np.ndarray, padding: int) -> float:
    want = reference.s_response(
        u.transpose(0, 3, 1, 2).astype(np.float64),
        weights.reference.astype(np.float64),
        weights.c.astype(np.float64),
        threshold=weights.threshold,
        q=weights.q,
        padding=padding,
    )
    return error(layer(Patch.whole(u).tight()).full(), want)


@given(
    seed=st.integers(0, 10**6),
    size=st.integers(5, 14),
    kernel=st.integers(2, 12),
    padding=st.integers(0, 5),
    planes=st.sampled_from([1, 2, 3, 8, 11]),
)
@settings(max_examples=80, deadline=None)
def test_s_layer(seed: int, size: int, kernel: int, padding: int, planes: int) -> None:
    if size + 2 * padding < kernel or padding >= kernel:
        return
    rng = np.random.default_rng(seed)
    layer, weights = s_layer(rng, size, kernel, padding, planes)
    assert s_error(layer, weights, sparse_maps(rng, 2, size, planes), padding) < 1e-5


def made_model(name: str) -> Model:
    """A preset whose cells have seen noise: most of them respond to anything."""
    spec, rng = preset(name), np.random.default_rng(8)
    planes = (2, 13, 19, 11, 10)
    layers = [
        SWeights(
            rng.random((planes[i + 1], planes[i], s.kernel, s.kernel), dtype=np.float32),
            bell(s.kernel, s.c).astype(np.float32), 0.2, s.q,
        )
        for i, s in enumerate(spec.s)
    ]  # fmt: skip
    s1, s2, s3, s4 = layers
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


@given(seed=st.integers(0, 10**6), size=st.integers(6, 15), stage=st.integers(0, 2))
@settings(max_examples=60, deadline=None)
@pytest.mark.parametrize("name", ["fukushima2003", "ikeda2011", "neocog"])
def test_c_layer(name: str, seed: int, size: int, stage: int) -> None:
    spec, psi = preset(name).c[stage], preset(name).psi
    u = sparse_maps(np.random.default_rng(seed), 2, size, 3)
    blur = blur_kernel(spec).astype(np.float32)
    want = reference.c_response(
        u.transpose(0, 3, 1, 2).astype(np.float64), blur.astype(np.float64), padding=spec.padding, kind=psi
    )
    got = CLayer(spec, blur, size, psi)(Patch.whole(u).tight()).full()
    assert got.shape == (2, want.shape[2], want.shape[3], 3)
    assert error(got, want) < 1e-5


def test_c_layer_with_a_blur_of_no_symmetry() -> None:
    rng = np.random.default_rng(3)
    spec = CSpec(6, 4, Bell.gaussian(1.0), blur=True)
    blur = rng.random((5, 5), dtype=np.float32)
    u = sparse_maps(rng, 2, 11, 4)
    maps = u.transpose(0, 3, 1, 2).astype(np.float64)
    seen = reference.windows(maps, 6, 4, stride=2)
    want = np.sqrt(np.einsum("bkhwij,ij->bkhw", seen, pooled(blur.astype(np.float64))))
    assert error(CLayer(spec, blur, 11, "sqrt")(Patch.whole(u)).full(), want) < 1e-5


@pytest.mark.parametrize("ink", [slice(0, 65), slice(20, 44), slice(62, 65), slice(0, 0)])
def test_contrast_layer(ink: slice) -> None:
    u0 = np.zeros((3, 65, 65), dtype=np.float32)
    shape = u0[:, ink, ink].shape
    u0[:, ink, ink] = np.random.default_rng(4).normal(size=shape)  # below 0 too
    spec = preset("neocog").contrast
    assert error(ContrastLayer(spec)(u0).full(), reference.contrast(u0, spec)) < 1e-6


def test_a_plane_that_learned_nothing_stays_silent() -> None:
    spec = SSpec(6, 3, Bell.disc(0.7, 3.4), threshold=0.5)
    c = bell(6, spec.c).astype(np.float32)
    weights = SWeights(np.zeros((2, 3, 6, 6), dtype=np.float32), c, 0.5, 100.0)
    u = np.random.default_rng(5).random((1, 9, 9, 3), dtype=np.float32)
    assert not SLayer(spec, weights, 9)(Patch.whole(u)).full().any()
