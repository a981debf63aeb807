"""The network in PyTorch holds the float64 reference's numbers, in every form and memory format."""

import numpy as np
import pytest

from experiments.network import compare as comparing
from experiments.network.compare import compare
from neocog.errors import NeocogError, UsageError
from neocog.network import fields, reference
from neocog.network.model import Model, SWeights
from neocog.network.spec import PRESETS, preset
from neocog.network.u0 import made_digits, u0_from_digits
from tests.support import tiny_model

torch = pytest.importorskip("torch", reason="needs PyTorch: neocog[train]")

from experiments.network.torch_network import Network  # noqa: E402


def model_of(name, *, top=24, silent=True):
    """A model of a preset whose planes have seen windows at random, the last one none at all."""
    spec, random = preset(name), np.random.default_rng(0)
    u = reference.contrast(u0_from_digits(made_digits(4, seed=1)), spec.contrast)
    blurs = tuple(fields.blur_kernel(c).astype(np.float32) for c in spec.c)
    layers = []
    for stage, s in enumerate(spec.s):
        seen = reference.windows(u, s.kernel, s.padding)
        busy = np.argwhere((seen**2).sum(axis=(1, 4, 5)) > 0)
        planes = spec.orientations if stage == 0 else (5, 7, top)[stage - 1]
        places = busy[random.choice(len(busy), planes, replace=False)]
        x = np.stack([seen[n, :, row, column] for n, row, column in places]).astype(np.float32)
        x[-1] *= not silent
        layers.append(SWeights(x, fields.bell(s.kernel, s.c).astype(np.float32), s.threshold, s.q))
        w = layers[-1]
        u = reference.s_response(u, w.reference, w.c, threshold=w.threshold, q=w.q, padding=s.padding)
        if stage < 3:
            u = reference.c_response(u, blurs[stage], padding=spec.c[stage].padding, kind=spec.psi)
    labels = np.arange(top) % 9  # no plane for label 9
    return Model("made", spec, tuple(layers), blurs, labels, psi=spec.psi)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("channels_last", [False, True])
def test_every_form_computes_the_equations(name, channels_last):
    model, digits = model_of(name), made_digits(2)
    want = reference.respond(u0_from_digits(digits), model)
    network = Network(model).freeze(channels_last=channels_last)
    for turn in range(4):
        network.take({name: part.forms[turn % len(part.forms)] for name, part in network.parts()})
        got = network.maps(torch.from_numpy(digits))
        for layer, maps in got.items():
            error = np.abs(maps.numpy() - want[layer]).max() / want[layer].max()
            assert error <= comparing.TOLERANCE, (layer, network.forms())


def test_scores_are_the_strongest_planes():
    model, digits = model_of("neocog", silent=False), made_digits(5, seed=3)
    us4 = reference.respond(u0_from_digits(digits), model)["US4"]
    got = Network(model).freeze()(torch.from_numpy(digits)).numpy()
    np.testing.assert_allclose(got, reference.strongest_of_label(us4, model.labels), atol=2e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sixteen_bits_decide_alike(dtype):
    model, digits = tiny_model(), made_digits(6)
    want = reference.respond(u0_from_digits(digits), model)
    network = Network(model).freeze(getattr(torch, dtype))
    scores = network(torch.from_numpy(digits)).numpy()
    assert np.isfinite(scores).all()
    assert np.abs(scores - reference.strongest_of_label(want["US4"], model.labels)).max() < 0.05


def test_torch_beside_ours(monkeypatch):
    result = compare(tiny_model(), batch=2, rounds=1, peers=["torch"])
    assert list(result.passes) == ["neocog", "torch"]
    assert result.difference is not None
    assert result.difference <= comparing.TOLERANCE
    assert list(result.to_dict()["ratios"]) == ["torch"]
    monkeypatch.setattr(comparing, "TOLERANCE", -1.0)
    with pytest.raises(NeocogError, match="torch computes other scores"):
        compare(tiny_model(), batch=2, rounds=1, peers=["torch"])


def test_unknown_peer():
    with pytest.raises(UsageError, match="no peer 'abacus'"):
        compare(tiny_model(), batch=2, rounds=1, peers=["abacus"])
