"""Convolution with average pooling: counts, systems that compute the same, the report."""

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from experiments.convpool import experiment as convpool
from experiments.convpool.systems import (
    CHECK,
    SYSTEMS,
    Case,
    operations,
    quick_cases,
    standard_cases,
)
from experiments.emulator import Emulator
from experiments.harness.pages import text
from experiments.harness.run import Request
from neocog.cuda.convpool_tilings import Tiling

torch = pytest.importorskip("torch", reason="needs PyTorch: neocog[train]")


def test_operations_are_the_papers() -> None:
    assert operations("direct", ci=512, co=512, n=32) == CHECK
    naive, fused = (operations(c, ci=512, co=512, n=32) for c in ("naive", "fused"))
    assert naive / CHECK == pytest.approx(4, rel=0.01)  # its section III says 4 and 1.8
    assert fused / CHECK == pytest.approx(1.8, rel=0.02)
    with pytest.raises(ValueError, match="box"):
        operations("box", ci=1, co=1, n=32)


def test_cases_are_few_and_hold_the_papers() -> None:
    cases = standard_cases()
    assert len(set(cases)) == len(cases) <= 60
    wanted = {Case(b, c, p) for b in (1, 16, 64, 256) for c in (32, 512) for p in ("fp32", "fp16")}
    assert wanted < set(cases)
    assert set(quick_cases()) < set(cases)


class CpuDevice:
    """The device of the experiment, on the CPU: kernels in the emulator, times made up."""

    name = "cpu"
    cache = 1 << 20

    def __init__(self, machine: Emulator) -> None:
        self.machine = machine
        self.runs = 0

    def prepare(self, precision: str) -> None: ...

    def warm(self, kernels: Any) -> None:
        assert kernels

    def array(self, tensor: Any) -> Any:
        if tensor.dtype == torch.bfloat16:
            return tensor.view(torch.int16).numpy().view(np.uint16)
        return tensor.numpy()

    def launch(self, launch: Any) -> None:
        self.machine.launch(launch)

    def wait(self) -> None: ...

    def free(self) -> None: ...

    def microseconds(self, run: Any, *, samples: int = 7) -> float:
        self.runs += 1
        return 10.0 * samples + self.runs

    def flushed_microseconds(self, run: Any) -> float:
        return 100.0

    def kernels(self, run: Any) -> list[str]:
        return ["a kernel"]


SMALL = Tiling(1, 32, 2, 2, groups=1, producers=4)


@pytest.fixture
def device(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> CpuDevice:
    monkeypatch.setattr("experiments.convpool.run.contenders", lambda *args, **kwargs: [SMALL])
    return CpuDevice(emulator)


def counted() -> dict[str, Any]:
    return convpool.measure(Request(), str)


def measured(device: CpuDevice, *cases: Case, seconds: float = 60.0) -> dict[str, Any]:
    from experiments.convpool.run import run_cases

    result: dict[str, Any] = {**counted(), "facts": {"cuDNN": "9.1.0"}}
    run_cases(device, list(cases), result, seconds=seconds, save=str)
    return result


@pytest.mark.parametrize(
    "precision", ["fp16", "fp32", pytest.param("bf16", marks=pytest.mark.slow)]
)
def test_every_system_computes_the_same(device: CpuDevice, precision: Any) -> None:
    result = measured(device, Case(2, 32, precision, size=6))
    (row,) = result["rows"]
    assert not convpool.faults(result)
    ran = {name for name, entry in row["systems"].items() if "us" in entry}
    assert ran == {s.name for s in SYSTEMS} - {"winograd", "compiled"}
    assert "GPU alone" in row["systems"]["winograd"]["why"]
    assert row["ratio"]["naive"] == 1
    held = json.loads(convpool.tilings(result))
    assert [row[held["fields"].index("tiling.planes")] for row in held["rows"]] == [SMALL.planes]
    assert json.loads(json.dumps(result)) == result


def test_a_wrong_system_is_told_and_not_timed(
    device: CpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(self: Any, tiling: Tiling) -> Any:
        return lambda: torch.zeros(1, 32, 3, 3)

    monkeypatch.setattr("experiments.convpool.ways.Operands.ours", wrong)
    result = measured(device, Case(1, 32, "fp16", size=6))
    assert "us" not in result["rows"][0]["systems"]["ours"]
    (fault,) = convpool.faults(result)
    assert "wrong by 1.0e+00" in fault


def test_what_time_does_not_allow_is_named(device: CpuDevice) -> None:
    result = measured(device, Case(1, 32, "fp16"), seconds=-1.0)
    assert result["not_run"] == ["fp16 batch 1 channels 32"]


class FakeGraph:
    """torch.cuda.CUDAGraph, and the context that captures one: what is enqueued runs at once."""

    def __init__(self, *args: Any) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *args: Any) -> None: ...

    def replay(self) -> None: ...

    def record(self) -> None: ...

    def synchronize(self) -> None: ...

    def wait_stream(self, other: Any) -> None: ...

    def elapsed_time(self, other: Any) -> float:
        return 0.25


def test_the_whole_run_on_a_device_that_is_made_up(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    from experiments.convpool import device as convpool_device
    from neocog.cuda import launcher
    from tests import cuda_fake

    module: Any = cuda_fake.install(monkeypatch, emulator)
    module.from_dlpack = lambda tensor: tensor.numpy().view(cuda_fake.FakeArray)
    module.stack = lambda parts, axis: np.stack(parts, axis).view(cuda_fake.FakeArray)
    module.cuda.ExternalStream = lambda pointer: cuda_fake.Stream()
    stream = FakeGraph()
    stream.cuda_stream = 7  # type: ignore[attr-defined]
    fakes = {
        "is_available": lambda: True,
        "get_device_properties": lambda n: SimpleNamespace(L2_cache_size=1 << 16),
        "synchronize": lambda: None,
        "empty_cache": lambda: None,
        "current_stream": lambda: stream,
        "stream": FakeGraph,
        "Stream": FakeGraph,
        "graph": FakeGraph,
        "CUDAGraph": FakeGraph,
        "Event": lambda enable_timing: FakeGraph(),
        "_sleep": lambda cycles: None,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(convpool_device.Device, "name", "cpu")
    monkeypatch.setattr(convpool_device, "gpu", launcher.Gpu)
    monkeypatch.setattr(convpool_device, "build_all", lambda gpu, kernels: None)
    monkeypatch.setattr(convpool_device, "_MOST_REPEATS", 1)
    monkeypatch.setattr(convpool_device, "_FLUSHED", 1)
    monkeypatch.setattr("experiments.network.peers._WARM_UP", 1)
    monkeypatch.setattr("experiments.harness.record.machine", lambda gpu, number=0: "a fake")
    monkeypatch.setattr("experiments.convpool.run.contenders", lambda *a, **more: [SMALL])
    saved: list[Any] = []
    cases = [Case(1, 32, "fp16", size=6), Case(1, 32, "bf16", size=6)]
    result = convpool.measure(Request("cuda"), saved.append, cases=cases)
    assert len(saved) == 1 + len(result["rows"]) == 3
    assert [s.name for s in SYSTEMS if s.name in result["rows"][0]["systems"]][1] == "winograd"
    assert not convpool.faults(result)
    assert result["facts"]["multiprocessors"] == 132
    for row in result["rows"]:
        assert row["systems"]["ours"]["us"] >= 0
        assert row["systems"]["naive"]["warm_us"] == pytest.approx(125)  # two replays in 0.25 ms
    assert "a fake" in text("convpool", result)


def test_the_command_counts_without_a_gpu(tmp_path: Any) -> None:
    from neocog.cli import app

    path = tmp_path / "deep" / "out.json"
    done = CliRunner().invoke(app, ["bench", "convpool", "--cpu", "-o", str(path)])
    assert done.exit_code == 0, done.output
    assert str(CHECK) in done.output
    assert json.loads(path.read_text())["counts"][-1]["direct"] == CHECK
    done = CliRunner().invoke(app, ["bench", "convpool", "--cpu", "--json"])
    assert json.loads(done.stdout)["paper"]["ratio"] == {"fp32": 1.8, "fp16": 4.4}


def test_places_are_looked_at_first(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from neocog.cli import app

    path = tmp_path / "deep" / "tilings.json"
    words = ["bench", "convpool", "--cpu"]
    done = CliRunner().invoke(app, [*words, "--tilings", str(path)])
    assert (done.exit_code, json.loads(path.read_text())["rows"]) == (0, [])
    monkeypatch.setattr(convpool, "measure", None)
    for option, place in (("--tilings", path / "x.json"), ("-o", tmp_path)):
        done = CliRunner().invoke(app, [*words, option, str(place)])
        assert done.exit_code == 2
        assert done.stderr.endswith(f"; choose another {option}\n")
        assert done.stderr.count("\n") == 1


def test_without_a_gpu_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from experiments.convpool.device import Device
    from neocog.errors import DeviceError

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(DeviceError, match="--cpu"):
        Device()
