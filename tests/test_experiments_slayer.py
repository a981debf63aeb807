"""The S-layers' experiments: silence, a run on a fake device, tables."""

import json

import pytest

from experiments.harness.pages import text
from experiments.harness.run import Request
from experiments.network import ours
from experiments.slayer import experiment as slayer_gpu
from experiments.slayer.experiment import ON_CPU, ON_GPU, check_sections, faults, measure, plots, tables
from experiments.slayer.inputs import STAGES, Fed, find_digits, networks, sized
from neocog.errors import UsageError
from neocog.network.spec import REJECT
from neocog.network.u0 import made_digits
from tests import cuda_fake
from tests.cuda_support import shipped
from tests.emulator import Emulator
from tests.support import tiny_model


@pytest.fixture
def fed():
    return Fed(tiny_model(), made_digits(2))


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
    sections = (*ON_GPU, "silence")
    options = Request(device="cuda:0", quick=True, sizes=("3/4/5",), sections=sections)
    result = measure(options, lambda found: kept.append(json.dumps(found)))
    assert (result["failures"], faults(result), list(result["sections"])) == ({}, [], [*sections])
    assert [row["batch"] for row in result["sections"]["character"]] == [1, 8]
    assert len(kept) == len(sections)
    back = json.loads(kept[-1])
    told = text(tables(back))
    for words in ("| T1 | ", "| T5 | ", "ours, default, fp16", "threads:", "GPU's time", "a fake"):
        assert words in told
    assert set(plots(back)) == {"threads", "ladder"}
    monkeypatch.setattr(slayer_gpu, "error", lambda got, want: 0.5)
    options = Request(device="cuda", quick=True, sizes=("3/4/5",), sections=("ladder",))
    wrong = faults(measure(options, str))
    assert len(wrong) == 4 * 4 + 2 * 2 * 4
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
