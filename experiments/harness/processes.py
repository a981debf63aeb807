"""Processes under measurement: the memory of one and all that descend from it, and their end."""

import os
import signal
import threading
from pathlib import Path


class Memory(threading.Thread):
    """Samples the memory of a process and all below it, in MB."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid, self.worst = pid, 0.0
        self.samples: list[float] = []
        self._done = threading.Event()

    def run(self) -> None:
        while not self._done.wait(0.2):
            sizes = [size_of(pid) for pid in family(self.pid)]
            self.samples.append(sum(sizes))
            self.worst = max(self.worst, *sizes)

    def stop(self) -> None:
        self._done.set()
        self.join()


def family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    parents: dict[int, list[int]] = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(place.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        parents.setdefault(parent, []).append(int(place.parent.name))
    found = [pid]
    for known in found:
        found += parents.get(known, [])
    return found


def size_of(pid: int) -> float:
    """Memory of a process in MB, shared parts by its share of them."""
    for name, key in (("smaps_rollup", "Pss:"), ("status", "VmRSS:")):
        try:
            text = Path(f"/proc/{pid}/{name}").read_text()
        except OSError:
            continue
        for line in text.splitlines():
            if line.startswith(key):
                return int(line.split()[1]) / 1024
    return 0.0


def end_one(title: bytes) -> int:
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if place.read_bytes().startswith(title):
                os.kill(int(place.parent.name), signal.SIGKILL)
                return int(place.parent.name)
        except OSError:
            continue
    return 0
