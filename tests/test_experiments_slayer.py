"""The S-layers' experiments: CPU rivals, silence, a run on a fake device, tables."""

import json
import shutil

import numpy as np
import pytest

from experiments.emulator import Emulator
from experiments.harness.pages import text
from experiments.harness.run import Request
from experiments.network import ours
from experiments.slayer import cpu as slayer_cpu
from experiments.slayer import gpu as slayer_gpu
from experiments.slayer.cpu import Rival, rivals
from experiments.slayer.experiment import ON_CPU, ON_GPU, check_sections, faults, measure, plots, tables
from experiments.slayer.inputs import STAGES, Fed, find_digits, networks, sized
from neocog.errors import DeviceError, UsageError
from neocog.network.spec import REJECT
from neocog.network.u0 import made_digits
from tests import cuda_fake
from tests.cuda_support import shipped
from tests.support import tiny_model


@pytest.fixture
def fed():
    return Fed(tiny_model(), made_digits(2))


compiled = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler: it builds the rivals")


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


def test_made_digits_stand_in_for_mnist(monkeypatch, tmp_path):
    monkeypatch.setenv("NEOCOG_DATA", str(tmp_path))
    digits, what = find_digits(None, 3)
    assert digits.shape == (3, 28, 28)
    assert "made" in what


@compiled
def test_every_rival_gives_the_equations(fed):
    rows = rivals(fed, quick=True)
    assert {row["system"][4:] for row in rows} == set(slayer_cpu.DIGITS)
    assert all(row["passed"] and row["error"] < 1e-5 for row in rows)
    assert len(rows) == 12


@compiled
def test_counts_are_those_of_the_loops(fed):
    u = np.ascontiguousarray(fed.maps["UC2"][0])
    layer, spec = fed.model.s[2], fed.model.spec
    planes, cells = len(layer.reference), spec.size("US3") ** 2
    size, out, pad, kernel = len(u[0]), spec.size("US3"), spec.s[2].padding, spec.s[2].kernel
    reach = np.array([sum(0 <= y + pad - i < out for i in range(kernel)) for y in range(size)])
    everything, only_heard, gathered = (Rival(fed.model, "US3").counts(way, [u, u]) for way in "SFG")
    both = reach[:, None] * reach  # c is above 0 everywhere: the connecting area is the window
    assert everything["read a"] == planes * len(u) * both.sum()
    assert only_heard["read a"] == planes * (both * (u != 0)).sum() == gathered["read a"]
    assert everything["write us"] == everything["read a"] + 2 * planes * cells
    assert gathered["write us"] == planes * cells
    assert gathered["read us"] == gathered["read v"] == gathered["write v"] == 0
    assert (only_heard["read v"], only_heard["write v"]) == (planes * cells, cells)


def test_without_a_compiler_a_line_says_so(fed, monkeypatch):
    slayer_cpu.built.cache_clear()
    monkeypatch.setattr(slayer_cpu.shutil, "which", lambda name: None)
    with pytest.raises(DeviceError, match="no C compiler") as caught:
        rivals(fed, quick=True)
    assert "\n" not in str(caught.value)


def test_shares_of_silence(fed):
    shares = fed.heard()
    sizes = {stage: fed.maps[layer].size for stage, layer in STAGES.items()}
    for stage, layer in STAGES.items():
        assert shares[stage] == pytest.approx((fed.maps[layer] > 0).mean())
    whole = sum(shares[stage] * n for stage, n in sizes.items()) / sum(sizes.values())
    assert shares["all"] == pytest.approx(whole)


# -- a device --------------------------------------------------------------------------------------
@pytest.fixture
def device(emulator, monkeypatch, tmp_path):
    cupy = cuda_fake.install(monkeypatch, emulator)
    cupy.RawKernel = lambda *given: lambda *launch: None
    monkeypatch.setattr(Emulator, "launch", lambda self, launch: None)
    monkeypatch.setattr(slayer_gpu, "error", lambda got, want: 0.0)
    monkeypatch.setattr(slayer_gpu, "build_all", lambda gpu, kernels: None)
    monkeypatch.setattr(ours, "Timed", cuda_fake.Quick)
    monkeypatch.setattr("experiments.harness.record.asked", lambda *words: "1.2")
    monkeypatch.setenv("NEOCOG_DATA", str(tmp_path))  # no MNIST there


@pytest.mark.usefixtures("device")
def test_every_section_runs_and_is_shown(monkeypatch):
    kept = []
    sections = (*ON_GPU, "cpu_frame")
    options = Request(device="cuda:0", quick=True, sizes=("3/4/5",), sections=sections)
    result = measure(options, lambda found: kept.append(json.dumps(found)))
    assert (result["failures"], faults(result), list(result["sections"])) == ({}, [], [*sections])
    assert [row["batch"] for row in result["sections"]["character"]] == [1, 8]
    assert len(kept) == len(sections)
    back = json.loads(kept[-1])
    told = text(tables(back))
    for words in ("| T1 | ", "| skip | ", "ours, default, fp16", "threads:", "GPU's time", "a fake"):
        assert words in told
    assert set(plots(back)) == {"threads", "ladder"}
    monkeypatch.setattr(slayer_gpu, "error", lambda got, want: 0.5)
    options = Request(device="cuda", quick=True, sizes=("3/4/5",), sections=("ladder",))
    wrong = faults(measure(options, str))
    assert len(wrong) == 4 * 7 + 2 * 2 * 4
    assert all("0.5" in line for line in wrong)
    monkeypatch.setattr(slayer_gpu, "checked", lambda *given: 1 / 0)
    assert "ZeroDivisionError" in faults(measure(options, str))[0]


def test_sections_are_checked_before_anything_runs():
    with pytest.raises(UsageError, match="no section 'lader'"):
        check_sections(["lader"], True)
    with pytest.raises(UsageError, match="needs a GPU"):
        check_sections(["ladder"], False)
    check_sections(ON_CPU, False)
    for size in ("26/78", "a/b/c", "0/1/2"):
        with pytest.raises(UsageError, match="expected K2/K3/K4"):
            networks([size])


@pytest.mark.gpu
def test_everything_runs_on_a_gpu():
    result = measure(Request(device="cuda", quick=True, sizes=("26/78/70",)), str)
    assert (result["failures"], faults(result)) == ({}, [])
    assert "ours, default, fp16" in text(tables(result))
