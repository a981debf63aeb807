"""Which cases of a kernel are slow, and every kernel that ships."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest

from neocog.cuda import plan
from neocog.cuda.kernel import Kernel
from neocog.cuda.steps import Precision
from neocog.errors import DeviceError, UsageError
from neocog.network.model import Model, load_model
from neocog.network.registry import list_models, models_dir

MODELS = models_dir()
SHIPPED = tuple(path.stem for path in list_models())
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
#: Architectures that kernels must build for, with the most KiB of shared memory that a block has
#: there (CUDA Programming Guide, technical specifications per compute capability).
SHARED = {75: 64, 80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 120: 99}
ARCHITECTURES = tuple(SHARED)


def thinned(cases: Iterable[tuple[Any, ...]], quick: Callable[..., bool]) -> list[Any]:
    """Return cases of a test, slow those that are not quick: each builds a kernel or two."""
    return [case if quick(*case) else pytest.param(*case, marks=pytest.mark.slow) for case in cases]


def first(count: int, cases: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Return cases of a test, slow those after the first."""
    slow = pytest.mark.slow
    return [pytest.param(*case, marks=[slow] * (at >= count)) for at, case in enumerate(cases)]


#: A test that runs kernels on the CPU in emulators of its own.
emulated = pytest.mark.usefixtures("emulator")


def machine(arch: int) -> Any:
    """Return a machine on which steps can be constructed and nothing can be launched."""
    return SimpleNamespace(xp=np, arch=arch, processors=132, shared=SHARED[arch] * 1024)


@cache
def shipped(name: str) -> Model:
    """Return a model of ``models/``."""
    return load_model(MODELS / f"{name}.safetensors")


def families(stage: str) -> Mapping[str, Any]:
    """Return the versions of a stage: those of the modules that :mod:`neocog.cuda.plan` names."""
    return plan.versions(plan.kind_of(stage))


def all_kernels(
    models: Iterable[str] = SHIPPED,
    precisions: Iterable[Precision] = PRECISIONS,
    batches: Iterable[int] = (1, 8, 64, 256),
    arch: int = 90,
    *,
    usual: bool = False,
) -> Iterator[Kernel]:
    """Yield each kernel that a step of some models uses, once.

    Parameters
    ----------
    models : iterable of str
        Names of shipped models.
    precisions : iterable of str
    batches : iterable of int
    arch : int
        Compute capability of the device that the steps plan for.
    usual : bool
        Whether only versions that the default plan takes first are asked for.
    """
    seen: set[Kernel] = set()
    batches = tuple(batches)
    for model in models:
        for precision in precisions:
            shelf = plan.Shelf(machine(arch), shipped(model), precision)
            for stage in plan.STAGES:
                for version in _usual(shelf, stage) if usual else families(stage):
                    for kernel in _kernels(shelf, stage, version, batches):
                        if runs_on(kernel, arch) and kernel not in seen:
                            seen.add(kernel)
                            yield kernel


def _usual(shelf: plan.Shelf, stage: str) -> list[str]:
    """Return the version of a stage that a device nobody knows takes."""
    wanted = plan.shipped("", shelf.precision)
    reads = "digits" if stage == "UG" else None
    usable = shelf.usable(stage, 8, reads=reads)
    return [name for name in wanted.preferred(stage, 8) if name in usable][:1] or usable


def runs_on(kernel: Kernel, arch: int) -> bool:
    """Whether a kernel is for a compute capability: its instructions, its shared memory."""
    return kernel.runs_on(arch) and kernel.shared <= SHARED[arch] * 1024


def _kernels(shelf: plan.Shelf, stage: str, version: str, batches: tuple[int, ...]) -> Iterator[Kernel]:
    for batch in batches:
        try:
            found = plan.kernels_of(shelf.step(stage, version), batch)
        except (UsageError, DeviceError):  # a version that does not do this layer or precision
            continue
        yield from found
