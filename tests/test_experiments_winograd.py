"""``bench winograd``: counts, report; the whole of it dry on a GPU that is not there."""

import itertools
import json

import numpy as np
import pytest

from experiments.harness.run import Request
from experiments.winograd import experiment as winograd
from experiments.winograd.conv2d import Dense, conv2d_winograd, filter_split, usual
from experiments.winograd.layers import LAYERS, PAPER_WAY, WAYS, Data, Layer, chosen_way, count_rows
from experiments.winograd.tables import plots, tables
from neocog.cuda import launcher
from neocog.cuda.winograd import Shape, Split
from neocog.errors import InputError, UsageError
from tests import cuda_fake
from tests.cuda_maps import uncleared
from tests.cuda_support import ARCHITECTURES, SHARED, emulated, first
from tests.emulator import Emulator
from tests.test_cuda_winograd import correlate, relative
from tests.test_cuda_winograd import layer as made
from tests.test_cuda_winograd import run as launched

SMALL = Layer(5, 8, 8)


@pytest.fixture
def gpu(monkeypatch):
    module = cuda_fake.install(monkeypatch, Emulator())
    for name in ("pad", "tensordot", "concatenate"):
        setattr(module, name, getattr(np, name))
    module.RawKernel = lambda *source: lambda *launch: None
    monkeypatch.setattr("experiments.harness.record.asked", lambda *words: "1.2")
    monkeypatch.setattr(winograd, "build_all", lambda gpu, kernels: None)
    for name, value in (("MOST_COPIES", 2), ("_PASSES", 2), ("_TURN", 0.0)):
        monkeypatch.setattr(winograd, name, value)


@pytest.mark.slow
@pytest.mark.usefixtures("emulator", "gpu")
def test_a_dry_run_of_everything():
    saved = []
    result = winograd.measure(
        Request("cuda", quick=True), lambda found: saved.append(json.dumps(found)), peers=False,
        layers=(SMALL,), batches=(2,), ways=WAYS[:2],
    )  # fmt: skip
    assert not winograd.faults(result)
    assert json.loads(saved[-1]).items() <= json.loads(json.dumps(result)).items()
    assert all(row["us"] > 0 for row in result["layers"])
    assert sum(row["chosen"] for row in result["layers"]) == 1
    ways = {row["way"] for row in result["changing"]}
    assert PAPER_WAY.name in ways
    assert len(result["changing"]) == 3 * len(ways)  # inputs thread-wise too
    peers = [{"layer": SMALL.name, "batch": 2, "way": way, "us": 1.0} for way in ("cuDNN", "FFT")]
    result |= {"layers": [*result["layers"], *peers]}
    assert {"ways", "changing"} <= tables(result).keys()
    assert set(plots(result)) == {"layers", "saved"}


@pytest.mark.usefixtures("emulator", "gpu")
def test_a_wrong_result_is_not_timed(monkeypatch):
    data = Data(SMALL, 2)
    assert data.error(correlate(data.x, data.w)) < 1e-12
    assert data.error(np.full((2, 5, 5, 8), np.nan)) == np.inf
    monkeypatch.setattr(winograd, "TOLERANCE", 1e-9)
    row = winograd.Ours(launcher.Gpu(), data, rounds=1).fixed(WAYS[0], WAYS[0])
    assert "us" not in row
    assert "wrong by" in row["failed"]
    assert winograd.faults({"layers": [row]})


@emulated
@pytest.mark.parametrize("indexing", ["channel-wise", "thread-wise"])
@pytest.mark.parametrize("operand", ["fp32", "tf32x3"])
def test_filters_transformed_on_the_device(indexing, operand):
    plan, _, w = made(Split(7, (3, 3, 1)), 2, size=4, channels=3, planes=13, operand=operand, kind=Dense)
    wanted = plan.filters(w)
    u = np.zeros_like(wanted)
    Emulator().launch(filter_split(plan, w, u, indexing))
    assert relative(u, wanted) < 1e-6


@emulated
@pytest.mark.parametrize(("sizes", "m"), first(1, [((3, 3, 1), 2), ((4, 3), 2)]))
def test_inputs_transformed_thread_wise(sizes, m):
    plan, x, w = made(Split(7, sizes), m, size=5, channels=10, batch=2, thread_wise=True, kind=Dense)
    assert relative(launched(plan, x, w), correlate(x, w)) < 2e-5
    with pytest.raises(UsageError, match="share inputs"):
        Dense(plan.shape, plan.split, sizes[0], thread_wise=True)


# -- for everybody ---------------------------------------------------------------------------------
@emulated
@pytest.mark.parametrize(
    ("batch", "channels", "height", "width", "planes", "kernel", "padding"),
    first(2, [(2, 5, 9, 6, 11, 7, None), (1, 3, 8, 8, 4, 3, 0), (1, 17, 5, 12, 9, 6, 2),
              (1, 2, 30, 26, 3, 25, None), (1, 2, 9, 12, 3, 31, None)]),
)  # fmt: skip
def test_conv2d_winograd(batch, channels, height, width, planes, kernel, padding):
    rng = np.random.default_rng(7)
    x = rng.standard_normal((batch, channels, height, width)).astype(np.float32)
    w = rng.standard_normal((planes, channels, kernel, kernel)).astype(np.float32)
    y = conv2d_winograd(x, w, padding=padding, machine=uncleared(Emulator()))
    border = (kernel - 1) // 2 if padding is None else padding
    padded = np.pad(x, ((0, 0), (0, 0), (border, border), (border, border)))
    wanted = correlate(padded.transpose(0, 2, 3, 1), w).transpose(0, 3, 1, 2)
    assert y.shape == wanted.shape
    assert relative(y, wanted) < 1e-5


@pytest.mark.parametrize(("x", "w", "padding"), [
    ((1, 2, 8, 8), (3, 2, 7, 5), None), ((1, 2, 8, 8), (3, 4, 7, 7), None), ((1, 2, 8, 8), (3, 2, 7, 7), -1),
    ((1, 2, 4, 8), (3, 2, 7, 7), 1),
])  # fmt: skip
def test_what_conv2d_winograd_cannot_do_is_told_in_a_line(x, w, padding):
    with pytest.raises(InputError, match="expected float32, as many channels"):
        conv2d_winograd(np.zeros(x, "f4"), np.zeros(w, "f4"), padding=padding, machine=Emulator())


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_chosen_plan_runs_on_every_architecture(arch):
    for kernel, size, channels in itertools.product((*range(3, 26), 31, 51), (7, 28), (16, 384)):
        plan = usual(Shape(kernel, size + kernel - 1, channels, channels), 4, arch=arch)
        launches = plan.launches(4, None, None, None, dict.fromkeys(plan.scratch(4)), 68)
        split = filter_split(plan, np.zeros((channels, channels, 1, 1)), None, "channel-wise")
        for one in (launch.kernel for launch in (split, *launches)):
            assert one.arch <= arch
            assert one.shared <= 1024 * SHARED[arch], (kernel, size, channels, plan.split, plan.m)
    assert (plan.operand == "fp32") == (arch < 80)


def test_operations_of_a_layer_are_counted():
    """Table 2's last layer, one image, 4+3 split: 9 x 9 products for each of 16 tiles of 2 x 2."""
    for layer, batch in itertools.product(LAYERS, (1, 16, 64)):
        way = chosen_way(layer, batch)
        assert way.plan(layer).split.per_output(way.m, layer.size) < 49
    row = next(row for row in count_rows() if (row["layer"], row["batch"]) == (LAYERS[-1].name, 1))
    assert row["way"] == "4+3 split: 4+3, tiles 2x2"
    assert row["gflop"] == pytest.approx(2e-9 * 16 * 81 * 384 * 768)
    assert row["direct_gflop"] == pytest.approx(2e-9 * 49**2 * 384 * 768)
