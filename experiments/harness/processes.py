"""Work spread over processes, kernels that are built so."""

from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from typing import Any, TypeVar

import cv2

from neocog.cuda.compiler import build
from neocog.cuda.kernel import Kernel
from neocog.errors import NeocogError
from neocog.network.parallel import cores

Part = TypeVar("Part")
Result = TypeVar("Result")


def spread(work: Callable[[Part], Result], parts: Iterable[Part], jobs: int) -> Iterator[Result]:
    """Do ``work`` (picklable) on each part, on ``jobs`` processes; with one job: here."""
    parts = list(parts)
    if jobs == 1 or len(parts) == 1:
        yield from map(work, parts)
        return
    with ProcessPoolExecutor(min(jobs, len(parts)), get_context("spawn"), cv2.setNumThreads, (1,)) as pool:
        yield from pool.map(work, parts)


def build_all(gpu: Any, kernels: Collection[Kernel]) -> None:
    """Build kernels in processes of their own and keep them; why one does not build is told at its launch."""
    defines = (("PROGRAMMATIC", 1),) if gpu.programmatic else ()
    for _ in spread(partial(_build, arch=gpu.arch, defines=defines), kernels, min(cores(), 32)):
        pass


def _build(kernel: Kernel, arch: int, defines: tuple[tuple[str, int], ...]) -> None:
    with suppress(NeocogError):
        build(kernel, arch, defines=defines)
