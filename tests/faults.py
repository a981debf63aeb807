"""What goes wrong in worker processes, on purpose; light to import, as every worker does it."""

import ctypes
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from neocog.batch.tasks import Block, Job, Task
from neocog.batch.worker import MEMORY
from neocog.reading.formats import Format
from neocog.serve.work import Answer, ServeJob
from neocog.vision.finder import find

FAULTS = {
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "crashed": lambda: ctypes.string_at(0),
    "locked": lambda: re.match(r"(a+)+$", "a" * 40 + "b"),  # takes hours, and holds Python's lock
    "odd": sys.exit,
    "large": lambda: bytearray(MEMORY + 2**28),
}


def suffer(name: str) -> None:
    """Do to this process what a name says."""
    for fault in (FAULTS[word] for word in FAULTS if word in name):
        fault()


class Faulty(Format):
    """Does to the process that writes a record what the name of the picture says."""

    def render(self, reading: Any) -> str:
        if reading.error is None:
            suffer(reading.source)
        return super().render(reading)


class SlowJob(Job):
    """Takes 1.2 seconds, tells in each third that it goes on, and ends its process."""

    def do(self, task: Task, *, beat: Callable[[], None] = lambda: None) -> Block:
        for _ in range(3):
            time.sleep(0.4)
            beat()
        suffer("killed")
        return Block()


class FaultyServeJob(ServeJob):
    """Does to the process that answers a request what the name of its picture says."""

    def do(self, task: Task, **options: Any) -> Answer:
        if task.items[0].trouble is None:
            suffer(task.items[0].source)
        return ServeJob.do(self, task, **options)


class GpuFinder:
    """Stands for a finder on a GPU: only the process that made it can find."""

    device, asked = "cuda:0", 0

    def __init__(self, finder: Any) -> None:
        self.model, self._on_cpu = finder.model, finder

    def __getstate__(self) -> dict[str, Any]:
        return {"model": self.model}

    def find(self, grey: Any, settings: Any) -> Any:
        """Find marks, and count the pages."""
        self.asked += 1
        return find(grey, self._on_cpu, settings)
