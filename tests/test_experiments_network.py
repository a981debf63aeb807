"""Sides of a comparison on a GPU: compared first, timed in turn; here with sides that are made."""

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from experiments.network.gpu import GpuComparison, compare_on_gpu, differences_from_cpu, race, trips

from neocog.cuda.kernel import Layout
from neocog.errors import NeocogError, UsageError
from neocog.network.engine import Engine
from neocog.network.u0 import made_digits
from tests.support import run, tiny_model


class MadeSide:
    """Scores of the CPU engine, a little off, in a time that is given."""

    def __init__(self, ms, off=0.0):
        self.ms, self.off = ms, off
        self.loaded = []
        self.repeats = []
        self._engine = Engine(tiny_model(), threads=1)

    def load(self, digits):
        self._digits = digits
        self.loaded.append(int(digits.sum()))

    def elapsed(self, repeats):
        self.repeats.append(repeats)
        return self.ms

    def scores(self):
        return self.trip(self._digits)

    def trip(self, digits):
        return self._engine.recognise(digits).score + np.float32(self.off)


def test_sides_take_turns_on_every_input():
    sides = {"ours": MadeSide(0.01), "theirs": MadeSide(1.0)}
    sets = [made_digits(2, seed=seed) for seed in range(3)]
    times = race(sides, sets, rounds=6)
    assert {name: len(ms) for name, ms in times.items()} == {"ours": 6, "theirs": 6}
    for side in sides.values():
        assert set(side.loaded) == {int(digits.sum()) for digits in sets}
    assert sides["ours"].repeats[-1] > sides["theirs"].repeats[-1]
    assert all((ms > 0).all() for ms in trips(sides, sets, rounds=2).values())


def test_a_side_that_computes_something_else_stops_the_comparison():
    digits = made_digits(3)[np.arange(6) % 3]  # a batch may repeat what is compared
    near, far = {"near": MadeSide(1.0, 1e-7)}, {"far": MadeSide(1.0, 0.1)}
    found = differences_from_cpu(tiny_model(), near, digits, 1e-4)
    assert found["near"] < 1e-5
    with pytest.raises(NeocogError, match="far computes other scores"):
        differences_from_cpu(tiny_model(), far, digits, 1e-4)


def test_ratio_is_theirs_by_our_fastest():
    passes = {"neocog auto": [0.01], "neocog direct": [0.04], "torch": [0.03]}
    result = GpuComparison(
        "m", "fp16", 2, {k: np.array(v) for k, v in passes.items()}, dict.fromkeys(passes, 0.0)
    )
    assert result.ratios() == {"torch": pytest.approx(3.0)}
    facts = json.loads(json.dumps(result.to_dict()))
    assert facts["us_per_digit"]["neocog auto"] == 5.0
    assert list(result.lines())[-1] == "neocog is 3.00 times as fast as torch"


def test_unknown_peer_on_the_gpu():
    with pytest.raises(UsageError, match="'onnxruntime' does not run on a GPU"):
        compare_on_gpu(tiny_model(), batch=1, precision="fp32", plans=(), peers=["onnxruntime"])


@pytest.mark.parametrize("there", [0, 1])
def test_torch_that_finds_no_gpu(monkeypatch, there):
    cuda = SimpleNamespace(is_available=lambda: there > 0, device_count=lambda: there)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, __version__="2.9.0+cpu"))
    with pytest.raises(UsageError) as caught:
        compare_on_gpu(tiny_model(), batch=1, precision="fp32", peers=["compile"], number=there)
    assert f"torch 2.9.0+cpu does not find GPU {there}; install" in str(caught.value)
    assert "\n" not in str(caught.value)


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


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_maps_are_stored_as_a_step_reads_them(dtype):
    from experiments.network.ours import stored

    layout = Layout(planes=3, size=5, border=2, channels=16, dtype=dtype)
    maps = np.random.default_rng(0).uniform(size=(2, 3, 5, 5)).astype(np.float32)
    held = stored(maps, layout)
    assert (held.shape, held.dtype) == (layout.shape(2), layout.dtype)
    values = held.astype(np.float32)
    inside = values[:, 2:7, 2:7, :3].transpose(0, 3, 1, 2)
    rounding = {"float32": 0, "float16": 2**-11}[dtype]
    np.testing.assert_allclose(inside, maps, rtol=rounding)
    assert values.sum() == pytest.approx(inside.sum(), rel=1e-5)  # nothing beside them


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_ours_beside_torch_on_the_gpu(precision):
    pytest.importorskip("torch", reason="needs PyTorch: neocog[train]")
    result = compare_on_gpu(tiny_model(), batch=5, precision=precision, peers=["torch"], rounds=2, host=True)
    assert set(result.passes) == {"neocog default", "torch"}
    assert set(result.trips) == set(result.passes)
    assert all(result.us(name) > 0 for name in result.passes)
