"""Work spread over processes; the memory of a process and of all that descend from it."""

import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import cv2

from neocog.cuda.kernel import Kernel
from neocog.errors import NeocogError
from neocog.network.parallel import cores

Part = TypeVar("Part")
Result = TypeVar("Result")
_MOST_WORKERS = 32


def spread(work: Callable[[Part], Result], parts: Iterable[Part], jobs: int) -> Iterator[Result]:
    """Do ``work`` (picklable) on each part, on ``jobs`` processes; with one job: here."""
    parts = list(parts)
    if jobs == 1 or len(parts) == 1:
        yield from map(work, parts)
        return
    with ProcessPoolExecutor(min(jobs, len(parts)), get_context("spawn"), cv2.setNumThreads, (1,)) as pool:
        yield from pool.map(work, parts)


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


class Memory(threading.Thread):
    """Samples the memory of a process and all below it, in MB."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid = pid
        self.samples: list[float] = []
        self._done = threading.Event()

    def run(self) -> None:
        while not self._done.wait(0.2):
            self.samples.append(sum(size_of(pid) for pid in family(self.pid)))

    def stop(self) -> None:
        self._done.set()
        self.join()


def family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    parents: dict[int, list[int]] = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(place.read_text().rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(place.parent.name))
    found = [pid]
    for known in found:
        found += parents.get(known, [])
    return found


def size_of(pid: int) -> float:
    """Memory of a process in MB, shared parts by its share of them."""
    for name, key in (("smaps_rollup", "Pss:"), ("status", "VmRSS:")):
        with suppress(OSError):
            text = Path(f"/proc/{pid}/{name}").read_text()
            if found := re.search(rf"^{key}\s*(\d+)", text, re.MULTILINE):
                return int(found[1]) / 1024
    return 0.0
