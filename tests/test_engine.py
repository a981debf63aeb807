"""Layers and engine on the CPU against the reference: maps, decisions, laws; answers that follow from UC4."""

from types import ModuleType
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neocog.errors import InputError, UsageError
from neocog.network import layers, line_engine, reference
from neocog.network.blurs import blur_kernel
from neocog.network.decision import Answers, Decision, answers
from neocog.network.engine import Engine, Layers
from neocog.network.layers import CLayer, ContrastLayer, Patches, full, s_layer, whole
from neocog.network.model import SWeights, load_model
from neocog.network.spec import PRESETS, Bell, CSpec, SSpec, bell, preset
from neocog.network.u0 import made_digits, u0_from_digits
from tests.cuda_maps import excitable_model
from tests.support import digits_of, tiny_model


def error(got: Patches, want: np.ndarray) -> float:
    """Largest difference over largest response; channel-last against planes-first.

    Random inputs may leave every cell just above its threshold, where float32 cannot tell a response of 0.002
    better: such maps are held to the same absolute error as one of 0.1.
    """
    assert full(got).shape == (len(want), *want.shape[2:], want.shape[1])
    return float(np.abs(full(got).transpose(0, 3, 1, 2) - want).max() / max(np.abs(want).max(), 0.1))


def sparse_maps(rng: np.random.Generator, size: int, planes: int) -> np.ndarray:
    """Maps of two digits with responses in a random rectangle and silence around it."""
    u = np.zeros((2, size, size, planes), dtype=np.float32)
    rows, columns = (slice(*sorted(rng.integers(0, size + 1, 2))) for _ in range(2))
    inside = rng.random(u[:, rows, columns].shape, dtype=np.float32)
    u[:, rows, columns] = inside * (rng.random(inside.shape) < 0.5)
    return u


def tight(u: np.ndarray) -> Patches:
    return [patch.tight() for patch in whole(u)]


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
        got = s_layer(spec, SWeights(x, c, 0.4, 100.0), size)(tight(u))
    assert error(got, want) < 1e-5
    assert not full(got)[..., 4].any()


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
    rng, stages = np.random.default_rng(7), Layers(excitable_model(name, (13, 19, 10))).stages
    wanted: dict[str, np.ndarray] = {}
    digit = inked(rng, ink, ink)
    ends = [(0, 0), (0, 65), (31, 34), (62, 65), (11, 50), (0, 9)]
    for rows, columns in zip(ends, [*ends[1:], ends[0]], strict=True):
        u = np.stack([inked(rng, slice(*rows), slice(*columns)) for _ in range(6)])
        u[place] = digit
        for layer, respond in stages:
            u = respond(u)
            maps = full(u)[place]
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
    assert error(CLayer(spec, blur, size, psi)(tight(u)), want) < 1e-5


@pytest.mark.parametrize("ink", [slice(0, 65), slice(20, 44), slice(62, 65), slice(0, 0)])
def test_contrast_layer(ink: slice) -> None:
    u0, spec = np.zeros((3, 65, 65), dtype=np.float32), preset("neocog").contrast
    u0[:, ink, ink] = np.random.default_rng(4).normal(size=u0[:, ink, ink].shape)  # below 0 too
    assert error(ContrastLayer(spec)(u0), reference.contrast(u0, spec)) < 1e-6


# --- engine ---


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(tiny_model())


def test_whole_pass_and_decisions(engine: Engine) -> None:
    digits = np.concatenate([digits_of("0123456789"), made_digits(3)])
    wanted, got = reference.respond(u0_from_digits(digits), tiny_model()), engine.maps(u0_from_digits(digits))
    assert list(got) == list(wanted)
    for name, want in wanted.items():
        assert got[name].shape == want.shape
        assert np.abs(got[name] - want).max() <= 2e-4 * np.abs(want).max(), name
        if name not in ("U0", "UC4"):
            scores = engine.scores_from(name, got[name].transpose(0, 2, 3, 1))
            np.testing.assert_allclose(scores, got["UC4"][:, :, 0, 0], atol=1e-6)
    decided = Decision(engine.model)(wanted["US4"].transpose(0, 2, 3, 1).astype(np.float32))
    assert (engine.recognise(digits).label == decided.label).all()


@pytest.mark.parametrize("name", ["tiny", "tiny, no transform", "neocog-small", "fukushima", *PRESETS])
def test_batches_and_threads_change_no_bit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "no transform" in name:  # as models do whose spectra would be too large
        monkeypatch.setattr(line_engine, "MAX_VALUES", 0)
    made = excitable_model(name, (13, 19, 10)) if name in PRESETS else None
    model, digits = made or (tiny_model() if "tiny" in name else load_model(name)), made_digits(13)
    engine, u0 = Engine(model, threads=1), u0_from_digits(digits)
    every, alone = engine.maps(u0), engine.maps(u0[5:6])
    for layer, maps in alone.items():
        assert maps.any(), layer
        np.testing.assert_array_equal(every[layer][5:6], maps)
    want = engine.recognise(digits, batch=13)
    for threads, batch in ((1, 1), (2, 3), (3, 8), (2, 64), (2, 1), (3, 1)):
        got = Engine(model, threads=threads).recognise(digits, batch=batch)
        for part in ("score", "label", "margin", "p"):
            np.testing.assert_array_equal(getattr(got, part), getattr(want, part))


def test_silence_is_no_answer(engine: Engine) -> None:
    found = engine.recognise(np.zeros((2, 28, 28), dtype=np.uint8))
    assert found.label.tolist() == [-1, -1]
    assert not any(values.any() for values in (found.p, found.score, found.margin))
    none = engine.recognise(np.zeros((0, 28, 28), dtype=np.uint8))
    assert (len(none), none.score.shape) == (0, (0, 10))
    assert [one.shape[0] for one in engine.maps(np.zeros((0, 65, 65))).values()] == [0] * 10


def test_wrong_use_says_what_came(engine: Engine) -> None:
    with pytest.raises(InputError, match="expected uint8"):
        engine.recognise(np.zeros((0, 5), dtype=np.uint8))
    for values, words in ((np.zeros((65, 65)), r"expected \(B, 65, 65\)"),
                          (np.full((1, 65, 65), np.nan), "not finite")):  # fmt: skip
        for maps_of in (engine.maps, lambda u0: reference.respond(u0, tiny_model())):
            with pytest.raises(InputError, match=words):
                maps_of(values)
    with pytest.raises(UsageError, match="-1 threads"):
        Engine(tiny_model(), threads=-1)
    with pytest.raises(UsageError, match="batch of 0"):
        engine.recognise(made_digits(1), batch=0)


def test_the_way_of_gpus_computes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy under another name: no patch is cut to its responses, no window is left out."""
    model, u0 = tiny_model(), u0_from_digits(made_digits(3))
    want = Layers(model)(u0)
    other = ModuleType("other")
    other.__dict__.update(vars(np))
    monkeypatch.setattr(layers, "array_module", lambda _: other)
    got = Layers(model, other)(u0)
    assert got.any()
    np.testing.assert_allclose(got, want, atol=1e-5 * want.max())


@pytest.mark.gpu
def test_layers_and_decision_on_a_gpu() -> None:
    import cupy

    model, u0 = tiny_model(), u0_from_digits(np.concatenate([digits_of("0123456789"), made_digits(22)]))
    us4 = Layers(model, cupy)(cupy.asarray(u0))
    want = reference.respond(u0, model)["US4"].transpose(0, 2, 3, 1)
    assert np.abs(us4.get() - want).max() <= 2e-4 * want.max()
    on_gpu, on_cpu = Decision(model, cupy)(us4), Decision(model)(want.astype(np.float32))
    assert (on_gpu.label == on_cpu.label).all()
    np.testing.assert_allclose(on_gpu.score, on_cpu.score, atol=1e-4)


def test_answers_from_scores() -> None:
    score = np.array([[0.2, 0.5, 0.5] + [0] * 7, [0] * 10, [0.9] + [0] * 9], dtype=np.float32)
    found = answers(score, temperature=0.1)
    assert found.label.tolist() == [1, -1, 0]  # a tie goes to the lower label
    np.testing.assert_allclose(found.margin, [0, 0, 0.9])
    assert (found.p[0] < 0.5, found.p[1] == 0, found.p[2] > 0.99) == (True, True, True)
    assert Answers.join([found, Answers.none(), found]).label.tolist() == [1, -1, 0, 1, -1, 0]
