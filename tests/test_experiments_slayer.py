"""The S-layers' experiments: CPU rivals, silence, a run on a fake device, tables."""

import json
import shutil
import sys

import numpy as np
import pytest

from experiments.emulator import Emulator
from experiments.harness.pages import draw, text
from experiments.harness.run import Request
from experiments.network import ours
from experiments.slayer import cpu as slayer_cpu
from experiments.slayer import future as slayer_future
from experiments.slayer import gpu as slayer_gpu
from experiments.slayer import silence as slayer_silence
from experiments.slayer.cpu import Rival, rivals
from experiments.slayer.experiment import ON_CPU, ON_GPU, check_sections, faults, measure, merged
from experiments.slayer.inputs import STAGES, Fed, find_digits, networks, sized
from experiments.slayer.paper import systems
from neocog.errors import DeviceError, UsageError
from neocog.network.spec import REJECT
from neocog.network.u0 import made_digits
from tests import cuda_fake
from tests.cuda_support import shipped
from tests.support import run, tiny_model


@pytest.fixture
def fed():
    return Fed(tiny_model(), made_digits(2))


compiled = pytest.mark.skipif(
    shutil.which("cc") is None, reason="needs a C compiler: it builds the CPU rivals"
)


# -- what the layers are fed with ------------------------------------------------------------------
def test_a_network_of_another_size_is_made_of_its_own_planes():
    model = shipped("neocog-small")
    small = sized(model, (5, 7, 12))
    assert small.planes == (5, 7, 12)
    assert REJECT not in small.labels
    assert set(small.labels) == set(range(10))
    grown = sized(model, (40, 8, 200))
    assert grown.planes == (40, 8, 200)
    assert grown.s[1].reference.shape[1] == 16
    assert grown.s[2].reference.shape[1] == 40
    kept = sized(model, (*model.planes[:2], int((model.labels != REJECT).sum())))
    np.testing.assert_array_equal(kept.s[1].reference, model.s[1].reference)


def test_made_digits_stand_in_for_mnist(monkeypatch, tmp_path):
    monkeypatch.setenv("NEOCOG_DATA", str(tmp_path))
    digits, what = find_digits(None, 3)
    assert digits.shape == (3, 28, 28)
    assert "made" in what


# -- one CPU core ----------------------------------------------------------------------------------
@compiled
def test_every_rival_gives_the_equations(fed):
    rows = rivals(fed, quick=True)
    assert {row["system"][4:] for row in rows} == set(slayer_cpu.DIGITS)
    assert all(row["passed"] and row["error"] < 1e-5 for row in rows)
    assert len(rows) == 20


@compiled
def test_counts_are_those_of_the_loops(fed):
    u = np.ascontiguousarray(fed.maps["UC2"][0])
    layer, spec = fed.model.s[2], fed.model.spec
    planes, cells = len(layer.reference), spec.size("US3") ** 2
    size, out, pad, kernel = len(u[0]), spec.size("US3"), spec.s[2].padding, spec.s[2].kernel
    reach = np.array([sum(0 <= y + pad - i < out for i in range(kernel)) for y in range(size)])
    rival = Rival(fed.model, "US3")
    everything = rival.counts("S", u)
    only_heard = rival.counts("F", u)
    gathered = rival.counts("G", u)
    both = reach[:, None] * reach  # c is above 0 everywhere: the connecting area is the window
    assert everything["read a"] == planes * len(u) * both.sum()
    assert only_heard["read a"] == planes * (both * (u != 0)).sum() == gathered["read a"]
    assert everything["write us"] == everything["read a"] + 2 * planes * cells
    assert gathered["write us"] == planes * cells
    assert gathered["read us"] == gathered["read v"] == gathered["write v"] == 0
    assert (only_heard["read v"], only_heard["write v"]) == (planes * cells, cells)
    assert rival.counts("G blocked", u) == gathered


def test_without_a_compiler_a_line_says_so(fed, monkeypatch):
    slayer_cpu.built.cache_clear()
    monkeypatch.setattr(slayer_cpu.shutil, "which", lambda name: None)
    with pytest.raises(DeviceError, match="no C compiler") as caught:
        rivals(fed, quick=True)
    assert "\n" not in str(caught.value)


# -- silence ---------------------------------------------------------------------------------------
def test_shares_of_silence():
    model, digits = tiny_model(), made_digits(3)
    fed = Fed(model, digits)
    rows = {row["stage"]: row for row in slayer_silence.silence(model, digits)}
    for stage, layer in STAGES.items():
        assert rows[stage]["heard"] == pytest.approx((fed.maps[layer] > 0).mean())
        assert rows[stage]["blocks_of_heard_cells"] <= rows[stage]["blocks"] + 1e-12 <= 1
        assert rows[stage]["cells_silent"] >= (fed.maps[stage] == 0).all(axis=1).mean() - 1
    sizes = {stage: fed.maps[layer][0].size for stage, layer in STAGES.items()}
    whole = sum(rows[stage]["heard"] * n for stage, n in sizes.items()) / sum(sizes.values())
    assert rows["all"]["heard"] == pytest.approx(whole)


def test_blocks_that_are_needed_are_counted():
    heard = np.zeros((1, 20, 8, 8), bool)
    heard[0, 3, 2, 2] = True  # the first of two blocks of 16 inputs
    connected = np.ones((3, 3), bool)
    silent, blocks, compact = slayer_silence._blocks(heard, connected, 3, 1)
    assert silent == pytest.approx(1 - 9 / 64)
    tiles, products = 4, 18  # two rows of cells a tile; taps x blocks of inputs
    rows_seen = {(tap, tile) for tap, row in enumerate((3, 2, 1)) for tile in (row // 2,)}
    assert blocks == pytest.approx(3 * len(rows_seen) / (tiles * products))
    assert compact == pytest.approx(9 / (tiles * products))


# -- a device --------------------------------------------------------------------------------------
@pytest.fixture
def device(emulator, monkeypatch, tmp_path):
    cupy = cuda_fake.install(monkeypatch, emulator)
    cupy.RawKernel = lambda *given: lambda *launch: None
    monkeypatch.setattr(Emulator, "launch", lambda self, launch: None)
    monkeypatch.setattr(slayer_gpu, "error", lambda got, want: 0.0)
    monkeypatch.setattr(slayer_gpu, "build_all", lambda gpu, kernels: None)
    for module in (ours, slayer_future):
        monkeypatch.setattr(module, "Timed", cuda_fake.Quick)
    monkeypatch.setattr("experiments.harness.record.driver", lambda: "1.2")
    monkeypatch.setenv("NEOCOG_DATA", str(tmp_path))  # no MNIST there


@pytest.mark.usefixtures("device")
def test_everything_runs_on_the_device_that_is_named(tmp_path, monkeypatch):
    asked = []

    def engine(model, **options):
        asked.append(int(options["device"].partition(":")[2]))
        return ours_engine(model, **options)

    ours_engine = ours.CudaEngine
    cuda_fake.Located(sys.modules["cupy"])
    monkeypatch.setattr(ours, "CudaEngine", engine)
    kept = []
    sections = (*ON_GPU, "cpu_frame")
    options = Request(device="cuda:1", quick=True, sizes=("3/4/5",), sections=sections)
    result = measure(options, lambda found: kept.append(json.dumps(found)))
    assert (result["failures"], faults(result), set(asked)) == ({}, [], {1})
    assert list(result["sections"]) == [*sections]
    assert [row["batch"] for row in result["sections"]["character"]] == [1, 8]
    assert len(kept) == 3 + len(ON_GPU) + 1  # of the ladder's parts too
    back = json.loads(kept[-1])
    told = text("slayer", back)
    for words in (
        "| T1 | ",
        "| skip | ",
        "ours, auto, fp16",
        "threads:",
        "GPU's time",
        "in flight",
        "a fake",
    ):
        assert words in told
    assert len(systems(back)) == 6 + 2
    pytest.importorskip("matplotlib", reason="needs neocog[bench]")
    figures = draw("slayer", back, tmp_path / "figures")
    assert [figure.name for figure in figures] == ["slayer-threads.svg", "slayer-ladder.svg"]


@pytest.mark.usefixtures("device")
def test_a_version_that_is_wrong_or_fails_is_told(monkeypatch):
    monkeypatch.setattr(slayer_gpu, "error", lambda got, want: 0.5)
    options = Request(device="cuda", quick=True, sizes=("3/4/5",), sections=("compact",))
    wrong = faults(measure(options, str))
    assert len(wrong) == 3
    assert all("0.5" in line for line in wrong)
    monkeypatch.setattr(slayer_gpu, "checked", lambda *given: 1 / 0)
    failed = faults(measure(options, str))
    assert len(failed) == 3
    assert "ZeroDivisionError" in failed[0]


def test_sections_are_checked_before_anything_runs():
    with pytest.raises(UsageError, match="no section 'lader'"):
        check_sections(["lader"], True)
    with pytest.raises(UsageError, match="needs a GPU"):
        check_sections(["ladder"], False)
    check_sections(ON_CPU, False)
    for size in ("26/78", "a/b/c", "0/1/2"):
        with pytest.raises(UsageError, match="expected K2/K3/K4"):
            networks([size])


def test_earlier_sections_stay():
    first = {"machine": "a", "model": "m@1", "sections": {"cpu": [1], "ladder": [2]}}
    second = {"machine": "b", "model": "m@2", "sections": {"cpu": [3]}, "failures": {}}
    both = merged(first, second)
    assert both["sections"] == {"cpu": [3], "ladder": [2]}
    assert (both["from"]["cpu"]["machine"], both["from"]["ladder"]["machine"]) == ("b", "a")
    assert (both["from"]["cpu"]["model"], both["from"]["ladder"]["model"]) == ("m@2", "m@1")


def test_every_section_tells_which_model_it_is_of():
    cpu = {"ms_1": 2.0, "ms_8": 9.0, "share_of_cores": 0.3, "threads": 1}
    gpu = {"batch": 1, "pass_us": 20.0, "transfers_us": 30.0, "in_all_us": 50.0}
    gpu |= {"share_of_gpu": 0.1, "share_of_time": 0.2}
    about = {"date": "2026-01-01", "digits": "some", "precision": "fp16", "failures": {}}
    first = {**about, "command": "c", "machine": "a", "model": "m@1"}
    first["sections"] = {"cpu_frame": [cpu]}
    second = {**about, "command": "d", "machine": "b", "model": "m@2"}
    second["sections"] = {"character": [gpu]}
    told = text("slayer", merged(first, second))
    for words in ("| m@1 | one core", "| m@2, fp16, one at a time | b |",
                  "| cpu_frame | `c` | a | whole passes of m@1 |",
                  "| character | `d` | b | whole passes of m@2, fp16 |"):  # fmt: skip
        assert words in told


# -- the command -----------------------------------------------------------------------------------
def test_the_command_writes_and_prints(tmp_path, monkeypatch):
    monkeypatch.setenv("NEOCOG_DATA", str(tmp_path))
    path = tmp_path / "slayer.json"
    words = ["bench", "slayer", "--device", "cpu", "--quick", "--sections", "silence"]
    done = run(*words, "--sizes", "3/4/5", "-o", path)
    assert done.exit_code == 0, done.output
    assert "not silent" in done.stdout
    assert json.loads(path.read_text())["sections"]["silence"]
    done = run(*words[:-1], "ladder")
    assert done.exit_code == 2


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [("nope", 1, "not JSON"), ('{"experiment": "winograd"}', 1, "a result of winograd"),
     (None, 2, "cannot be written")],
)  # fmt: skip
def test_a_file_that_cannot_take_the_result_is_told_first(text, code, message, tmp_path, monkeypatch):
    def measured(*given, **named):
        raise AssertionError

    monkeypatch.setattr("experiments.slayer.experiment.measure", measured)
    path = tmp_path / "file"
    path.write_text(text or "")
    output = path if text else path / "out.json"
    done = run("bench", "slayer", "--device", "cpu", "-o", output)
    assert done.exit_code == code, done.output
    assert message in done.output
    assert done.output.count("\n") == 1
    assert path.read_text() == (text or "")


@pytest.mark.gpu
def test_everything_runs_on_a_gpu():
    result = measure(Request(device="cuda", quick=True, sizes=("26/78/70",)), str)
    assert (result["failures"], faults(result)) == ({}, [])
    assert "ours, auto, fp16" in text("slayer", result)
