"""The network of lines: the equations along a strip, and the CPU engine, whatever stands beside a strip."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from neocog.errors import InputError, UsageError
from neocog.network import line_engine
from neocog.network.line_engine import LineEngine
from neocog.network.lines import columns, log_likelihoods, padded, strip_u0
from neocog.network.model import load_model
from neocog.network.reference import respond, respond_line
from neocog.network.u0 import u0_from_digits
from tests.support import digit_strip, digits_of, from_digits, tiny_lines

Strip = np.ndarray[Any, np.dtype[Any]]


def test_an_isolated_digit_is_read_as_ever() -> None:
    for u0, digit in zip(u0_from_digits(digits_of("325")), "325", strict=True):
        want = respond(u0[None], tiny_lines().digits)["US4"][0]
        got = respond_line(u0[8:56, 8:56], tiny_lines())["US4"]
        assert want.max() > 0.1, digit
        np.testing.assert_allclose(got[:, :, 8:17:2], want, atol=1e-6)


def test_shapes_and_a_head_in_plain_loops() -> None:
    model, maps = tiny_lines(), respond_line(digit_strip()[:, :139], tiny_lines())
    w = padded(139)
    assert (w, columns(139)) == (160, 41)
    t, planes = w // 4 + 13, model.digits.planes[1]
    shapes = {"U0": (1, 65, w + 17), "UC3": (planes, 13, t), "US4": (10, 5, t), "UC4": (2, 10, t)}
    assert {name: maps[name].shape for name in shapes} == shapes
    x, head = np.concatenate([maps["US4"].max(axis=1), maps["US4"].mean(axis=1)]), model.head
    z = head.own @ x[:10] + head.bias[:, None]
    for i, (weights, bias) in enumerate(zip(head.weights, head.biases, strict=True)):
        reach = weights.shape[2] // 2
        y = np.tile(bias[:, None].astype(float), t)
        for column in range(t):
            for step in range(-reach, reach + 1):
                if 0 <= column + step < t:
                    y[:, column] += weights[:, :, step + reach] @ x[:, column + step]
        x = np.maximum(y, 0) if i < 2 else y
    np.testing.assert_allclose(maps["Z"], z + x, atol=1e-12)
    logs = log_likelihoods(maps["Z"], 2.0)
    np.testing.assert_allclose(np.exp(logs).sum(axis=1), 1)
    np.testing.assert_allclose(logs[:, 3] - logs[:, 5], (maps["Z"][3] - maps["Z"][5]) / 2)


def test_strips_are_ink_of_48_rows() -> None:
    grey = (255 * digit_strip()).astype(np.uint8)
    u0 = strip_u0(grey)
    np.testing.assert_array_equal(u0, strip_u0(grey / np.float32(255)))
    assert (u0.shape, u0[:8].any(), u0[56:].any()) == ((65, 160 + 17), False, False)
    np.testing.assert_array_equal(u0, strip_u0(np.pad(grey, ((0, 0), (0, 160 - grey.shape[1])))))
    assert strip_u0(np.full((48, 16), 1.3)).max() == 1
    wrong = [np.zeros(shape, "f4") for shape in ((47, 64), (48, 15), (48, 701), (1, 48, 64))]
    for strip in (*wrong, np.zeros((48, 64), int), np.full((48, 64), np.nan)):
        with pytest.raises(InputError, match=r"got a strip of .*, expected"):
            respond_line(strip, tiny_lines())


# --- the engine ---


def written(text: str, width: int | None = None) -> Strip:
    """A strip of digits, a space being paper, cut to so many columns."""
    digits = digits_of(text.replace(" ", "0"))
    digits[[k for k, char in enumerate(text) if char == " "]] = 0
    return np.concatenate([u0[8:56, 12:52] for u0 in u0_from_digits(digits)], axis=1)[:, :width]


NOISE = np.random.default_rng(0).uniform(-0.5, 1.5, (48, 97))
STRIPS = {
    "digits": written("26035", 190),
    "gap": written("1    7", 230),
    "one": written("4", 33),
    "grey": (255 * written("98")).astype(np.uint8),
    "noise": NOISE,
    "narrow": NOISE[:, :16],
    "paper": np.zeros((48, 64)),
    "edge": np.eye(48, 70, k=69) + np.eye(48, 70, k=-47),
}


@pytest.mark.parametrize("most", [line_engine.MAX_VALUES, 0], ids=["spectral", "plain"])
@pytest.mark.parametrize("name", [*STRIPS, "fukushima", "neocog-small"])
def test_every_layer_is_what_the_equations_say(name: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other models have blurs that are no outer product, the other saturation, more planes."""
    monkeypatch.setattr(line_engine, "MAX_VALUES", most)
    model = tiny_lines() if name in STRIPS else from_digits(load_model(name), seed=1, inner=8)
    strip, engine = STRIPS.get(name, written("58", 75)), LineEngine(model)
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
    some = list(STRIPS.values())
    alone = [LineEngine(tiny_lines(), threads=1).likelihoods([strip])[0] for strip in some]
    engine = LineEngine(tiny_lines(), threads=threads)
    for order in (range(len(some)), range(len(some))[::-1], [2], [0, 0, 5]):
        for i, logs in zip(order, engine.likelihoods([some[i] for i in order]), strict=True):
            np.testing.assert_array_equal(logs, alone[i])
    np.testing.assert_array_equal(engine.maps(some[0])["Z"], LineEngine(tiny_lines()).maps(some[0])["Z"])


def test_what_a_strip_does_not_hear_stays_silent() -> None:
    maps, wanted = LineEngine(tiny_lines()).maps(STRIPS["gap"]), respond_line(STRIPS["gap"], tiny_lines())
    for name in ("US1", "US2", "US3"):
        heard, want = (values[name].max(axis=(0, 1)) > 0 for values in (maps, wanted))
        assert not heard[len(heard) // 2 - 3 : len(heard) // 2 + 3].any()
        assert heard.sum() == pytest.approx(want.sum(), abs=2)


def test_times_of_stages() -> None:
    times = LineEngine(tiny_lines(), threads=2).stage_times([STRIPS["one"]] * 3, repeats=4)
    names = ["U0", "UG", *(f"U{kind}{n}" for n in "123" for kind in "SC"), "US4", "UC4", "head", "total"]
    assert list(times) == names
    assert all(ms.shape == (4,) and (ms > 0).all() for ms in times.values())


def test_wrong_use_says_what_came() -> None:
    with pytest.raises(UsageError, match="0 threads"):
        LineEngine(tiny_lines(), threads=0)
    engine = LineEngine(replace(tiny_lines(), temperature=2.0))
    assert engine.likelihoods([]) == []
    for call in (engine.maps, lambda strip: engine.likelihoods([written("1"), strip])):
        with pytest.raises(InputError, match=r"got a strip of \(65, 65\), expected \(48, w\)"):
            call(np.zeros((65, 65)))
