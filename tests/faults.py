"""What goes wrong in worker processes, on purpose; light to import, as every worker does it."""

import os
import re
import signal
import time

from neocog.batch.forms import Form
from neocog.batch.worker import MEMORY


class Faulty(Form):
    """Does to the process that writes a record what the name of the picture says."""

    def render(self, reading: object) -> str:
        if getattr(reading, "error", "") is None:
            _do(str(getattr(reading, "source", "")))
        return super().render(reading)  # type: ignore[arg-type]


def _do(name: str) -> None:
    if "killed" in name:
        os.kill(os.getpid(), signal.SIGKILL)
    if "stopped" in name:
        os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(3600)  # it takes a moment until all threads stop
    if "locked" in name:
        re.match(r"(a+)+$", "a" * 40 + "b")  # takes hours, and holds Python's lock
    if "odd" in name:
        raise KeyboardInterrupt
    if "large" in name:
        bytearray(MEMORY + 2**28)
