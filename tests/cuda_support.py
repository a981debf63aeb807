"""The emulator and NVRTC as fixtures, kernels written in a test, and every kernel that ships."""

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest

from experiments.emulator import Emulator
from neocog.cuda import plan
from neocog.cuda.kernel import Kernel, Launch
from neocog.cuda.steps import Precision
from neocog.errors import DeviceError, UsageError
from neocog.network.model import Model, load_model
from neocog.network.registry import list_models, models_dir

MODELS = models_dir()
SHIPPED = tuple(entry.name for entry in list_models())
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
#: Architectures that kernels must build for, with the most KiB of shared memory that a block has
#: there (CUDA Programming Guide, technical specifications per compute capability).
SHARED = {75: 64, 80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 120: 99}
ARCHITECTURES = tuple(SHARED)

Run = Callable[..., None]


def thinned(cases: Iterable[tuple[Any, ...]], quick: Callable[..., bool]) -> list[Any]:
    """Return cases of a test, slow those that are not quick: each builds a kernel or two."""
    return [case if quick(*case) else pytest.param(*case, marks=pytest.mark.slow) for case in cases]


def first(count: int, cases: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Return cases of a test, slow those after the first."""
    slow = pytest.mark.slow
    return [pytest.param(*case, marks=[slow] * (at >= count)) for at, case in enumerate(cases)]


_EMULATOR_NEEDS = "needs g++: the emulator builds kernels with it"

#: A test that asks for no fixture but runs kernels on the CPU.
emulated = pytest.mark.skipif(shutil.which("g++") is None, reason=_EMULATOR_NEEDS)


@pytest.fixture(scope="session")
def emulator() -> Emulator:
    """A machine that runs kernels on the CPU."""
    if shutil.which("g++") is None:
        pytest.skip(_EMULATOR_NEEDS)
    return Emulator()


@pytest.fixture(scope="session")
def nvrtc() -> None:
    """What builds cubins, no GPU needed."""
    from neocog.cuda import compiler

    try:
        compiler._version()
    except DeviceError as error:
        pytest.skip(f"needs NVRTC: {error}")


@pytest.fixture
def run(tmp_path: Path, emulator: Emulator) -> Run:
    """Return a function that builds the body of a kernel and launches it on the CPU.

    The kernel ``probe`` has the parameters ``parameters``; its body begins in line 4.
    """

    def launch(
        parameters: str,
        body: str,
        *args: Any,
        threads: int = 32,
        blocks: int = 1,
        shared: int = 0,
        machine: Emulator = emulator,
    ) -> None:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        source = folder / "probe.cu"
        source.write_text(
            f'#include "platform.cuh"\nKERNEL({threads}) probe({parameters})\n{{\n{body}\n}}\n'
        )
        kernel = Kernel(str(source), "probe", (), threads, shared)
        machine.launch(Launch(kernel, (blocks, 1, 1), args))

    return launch


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


def _kernels(
    shelf: plan.Shelf, stage: str, version: str, batches: tuple[int, ...]
) -> Iterator[Kernel]:
    for batch in batches:
        try:
            found = plan.kernels_of(shelf.step(stage, version), batch)
        except (UsageError, DeviceError):  # a version that does not do this layer or precision
            continue
        yield from found
