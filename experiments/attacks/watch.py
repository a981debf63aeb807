"""Runs a command that is attacked, watches all its processes, and tells what did not hold.

What must hold, whatever came: a documented exit code within the time, no traceback, nothing that a
terminal obeys, no process above 1.5 GB, no process and no file left behind, nothing in the current
folder.
"""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from neocog.programs import python

#: Exit codes that the commands document.
CODES = {0, 1, 2, 3, 4, 5, 6, 130}
#: Megabytes that any process may take.
MOST_MB = 1500.0
_END_MB = 2500.0  # a process above this is ended: this machine shall live on
_ADDRESSES = 4 * 2**30  # bytes of address space for each process
_GONE = 3.0  # seconds within which helpers of a run have to end after it
_OBEYED = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


@dataclass
class Outcome:
    """What became of the attacks of one kind: how many, what did not hold, what it took."""

    kind: str
    tried: int = 0
    held: int = 0
    broken: list[str] = field(default_factory=list)
    peak_mb: float = 0.0
    seconds: float = 0.0

    def add(self, done: "Watch", tried: int = 1, broken: Iterable[str] = ()) -> None:
        name = f"{done.name}: " if done.name else ""
        found = [name + what for what in (*done.broken(), *broken)]
        self.broken += found
        self.tried += tried
        self.held += tried - min(tried, len(found))
        self.peak_mb = max(self.peak_mb, done.peak_mb)
        self.seconds += done.seconds

    def row(self) -> dict[str, object]:
        return {"kind": self.kind, "tried": self.tried, "held": self.held, "broken": self.broken,
                "peak_mb": round(self.peak_mb), "seconds": round(self.seconds, 1)}  # fmt: skip


class Watch:
    """A command, and its processes: those whose environment names its folder."""

    code, out, err, peak_mb, seconds = 0, "", "", 0.0, 0.0

    def __init__(self, process: "subprocess.Popen[bytes]", place: str, name: str, limit: float) -> None:
        self.process, self.mark, self.name, self.limit = process, place.encode(), name, limit
        self.left: list[str] = []  # processes and files that outlived it

    def pids(self) -> list[int]:
        """Return the processes that are alive, the first one first."""
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError, IndexError):
                about = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
                if about[0] != "Z" and self.mark in Path("/proc", name, "environ").read_bytes():
                    found.append(int(name))
        return sorted(found)

    def until_done(self, during: "Callable[[Watch], None] | None") -> None:
        """Wait for the command, end it at its limit, and tell of processes that it leaves behind."""
        began = time.monotonic()
        while self.process.poll() is None:
            self.measure()
            if during is not None:
                during(self)
            if time.monotonic() > began + self.limit or self.peak_mb > _END_MB:
                self._kill()
            time.sleep(0.03)
        self.code, end = self.process.returncode, time.monotonic()
        self.seconds = end - began
        while (left := self.pids()) and time.monotonic() < end + _GONE:
            time.sleep(0.03)
        for pid in left:
            with suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                self.left.append(f"left a process: {words[:80]}")
        self._kill()

    def measure(self) -> None:
        for pid in self.pids():
            with suppress(OSError):
                status = Path(f"/proc/{pid}/status").read_text()
                if most := re.search(r"VmHWM:\s*(\d+)", status):
                    self.peak_mb = max(self.peak_mb, int(most[1]) / 1e3)

    def _kill(self) -> None:
        for pid in self.pids():
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def broken(self) -> list[str]:
        """What does not hold of any run."""
        found = list(self.left)
        if self.code not in CODES:
            found.append(f"exit code {self.code}")
        if self.seconds >= self.limit:
            found.append(f"not done after {self.limit:.0f} s")
        for words in ("Traceback", "please report"):
            if words in self.err:
                found.append(f"{words} on stderr: {self.err.strip().splitlines()[-1][:150]}")
        for place, text in (("stdout", self.out), ("stderr", self.err)):
            if obeyed := _OBEYED.search(text):
                found.append(f"{obeyed[0]!r} on {place}")
        if self.peak_mb > MOST_MB:
            found.append(f"a process of {self.peak_mb:.0f} MB")
        return found


def watched(
    words: list[str],
    folder: Path,
    *,
    name: str = "",
    limit: float = 60.0,
    program: list[str] | None = None,
    stdin: bytes = b"",
    setup: Callable[[], object] = lambda: None,
    during: Callable[[Watch], None] | None = None,
    env: dict[str, str | None] | None = None,
) -> Watch:
    """Run ``neocog WORDS`` in a folder of its own below ``folder`` and watch it to its end.

    ``setup`` is called in the new process before the program, ``during`` a few times a second while
    it runs. A variable of ``env`` that is None is taken away.
    """

    def start() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (_ADDRESSES, _ADDRESSES))
        setup()

    with tempfile.TemporaryDirectory(dir=folder, prefix="run-") as place:
        here, temporary, given, out, err = (Path(place, part) for part in ("here", "tmp", "in", "out", "err"))
        here.mkdir()
        temporary.mkdir()
        given.write_bytes(stdin)
        variables: dict[str, str | None] = {**os.environ, "ATTACKED": place, "OMP_NUM_THREADS": "1"}
        variables |= {"TMPDIR": str(temporary), **(env or {})}
        with given.open("rb") as input_, out.open("wb") as output, err.open("wb") as errors:
            process = subprocess.Popen(
                [*(program or python("-m", "neocog")), *words], cwd=here,
                env={key: value for key, value in variables.items() if value is not None},
                stdin=input_, stdout=output, stderr=errors, start_new_session=True, preexec_fn=start,
            )  # fmt: skip
            done = Watch(process, place, name, limit)
            done.until_done(during)
        done.out, done.err = (path.read_bytes().decode(errors="backslashreplace") for path in (out, err))
        done.left += [f"left {path.name} in the temporary folder" for path in temporary.rglob("*")
                      if path != temporary / f"neocog-{os.getuid()}"  # of locks, which are empty
                      and (path.suffix != ".lock" or path.stat().st_size)]  # fmt: skip
        done.left += [f"left {path.name} in the current folder" for path in here.iterdir()]
        return done


def one_record_each(inputs: Iterable[str], text: str) -> list[str]:
    """What is wrong with the JSON lines of a run: each input has one at least, and no other has any.

    Records of an archive's members are records of the archive.
    """

    def never(word: str) -> float:
        raise ValueError(f"{word} in a record")

    wanted, found, broken = set(inputs), set(), []
    pages: list[tuple[str, int]] = []
    for line in text.splitlines():
        try:
            record = json.loads(line, parse_constant=never)
        except ValueError as error:
            broken.append(f"a record that is none: {error}")
            continue
        source = str(record["source"])
        found.add(next((path for path in wanted if source.startswith(f"{path}/")), source))
        pages.append((source, record["page"]))
    if missing := sorted(wanted - found):
        broken.append(f"{len(missing)} inputs without a record, {missing[0][-60:]!r} among them")
    if more := sorted(found - wanted):
        broken.append(f"records of what was no input, {more[0][-60:]!r} among them")
    if len(set(pages)) < len(pages):
        broken.append("two records of one page")
    return broken


if sys.platform != "linux":  # /proc
    raise ImportError("attacks are watched through /proc: needs Linux")
