"""Many kernels built at a time."""

from collections.abc import Collection
from contextlib import suppress
from functools import partial
from typing import Any

from experiments.harness.spread import spread
from neocog.cuda.kernel import Kernel
from neocog.errors import NeocogError
from neocog.network.parallel import cores

_MOST_WORKERS = 32


def build_all(gpu: Any, kernels: Collection[Kernel]) -> None:
    """Build kernels in processes of their own and keep them, so that each is only loaded later.

    Why one does not build is told when it is to be launched.
    """
    defines = (("PROGRAMMATIC", 1),) if gpu.programmatic else ()
    work = partial(_build, arch=gpu.arch, defines=defines)
    for _ in spread(work, kernels, min(cores(), _MOST_WORKERS)):
        pass


def _build(kernel: Kernel, arch: int, defines: tuple[tuple[str, int], ...]) -> None:
    from neocog.cuda.compiler import build

    with suppress(NeocogError):
        build(kernel, arch, defines=defines)
