"""Which cases of a kernel are slow, and every kernel that ships."""

from contextlib import suppress
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import get_args

import numpy as np
import pytest

from neocog.cuda import plan
from neocog.cuda.kernel import Precision
from neocog.errors import DeviceError, UsageError
from neocog.network.model import load_model
from neocog.network.registry import list_models, models_dir

MODELS = models_dir()
SHIPPED = tuple(path.stem for path in list_models())
PRECISIONS = get_args(Precision)
#: Architectures that kernels must build for, with the most KiB of shared memory that a block has
#: there (CUDA Programming Guide, technical specifications per compute capability).
SHARED = {75: 64, 80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 120: 99}
ARCHITECTURES = tuple(SHARED)


def thinned(cases, quick):
    """Return cases of a test, slow those that are not quick: each builds a kernel or two."""
    return [case if quick(*case) else pytest.param(*case, marks=pytest.mark.slow) for case in cases]


def first(count, cases):
    """Return cases of a test, slow those after the first."""
    slow = pytest.mark.slow
    return [pytest.param(*case, marks=[slow] * (at >= count)) for at, case in enumerate(cases)]


def use(engine, **changes):
    """Have an engine go by a changed plan."""
    engine.plan = replace(engine.plan, **changes)
    engine.chunk = engine.plan.chunk
    engine._lanes.clear()


#: A test that runs kernels on the CPU in emulators of its own.
emulated = pytest.mark.usefixtures("emulator")


def machine(arch):
    """Return a machine on which steps can be constructed and nothing can be launched."""
    return SimpleNamespace(xp=np, arch=arch, processors=132, shared=SHARED[arch] * 1024)


@cache
def shipped(name):
    """Return a model of ``models/``."""
    return load_model(MODELS / f"{name}.safetensors")


def all_kernels(models=SHIPPED, precisions=PRECISIONS, batches=(1, 8, 64, 256), arch=90, *, usual=False):
    """Yield each kernel that a step of shipped models uses, once; or only what the default plan takes."""
    seen = set()
    batches = tuple(batches)
    for model in models:
        for precision in precisions:
            shelf = plan.Shelf(machine(arch), shipped(model), precision)
            for stage in plan.STAGES:
                known = plan.VERSIONS[stage]
                for version in _usual(shelf, stage) if usual else known:
                    for kernel in _kernels(shelf, stage, version, batches):
                        fits = kernel.runs_on(arch) and kernel.shared <= SHARED[arch] * 1024
                        if fits and kernel not in seen:
                            seen.add(kernel)
                            yield kernel


def _usual(shelf, stage):
    """Return the version of a stage that the default plan takes."""
    step = shelf.choose(plan.plan_of("default", shelf.precision), 8, stages=(stage,))[0]
    return [step.version] if hasattr(step, "version") else list(plan.VERSIONS[stage])[:1]


def _kernels(shelf, stage, version, batches):
    for batch in batches:
        with suppress(UsageError, DeviceError):  # a version that does not do this layer or precision
            yield from shelf.step(stage, version).kernels(batch)
