"""Convolution with average pooling: counts, systems that compute the same, the report."""

import json

import pytest

from experiments.convpool import experiment as convpool
from experiments.convpool import tables
from experiments.convpool.fused import Tiling
from experiments.convpool.systems import CHECK, SYSTEMS, Case, operations, standard_cases
from experiments.harness.pages import text
from experiments.harness.run import Request
from neocog.errors import DeviceError
from tests.emulator import Emulator

torch = pytest.importorskip("torch", reason="needs PyTorch: neocog[train]")
ways = pytest.importorskip("experiments.convpool.ways")


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


class FakeDevice(ways.Device):
    """A GPU that is made up: kernels run in the emulator, PyTorch on the CPU; a run takes 125 us."""

    name, cache = "cpu", 1 << 16

    def __init__(self, number=0):
        self.machine, self.wait, self.free = Emulator(), lambda: None, lambda: None

    def contenders(self, case):
        return [Tiling(1, 32, 2, (2, 1))]

    def warm(self, kernels): ...

    def array(self, tensor):
        return tensor.numpy()

    def launch(self, launch):
        self.machine.launch(launch)

    def microseconds(self, run, *, samples=7):
        return 125.0 if run() is not None else 0.0

    flushed_microseconds = microseconds


@pytest.fixture
def fake_gpu(monkeypatch):
    monkeypatch.setattr(ways, "Device", FakeDevice)
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 91900)  # 2.15 counts the GPUs
    monkeypatch.setattr("experiments.harness.record.machine", lambda gpu, number=0: "a fake")
    monkeypatch.setattr("experiments.harness.record.asked", lambda *words: "1.2")


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
    assert row["systems"]["naive"]["warm_us"] == 125
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
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(DeviceError, match="--device cpu"):
        ways.Device()
