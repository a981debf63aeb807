"""What goes wrong in worker processes, on purpose; light to import, as every worker does it."""

import os
import re
import signal
import time
from typing import Any

from neocog.batch.formats import Format
from neocog.batch.worker import MEMORY


class Faulty(Format):
    """Does to the process that writes a record what the name of the picture says."""

    def render(self, reading: object) -> str:
        source = str(getattr(reading, "source", ""))
        if getattr(reading, "error", "") is None or "always" in source:
            _do(source)
        return super().render(reading)  # type: ignore[arg-type]


def _do(name: str) -> None:
    if "killed" in name:
        os.kill(os.getpid(), signal.SIGKILL)
    if "stopped" in name:
        os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(3600)  # it takes a moment until all threads stop
    if "locked" in name:
        re.match(r"(a+)+$", "a" * 40 + "b")  # takes hours, and holds Python's lock
    if "full" in name:
        raise MemoryError
    if "odd" in name:
        raise KeyboardInterrupt
    if "large" in name:
        bytearray(MEMORY + 2**28)


class GpuFinder:
    """Stands for a finder on a GPU: only the process that made it can find."""

    device, asked = "cuda:0", 0

    def __init__(self, finder: Any) -> None:
        self.model, self._on_cpu = finder.model, finder

    def __getstate__(self) -> dict[str, Any]:
        return {"model": self.model}

    def find(self, grey: Any, settings: Any) -> Any:
        """Find marks, and count the pages."""
        from neocog.vision.finder import find

        self.asked += 1
        return find(grey, self._on_cpu, settings)
