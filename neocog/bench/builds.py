"""Many kernels built at a time."""

import multiprocessing
import os
from collections.abc import Collection
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

from neocog.cuda.kernel import Kernel
from neocog.errors import NeocogError

_MOST_WORKERS = 32


def build_all(gpu: Any, kernels: Collection[Kernel]) -> None:
    """Build kernels in processes of their own and keep them, so that each is only loaded later.

    Parameters
    ----------
    gpu : Gpu
        For which.
    kernels : collection of Kernel
        What. Why one does not build is told when it is to be launched.
    """
    if not kernels:
        return
    workers = min(len(os.sched_getaffinity(0)), len(kernels), _MOST_WORKERS)
    context = multiprocessing.get_context("spawn")
    task = partial(_build, arch=gpu.arch, programmatic=gpu.programmatic)
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        list(pool.map(task, kernels))


def _build(kernel: Kernel, arch: int, programmatic: bool) -> str:
    """Build one kernel as ``Gpu`` does; return why it failed."""
    from neocog.cuda.compiler import build

    try:
        build(kernel, arch, defines=(("PROGRAMMATIC", 1),) if programmatic else ())
    except NeocogError as error:
        return str(error)
    return ""
