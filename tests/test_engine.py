"""The CPU engine against the reference: maps, decisions, laws; UC4 and the answers that follow from it."""

from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from neocog.errors import DeviceError, InputError, UsageError
from neocog.network import layers, line_engine, reference
from neocog.network.decision import Answers, Decision, answers
from neocog.network.engine import Engine, Layers
from neocog.network.model import load_model
from neocog.network.u0 import made_digits, u0_from_digits
from tests.support import digits_of, tiny_model


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(tiny_model())


def test_whole_pass_and_decisions(engine: Engine) -> None:
    digits = np.concatenate([digits_of("0123456789"), made_digits(10)])
    wanted, got = reference.respond(u0_from_digits(digits), tiny_model()), engine.maps(u0_from_digits(digits))
    assert list(got) == list(wanted)
    for name, want in wanted.items():
        assert got[name].shape == want.shape
        assert np.abs(got[name] - want).max() <= 2e-4 * np.abs(want).max(), name
    decided = Decision(engine.model)(wanted["US4"].transpose(0, 2, 3, 1).astype(np.float32))
    assert (engine.recognise(digits).label == decided.label).all()


@pytest.mark.parametrize("name", ["tiny", "tiny, no transform", "neocog-small", "fukushima"])
def test_batches_and_threads_change_no_bit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "no transform" in name:  # as models do whose spectra would be too large
        monkeypatch.setattr(line_engine, "MAX_VALUES", 0)
    model, digits = tiny_model() if "tiny" in name else load_model(name), made_digits(13)
    want = Engine(model, threads=1).recognise(digits, batch=13)
    for threads, batch in ((1, 1), (2, 3), (3, 8), (2, 64), (2, 1)):
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
    with pytest.raises(DeviceError, match="cuda"):
        Engine(tiny_model(), device="cuda")


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
    us4, want = (
        Layers(model, cupy)(cupy.asarray(u0)),
        reference.respond(u0, model)["US4"].transpose(0, 2, 3, 1),
    )
    assert np.abs(us4.get() - want).max() <= 2e-4 * want.max()
    on_gpu, on_cpu = Decision(model, cupy)(us4), Decision(model)(want.astype(np.float32))
    assert (on_gpu.label == on_cpu.label).all()
    np.testing.assert_allclose(on_gpu.score, on_cpu.score, atol=1e-4)


def test_strongest_plane_of_each_label_anywhere() -> None:
    model = replace(tiny_model(), labels=np.array([0, 0, 1, 1, 1, 5, 5, 5, 5, 9]))
    us4 = np.zeros((1, 5, 5, 10), dtype=np.float32)
    us4[0, 4, 0, 1], us4[0, 0, 4, 3], us4[0, 2, 2, 4] = 0.7, 0.2, 0.3
    np.testing.assert_allclose(Decision(model).scores(us4)[0], [0.7, 0.3, 0, 0, 0, 0, 0, 0, 0, 0])


def test_answers_from_scores() -> None:
    score: Any = np.array([[0.2, 0.5, 0.5] + [0] * 7, [0] * 10, [0.9] + [0] * 9], dtype=np.float32)
    found = answers(score, temperature=0.1)
    assert found.label.tolist() == [1, -1, 0]  # a tie goes to the lower label
    np.testing.assert_allclose(found.margin, [0, 0, 0.9])
    assert (found.p[0] < 0.5, found.p[1] == 0, found.p[2] > 0.99) == (True, True, True)
    assert Answers.join([found, Answers.none(), found]).label.tolist() == [1, -1, 0, 1, -1, 0]
