"""Measurements on a GPU in a process of their own, which is watched.

A kernel that never ends cannot be stopped, and one that reads beyond its arrays spoils the device
for its whole process. So the measuring process says what it is about to do; if it dies or does not
say anything for longer than it asked for, it is ended and begun again, without what broke it.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Protocol

from neocog.errors import DeviceError, NeocogError
from neocog.forkserver import ForkServer, pack

Result = dict[str, Any]
Log = Callable[[str], None]
Save = Callable[[Result], None]

#: Seconds that starting, importing and building may take, and what is done at once.
_START, _USUAL = 150.0, 45.0
#: How often a process is begun anew.
_MOST_BROKEN = 8


@dataclass(slots=True)
class Watch:
    """What a measurement tells, and what it has to leave out.

    ``broken``: what broke earlier processes, and how. ``connection``: to who watches; without it
    nobody does, and nothing is told.
    """

    broken: Mapping[str, str] = field(default_factory=dict)
    connection: Connection | None = None

    def doing(self, what: str, seconds: float = _USUAL) -> None:
        """Say what comes next, and how long it may take at most."""
        if self.connection is not None:
            self.connection.send(("doing", what, seconds))

    def why_not(self, what: str, kind: str = "") -> str | None:
        """Return why something is left out: it broke a process, or two of its kind did."""
        if what in self.broken:
            return self.broken[what]
        alike = [why for name, why in self.broken.items() if kind and name.endswith(kind)]
        return f"{alike[0]} (elsewhere)" if len(alike) > 1 else None

    def attempt(
        self,
        what: str,
        run: Callable[[], Result],
        *,
        healthy: Callable[[], Any],
        kind: str = "",
        seconds: float = _USUAL,
    ) -> Result:
        """Return what ``run`` returns, or ``failed``, why not; others can still run.

        ``what`` and ``kind`` are as :meth:`why_not` takes them, ``healthy`` raises if the device no
        longer works, ``seconds`` is how long it may take at most.
        """
        why = self.why_not(what, kind)
        if why is not None:
            return {"failed": why}
        self.doing(what, seconds)
        try:
            return run()
        except Exception as error:  # every library has errors of its own
            self.check(what, healthy)
            return {"failed": told(error)}

    def check(self, what: str, healthy: Callable[[], Any]) -> None:
        """End this process if the device no longer works after a failure; somebody watches."""
        try:
            healthy()
        except Exception as error:  # every library has errors of its own
            if self.connection is None:
                raise
            self.connection.send(("broken", what, told(error)))
            self.connection.close()
            sys.stderr.flush()
            os._exit(1)  # what the libraries do at an ordinary end fails too


def synchronise(gpu: Any) -> None:
    """Wait for a GPU of :mod:`neocog.cuda`; raises if it no longer works."""
    getattr(gpu.xp.cuda.runtime, "deviceSynchronize", lambda: None)()


def need_device(name: str, number: int) -> None:
    """Raise a DeviceError unless there is the GPU that an experiment wants."""
    from neocog.cuda import devices

    why = devices.trouble()
    if why is not None:
        raise DeviceError(f"bench {name}: {why.partition(';')[0]}; add --cpu for counts alone")
    if number >= devices.count():
        raise DeviceError(f"bench {name}: there is no cuda:{number}")


class Work(Protocol):
    """A measurement, as another process runs it."""

    def __call__(self, *, watch: Watch, earlier: Result, seconds: float, save: Save) -> Any:
        """Measure what ``earlier`` does not have, in so many seconds; ``save`` takes results."""


def attend(
    work: Work, result: Result, *, seconds: float, save: Save, log: Log, start: float = _START
) -> Result:
    """Run a measurement in a process of its own; begin again if it breaks off.

    ``work`` is a function of a module, or a partial of one. It has so many ``seconds`` in all, and
    ``start`` seconds for its first word. Returns the result; ``broken`` says what broke off and
    why. A NeocogError of the measurement is raised here, and one if nothing was measured.
    """
    end = time.monotonic() + seconds
    broken: dict[str, str] = {}
    for _ in range(_MOST_BROKEN):
        told = _Told(result, save)
        why = _once(work, told, broken, end - time.monotonic(), start)
        result = told.result
        if why is None:
            return result
        known = told.doing in broken
        broken[told.doing] = why
        result["broken"] = dict(broken)
        save(result)
        log(f"{told.doing}: {why}; begun again without it")
        if known or time.monotonic() > end:  # it cannot do without
            break
    if set(result) == {"broken"}:
        what, why = next(iter(broken.items()))
        raise NeocogError(f"nothing was measured: {what}: {why}")
    return result


def faults_of(result: Result) -> list[str]:
    """Return a line for everything that broke a process."""
    return [f"{what}: {why}" for what, why in result.get("broken", {}).items()]


@dataclass(slots=True)
class _Told:
    """What the other process said last."""

    result: Result
    save: Save
    doing: str = "start"


def _once(
    work: Work, told: _Told, broken: Mapping[str, str], seconds: float, start: float
) -> str | None:
    """Run the work once; return why it broke off, None if it did not."""
    server = ForkServer()  # a fork of this process would share what CUDA holds
    here, number = server.start()
    here.send_bytes(pack(_child, work, told.result, dict(broken), max(seconds, 1.0)))
    allowed = start
    try:
        while here.poll(allowed):
            try:
                kind, *what = here.recv()
            except EOFError:
                return f"the process ended with code {server.end_of(number)}"
            if kind == "doing":
                told.doing, allowed = what
            elif kind == "save":
                (told.result,) = what
                told.save(told.result)
            elif kind == "broken":
                told.doing, why = what
                return str(why)
            elif kind == "raised":
                raise what[0]
            else:
                server.end_of(number)
                return None
        return f"no result within {allowed:g} seconds"
    finally:
        here.close()
        server.close()


def _child(
    connection: Connection,
    work: Work,
    result: Result,
    broken: Mapping[str, str],
    seconds: float,
) -> None:
    """Run in the new process."""
    try:
        work(
            watch=Watch(broken, connection),
            earlier=result,
            seconds=seconds,
            save=partial(_send, connection),
        )
    except NeocogError as error:
        connection.send(("raised", error))
    else:
        connection.send(("done",))


def _send(connection: Connection, result: Result) -> None:
    connection.send(("save", result))


def told(error: BaseException) -> str:
    """Return an error in a line: what ours says, others by their name."""
    line = str(error).strip().partition("\n")[0][:200]
    return line if isinstance(error, NeocogError) and line else f"{type(error).__name__}: {line}"
