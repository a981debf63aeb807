"""The network beside onnxruntime and PyTorch: compared first, then timed in turn; GPU sides are made here."""

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from experiments.network import compare as comparing
from experiments.network.compare import Comparison, compare, compare_on_gpu, differences_from_cpu, race
from neocog.errors import NeocogError, UsageError
from neocog.network import reference
from neocog.network.engine import Engine
from neocog.network.model import load_model
from neocog.network.spec import PRESETS
from neocog.network.u0 import made_digits, u0_from_digits
from tests.cuda_maps import excitable_model
from tests.support import run, tiny_lines, tiny_model


class MadeSide:
    """Scores of the CPU engine, a little off, in a time that is given."""

    def __init__(self, ms, off=0.0):
        self.ms, self.off, self.loaded, self.repeats = ms, off, [], []

    def load(self, digits):
        self.loaded.append(digits)

    def elapsed(self, repeats):
        self.repeats.append(repeats)
        return self.ms

    def scores(self):
        return Engine(tiny_model(), threads=1).recognise(self.loaded[-1]).score + np.float32(self.off)


def test_ratio_is_theirs_by_our_fastest():
    passes = {"neocog default": [2.0], "neocog card": [8.0], "torch": [6.0]}
    result = Comparison("m", 2, "fp16", {k: np.array(v) for k, v in passes.items()}, {"torch": 1e-4})
    facts = json.loads(json.dumps(result.to_dict()))
    assert facts["ratios"] == {"torch": 3.0}
    assert facts["ms_per_digit"]["neocog default"] == 1.0
    assert list(result.lines())[-1] == "neocog is 3.00 times as fast as torch"


# -- on the CPU ------------------------------------------------------------------------------------
@pytest.mark.parametrize("peer", ["onnxruntime", "torch"])
def test_beside_a_peer(peer, tmp_path, monkeypatch):
    pytest.importorskip(peer, reason="needs neocog[bench]")
    pytest.importorskip("onnx", reason="needs neocog[onnx]")
    model = tmp_path / "tiny.safetensors"
    tiny_model().save(model)
    words = ["bench", "network", "--peers", peer, "--batch", "2", "--rounds", "2", "--model", str(model)]
    facts = json.loads(run(*words, "--json").stdout.splitlines()[-1])
    assert set(facts["ms_per_digit"]) == {"neocog", peer}
    assert facts["differences"][peer] <= comparing.TOLERANCES["fp32"]
    assert f"times as fast as {peer}" in run(*words).stdout
    monkeypatch.setitem(comparing.TOLERANCES, "fp32", -1.0)
    with pytest.raises(NeocogError, match="nothing was timed"):
        compare(tiny_model(), batch=2, rounds=2, peers=[peer])


@pytest.mark.parametrize("model", [tiny_lines(), load_model("neocog-small")], ids=["strips", "rejecting"])
def test_beside_onnxruntime_for_some_seconds(model):
    pytest.importorskip("onnxruntime", reason="needs neocog[onnx]")
    result = compare(model, batch=1, rounds=9, peers=["onnxruntime"], threads=1, seconds=0.0)
    assert {side: len(ms) for side, ms in result.passes.items()} == {"neocog": 12, "onnxruntime": 12}
    assert (result.threads, result.differences["onnxruntime"] < 1e-4) == (1, True)


# -- on a GPU --------------------------------------------------------------------------------------
def test_sides_take_turns_on_every_input():
    sides = {"ours": MadeSide(0.01), "theirs": MadeSide(1.0)}
    sets = [made_digits(2, seed=seed) for seed in range(3)]
    passes = race(sides, sets, rounds=6)
    assert {name: len(ms) for name, ms in passes.items()} == {"ours": 6, "theirs": 6}
    for side in sides.values():
        assert {digits.tobytes() for digits in side.loaded} == {digits.tobytes() for digits in sets}
    assert sides["ours"].repeats[-1] > sides["theirs"].repeats[-1]


def test_a_side_that_computes_something_else_stops_the_comparison():
    digits = made_digits(3)[np.arange(6) % 3]  # a batch may repeat what is compared
    assert differences_from_cpu(tiny_model(), {"near": MadeSide(1.0, 1e-7)}, digits, 1e-4)["near"] < 1e-5
    with pytest.raises(NeocogError, match="far computes other scores"):
        differences_from_cpu(tiny_model(), {"far": MadeSide(1.0, 0.1)}, digits, 1e-4)


@pytest.mark.parametrize("there", [0, 1])
def test_peers_that_cannot_run(monkeypatch, there):
    assert compare(tiny_model(), batch=2, rounds=1).ratios() == {}  # neocog alone
    with pytest.raises(UsageError, match="no peer 'abacus'"):
        compare(tiny_model(), batch=2, rounds=1, peers=["abacus"])
    with pytest.raises(UsageError, match="'onnxruntime' does not run on a GPU"):
        compare_on_gpu(tiny_model(), batch=1, precision="fp32", plans=(), peers=["onnxruntime"])
    cuda = SimpleNamespace(is_available=lambda: there > 0, device_count=lambda: there)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, __version__="2.9.0+cpu"))
    with pytest.raises(UsageError, match=rf"torch 2.9.0\+cpu does not find GPU {there}; install"):
        compare_on_gpu(tiny_model(), batch=1, precision="fp32", peers=["compile"], number=there)


@pytest.mark.parametrize(("arch", "wanted"), [(75, "fp32"), (90, "fp16")])
def test_the_precision_is_the_devices_if_none_is_named(monkeypatch, arch, wanted):
    monkeypatch.setattr("neocog.cuda.devices.number_of", lambda device: 0)
    monkeypatch.setattr("neocog.cuda.launcher.gpu", lambda number: SimpleNamespace(arch=arch))
    monkeypatch.setattr("experiments.network.ours.OurSide", lambda *_, **more: MadeSide(1.0))
    monkeypatch.setattr("neocog.network.model.load_model", lambda name: tiny_model())
    monkeypatch.setattr("neocog.reading.device.choose_device", lambda name: "cuda")
    words = ["bench", "network", "--device", "cuda", "--batch", "1", "--rounds", "1", "--json"]
    result = run(*words)
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["precision"] == wanted
    assert run(*words, "--precision", "fp8").exit_code == 2


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_ours_beside_torch_on_the_gpu(precision):
    pytest.importorskip("torch", reason="needs PyTorch: neocog[train]")
    result = compare_on_gpu(tiny_model(), batch=5, precision=precision, peers=["torch"], rounds=2)
    assert set(result.passes) == {"neocog default", "torch"}
    assert all(result.per_digit(name) > 0 for name in result.passes)


# -- the network in PyTorch ------------------------------------------------------------------------
@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("channels_last", [False, True])
def test_every_form_computes_the_equations(name, channels_last):
    torch = pytest.importorskip("torch", reason="needs PyTorch: neocog[train]")
    from experiments.network.torch_network import FORMS, Network

    model, digits = excitable_model(name, (5, 7, 24)), made_digits(2)
    want = reference.respond(u0_from_digits(digits), model)
    for turn in range(2):
        forms = {name: own[turn] for name, own in FORMS.items()}
        network = Network(model, forms).freeze(channels_last=channels_last)
        for layer, maps in network.maps(torch.from_numpy(digits)).items():
            error = np.abs(maps.numpy() - want[layer]).max() / want[layer].max()
            assert error <= comparing.TOLERANCES["fp32"], (layer, forms)


def test_scores_are_the_strongest_planes():
    torch = pytest.importorskip("torch", reason="needs PyTorch: neocog[train]")
    from experiments.network.torch_network import FORMS, Network

    model, digits = excitable_model("neocog", (5, 7, 24)), made_digits(5, seed=3)
    forms = {name: other for name, (_, other) in FORMS.items()}  # a CPU's half products may be NaN (2.13)
    us4 = reference.respond(u0_from_digits(digits), model)["US4"]
    want = reference.strongest_of_label(us4, model.labels)
    for dtype, near in ((torch.float32, 2e-5), (torch.float16, 0.05)):
        got = Network(model, forms).freeze(dtype)(torch.from_numpy(digits)).numpy()
        np.testing.assert_allclose(got, want, atol=near)
