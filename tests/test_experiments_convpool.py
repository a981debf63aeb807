"""Convolution with average pooling in one kernel, in the emulator and on a GPU; its experiment's report."""

import json
from functools import partial
from itertools import product

import numpy as np
import pytest

from experiments.convpool import experiment as convpool
from experiments.convpool.fused import DTYPES, ConvAvgPool, Shape, Tiling, candidates, conv_avgpool, kernel
from experiments.convpool.systems import CHECK, SYSTEMS, Case, operations, standard_cases
from experiments.convpool.tables import tables
from experiments.harness.pages import text
from experiments.harness.run import Request
from neocog.cuda.launcher import gpu
from neocog.errors import DeviceError, InputError, UsageError
from tests.cuda_maps import uncleared
from tests.cuda_support import SHARED, thinned
from tests.emulator import Emulator
from tests.test_cubins import fault
from tests.test_cuda_winograd import correlate

TOLERANCES = {"fp16": 1e-3, "fp32": 1e-6}
#: B, C, K, H, W, k, p, padding
SIZES = {
    "the paper's": (1, 16, 32, 16, 16, 3, 2, 1),
    "odd, two pictures": (2, 24, 40, 19, 17, 3, 2, 1),
    "odd channels and planes": (1, 13, 11, 9, 12, 2, 3, 0),
    "one tap": (2, 8, 5, 7, 9, 1, 4, 0),
    "many taps": (1, 8, 8, 15, 14, 11, 2, 2),
    "large pooling": (1, 16, 33, 21, 22, 5, 4, 3),
    "many channels": (1, 256, 32, 8, 8, 3, 2, 1),  # float32 is summed short
}
QUICK = ("odd, two pictures", "odd channels and planes", "large pooling")
SMALL = Tiling(1, 32, 2, (2, 1))
TILINGS = (SMALL, Tiling(2, 64, 4, (4, 2)), Tiling(1, 128, 2, (4, 2)), Tiling(4, 64, 2, (4, 1)))


def reference(x, w, pool, padding):
    """Convolve, then average, in float64."""
    pad = (padding, padding)
    full = np.pad(x, ((0, 0), (0, 0), pad, pad)).transpose(0, 2, 3, 1)
    y = correlate(full, w).transpose(0, 3, 1, 2)
    rows, columns = y.shape[2] // pool, y.shape[3] // pool
    y = y[:, :, : rows * pool, : columns * pool]
    return y.reshape(*y.shape[:2], rows, pool, columns, pool).mean((3, 5))


def operands(sizes, precision, seed=0):
    """x and w."""
    b, c, planes, height, width, k, _, _ = sizes
    random = np.random.default_rng(seed)
    pair = random.normal(size=(b, c, height, width)), random.normal(size=(planes, c, k, k))
    return [a.astype(DTYPES[precision]) for a in pair]


def error(sizes, precision, machine, tiling, seed=0):
    """Largest error of the kernel, of the largest value."""
    x, w = operands(sizes, precision, seed)
    pool, padding = sizes[-2:]
    want = reference(x, w, pool, padding)
    layer = ConvAvgPool(w, pool, padding=padding, precision=precision, tiling=tiling, machine=machine)
    got = layer(x)
    assert (got.shape, got.dtype) == (want.shape, x.dtype)
    return float(np.abs(got - want).max() / np.abs(want).max())


@pytest.mark.parametrize(
    ("name", "precision"),
    thinned(
        [*product(SIZES, ["fp16"]), *product(("odd, two pictures", "many channels"), ["fp32"])],
        lambda name, precision: name in QUICK or precision == "fp32",
    ),
)
def test_sizes_and_precisions(emulator, name, precision):
    assert error(SIZES[name], precision, emulator, SMALL) < TOLERANCES[precision]


@pytest.mark.parametrize(
    ("order", "tiling"),
    thinned(
        product(("forward", "reversed", 7), TILINGS),
        quick=lambda order, tiling: tiling in TILINGS[:2] and (order != 7 or tiling == SMALL),
    ),
    ids=str,
)
def test_tilings_in_any_order(order, tiling):
    machine = uncleared(Emulator(order=order))
    assert error((3, 40, 40, 19, 20, 3, 2, 1), "fp16", machine, tiling) < TOLERANCES["fp16"]


def test_arrays_of_any_order_in_memory(emulator):
    x, w = operands(SIZES["the paper's"], "fp16")
    layer = ConvAvgPool(w, 2, padding=1, precision="fp16", tiling=SMALL, machine=emulator)
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    assert layer.stored(last).base is not None
    np.testing.assert_array_equal(layer(last), layer(x))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_random_shapes(emulator, seed):
    random = np.random.default_rng(seed)
    k, pool, padding = (int(random.integers(*r)) for r in ((1, 12), (2, 5), (0, 4)))
    least = k + pool - 1 - 2 * padding
    height, width = (int(random.integers(max(least, 1), least + 30)) for _ in range(2))
    sizes = (*(int(n) for n in random.integers(1, 40, 3)), height, width, k, pool, padding)
    precision = random.choice(list(TOLERANCES))
    assert error(sizes, precision, emulator, None, seed) < TOLERANCES[precision]


HALF = np.zeros((2, 8, 3, 3), np.float16)
PICTURES = np.zeros((1, 8, 9, 9), np.float16)


@pytest.mark.parametrize(("x", "w", "pool", "message"), [
    (PICTURES, HALF[0], 2, r"got filters \(8, 3, 3\), pooling 2"),
    (PICTURES, HALF[:, :, :2], 2, r"got filters \(2, 8, 2, 3\)"),
    (PICTURES, np.zeros((1, 8, 12, 12), np.float16), 2, "k 1 to 11"),
    (PICTURES, HALF, 5, "pooling 5"),
    (PICTURES, HALF.astype(int), 2, "w: got int64, expected float16"),
    (PICTURES.astype(np.float32), HALF, 2, "x: got float32, expected float16"),
    (PICTURES[:, :7], HALF, 2, r"expected \(batch, 8,"),
    (PICTURES[:, :, :3], HALF, 2, r"got \(1, 8, 3, 9\), expected \(batch, 8, 4 or more"),
])  # fmt: skip
def test_wrong_use_is_told_in_a_line(x, w, pool, message):
    with pytest.raises(InputError, match=message):
        ConvAvgPool(w, pool, precision="fp16", machine=Emulator())(x)


def test_a_tiling_is_found_for_every_shape():
    def shape(precision, k, pool):
        return Shape(batch=64, channels=512, planes=512, out_height=16, out_width=16, kernel=k, pool=pool,
                     precision=precision)  # fmt: skip

    for k, pool in product(range(1, 12), (2, 3, 4)):
        assert all(t.threads <= 1024 for t in candidates(shape("fp16", k, pool), 90, 132))
    with pytest.raises(UsageError, match=r"needs 8\.0"):
        candidates(shape("fp16", 3, 2), 75, 68)
    with pytest.raises(UsageError, match="11x11 with pooling 4 does not fit"):
        candidates(shape("fp32", 11, 4), 89, 128)


@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize(("precision", "arch", "sizes", "count"), [
    *((precision, arch, [(batch, 512)], 2) for precision, arch, batch in (
        ("fp16", 90, 64), ("fp32", 90, 1), ("fp16", 80, 64), ("fp32", 86, 1), ("fp16", 120, 64))),
    *(pytest.param(precision, arch, tuple(product((1, 64), (32, 128, 512))), 5, marks=pytest.mark.slow)
      for precision in TOLERANCES for arch in (80, 89, 90)),
])  # fmt: skip
def test_builds_within_registers(precision, arch, sizes, count):
    cases = [Case(*size, precision) for size in sizes]
    for wanted in {kernel(case.shape, tiling) for case in cases
                   for tiling in case.contenders(arch, 132, count=count)}:  # fmt: skip
        assert wanted.shared <= SHARED[arch] * 1024
        assert fault(wanted, arch) is None


# --- the experiment ---------------------------------------------------------------------------


def test_cases_and_operations_are_the_papers():
    assert operations("direct", ci=512, co=512, n=32) == CHECK
    naive, fused = (operations(c, ci=512, co=512, n=32) for c in ("naive", "fused"))
    assert naive / CHECK == pytest.approx(4, rel=0.01)  # its section III says 4 and 1.8
    assert fused / CHECK == pytest.approx(1.8, rel=0.02)
    cases = standard_cases()
    assert len(set(cases)) == len(cases) == 40
    wanted = {Case(b, c, p) for b in (1, 16, 64, 256) for c in (32, 512) for p in ("fp32", "fp16")}
    assert wanted | set(standard_cases(quick=True)) < set(cases)


@pytest.fixture
def ways(monkeypatch):
    """A GPU that is made up: kernels run in the emulator, PyTorch on the CPU; a run takes 125 us."""
    torch = pytest.importorskip("torch", reason="needs PyTorch: neocog[train]")
    ways = pytest.importorskip("experiments.convpool.ways")

    class FakeDevice(ways.Device):
        name, cache = "cpu", 1 << 16

        def __init__(self, number=0):
            self.machine, self.wait, self.free = Emulator(), lambda: None, lambda: None
            self.launch = self.machine.launch

        def contenders(self, case):
            return [SMALL]

        def warm(self, kernels): ...

        def array(self, tensor):
            return tensor.numpy()

        def microseconds(self, run, *, samples=7):
            return 125.0 if run() is not None else 0.0

        flushed_microseconds = microseconds

    monkeypatch.setattr(ways, "Device", FakeDevice)
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 91900)  # 2.15 counts the GPUs
    monkeypatch.setattr("experiments.harness.record.machine", lambda gpu, number=0: "a fake")
    monkeypatch.setattr("experiments.harness.record.asked", lambda *words: "1.2")
    return ways


@pytest.mark.parametrize("precision", ["fp16", "fp32"])
def test_every_system_computes_the_same(ways, precision):
    saved = []
    result = convpool.measure(Request("cuda"), saved.append, cases=[Case(2, 32, precision, size=6)])
    assert (len(saved), convpool.faults(result)) == (1, [])
    (row,) = result["rows"]
    ran = {name for name, entry in row["systems"].items() if "us" in entry}
    assert ran == set(SYSTEMS) - {"winograd", "compiled"}
    assert row["ratio"]["naive"] == 1
    assert row["systems"]["naive"]["warm_us"] == 125
    assert json.loads(json.dumps(result)) == result


def test_a_wrong_system_is_told_and_not_timed_and_what_time_does_not_allow_is_named(ways, monkeypatch):
    late = convpool.measure(Request("cuda", seconds=-1.0), str, cases=[Case(1, 32, "fp16")])
    assert late["not_run"] == ["fp16 batch 1 channels 32"]
    assert "a fake" in text(tables(late))
    zeros = ways.torch.zeros(1, 32, 3, 3)
    monkeypatch.setattr(ways.Operands, "_ours", lambda self, tiling: lambda: zeros)
    result = convpool.measure(Request("cuda"), str, cases=[Case(1, 32, "fp16", size=6)])
    assert "us" not in result["rows"][0]["systems"]["ours"]
    (fault,) = convpool.faults(result)
    assert "wrong by 1.0e+00" in fault


def test_without_a_gpu_one_line_says_so(monkeypatch):
    ways = pytest.importorskip("experiments.convpool.ways", reason="needs PyTorch: neocog[train]")
    monkeypatch.setattr(ways.torch.cuda, "is_available", lambda: False)
    with pytest.raises(DeviceError, match="--device cpu"):
        ways.Device()


# --- on a GPU ---------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("sizes", [*SIZES.values(), *((n, 136, 264, 33, 35, 3, 2, 1) for n in (1, 9))])
@pytest.mark.parametrize("precision", TOLERANCES)
def test_every_contender_on_the_device(precision, sizes):
    cupy, machine, (pool, padding) = pytest.importorskip("cupy"), gpu(0), sizes[-2:]
    x, w = operands(sizes, precision)
    want = reference(x, w, pool, padding)
    x, w = cupy.asarray(x), cupy.asarray(w)
    how = {"padding": padding, "precision": precision}
    first = ConvAvgPool(w, pool, machine=machine, **how)
    found = first.shape(first.stored(x).shape)
    layers = {t: ConvAvgPool(w, pool, tiling=t, machine=machine, **how)
              for t in candidates(found, machine.arch, machine.processors)[:12]}  # fmt: skip
    for tiling, layer in {None: partial(conv_avgpool, w=w, pool=pool, **how), **layers}.items():
        for _ in range(3):  # a race need not show at once
            off = np.abs(cupy.asnumpy(layer(x)) - want).max() / np.abs(want).max()
            assert off < max(TOLERANCES[precision], 3e-6), tiling
