"""The line engine on the CPU: the equations along a strip, whatever stands beside it in a batch."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from neocog.errors import DeviceError, InputError, UsageError
from neocog.network import line_engine
from neocog.network.line_engine import LineEngine
from neocog.network.lines import columns, log_likelihoods
from neocog.network.model import load_model
from neocog.network.reference import respond_line
from neocog.network.u0 import u0_from_digits
from tests.support import digits_of, from_digits, tiny_lines

Strip = np.ndarray[Any, np.dtype[Any]]


def written(text: str, width: int | None = None) -> Strip:
    """A strip of digits, a space being paper, cut to so many columns."""
    digits = digits_of(text.replace(" ", "0"))
    digits[[k for k, char in enumerate(text) if char == " "]] = 0
    strip: Strip = np.concatenate([u0[8:56, 12:52] for u0 in u0_from_digits(digits)], axis=1)[:, :width]
    return strip


def strips() -> dict[str, Strip]:
    noise = np.random.default_rng(0).uniform(-0.5, 1.5, (48, 97))
    return {
        "digits": written("26035", 190),
        "gap": written("1    7", 230),
        "one": written("4", 33),
        "grey": (255 * written("98")).astype(np.uint8),
        "noise": noise,
        "narrow": noise[:, :16],
        "paper": np.zeros((48, 64)),
        "edge": np.eye(48, 70, k=69) + np.eye(48, 70, k=-47),
    }


@pytest.mark.parametrize("most", [line_engine.MAX_VALUES, 0], ids=["spectral", "plain"])
@pytest.mark.parametrize("name", [*strips(), "fukushima", "neocog-small"])
def test_every_layer_is_what_the_equations_say(name: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other models have blurs that are no outer product, the other saturation, more planes."""
    monkeypatch.setattr(line_engine, "MAX_VALUES", most)
    known = name in strips()
    model = tiny_lines() if known else from_digits(load_model(name), seed=1, inner=8)
    strip, engine = strips()[name] if known else written("58", 75), LineEngine(model)
    want, got = respond_line(strip, model), engine.maps(strip)
    assert list(got) == list(want)
    for layer, maps in want.items():
        assert (got[layer].dtype, got[layer].shape) == (np.float32, maps.shape), layer
        assert np.abs(got[layer] - maps).max() <= 1e-4 * np.abs(maps).max(), layer
    (logs,) = engine.likelihoods([strip])
    wanted = log_likelihoods(want["Z"], model.temperature)[: columns(strip.shape[1])]
    assert (logs.dtype, logs.shape) == (np.float32, wanted.shape)
    np.testing.assert_allclose(logs, wanted, atol=2e-3)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_companions_and_threads_change_no_bit(threads: int) -> None:
    some = list(strips().values())
    alone = [LineEngine(tiny_lines(), threads=1).likelihoods([strip])[0] for strip in some]
    engine = LineEngine(tiny_lines(), threads=threads)
    for order in (range(len(some)), range(len(some))[::-1], [2], [0, 0, 5]):
        for i, logs in zip(order, engine.likelihoods([some[i] for i in order]), strict=True):
            np.testing.assert_array_equal(logs, alone[i])
    np.testing.assert_array_equal(engine.maps(some[0])["Z"], LineEngine(tiny_lines()).maps(some[0])["Z"])


def test_what_a_strip_does_not_hear_stays_silent() -> None:
    maps = LineEngine(tiny_lines()).maps(strips()["gap"])
    for name in ("US1", "US2", "US3"):
        want = respond_line(strips()["gap"], tiny_lines())[name].max(axis=(0, 1)) > 0
        heard = maps[name].max(axis=(0, 1)) > 0
        assert not heard[len(heard) // 2 - 3 : len(heard) // 2 + 3].any()
        assert heard.sum() == pytest.approx(want.sum(), abs=2)


def test_times_of_stages() -> None:
    times = LineEngine(tiny_lines(), threads=2).stage_times([strips()["one"]] * 3, repeats=4)
    names = ["U0", "UG", *(f"U{kind}{n}" for n in "123" for kind in "SC"), "US4", "UC4", "head", "total"]
    assert list(times) == names
    assert all(ms.shape == (4,) and (ms > 0).all() for ms in times.values())


def test_wrong_use_says_what_came() -> None:
    with pytest.raises(DeviceError, match="cuda"):
        LineEngine(tiny_lines(), device="cuda")
    with pytest.raises(UsageError, match="0 threads"):
        LineEngine(tiny_lines(), threads=0)
    engine = LineEngine(replace(tiny_lines(), temperature=2.0))
    assert engine.likelihoods([]) == []
    for call in (engine.maps, lambda strip: engine.likelihoods([written("1"), strip])):
        with pytest.raises(InputError, match=r"got a strip of \(65, 65\), expected \(48, w\)"):
            call(np.zeros((65, 65)))
