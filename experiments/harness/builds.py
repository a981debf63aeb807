"""Many kernels built at a time."""

import os
from collections.abc import Collection
from contextlib import closing, suppress
from multiprocessing.connection import Connection
from typing import Any

from neocog.cuda.kernel import Kernel
from neocog.errors import NeocogError
from neocog.forkserver import ForkServer, pack

_MOST_WORKERS = 32


def build_all(gpu: Any, kernels: Collection[Kernel]) -> None:
    """Build kernels in processes of their own and keep them, so that each is only loaded later.

    Why one does not build is told when it is to be launched.
    """
    workers = min(len(os.sched_getaffinity(0)), len(kernels), _MOST_WORKERS)
    with closing(ForkServer("neocog.cuda.compiler")) as server:
        running = [server.start()[0] for _ in range(workers)]
        for first, connection in enumerate(running):
            own = list(kernels)[first::workers]
            connection.send_bytes(pack(_build, own, gpu.arch, gpu.programmatic))
        for connection in running:
            with suppress(EOFError, OSError):
                connection.recv()


def _build(connection: Connection, kernels: list[Kernel], arch: int, programmatic: bool) -> None:
    """Build kernels as ``Gpu`` does."""
    from neocog.cuda.compiler import build

    for kernel in kernels:
        with suppress(NeocogError):
            build(kernel, arch, defines=(("PROGRAMMATIC", 1),) if programmatic else ())
