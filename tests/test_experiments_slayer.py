"""The S-layers' experiments: the GPU paper's ladder of kernels beside the equations; silence; tables."""

import json
from itertools import product

import numpy as np
import pytest

from experiments.harness.pages import text
from experiments.harness.run import Request
from experiments.network import ours
from experiments.slayer import experiment as slayer_gpu
from experiments.slayer.experiment import ON_GPU, faults, measure
from experiments.slayer.inputs import SIZES, STAGES, Fed, networks, sized
from experiments.slayer.ladder import VERSIONS, Ladder, connecting_area
from experiments.slayer.tables import plots, tables
from neocog.cuda.launcher import gpu
from neocog.errors import UsageError
from neocog.network.model import load_model
from neocog.network.u0 import made_digits
from tests import cuda_fake
from tests.cuda_maps import error_of, excitable_model
from tests.cuda_support import ARCHITECTURES, machine, thinned
from tests.emulator import Emulator
from tests.support import tiny_model
from tests.test_cubins import fault


def check(on, preset, planes, layer, version, places=0, batch=1):
    stage = f"US{layer + 1}"
    ladder = Ladder(on, excitable_model(preset, planes), {(stage, version): places})
    assert error_of(on, ladder.step(stage, version), ladder.layouts, batch=batch) <= 1e-5


@pytest.mark.parametrize(
    ("layer", "version"),
    thinned(
        ((layer, version) for layer in range(4) for version in VERSIONS),
        lambda layer, version: layer == (1, 3)[list(VERSIONS).index(version) % 2],
    ),
)
def test_every_rung_gives_the_equations(emulator, layer, version):
    check(emulator, "ikeda2011", (5, 9, 7), layer, version, batch=2 if layer == 3 else 1)


@pytest.mark.usefixtures("emulator")
@pytest.mark.parametrize(("preset", "planes", "version", "places", "order"), [
    *(("neocog", (5, 9, 35), *of, "forward") for of in (("T4", 1), ("T5", 3), ("T5", 5))),
    *(("fukushima2003", (5, 9, 7), "T5", 3, order) for order in ("reversed", 3)),
])  # fmt: skip
def test_any_number_of_places_a_block_in_any_order_of_threads(preset, planes, version, places, order):
    check(Emulator(order=order), preset, planes, 3, version, places)


def test_the_connecting_area_is_that_of_c():
    model = excitable_model("ikeda2011", (3, 4, 5))
    assert connecting_area(model.s[0].c) == 34  # the four corners of 6x6 lie outside 3.4
    assert connecting_area(np.ones((6, 6))) == 50
    odd = np.ones((6, 6))
    odd[2, 2] = 0
    assert connecting_area(odd) > 1000


def test_what_does_not_fit_is_an_error():
    model = excitable_model("ikeda2011", (3, 4, 1200))
    with pytest.raises(UsageError, match="1200 planes"):
        Ladder(machine(90), model).step("US4", "T5")
    with pytest.raises(UsageError, match="40 places"):
        Ladder(machine(90), model, {("US3", "T4"): 40}).step("US3", "T4")


@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize(
    ("arch", "planes"),
    thinned(
        ((arch, planes) for planes in ((26, 78, 70), (39, 110, 103)) for arch in ARCHITECTURES),
        lambda arch, planes: arch in (75, 90) and planes[0] == 26,
    ),
)
def test_kernels_build_without_spills(arch, planes):
    ladder = Ladder(machine(arch), excitable_model("ikeda2011", planes))
    for stage, version in product(STAGES, VERSIONS):
        for kernel in ladder.step(stage, version).kernels(1):
            assert fault(kernel, arch) is None
            assert kernel.shared <= ladder.machine.shared


# --- the experiment ---


def test_a_network_of_another_size_is_made_of_its_own_planes():
    model = load_model("neocog-small")
    small, grown = sized(model, (5, 7, 12)), sized(model, (40, 8, 200))
    assert (small.planes, set(small.labels)) == ((5, 7, 12), set(range(10)))  # none that rejects
    assert grown.planes == (40, 8, 200)
    assert [s.reference.shape[1] for s in grown.s[1:3]] == [16, 40]


def test_shares_of_silence():
    fed = Fed(tiny_model(), made_digits(2))
    heard = {stage: fed.maps[layer].ravel() > 0 for stage, layer in STAGES.items()}
    heard["all"] = np.concatenate([*heard.values()])
    assert fed.heard() == pytest.approx({stage: own.mean() for stage, own in heard.items()})


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
    assert result["digits"] == "32 made digits (MNIST is not here)"
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
    wrong = {"sections": {"lader": "no section 'lader'", "ladder": "needs a GPU"},
             "sizes": dict.fromkeys(("26/78", "a/b/c", "0/1/2"), "expected K2/K3/K4")}  # fmt: skip
    for option, cases in wrong.items():
        for word, message in cases.items():
            with pytest.raises(UsageError, match=message):
                measure(Request(**{option: (word,)}), str)


@pytest.mark.gpu
def test_everything_runs_on_a_gpu():
    result = measure(Request(device="cuda", quick=True, sizes=("26/78/70",)), str)
    assert (result["failures"], faults(result)) == ({}, [])
    assert "ours, default, fp16" in text(tables(result))


@pytest.mark.gpu
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("version", VERSIONS)
def test_every_rung_on_a_gpu(size, stage, version):
    fed = Fed(networks([size])[size], made_digits(2, seed=7))
    choices = Ladder(gpu(0), fed.model).step(stage, version).choices()
    for places in {choices[0], choices[len(choices) // 2], choices[-1]}:
        ladder = Ladder(gpu(0), fed.model, {(stage, version): places})
        assert slayer_gpu.checked(ladder, ladder.step(stage, version), fed) <= slayer_gpu.ALLOWED
