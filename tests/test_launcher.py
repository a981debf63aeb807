"""Launches, devices, plans, builds kept: nothing here needs a GPU."""

import ctypes
import os
import stat
import threading
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

from neocog.cuda import compiler, devices, launcher
from neocog.cuda.kernel import PRECISIONS, Kernel
from neocog.cuda.plan import STAGES, Shelf, plan_of
from neocog.errors import DeviceError, UsageError
from neocog.network.model import load_model
from neocog.network.parallel import cores
from neocog.reading import device as batch_device
from neocog.reading.device import open_engine
from tests import cuda_fake
from tests.cuda_support import ARCHITECTURES, machine
from tests.support import few, tiny_model


@pytest.fixture
def gpu():
    """A device that nothing was loaded on."""
    device = object.__new__(launcher.Gpu)
    device.xp, device.number, device.arch, device.programmatic = cuda_fake.fake_cupy(), 0, 75, False
    device._functions, device._lock = {}, threading.Lock()
    return device


def test_a_kernel_of_newer_devices_is_refused(gpu):
    with pytest.raises(DeviceError, match=r"kernel a: needs compute capability 8\.0, the device has 7\.5"):
        gpu._build(Kernel("x.cu", "a", arch=80))


def test_kernels_are_built_together_and_loaded_once(gpu):
    built, meeting = [], threading.Barrier(2, timeout=20)

    def build(kernel):
        if cores() > 1:
            meeting.wait()  # two at a time
        built.append(kernel.name)
        return kernel.name

    gpu._build, gpu._load = build, lambda kernel, text: f"loaded {text}"
    kernels = [Kernel("x.cu", name) for name in ("a", "b")]
    gpu.prepare(kernels * 2)
    assert gpu.function(kernels[1]) == "loaded b"
    assert sorted(built) == ["a", "b"]


def test_the_drivers_structures_and_values_are_its_own():  # of cuda.h, 64 bit
    assert ctypes.sizeof(launcher._Attribute) == 72
    assert ctypes.sizeof(launcher._Config) == 56
    fields = launcher._Config
    assert (fields.stream.offset, fields.attributes.offset, fields.count.offset) == (32, 40, 48)
    assert launcher._Attribute.value.offset == 8
    config = launcher._Config((1, 2, 3), (4, 5, 6), 7)
    assert bytes(config)[:28] == np.arange(1, 8, dtype=np.uint32).tobytes()
    assert bytes(launcher._value(np.float32(1.5))) == np.float32(1.5).tobytes()
    assert launcher._value(None).value is None
    array = SimpleNamespace(data=SimpleNamespace(ptr=0x1234))
    assert launcher._value(array).value == 0x1234


@pytest.mark.parametrize(("cluster", "carveout", "shared", "refused"), [*product(
    (0, 1), (False, True), (46 * 1024, 48 * 1024),  # the static ones count too
    (None, launcher._CARVEOUT, launcher._ANY_CLUSTER))])  # fmt: skip
def test_only_what_a_kernel_needs_is_asked_for(gpu, cluster, carveout, shared, refused):
    asked = []

    def attribute(function, name, value):
        asked.append(name)
        if name == refused:
            raise cuda_fake.CUDAError("not supported")

    built, driver = SimpleNamespace(ptr=1, cubin=b""), gpu.xp.cuda.driver
    driver.funcSetAttribute, driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = attribute, 8
    module = SimpleNamespace(load=lambda cubin: None, get_function=lambda name: built)
    gpu.xp.cuda.function = SimpleNamespace(Module=lambda: module)
    kernel = Kernel("x.cu", "a", (("CLUSTER", cluster),), shared=shared, carveout=carveout)
    if cluster and refused == launcher._ANY_CLUSTER:
        with pytest.raises(DeviceError, match="the driver rejects it"):
            gpu._load(kernel, built)
    else:
        assert gpu._load(kernel, built) is built  # how memory is divided is a hint
        more = [8] * (shared > 47 * 1024)
        assert asked == more + [launcher._ANY_CLUSTER] * cluster + [launcher._CARVEOUT] * carveout


# --- devices ----------------------------------------------------------------------------------


def test_devices_by_name(monkeypatch):
    monkeypatch.setattr(devices, "trouble", lambda: None)
    monkeypatch.setattr(devices, "count", lambda: 2)
    assert [devices.number_of(name) for name in ("cuda", "cuda:0", "cuda:1")] == [0, 0, 1]
    with pytest.raises(DeviceError, match=r"'cuda:2' does not exist; available: cuda:0 \.\. cuda:1"):
        devices.number_of("cuda:2")
    assert batch_device.choose_device("auto") == "cuda"


@pytest.mark.usefixtures("tells_again")
@pytest.mark.parametrize(("trouble", "driver", "wishes", "said"), [
    ("the driver is old; update it", 11040, {}, "neocog: reading on the CPU: the driver is old; update it\n"),
    ("no NVIDIA driver is installed", None, {"precision": "fp32"}, ""),
    ("no NVIDIA driver is installed", None, {"precision": "fp16", "plan": "card"},  # where CUDA is
     "neocog: precision 'fp16' is for CUDA; the CPU computes in fp32\n"
     "neocog: plan 'card' is for CUDA; the CPU has no kernels to choose\n"),
])  # fmt: skip
def test_auto_takes_the_cpu_and_says_once_what_matters(monkeypatch, capsys, trouble, driver, wishes, said):
    monkeypatch.setattr(devices, "trouble", lambda: trouble)
    monkeypatch.setattr(devices, "driver_version", lambda: driver)
    for _ in range(2):
        engine = open_engine(tiny_model(), **wishes)
        assert (engine.device, engine.precision) == ("cpu", "fp32")
    assert capsys.readouterr().err == said
    with pytest.raises(DeviceError, match=f"'cuda': {trouble}"):
        open_engine(tiny_model(), device="cuda")


@pytest.mark.parametrize(("device", "option", "name", "words"), [
    ("cpu", "precision", "fp16", "'fp16' needs --device cuda"),
    ("cpu", "plan", "card", "'card' needs --device cuda"),
    *product(("auto", "cpu"), ["precision"], ["fp99"], ["'fp99' is unknown: choose fp32, fp16"]),
    *product(("auto", "cpu"), ["plan"], ["zzz"], ["'zzz' is unknown: choose default, card"]),
])  # fmt: skip
def test_names_are_refused_on_the_cpu_too(device, option, name, words):
    with pytest.raises(UsageError, match=words):
        open_engine(tiny_model(), device=device, **{option: name})


# --- plans ------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("arch", few(ARCHITECTURES, 80, 90))
@pytest.mark.parametrize("name", ["default", "card"])
def test_every_architecture_can_do_the_plans(arch, name, precision):
    shelf, plan = Shelf(machine(arch), tiny_model(), precision), plan_of(name, precision)
    for batch in (1, 8, 200):
        steps = shelf.choose(plan, batch)
        assert [step.writes for step in steps] == [*STAGES[:-1], "answers"]
        assert steps[0].reads == "digits"
        assert shelf.choose(plan, batch, first="U0")[0].reads == "U0"
    tensor = ["tensor" if arch >= 80 and (name == "default" or i == 0) else "winograd" for i in range(4)]
    assert [step.version for step in steps[1:8:2]] == tensor
    # blurs that are outer products
    assert {step.version for step in steps[2:8:2]} == {"tensor" if tensor[1] == "tensor" else "separable"}
    operand = "fp32" if arch < 80 else "fp16" if precision == "fp16" else "tf32x3"
    assert shelf.step("US2", "winograd").convolution.operand == operand


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_architecture_can_do_the_models_that_ship(arch):
    for name, precision in product(("neocog", "fukushima"), PRECISIONS):
        Shelf(machine(arch), load_model(name), precision).choose(plan_of("default", precision), 8)


def test_late_stages_go_by_the_next_smaller_batch():
    plan, few = plan_of("default", "fp16"), ("UC1", "US3")
    assert (plan.chunk, plan.part) == (1024, 256)
    assert [plan.late_at(n) for n in (0, 1, 2, 15, 16)] == [(), (), few, few, plan.late[16]]
    assert plan.late_at(4096) == plan.late_at(256) == ("US1", "US2")
    assert {stage for rows in plan.late.values() for stage in rows} <= set(STAGES)


def test_a_version_that_nothing_does_is_told_in_a_line():
    plan = replace(plan_of("card", "fp16"), versions={"US1": ("tensor",)})
    with pytest.raises(UsageError, match=r"plan card: US1 cannot be done by tensor at fp16 on .* 7\.5"):
        Shelf(machine(75), tiny_model(), "fp16").choose(plan, 8)


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX files")
def test_a_folder_that_others_can_write_to_is_not_used(tmp_path, monkeypatch):
    own = tmp_path / "builds"
    monkeypatch.setenv("NEOCOG_CACHE", str(own))
    compiler.store("y", b"build")
    assert compiler.load("y") == b"build"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (own, own / "y")] == [0o700, 0o600]
    own.chmod(0o777)
    compiler.store("z", b"")
    assert compiler.load("y") is None
    assert not (own / "z").exists()
    own.chmod(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: own.stat().st_uid + 1)
    assert (compiler.load("y") is None) == (own.stat().st_uid != 0)
