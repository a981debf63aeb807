"""Every stage of the passes beside its NumPy twin; an error is told of the stage that makes it."""

import numpy as np
import pytest

from experiments.gpu.interpret import digit_stages, interpret, line_stages, twin
from neocog.cuda.launcher import gpu
from neocog.cuda.lines import LinePass
from neocog.cuda.plan import PLANS, STAGES, VERSIONS, Pass, Shelf, plan_of
from neocog.errors import DeviceError, UsageError
from neocog.network import reference
from neocog.network.model import load_model
from neocog.network.u0 import u0_from_digits
from tests.cuda_maps import some_digits
from tests.cuda_support import PRECISIONS
from tests.support import tiny_model
from tests.test_cuda_lines import drawn, line_model

#: Largest error of a stage fed with the device's own maps, as a share of its strongest response.
BOUND = {"fp32": 1e-5, "fp16": 5e-3}


def digit_pass(machine, model, precision, plan="default", batch=2):
    shelf = Shelf(machine, model, precision)
    return Pass(machine, shelf.choose(plan_of(plan, precision), batch), shelf.layouts, batch)


@pytest.mark.parametrize(("precision", "plan"), [("fp32", "default"), ("fp16", "default"), ("fp16", "card")])
def test_stages_of_digits_are_their_twins(emulator, precision, plan):
    model = tiny_model()
    work = digit_pass(emulator, model, precision, plan)
    found = list(interpret(emulator, digit_stages(work, model, some_digits(3)[1:])))
    assert [name for name, *_ in found] == list(STAGES)
    for name, error, most in found:
        assert error <= BOUND[precision], name
        assert most > 0.01, name


@pytest.mark.parametrize("precision", PRECISIONS)
def test_stages_of_a_strip_are_their_twins(emulator, precision):
    model = line_model()
    found = list(interpret(emulator, line_stages(LinePass(emulator, model, precision), drawn(6)[3])))
    assert [name for name, *_ in found] == [*STAGES, "head"]
    for name, error, most in found:
        assert error <= BOUND[precision], name
        assert most > 0.01, name


def test_an_error_is_told_of_its_own_stage(emulator):
    model = tiny_model()
    work = digit_pass(emulator, model, "fp32")
    step = work.stages[3].step  # US2
    next(iter(step._packed.values()))[:] = 0
    found = list(interpret(emulator, digit_stages(work, model, some_digits(3)[1:]), "US2"))
    assert [name for name, *_ in found] == ["UG", "US1", "UC1", "US2"]
    assert [error > 0.1 for _, error, _ in found] == [False, False, False, True]


def test_a_stage_that_joins_layers_has_the_twin_of_them_all():
    model, digits = tiny_model(), some_digits(2)
    want = reference.respond(u0_from_digits(digits), model)
    np.testing.assert_array_equal(twin(model, "digits", "UC2", digits), want["UC2"])
    np.testing.assert_array_equal(twin(model, "UC1", "US4", want["UC1"]), want["US4"])


# --- on a GPU ---------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", ["neocog", "fukushima"])
@pytest.mark.parametrize("plan", PLANS)
def test_stages_on_the_device_are_their_twins(name, precision, plan):
    machine, model = gpu(0), load_model(name)
    work = digit_pass(machine, model, precision, plan, batch=5)
    for stage, error, most in interpret(machine, digit_stages(work, model, some_digits(5))):
        assert error <= (5e-5 if precision == "fp32" else BOUND["fp16"]), stage
        assert most > 0.01, stage


@pytest.mark.gpu
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("name", ["tiny", "neocog-small", "fukushima"])
@pytest.mark.parametrize("batch", [1, 5])
def test_every_version_of_every_step(name, stage, precision, batch):
    model = tiny_model() if name == "tiny" else load_model(name)
    machine, digits = gpu(0), some_digits(5)[:batch]
    shelf = Shelf(machine, model, precision)
    maps = {**reference.respond(u0_from_digits(digits), model), "digits": digits}
    maps["U0"] = maps["U0"][:, 0].astype(np.float32)
    tried = 0
    for version in VERSIONS[stage]:
        try:
            step = shelf.step(stage, version)
            work = Pass(machine, [step], shelf.layouts, batch)
            machine.prepare(launch.kernel for launch in work.launches)
        except (UsageError, DeviceError):  # not for this layer, precision or device
            continue
        tried += 1
        ((_, error, _),) = interpret(machine, digit_stages(work, model, maps[step.reads]))
        exact = 5e-5 if "winograd" in version else BOUND["fp32"]
        assert error <= (exact if precision == "fp32" else BOUND[precision]), version
    assert tried
