"""The memory of a process and of all that descend from it."""

import threading
from pathlib import Path


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
