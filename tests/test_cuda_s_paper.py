"""The GPU paper's ladder of S-kernels: held against the float64 equations, built with no GPU."""

import numpy as np
import pytest

from experiments.slayer import experiment as slayer_gpu
from experiments.slayer.inputs import SIZES, STAGES, Fed, networks
from experiments.slayer.ladder import VERSIONS, Ladder, connecting_area
from neocog.errors import UsageError
from neocog.network.u0 import made_digits
from tests.cuda_maps import error_of, excitable_model
from tests.cuda_support import ARCHITECTURES, machine, thinned
from tests.emulator import Emulator
from tests.test_cubins import fault


def check(model, layer, version, places, on, batch):
    stage = f"US{layer + 1}"
    ladder = Ladder(on, model, {(stage, version): places} if places else None)
    assert error_of(on, ladder.step(stage, version), ladder.layouts, batch=batch) <= 1e-5


@pytest.mark.parametrize(
    ("layer", "version"),
    thinned(
        ((layer, version) for layer in range(4) for version in VERSIONS),
        lambda layer, version: layer == (1, 3)[list(VERSIONS).index(version) % 2],
    ),
)
def test_every_rung_gives_the_equations(emulator, layer, version):
    model = excitable_model("ikeda2011", (5, 9, 7))
    check(model, layer, version, None, emulator, batch=2 if layer == 3 else 1)


@pytest.mark.parametrize(("version", "places"), [("T4", 1), ("T5", 3), ("T5", 5)])
def test_any_number_of_places_a_block(emulator, version, places):
    check(excitable_model("neocog", (5, 9, 35)), 3, version, places, emulator, batch=1)


@pytest.mark.parametrize("order", ["reversed", 3])
def test_in_any_order_of_threads(order):
    check(excitable_model("fukushima2003", (5, 9, 7)), 3, "T5", 3, Emulator(order=order), batch=1)


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
    for stage in ("US1", "US2", "US3", "US4"):
        for version in VERSIONS:
            step = ladder.step(stage, version)
            scratch = dict.fromkeys(step.scratch(1))
            for launch in step.launches(1, None, None, scratch):
                assert fault(launch.kernel, arch) is None
                assert launch.kernel.shared <= ladder.machine.shared


@pytest.mark.gpu
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("version", VERSIONS)
def test_every_rung_on_a_gpu(size, stage, version):
    from neocog.cuda.launcher import gpu

    fed = Fed(networks([size])[size], made_digits(2, seed=7))
    choices = Ladder(gpu(0), fed.model).step(stage, version).choices()
    for places in {choices[0], choices[len(choices) // 2], choices[-1]}:
        ladder = Ladder(gpu(0), fed.model, {(stage, version): places})
        assert slayer_gpu.checked(ladder, ladder.step(stage, version), fed) <= slayer_gpu.ALLOWED
