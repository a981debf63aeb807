"""Which cases of a kernel are slow; machines that launch nothing."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from neocog.network.registry import list_models, models_dir

MODELS = models_dir()
SHIPPED = tuple(path.stem for path in list_models())
#: Architectures that kernels must build for, with the most KiB of shared memory that a block has
#: there (CUDA Programming Guide, technical specifications per compute capability).
SHARED = {75: 64, 80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 120: 99}
ARCHITECTURES = tuple(SHARED)
#: A test that runs kernels on the CPU in emulators of its own.
emulated = pytest.mark.usefixtures("emulator")


def thinned(cases, quick):
    """Return cases of a test, slow those that are not quick: each builds a kernel or two."""
    return [case if quick(*case) else pytest.param(*case, marks=pytest.mark.slow) for case in cases]


def first(count, cases):
    """Return cases of a test, slow those after the first."""
    return [pytest.param(*case, marks=[pytest.mark.slow] * (at >= count)) for at, case in enumerate(cases)]


def use(engine, **changes):
    """Have an engine go by a changed plan."""
    engine.plan = replace(engine.plan, **changes)
    engine.batch = engine.plan.chunk
    engine._lanes.clear()


def machine(arch):
    """Return a machine on which steps can be constructed and nothing can be launched."""
    return SimpleNamespace(xp=np, arch=arch, processors=132, shared=SHARED[arch] * 1024)
