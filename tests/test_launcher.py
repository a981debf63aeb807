"""What is checked before a kernel is launched, plans, chunks: nothing here needs a GPU."""

import contextlib
import ctypes
import json
import os
import stat
import threading
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

from neocog.cuda import cache, devices, launcher, plan, roofline
from neocog.cuda.arguments import check_launch, parameters
from neocog.cuda.kernel import Kernel, Launch
from neocog.cuda.plan import ANCHORS, STAGES, Plan, Shelf, Store, parse_plan, shipped
from neocog.errors import DeviceError, InputError, UsageError
from neocog.network.model import load_model
from neocog.network.parallel import cores
from neocog.reading import device as batch_device
from neocog.reading.device import open_engine
from tests import cuda_fake
from tests.cuda_support import ARCHITECTURES, PRECISIONS, all_kernels, machine
from tests.support import few, tiny_model

FMA = Kernel("roofline.cu", "fma_rate")
OUT = np.zeros(256, np.float32)
ARGS = (OUT, np.float32(1), np.int32(2))


def check(kernel=FMA, args=ARGS, grid=(1, 1, 1)):
    check_launch(Launch(kernel, grid, args), xp=np, arch=90, shared=232448)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (ARGS[:2], "got 2 arguments, expected 3"),
        ((OUT.astype(np.float64), *ARGS[1:]), "out: got float64, expected float32"),
        ((OUT[::2], *ARGS[1:]), "expected a C-contiguous array"),
        ((OUT[:0], *ARGS[1:]), "an empty array"),
        ((np.float32(1), *ARGS[1:]), "got a number, expected an array"),
        ((OUT, OUT, np.int32(2)), "factor: got an array"),
        ((OUT, np.float32(1), np.int64(2)), "rounds: got int64, expected int32"),
        ((OUT, np.float32(1), 2), "got a int, expected a numpy array or NumPy number"),
        ((OUT, None, np.int32(2)), "got a NoneType"),
    ],
)
def test_wrong_arguments_are_named(args, words):
    check()
    check(args=(None, *ARGS[1:]))
    with pytest.raises(InputError, match="kernel fma_rate") as caught:
        check(args=args)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kernel", "grid", "words"),
    [
        (Kernel("roofline.cu", "fma_rate", arch=100), (1, 1, 1), "needs compute capability 10.0"),
        (Kernel("roofline.cu", "fma_rate", arch=80, features="a"), (1, 1, 1), "needs compute capability 8.0"),
        (Kernel("roofline.cu", "fma_rate", shared=300_000), (1, 1, 1), "shared memory"),
        (Kernel("roofline.cu", "fma_rate", threads=2048), (1, 1, 1), "2048 threads"),
        (FMA, (1, 70_000, 1), "use a smaller batch"),
        (FMA, (0, 1, 1), "a grid of"),
        (Kernel("none.cu", "none"), (1, 1, 1), "none.cu: missing"),
    ],
)
def test_what_the_device_cannot_do_is_named(kernel, grid, words):
    with pytest.raises(DeviceError, match=words):
        check(kernel, grid=grid)


def test_maps_are_of_the_type_of_the_build():
    for code, wanted in ((0, "float32"), (1, "float16"), (2, "uint16")):
        first, *_ = parameters("c_direct_sum.cu", "c_direct", code)
        assert (first.pointer, first.elements) == (True, (wanted,))


def test_a_kernel_of_two_builds_takes_what_either_takes(tmp_path):
    source = tmp_path / "two.cu"
    source.write_text("KERNEL(32) two(const float* x) {}\nKERNEL(32) two(const u8* x) {}\n")
    found = parameters(str(source), "two", 0)
    assert set(found[0].elements) == {"float32", "uint8"}


def test_the_drivers_structures_have_its_sizes():  # of cuda.h, 64 bit
    assert ctypes.sizeof(launcher._Attribute) == 72
    assert ctypes.sizeof(launcher._Config) == 56
    fields = launcher._Config
    assert (fields.stream.offset, fields.attributes.offset, fields.count.offset) == (32, 40, 48)
    assert launcher._Attribute.value.offset == 8
    config = launcher._Config((1, 2, 3), (4, 5, 6), 7)
    assert bytes(config)[:28] == np.arange(1, 8, dtype=np.uint32).tobytes()


def test_values_of_arguments_are_their_bytes():
    assert bytes(launcher._value(np.float32(1.5))) == np.float32(1.5).tobytes()
    assert launcher._value(None).value is None
    array = SimpleNamespace(data=SimpleNamespace(ptr=0x1234))
    assert launcher._value(array).value == 0x1234


def test_kernels_are_built_together_and_loaded_once():
    device = object.__new__(launcher.Gpu)
    device._functions, device._lock, device.programmatic = {}, threading.Lock(), False
    built = []
    meeting = threading.Barrier(2, timeout=20)

    def build(kernel):
        if cores() > 1:
            meeting.wait()  # two at a time
        built.append(kernel.name)
        return kernel.name

    device._build, device._load = build, lambda kernel, text: f"loaded {text}"
    kernels = [Kernel("x.cu", name) for name in ("a", "b")]
    device.prepare(kernels * 2)
    assert sorted(built) == ["a", "b"]
    assert device.function(kernels[1]) == "loaded b"
    assert len(built) == 2


@pytest.mark.parametrize("cluster", [0, 1])
@pytest.mark.parametrize("carveout", [False, True])
@pytest.mark.parametrize("refused", [None, launcher._CARVEOUT, launcher._ANY_CLUSTER])
def test_only_what_a_kernel_needs_is_asked_for(cluster, carveout, refused):
    asked = []

    def attribute(function, name, value):
        asked.append(name)
        if name == refused:
            raise cuda_fake.CUDAError("not supported")

    device = object.__new__(launcher.Gpu)
    device.xp, device.number = cuda_fake.fake_cupy(), 0
    driver = device.xp.cuda.driver
    driver.funcSetAttribute = attribute
    module = SimpleNamespace(load=lambda cubin: None, get_function=lambda name: built)
    device.xp.cuda.function = SimpleNamespace(Module=lambda: module)
    built = SimpleNamespace(ptr=1, cubin=b"")
    kernel = Kernel("x.cu", "a", (("CLUSTER", cluster),), carveout=carveout)
    if cluster and refused == launcher._ANY_CLUSTER:
        with pytest.raises(DeviceError, match="the driver rejects it"):
            device._load(kernel, built)
    else:
        assert device._load(kernel, built) is built  # how memory is divided is a hint
        assert asked == [launcher._ANY_CLUSTER] * cluster + [launcher._CARVEOUT] * carveout


# --- devices ----------------------------------------------------------------------------------


def test_devices_by_name(monkeypatch):
    monkeypatch.setattr(devices, "trouble", lambda: None)
    monkeypatch.setattr(devices, "count", lambda: 2)
    assert devices.numbers("cuda") == (0, 1)
    assert devices.numbers("cuda:1") == (1,)
    with pytest.raises(DeviceError, match=r"'cuda:2' does not exist; available: cuda:0 \.\. cuda:1"):
        devices.numbers("cuda:2")
    assert batch_device.choose_device("auto") == "cuda"


@pytest.mark.usefixtures("tells_again")
def test_auto_takes_the_cpu_and_says_why_once(monkeypatch, capsys):
    monkeypatch.setattr(devices, "trouble", lambda: "the driver is old; update it")
    monkeypatch.setattr(devices, "driver_version", lambda: 11040)
    for _ in range(2):
        assert open_engine(tiny_model()).device == "cpu"
    assert capsys.readouterr().err == "neocog: reading on the CPU: the driver is old; update it\n"
    with pytest.raises(DeviceError, match="'cuda': the driver is old; update it"):
        open_engine(tiny_model(), device="cuda")


@pytest.mark.usefixtures("tells_again")
def test_auto_without_a_driver_says_nothing(monkeypatch, capsys):
    monkeypatch.setattr(devices, "trouble", lambda: "no NVIDIA driver is installed")
    monkeypatch.setattr(devices, "driver_version", lambda: None)
    assert open_engine(tiny_model(), precision="fp32").device == "cpu"
    assert capsys.readouterr().err == ""
    for _ in range(2):  # auto: a wish, where CUDA is
        engine = open_engine(tiny_model(), precision="fp16", plan="card")
        assert (engine.device, engine.precision) == ("cpu", "fp32")
    assert capsys.readouterr().err == (
        "neocog: precision 'fp16' is for CUDA; the CPU computes in fp32\n"
        "neocog: plan 'card' is for CUDA; the CPU has no kernels to choose\n"
    )


@pytest.mark.parametrize(
    ("device", "option", "name", "words"),
    [
        ("cpu", "precision", "fp16", "'fp16' needs --device cuda"),
        ("cpu", "plan", "card", "'card' needs --device cuda"),
        *product(
            ("auto", "cpu"), ["precision"], ["fp99"], ["'fp99' is unknown: choose fp32, tf32, fp16, bf16"]
        ),
        *product(("auto", "cpu"), ["plan"], ("zzz", "US1=zzz", "zzz=tensor"), ["plan"]),
    ],
)
def test_names_are_refused_on_the_cpu_too(device, option, name, words):
    with pytest.raises(UsageError, match=words):
        open_engine(tiny_model(), device=device, **{option: name})


# --- plans ------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("arch", few(ARCHITECTURES, 80, 90))
@pytest.mark.parametrize("name", ["default", "card"])
def test_every_architecture_can_do_the_plans(arch, name, precision):
    wanted = parse_plan(name)
    shelf = Shelf(machine(arch), tiny_model(), precision)
    whole = wanted.over(shipped("a GPU that nobody knows", precision))
    for batch in (1, 8, 200):
        steps = shelf.choose(whole, batch)
        assert [step.writes for step in steps] == [*STAGES[:-1], "answers"]
        assert steps[0].reads == "digits"
        assert shelf.choose(whole, batch, first="U0")[0].reads == "U0"


@pytest.mark.slow
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", ["neocog", "fukushima"])
def test_every_architecture_can_do_the_models_that_ship(arch, name, precision):
    Shelf(machine(arch), load_model(name), precision).choose(shipped("unknown", precision), 8)


@pytest.mark.parametrize(("arch", "first"), [(75, "winograd"), (90, "tensor")])
def test_card_names_what_there_is(arch, first):
    wanted = parse_plan("card")
    steps = Shelf(machine(arch), tiny_model(), "fp32").choose(wanted, 8)
    versions = {step.writes: step.version for step in steps}
    assert [versions[f"US{i}"] for i in (1, 2, 3, 4)] == [first, *["winograd"] * 3]
    assert {versions[f"UC{i}"] for i in (1, 2, 3)} == {"separable"}  # blurs that are outer products


def test_products_of_winograd_in_fp32():
    shelf = Shelf(machine(90), tiny_model(), "fp32")
    ways = {name: shelf.step("US2", name) for name in ("winograd", "winograd-cuda-cores")}
    assert [step.convolution.operand for step in ways.values()] == ["tf32x3", "fp32"]
    old = Shelf(machine(75), tiny_model(), "fp32")
    assert old.step("US2", "winograd").convolution.operand == "fp32"
    for shelf in (old, Shelf(machine(90), tiny_model(), "fp16")):
        with pytest.raises(UsageError, match="use winograd"):
            shelf.step("US2", "winograd-cuda-cores")


def test_named_stages_lie_over_the_default():
    wanted = parse_plan("US2=tensor,UC1=box")
    whole = wanted.over(shipped("unknown", "fp16"))
    assert whole.preferred("US2", 8) == ("tensor",)
    assert whole.preferred("UC1", 100) == ("box",)
    assert whole.preferred("UC2", 100) == shipped("unknown", "fp16").preferred("UC2", 100)
    assert (whole.chunk, whole.part) == (1024, 256)
    assert parse_plan("auto") is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fastest", "no such file; choose default, auto, card"),
        ("US9=tensor", "no stage 'US9'"),
        ("US2=magic", "US2 has no version 'magic'; choose"),
        ("{", "cannot be read as JSON"),
        ("[]", "expected {'versions'"),
        ('{"versions": {}, "chunk": -1}', "a chunk of -1"),
        ('{"versions": {}, "chunk": 64, "part": 65}', "a part of 65, expected 1..64, not more"),
        ('{"versions": {}, "part": null}', "expected {'versions'"),
        ('{"versions": {}, "chunk": 1e999}', "expected {'versions'"),
        ('{"versions": {"16": {"US2": "winograd"}}}', "batch size 16 is not allowed; choose 1, 8,"),
    ],
)
def test_plans_that_make_no_sense(tmp_path, text, words):
    if text[0] in "{[":
        (tmp_path / "p.json").write_text(text)
        text = str(tmp_path / "p.json")
    with pytest.raises(UsageError) as caught:
        parse_plan(text)
    assert words in str(caught.value)


def test_a_plan_file_is_read_as_written(tmp_path):
    data = {"chunk": 64, "versions": {"8": {"US2": "winograd", "UC": ["box"]}}}
    (tmp_path / "p.json").write_text(json.dumps(data))
    found = parse_plan(str(tmp_path / "p.json"))
    whole = found.over(shipped("unknown", "fp16"))
    assert (whole.chunk, whole.part) == (64, 64)  # undivided
    assert [plan.anchor_of(n) for n in (1, 7, 8, 63, 64, 300, 4096)] == [1, 1, 8, 8, 64, 256, 256]
    assert found.preferred("US2", 9) == ("winograd",)
    assert found.preferred("UC3", 63) == ("box",)
    assert found.preferred("US2", 64) == ()


def test_what_an_anchor_does_not_say_stands_in_row_0():
    rows = {"0": {"US3": "tensor", "US": "winograd"}, "8": {"US2": "tensor"}}
    late = {"0": ["US1"], "8": []}
    plan = Plan.from_json({"versions": rows, "late": late}, name="")
    for found in (plan, plan.over(shipped("unknown", "fp16"))):
        versions = [found.preferred(stage, 8) for stage in ("US2", "US3", "US4")]
        assert versions == [("tensor",), ("tensor",), ("winograd",)]
        assert found.preferred("US2", 64) == ("winograd",)
        assert (found.late_at(8), found.late_at(64)) == ((), ("US1",))


@pytest.mark.parametrize(
    ("wanted", "chunk", "part"),
    [({}, 1024, 256), ({"part": 64}, 1024, 64), ({"chunk": 128, "part": 32}, 128, 32)],
)
def test_parts_of_a_chunk(wanted, chunk, part):
    plan = Plan.from_json({"versions": {}, **wanted}, name="")
    whole = plan.over(Plan())
    assert (whole.chunk, whole.part) == (chunk, part)
    assert Plan.from_json(whole.to_json(), name="") == replace(whole, name="")


def test_stages_in_parts_are_chosen_for_a_part():
    little = {"US2": ("winograd",), "US4": ("winograd",)}
    many = {"US2": ("tensor",), "US4": ("tensor",)}
    plan = Plan({64: little, 256: many}, 512, 64).over(shipped("unknown", "fp16"))
    steps = {s.writes: s.version for s in Shelf(machine(90), tiny_model(), "fp16").choose(plan, 512)}
    assert (steps["US2"], steps["US4"]) == ("winograd", "tensor")


def test_measured_plans_are_kept_by_device_shape_and_precision(tmp_path, monkeypatch):
    monkeypatch.setenv("NEOCOG_CACHE", str(tmp_path / "builds"))
    store = Store("GPU", tiny_model(), "fp16")
    assert store.load() is None
    plan = Plan({anchor: {"US2": ("winograd", "tensor")} for anchor in ANCHORS}, 128, 32)
    store.save(plan, {"8": {}})
    found = Store("GPU", tiny_model(), "fp16").load()
    assert found.table == plan.table
    assert (found.chunk, found.part) == (128, 32)
    assert Store("another", tiny_model(), "fp16").load() is None
    assert Store("GPU", tiny_model(), "bf16").load() is None
    (path,) = (tmp_path / "builds").iterdir()
    path.write_bytes(path.read_bytes()[:20])
    assert store.load() is None
    monkeypatch.setenv("NEOCOG_CACHE", str(path / "no"))
    store.save(plan, {})


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX files")
def test_only_this_users_builds_are_taken(tmp_path, monkeypatch, capsys):
    own, theirs = tmp_path / "builds", tmp_path / "theirs"
    theirs.mkdir(mode=0o700)
    monkeypatch.setenv("NEOCOG_CACHE", str(theirs))
    stored = cache.store("x", b"not what was built")
    monkeypatch.setenv("NEOCOG_CACHE", str(own))
    assert cache.store("y", b"build") == own / "y"
    assert cache.load("y") == b"build"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (own, own / "y")] == [0o700, 0o600]
    (own / "link").symlink_to(stored)
    os.mkfifo(own / "pipe")
    assert cache.load("link") is cache.load("pipe") is None
    (own / "y").chmod(0o620)
    assert cache.load("y") is None
    assert capsys.readouterr().err == ""
    (own / "y").chmod(0o600)
    own.chmod(0o777)
    assert cache.load("y") is cache.load("y") is cache.store("z", b"") is None
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert "others may write to it (chmod go-w)" in line
    own.chmod(0o700)
    assert cache.load("y") == b"build"


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX files")
def test_builds_of_root_are_taken_of_others_not():
    def about(user, mode=0o755):
        return SimpleNamespace(st_uid=user, st_mode=mode)

    assert cache._foreign(about(0)) == cache._foreign(about(os.geteuid())) == ""
    assert "another user" in cache._foreign(about(os.geteuid() + 1, 0o700))


def test_what_was_measured_holds_for_the_code_and_the_tilings(tmp_path, monkeypatch):
    device = SimpleNamespace(name="GPU", arch=90, processors=132, current=contextlib.nullcontext)
    measured = []
    monkeypatch.setenv("NEOCOG_CACHE", str(tmp_path / "builds"))
    monkeypatch.setattr(roofline, "_fma", lambda gpu: measured.append("fma") or 1.0)
    monkeypatch.setattr(roofline, "_copy", lambda gpu: 1.0)
    monkeypatch.setattr(roofline, "_product", lambda gpu, kind: None)
    hashes = []
    for text in ("[]", "[1]"):
        (tmp_path / "kernel.cu").write_text(text)
        monkeypatch.setattr(plan, "kernel_folder", lambda: tmp_path)
        plan.code_hash.cache_clear()
        hashes.append(plan.code_hash())
        for _ in range(2):
            roofline.peaks(device)
    plan.code_hash.cache_clear()
    assert hashes[0] != hashes[1]
    assert len(measured) == 2


@pytest.mark.slow
def test_every_kernels_parameters_can_be_told():
    for kernel in all_kernels(models=("neocog-small",), batches=(8,)):
        if not kernel.file.startswith("winograd"):  # lists of several lengths, by #if
            assert parameters(kernel.file, kernel.name, 0) is not None, kernel
