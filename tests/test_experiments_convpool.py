"""Convolution with average pooling: counts, systems that compute the same, the report."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from experiments.convpool import experiment as convpool
from experiments.convpool import tables
from experiments.convpool.fused import Tiling
from experiments.convpool.systems import CHECK, SYSTEMS, Case, operations, standard_cases
from experiments.harness.pages import text
from experiments.harness.run import Request
from neocog.cuda import launcher
from neocog.errors import DeviceError
from tests import cuda_fake

torch = pytest.importorskip("torch", reason="needs PyTorch: neocog[train]")


def test_operations_are_the_papers():
    assert operations("direct", ci=512, co=512, n=32) == CHECK
    naive, fused = (operations(c, ci=512, co=512, n=32) for c in ("naive", "fused"))
    assert naive / CHECK == pytest.approx(4, rel=0.01)  # its section III says 4 and 1.8
    assert fused / CHECK == pytest.approx(1.8, rel=0.02)


def test_cases_hold_the_papers():
    cases = standard_cases()
    assert len(set(cases)) == len(cases) == 40
    wanted = {Case(b, c, p) for b in (1, 16, 64, 256) for c in (32, 512) for p in ("fp32", "fp16")}
    assert wanted < set(cases)
    assert set(standard_cases(quick=True)) < set(cases)


class FakeGraph:
    """torch.cuda.CUDAGraph, and the context that captures one: what is enqueued runs at once."""

    cuda_stream = 7

    def __init__(self, *args): ...

    def __enter__(self): ...

    def __exit__(self, *args): ...

    def replay(self): ...

    def record(self): ...

    def synchronize(self): ...

    def wait_stream(self, other): ...

    def elapsed_time(self, other):
        return 0.25


SMALL = Tiling(1, 32, 2, (2, 1))


@pytest.fixture
def fake_gpu(emulator, monkeypatch):
    """A GPU that is made up: kernels run in the emulator, PyTorch on the CPU."""
    from experiments.convpool import ways

    module = cuda_fake.install(monkeypatch, emulator)
    module.from_dlpack = lambda tensor: tensor.numpy().view(cuda_fake.FakeArray)
    module.stack = lambda parts, axis: np.stack(parts, axis).view(cuda_fake.FakeArray)
    module.cuda.ExternalStream = lambda pointer: cuda_fake.Stream()
    fakes = {
        "is_available": lambda: True,
        "get_device_properties": lambda n: SimpleNamespace(L2_cache_size=1 << 16),
        "synchronize": lambda: None,
        "empty_cache": lambda: None,
        "current_stream": FakeGraph,
        "stream": FakeGraph,
        "Stream": FakeGraph,
        "graph": FakeGraph,
        "CUDAGraph": FakeGraph,
        "Event": lambda enable_timing: FakeGraph(),
        "_sleep": lambda cycles: None,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 91900)  # 2.15 counts the GPUs
    monkeypatch.setattr(ways.Device, "name", "cpu")
    monkeypatch.setattr(ways, "gpu", launcher.Gpu)
    monkeypatch.setattr(ways, "build_all", lambda gpu, kernels: None)
    monkeypatch.setattr(ways, "_MOST_REPEATS", 1)
    monkeypatch.setattr(ways, "_FLUSHED", 1)
    monkeypatch.setattr("experiments.network.peers._WARM_UP", 1)
    monkeypatch.setattr("experiments.harness.record.machine", lambda gpu, number=0: "a fake")
    monkeypatch.setattr("experiments.convpool.systems.Case.contenders", lambda *a, **more: [SMALL])


def test_without_winograd_no_system_is_compared_with_the_quicker_naive_form():
    def gains(**systems):
        found = {name: {"us": us} for name, us in systems.items()}
        row = {"precision": "fp32", "channels": 512, "batch": 1, "systems": found}
        return tables._gains(tables._us({"rows": [row]}))

    assert gains(naive=8.0, winograd=4.0, ours=2.0)["ours"].tolist() == [2]
    assert gains(naive=8.0, ours=2.0).isna().all(axis=None)


@pytest.mark.usefixtures("fake_gpu")
@pytest.mark.parametrize("precision", ["fp16", "fp32"])
def test_every_system_computes_the_same(precision):
    saved = []
    result = convpool.measure(Request("cuda"), saved.append, cases=[Case(2, 32, precision, size=6)])
    assert len(saved) == 1
    assert not convpool.faults(result)
    (row,) = result["rows"]
    ran = {name for name, entry in row["systems"].items() if "us" in entry}
    assert ran == set(SYSTEMS) - {"winograd", "compiled"}
    assert row["ratio"]["naive"] == 1
    assert row["systems"]["naive"]["warm_us"] == pytest.approx(125)  # two replays in 0.25 ms
    assert json.loads(json.dumps(result)) == result


@pytest.mark.usefixtures("fake_gpu")
def test_a_wrong_system_is_told_and_not_timed(monkeypatch):
    def wrong(self, tiling):
        return lambda: torch.zeros(1, 32, 3, 3)

    monkeypatch.setattr("experiments.convpool.ways.Operands._ours", wrong)
    result = convpool.measure(Request("cuda"), str, cases=[Case(1, 32, "fp16", size=6)])
    assert "us" not in result["rows"][0]["systems"]["ours"]
    (fault,) = convpool.faults(result)
    assert "wrong by 1.0e+00" in fault


@pytest.mark.usefixtures("fake_gpu")
def test_what_time_does_not_allow_is_named():
    result = convpool.measure(Request("cuda", seconds=-1.0), str, cases=[Case(1, 32, "fp16")])
    assert result["not_run"] == ["fp16 batch 1 channels 32"]
    assert "a fake" in text(convpool.tables(result))


def test_without_a_gpu_one_line_says_so(monkeypatch):
    from experiments.convpool.ways import Device

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(DeviceError, match="--device cpu"):
        Device()
