"""``bench winograd``: lanes, counts, report; the whole of it dry on a GPU that is not there."""

import json

import numpy as np
import pytest

from experiments.emulator import Emulator
from experiments.harness.pages import draw, tables_of
from experiments.harness.run import Request
from experiments.winograd import experiment as winograd
from experiments.winograd import gpu as winograd_gpu
from experiments.winograd import lanes as winograd_lanes
from experiments.winograd.lanes import METRIC, active, lanes_by_formula, operations, paper_split, read_profile
from experiments.winograd.layers import LAYERS, PAPER_WAY, WAYS, Data, Layer, chosen_way
from neocog.cuda import devices, launcher
from neocog.errors import InputError
from tests import cuda_fake
from tests.cuda_support import emulated
from tests.support import run

SMALL = Layer(5, 8, 8)


# -- lanes -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("kernel", range(5, 26, 2))
def test_lanes_work_as_the_paper_says(kernel):
    split = paper_split(kernel)
    for planes in (64, 96, 128, 256):
        found = active(lanes_by_formula("channel-wise", planes, 8, split), split)
        assert (found.lanes, found.plain) == (32, 32)
    found = active(lanes_by_formula("thread-wise", 64, 64, split), split)
    if kernel % 3 == 0:
        assert found.lanes == 32
    else:
        assert 8 <= found.plain <= found.lanes <= 23


def test_lanes_that_lack_a_filter_are_counted():
    split = paper_split(7)
    counts = lanes_by_formula("channel-wise", 80, 3, split)
    assert counts.sum() == 80 * 3 * 9
    assert set(np.unique(counts)) == {0, 16, 32}
    assert lanes_by_formula("thread-wise", 5, 3, split).sum() == 5 * 3 * 9


def test_a_transform_counts_with_its_instructions():
    """F(2x2,3x3): 9 loads, 4 x 3 of 8 numbers, twice, 16 stores; F(2x2,1x1): 1, 2, 4, 4."""
    found = operations(paper_split(7), 2)
    assert found[0] == 9 + 8 * 3 + 8 * 4 + 16
    assert found[3] == 1 + 2 + 4 + 4


@emulated
@pytest.mark.parametrize(("kernel", "planes"), [(7, 40), (8, 64)])
def test_the_kernels_census_is_the_formula(kernel, planes):
    for indexing in ("channel-wise", "thread-wise"):
        found = winograd_lanes.census(Emulator(), kernel, planes, 3, indexing)
        wanted = lanes_by_formula(indexing, planes, 3, paper_split(kernel))
        assert np.array_equal(found, wanted)


RAW = f'''==PROF== Connected to process 7
"ID","Kernel Name","{METRIC}"
"","","thread/inst"
"0","filter_split","31.9"
"1","other","12"
"2","filter_split","14.25"
'''


def test_another_profile_is_refused():
    with pytest.raises(InputError, match="of filter_split"):
        read_profile('"ID","Kernel Name"\n"0","other"\n', [])
    with pytest.raises(InputError, match="2 launches, expected 3"):
        read_profile(RAW, [{}, {}, {}])


def test_a_profile_is_added_to_a_result(tmp_path):
    path, told = tmp_path / "out.json", tmp_path / "lanes.csv"
    done = run("bench", "winograd", "--cpu", "--quick", "-o", path)
    told.write_text(RAW)
    command = ["bench", "winograd", "--profile", told]
    done = run(*command, "-o", path)
    assert "has no lanes" in done.output + str(done.exception)
    done = run(*command)
    assert "name it with --output" in done.output + str(done.exception)
    rows = [
        {"figure": 4, "filter": 7, "channels": 64, "lanes": 32.0, "plain": 8.0, "paper": ""}
        | {"indexing": indexing, "profiler": None}
        for indexing in ("channel-wise", "thread-wise")
    ]
    path.write_text(json.dumps(json.loads(path.read_text()) | {"lanes": rows}))
    done = run(*command, "-o", path)
    assert done.exit_code == 0, done.output
    assert "31.9, 14.2" in done.output
    assert json.loads(path.read_text())["lanes"][1]["profiler"] == 14.25


# -- counts ----------------------------------------------------------------------------------------
def test_every_layer_and_batch_has_a_chosen_way():
    for layer in LAYERS:
        for batch in (1, 16, 64):
            way = chosen_way(layer, batch)
            assert way.precision == "fp32"
            assert way.plan(layer).split.per_output(way.m, layer.size) < 49


def test_launches_alone_need_a_gpu_too(monkeypatch):
    asked = []
    monkeypatch.setattr(devices, "trouble", lambda: "no GPU is there")
    monkeypatch.setattr(winograd, "run_launches", lambda number: asked.append(number) or 2)
    command = ["bench", "winograd", "--launches", "--device"]
    assert run(*command, "cuda:1").exit_code == 0
    monkeypatch.undo()
    monkeypatch.setattr(devices, "trouble", lambda: "no GPU is there")
    done = run(*command, "cuda:0")
    assert (done.exit_code, asked) == (5, [1])
    assert "no GPU is there" in done.output


def test_without_a_gpu_operations_are_counted(tmp_path):
    path = tmp_path / "out.json"
    done = run("bench", "winograd", "--cpu", "--quick", "-o", path)
    assert done.exit_code == 0, done.output
    assert "direct GFLOP" in done.output
    found = json.loads(path.read_text())
    assert len(found["counts"]) >= 4 * 10
    assert found["counts"][0]["direct_gflop"] == pytest.approx(2 * 49 * 96 * 96 * 56**2 / 1e9)
    assert found["facts"]["commit"]


def test_without_a_gpu_it_says_what_to_add(monkeypatch):
    monkeypatch.setattr("neocog.cuda.devices.trouble", lambda: "no driver; use --device cpu")
    done = run("bench", "winograd")
    assert done.exit_code != 0
    assert "add --cpu" in done.output + str(done.exception)


def test_what_is_expected_of_a_layer():
    data = Data(SMALL, 2)
    wanted = np.zeros((2, 5, 5, 8))
    for y in range(5):
        for x in range(5):
            seen = data.x[:, y : y + 7, x : x + 7].astype(np.float64)
            wanted[:, y, x] = np.einsum("bijc,kcij->bk", seen, data.w.astype(np.float64))
    assert data.error(wanted) < 1e-12
    assert data.error(wanted * np.nan) == np.inf


# -- all of it -------------------------------------------------------------------------------------
@pytest.fixture
def gpu(monkeypatch):
    module = cuda_fake.install(monkeypatch, Emulator())
    for name in ("pad", "tensordot", "concatenate"):
        setattr(module, name, getattr(np, name))
    module.RawKernel = lambda *source: lambda *launch: None
    monkeypatch.setattr(winograd, "build_all", lambda gpu, kernels: None)
    monkeypatch.setattr(winograd_gpu, "ROUNDS", 1)
    monkeypatch.setattr(winograd_gpu, "MOST_COPIES", 2)
    monkeypatch.setattr(winograd_gpu, "_PASSES", 2)
    monkeypatch.setattr(winograd_gpu, "_TURN", 0.0)
    monkeypatch.setattr(winograd_lanes, "FILTERS", (7,))
    monkeypatch.setattr(winograd_lanes, "CHANNELS", ())
    monkeypatch.setattr(winograd_lanes, "FIG_4_CHANNELS", 8)
    return launcher.Gpu()


@pytest.mark.slow
@emulated
def test_a_dry_run_of_everything(gpu, tmp_path):
    saved = []
    result = winograd.run_on_gpu(
        Request("cuda"),
        lambda found: saved.append(json.dumps(found)),
        gpu=gpu,
        peers=False,
        layers=(SMALL,),
        batches=(2,),
        ways=(WAYS[0], WAYS[4]),
    )
    assert not winograd.faults(result)
    assert json.loads(saved[-1]) == json.loads(json.dumps(result))
    assert [row["lanes"] < 32 for row in result["lanes"]] == [True, True]  # 8 of 32 filters
    assert all(row["us"] > 0 for row in result["layers"])
    assert sum(row["chosen"] for row in result["layers"]) == 1
    ways = {row["way"] for row in result["changing"]}
    assert PAPER_WAY.name in ways
    assert len(result["changing"]) == 4 * len(ways)  # inputs thread-wise too
    assert len(result["filters"]) == 6 * len(ways)  # in two layouts
    assert {"lanes", "ways", "changing", "filters"} <= tables_of("winograd", result).keys()
    assert winograd.run_launches(gpu) == 2
    pytest.importorskip("matplotlib", reason="needs neocog[bench]")
    assert [path.name for path in draw("winograd", result, tmp_path)]


@emulated
def test_a_wrong_result_is_not_timed(gpu, monkeypatch):
    monkeypatch.setattr(winograd_gpu, "TOLERANCE", {"fp32": 1e-9})
    one = winograd_gpu.Ours(gpu, Data(SMALL, 2), rounds=1)
    (row,) = one.rows([WAYS[0]], WAYS[0])
    assert row["us"] is None
    assert "wrong by" in row["failed"]
    assert winograd.faults({"layers": [row]})
