"""Learning without gradients, on a few hundred digits; settings of learning by gradient."""

import inspect
from dataclasses import fields, replace
from functools import cache, partial
from math import inf, nan

import numpy as np
import pytest

from neocog.cli.learn import train as command
from neocog.errors import UsageError
from neocog.learning import calibrate, selforganise
from neocog.learning.calibrate import best_temperature, calibrated, score
from neocog.learning.datasets import open_digits
from neocog.learning.mix import Mix
from neocog.learning.recipes import RECIPES, LayerByLayer, train
from neocog.learning.selforganise import Planes, Windows, local_winners, veto
from neocog.learning.settings import PRESETS, USUAL, Settings
from neocog.network import parallel, reference
from neocog.network.model import to_bytes
from neocog.network.spec import bell, preset
from tests.support import few


@pytest.fixture(scope="module")
def digits():
    found = open_digits("sklearn", split="train")
    return found.images[:220], found.labels[:220]


def quick(name):
    return replace(RECIPES[name], middle_digits=20, limits=(16, 30), per_label=5)


@pytest.fixture(scope="module")
def kept(digits):
    return Mix.of(digits[0][160:], digits[1][160:])


@pytest.fixture(scope="module")
def learn(digits, kept):
    """Return the model of a recipe, learned once for a seed and the like."""
    images, labels = (part[:160] for part in digits)
    return cache(lambda name, **how: train(quick(name), images, labels, validation=kept, **how))


@pytest.mark.parametrize("name", few(RECIPES, "fukushima2003", "neocog"))
def test_every_recipe_learns(name, kept, learn):
    model = learn(name)
    assert (score(model, kept.images).argmax(axis=1) == kept.labels).mean() > 0.75
    assert (model.card["recipe"]["name"], model.card["seed"]) == (name, 0)
    assert all(layer.reference.min() >= 0 for layer in model.s)


def test_a_learned_model_is_calibrated(kept, learn):
    model = learn("neocog")
    assert (model.card["rejection"]["digits"], model.card["rejection"]["marks"]) == (60, 60)
    again = calibrated(replace(model, temperature=1.0, card={}), kept)
    assert again.card.items() <= model.card.items()
    assert again.temperature == model.temperature == best_temperature(score(model, kept.images), kept)


@pytest.mark.parametrize("cores", few([1, 3], 3))
def test_the_same_seed_gives_the_same_file_on_any_number_of_cores(cores, learn, monkeypatch):
    want = to_bytes(learn("neocog"))
    calibrate._parallel.cache_clear()
    monkeypatch.setattr(parallel, "cores", lambda: cores)
    assert to_bytes(learn.__wrapped__("neocog")) == want != to_bytes(learn("neocog", seed=4))
    calibrate._parallel.cache_clear()


def test_no_answer_is_never_right_and_blank_digits_teach_nothing(digits):
    images, labels = digits[0][:80], digits[1][:80]
    blank = Mix.of(np.zeros((20, 28, 28), np.uint8), np.zeros(20, np.int64))
    assert train(quick("neocog"), images, labels, validation=blank).card["validation_accuracy"] == 0
    with pytest.raises(UsageError, match="blank"):
        train(RECIPES["neocog"], blank.images, blank.labels)


def test_layers_below_may_be_shared_and_labels_may_be_a_list(digits):
    some = [quick(name) for name in ("fukushima2003", "nearest")]
    shared, order = LayerByLayer(some[0]), np.random.default_rng(0).permutation(80)
    with parallel.one_blas_thread():
        model = shared.model(some[1], shared.below(digits[0][order]), digits[1][order])
    assert to_bytes(model) == to_bytes(train(some[1], digits[0][:80], digits[1][:80].tolist()))


@pytest.mark.parametrize("wrong", [
    {"preset": "foo"}, {"middle": "foo"}, {"top": "foo"}, {"thresholds": (0.6, 0.6, 0.6)},
    {"thresholds": (1.0, 1.0)}, {"limits": (0, 5)}, {"limits": (5.0, 5)}, {"per_label": 0}, {"cut": 1.0},
    {"middle_digits": "many"},
])  # fmt: skip
def test_recipes_that_make_no_sense(wrong):
    (name,) = wrong
    with pytest.raises(UsageError, match=f"name='fukushima2003'.*{name}=.*, expected rules") as refused:
        replace(RECIPES["fukushima2003"], **wrong)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("labels", "message"), [
    ([0, 1], "3 digits and 2 labels"), (np.zeros((3, 10), np.int64), r"3 digits and \(3, 10\) labels"),
    ([0, 1, 10], "got labels of int64, 0 to 10, expected whole numbers, 0 to 9"),
    ([5, 14, -1], "-1 to 14"), (np.zeros(3), "float64, 0.0 to 0.0"), (["0", "1", "2"], "no numbers"),
])  # fmt: skip
def test_labels_must_be_digits(labels, message):
    images = np.zeros((3, 28, 28), np.uint8)
    with pytest.raises(UsageError, match=message):
        train(RECIPES["neocog"], images, labels)
    with pytest.raises(UsageError, match="got recipe 'neocog', expected a Recipe, such as RECIPES"):
        train("neocog", images, labels)


def some_maps(count):
    rng = np.random.default_rng(count)
    u = rng.random((count, 37, 37, 4), dtype=np.float32)
    return u * (rng.random(u.shape) < 0.05)


def test_windows_and_planes_are_equation_1():
    u, spec = some_maps(1)[0], preset("fukushima2003").s[1]
    windows, planes = Windows(u, spec), Planes(4, spec, threshold=0.66)
    for cell in (0, 50, 300):
        planes.add(windows.seen[cell])
    planes.learn(1, windows.seen[70])
    response = [windows.map(r) for r in planes.respond(windows.seen, windows.v).T.copy()]
    maps, x = u.transpose(2, 0, 1)[None].astype(np.float64), planes.references().astype(np.float64)
    how = {"threshold": 0.66, "q": spec.q, "padding": spec.padding}
    want = reference.s_response(maps, x, bell(spec.kernel, spec.c), **how)[0]
    np.testing.assert_allclose(response, want, atol=1e-5)


def test_winners_stand_apart_and_a_veto_spreads_and_keeps_its_sum():
    strongest = np.random.default_rng(1).random((30, 30), dtype=np.float32)
    places = np.argwhere(local_winners(strongest))
    apart = np.linalg.norm(places[:, None] - places[None], axis=2) + 10 * np.eye(len(places))
    assert len(places) > 10
    assert apart.min() > 3.1
    plane = np.zeros((15, 15), dtype=np.float32)
    plane[7, 7] = 2
    spread = veto(plane)
    assert spread.sum() == pytest.approx(2, rel=1e-5)
    assert spread[7, 10] / spread[7, 7] == pytest.approx(0.7 ** (9 / 3.1**2), rel=1e-5)
    assert spread[7, 11] == 0


def test_planes_cover_what_they_learned_from_and_silence_teaches_nothing():
    """After a digit is shown, nothing in its seed plane is left unanswered; silent planes never change."""
    maps = some_maps(3)
    learned = partial(selforganise.learn, spec=preset("fukushima2003").s[1], threshold=0.66)
    for winners in (True, False):
        planes, again = (learned(some, winners_learn=winners) for some in (maps, [*maps, maps[-1]]))
        assert len(again) == len(planes) > 3
        assert len(learned(maps, winners_learn=winners, limit=2)) == 2
    one = learned(maps[:1], winners_learn=False).references()
    np.testing.assert_array_equal(planes.references()[: len(one)], one)
    maps[1] = 0
    np.testing.assert_array_equal(learned(maps).references(), learned(maps[[0, 2]]).references())


def test_temperature_is_the_likeliest():
    rng = np.random.default_rng(6)
    scores = rng.random((4000, 10))
    p = np.exp(scores / 0.1)
    labels = (p.cumsum(1) / p.sum(1, keepdims=True) > rng.random((4000, 1))).argmax(1)
    mix = Mix.of(np.zeros((4000, 28, 28), np.uint8), labels)
    assert best_temperature(scores, mix) == pytest.approx(0.1, rel=0.1)


@pytest.mark.parametrize(("wrong", "message"), [
    ({"seed": -1}, "seed -1, expected 0 to 4294967295"), ({"seed": 2**32}, "seed 4294967296, expected"),
    ({"batch": 1}, "expected 2 or more"), ({"epochs": 0}, "above 0"), ({"epochs": inf}, "finite"),
    ({"minutes": nan}, "above 0"), ({"rate": inf}, "finite"), ({"lean": nan}, "lean nan, expected a finite"),
    ({"lean": inf}, "finite"), ({"marks": nan}, "marks nan, expected a share"),
    ({"marks": -0.1}, "marks -0.1"), ({"variants": 1.5}, "variants 1.5"),
    ({"marks": 0.5, "variants": 0.5}, "256 marks and 256 variants, expected a digit"),
    ({"batch": 2, "marks": 0.3, "variants": 0.3}, "1 marks and 1 variants, expected a digit"),
])  # fmt: skip
def test_settings_that_make_no_sense(wrong, message):
    with pytest.raises(UsageError, match=message) as refused:
        replace(Settings(), **wrong).check()
    assert "\n" not in str(refused.value)
    replace(Settings(), batch=2, marks=0.3, variants=0).check()


def test_the_command_has_no_defaults_of_its_own():
    told, usual = inspect.signature(command).parameters, Settings()
    for name in {field.name for field in fields(Settings)} & set(told) - {"augmentation"}:
        assert told[name].default == getattr(usual, name), name
    assert told["augmentation"].default == USUAL
    assert usual.augmentation == PRESETS[USUAL]


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["fukushima", "neocog", "nearest"])
def test_learning_on_a_gpu(name, kept, learn):
    import cupy

    on_gpu, on_cpu = learn(name, xp=cupy), learn(name)
    assert on_gpu.planes[:2] == on_cpu.planes[:2]
    right = [(score(model, kept.images).argmax(axis=1) == kept.labels).mean() for model in (on_gpu, on_cpu)]
    assert abs(right[0] - right[1]) <= 0.03
