"""Gradient learning on a few hundred digits: it learns, keeps the constraints, and goes on."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import save
from threadpoolctl import threadpool_limits

torch = pytest.importorskip("torch", reason="needs PyTorch: neocog[train]")
torch.set_num_threads(1)

from experiments.network.torch_network import Network  # noqa: E402
from neocog.errors import ModelError, NeocogError, UsageError  # noqa: E402
from neocog.learning import finetune  # noqa: E402
from neocog.learning.augment import augment  # noqa: E402
from neocog.learning.calibrate import score  # noqa: E402
from neocog.learning.checkpoint import id_of  # noqa: E402
from neocog.learning.datasets import open_digits  # noqa: E402
from neocog.learning.finetune import Finetuner  # noqa: E402
from neocog.learning.mix import Mix  # noqa: E402
from neocog.learning.recipes import recipe_of, start_model  # noqa: E402
from neocog.learning.settings import PRESETS, Settings, augmentation  # noqa: E402
from neocog.learning.trainable import Trainable  # noqa: E402
from neocog.network import reference  # noqa: E402
from neocog.network.decision import labels_of  # noqa: E402
from neocog.network.model import from_bytes, to_bytes  # noqa: E402
from neocog.network.u0 import made_digits, u0_from_digits  # noqa: E402
from tests.support import tiny_model  # noqa: E402

QUICK = Settings(epochs=1, batch=20, rate=0.03, pool=40, marks=0.2, save_every=4, mean=0.9,
                 augmentation=PRESETS["strokes"])  # fmt: skip


@pytest.fixture(scope="module")
def digits():
    found = open_digits("sklearn", split="train")
    return found.images[:260], found.labels[:260]


@pytest.fixture(scope="module")
def start(digits):
    return start_model(recipe_of("finetuned", "5/9/20"), Mix.of(*digits), reject=2, count=100)


def begin(start, digits, settings=QUICK, *, count=160, **more):
    learned, kept = (Mix.of(*(array[part] for array in digits)) for part in (slice(count), slice(160, None)))
    return Finetuner(start, learned, kept, settings, **more)


@pytest.fixture(scope="module")
def learned(start, digits):
    run = begin(start, digits, replace(QUICK, epochs=3))
    return run, run.run()


def test_a_start_has_the_planes_asked_for_on_any_number_of_cores(start, digits):
    assert start.planes == (5, 9, 22)
    assert np.bincount(start.labels).tolist() == [2] * 11
    with threadpool_limits(2, user_api="blas"):
        again = start_model(recipe_of("finetuned", "5/9/20"), Mix.of(*digits), reject=2, count=100)
    assert to_bytes(again) == to_bytes(start)
    for wrong in ("40/160", "40/160/101", "a/b/c", "0/5/10"):
        with pytest.raises(UsageError, match="K2/K3/K4"):
            recipe_of("finetuned", wrong)
    with pytest.raises(UsageError, match="start 'fast' is unknown"):
        recipe_of("fast")


def test_the_network_computes_the_equations_in_pytorch_and_in_numpy(digits, learned):
    shown, model = digits[0][160:], learned[1]
    network = Trainable(model).eval()
    with torch.no_grad():
        u0 = network.enlarged(torch.from_numpy(shown))
        us4, want, soft = network.us4(u0[:4]), network(u0), network(u0, soft=1e-4)
    np.testing.assert_allclose(us4, reference.respond(u0_from_digits(shown[:4]), model)["US4"], atol=1e-4)
    np.testing.assert_allclose(soft, want, atol=1e-3)  # a soft maximum is nearly the strongest
    got = score(model, shown)
    assert got.shape == (100, 11)
    np.testing.assert_allclose(got, want, atol=1e-4)
    np.testing.assert_array_equal(labels_of(got), want.argmax(1))
    peer = Network(model).freeze()(torch.from_numpy(shown[:20])).numpy()  # knows planes that reject as well
    np.testing.assert_allclose(peer, got[:20], atol=1e-4)
    half = score(from_bytes(to_bytes(model, precision="fp16"), source="model"), shown)
    assert (labels_of(half) == labels_of(got)).mean() >= 0.98
    for a, b in zip(model.s, network.model().s, strict=True):
        assert a.threshold == pytest.approx(b.threshold, abs=1e-6)
        np.testing.assert_allclose(a.c, b.c, rtol=1e-5)
    np.testing.assert_allclose(model.blurs[1], network.model().blurs[1], atol=1e-6)


def test_gradients_are_finite_where_windows_are_silent(start):
    network, u0 = Trainable(start).train(), torch.zeros(3, 65, 65)
    u0[1, 30, 30], u0[2, 20:40, 30:33] = 1e-3, 1
    network(u0, soft=0.02).square().sum().backward()
    for name, parameter in network.named_parameters():
        assert name == "temperature" or torch.isfinite(parameter.grad).all(), name
    assert network.s[3].direction.grad.abs().max() > 0


def test_the_loss_falls_and_constraints_hold(start, digits, learned):
    (first, *_, last), model = learned[0].curves, learned[1]
    assert last["loss"] < first["loss"]
    shown, labels = digits[0][160:], digits[1][160:]
    before, right = ((labels_of(score(one, shown)) == labels).mean() for one in (start, model))
    assert before < model.card["validation_accuracy"] == pytest.approx(right, abs=0.011)
    from_bytes(to_bytes(model), source="model")  # holds what no neocognitron can have? it raises
    (network := Trainable(model)).c[1].profiles.data -= 1
    network.constrain()
    assert min(network.c[1].profiles.min(), *(blur.min() for blur in model.blurs)) >= 0
    for old, new in zip(start.s, model.s, strict=True):
        assert min(new.reference.min(), new.c.min()) >= 0
        assert old.threshold != new.threshold < 1
        assert not np.array_equal(old.reference, new.reference)
        assert not np.array_equal(old.c, new.c)


def test_a_run_goes_on_from_its_checkpoint_and_a_folder_with_its_own_run_alone(start, digits, tmp_path):
    def again(start=start, digits=digits, report=None, **change):
        return begin(start, digits, replace(QUICK, **change), folder=tmp_path, report=report)

    with pytest.raises(ZeroDivisionError):
        again(report=lambda figures: 1 / 0).run()  # in the last step, 4 beyond the last checkpoint
    assert again().position.step == 8
    assert to_bytes(again().run()) == to_bytes(begin(start, digits).run())
    assert (tmp_path / "curves.json").exists()
    assert again().position.finished
    one, another = ((digits[0], np.where(np.arange(260) == k, 9 - digits[1], digits[1])) for k in (3, 200))
    for change, message in (
        ({"seed": 5}, r"with other options \(seed 0, not seed 5\); use"),
        ({"epochs": 3.0, "lean": 0.0}, r"\(epochs 1, lean 3.0, not epochs 3.0, lean 0.0\)"),
        ({"augmentation": PRESETS["none"]}, "augmentation rotation 12.0"),
        ({"digits": [a[::-1].copy() for a in digits]}, r"\(digits 160 .*, validation 100 .*, not .*\); use"),
        ({"digits": one}, r"\(digits 160 .*, not .*\); use"),
        ({"digits": another}, r"\(validation 100 .*, not .*\); use"),
        ({"start": replace(start, temperature=0.5)}, "start finetuned@"),
    ):
        with pytest.raises(UsageError, match=message) as refused:
            again(**change)
        assert "\n" not in str(refused.value)


def test_a_run_by_the_clock_ends_in_time(start, digits, monkeypatch):
    now = itertools.count(100)  # each look at the clock takes a second
    monkeypatch.setattr(finetune.time, "monotonic", lambda: float(next(now)))
    run = begin(start, digits, replace(QUICK, minutes=0.2))
    run.run()
    assert (run.position.finished, run.position.step) == (True, 12)
    assert run.curves[-1]["rate"] < 0.03 * QUICK.rate


def test_what_cannot_be_begun_or_gone_on_is_refused(start, digits, tmp_path):
    other = save({}, {"format": "neocog run 4", "state": "{}"})
    for data, words in ((b"\x80nothing", "remove it"), (other, "'neocog run 4'.*remove it to start again")):
        (tmp_path / "checkpoint.safetensors").write_bytes(data)
        with pytest.raises(ModelError, match=words):
            begin(start, digits, folder=tmp_path)
    with pytest.raises(UsageError, match="a step needs"):
        begin(start, digits, replace(QUICK, batch=400))
    run = begin(start, digits)
    with torch.no_grad():
        run.network.s[1].direction.fill_(torch.nan)
    with pytest.raises(NeocogError, match="rate below"):
        run.run()


def test_digits_alone_may_be_learned_from(start, digits):
    run = begin(start, digits, replace(QUICK, epochs=0.1, marks=0, variants=0))
    assert (run.batches.epoch_steps, run.run().classes) == (160 // QUICK.batch, 11)
    none = begin(tiny_model(), digits, replace(QUICK, epochs=0.1)).run()  # no planes that reject
    assert none.classes == 10


def test_a_card_says_what_is_true_of_the_new_network(start, digits, learned, tmp_path):
    card, saved = learned[1].card, start.save(tmp_path / "start.safetensors")
    assert card["finetuning"]["start"] == saved.id == id_of(start)
    about = {"accuracy": {"test": 1.0}, "reading": {"min_p": 0.4}, "seed": 9, "command": "neocog"}
    before = replace(learned[1], card=card | about).save(tmp_path / "before.safetensors", precision="fp16")
    again = begin(before, digits, replace(QUICK, epochs=0.2, seed=4)).run()
    assert again.card.keys() == {"recipe", "finetuning", "validation_accuracy"}
    assert (again.card["recipe"], again.version) == (card["recipe"], "")  # no file holds it yet
    told = {"seed": 4, "start": before.id, "before": card["finetuning"]}
    assert told.items() <= again.card["finetuning"].items()


def test_what_is_kept_is_the_best_epoch_or_the_last(start, digits, monkeypatch):
    for last, kept in ((False, 0.9), (True, 0.5)):
        told = iter([0.9, 0.5, 0.1])
        monkeypatch.setattr(finetune, "_accuracy", lambda *_, told=told: next(told))
        run = begin(start, digits, replace(QUICK, epochs=2, marks=0, variants=0, last=last), count=20)
        run.run()
        assert run.position.kept_accuracy == kept


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_changes_are_seeded(name):
    shown = made_digits(8)
    shown[:, [0, -1]] = shown[:, :, [0, -1]] = 0
    one, same, other = (
        augment(torch.from_numpy(shown), PRESETS[name], torch.Generator().manual_seed(k)) for k in (1, 1, 2)
    )
    assert one.shape == (8, 65, 65)
    assert (torch.equal(one, same), torch.equal(one, other)) == (True, name == "none")
    assert -1e-6 <= one.min() <= one.max() <= 1 + 1e-6
    if name == "none":  # digits are laid into U0 as they are
        np.testing.assert_allclose(one, u0_from_digits(shown), atol=1e-5)


def test_each_change_changes():
    shown = torch.from_numpy(np.repeat(made_digits(1, seed=4), 30, axis=0))
    plain = augment(shown, PRESETS["none"], torch.Generator())
    every = "rotation=90 stroke=2 blur=2 contrast=0.5 noise=0.5 occlusion=1 neighbour=1 binary=1 coarse=1"
    for words in f"{every} elastic=3 shear=0.5 scale=0.3 shift=8".split():
        got = augment(shown, augmentation(f"none,{words}"), torch.Generator().manual_seed(0))
        assert (got - plain).abs().amax(dim=(1, 2)).max() > 0.1, words
    middle = (got.sum(dim=2) @ torch.arange(65.0)) / got.sum(dim=(1, 2))
    assert 4 < float(middle.max() - middle.min()) <= 16.5
    assert augmentation("strokes") == PRESETS["strokes"]
    assert augmentation("pages,blur=3").blur == 3
    for wrong in ("storm", "strokes,wind=1", "strokes,blur=x", "strokes,blur=-1"):
        with pytest.raises(UsageError, match="augmentation"):
            augmentation(wrong)
