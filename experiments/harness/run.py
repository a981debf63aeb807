"""Runs experiments, reads and judges their results.

An experiment is a folder with a module ``experiment`` that has ``measure``, ``faults``, ``tables``
and ``plots``, and a README.md, its page.
"""

import json
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from experiments.harness.record import about
from neocog.errors import DeviceError, InputError, NeocogError, UsageError

Result = dict[str, Any]
Save = Callable[[Result], None]

#: In the order of the page.
NAMES = ("convpool", "winograd", "slayer")
USUAL_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of an experiment: on ``"cpu"`` or ``"cuda:N"``, with ``data``/mnist.

    What is left after ``seconds`` is not run (convpool, winograd). Of slayer: whose whole passes
    are timed and how, networks whose layers are timed, and which sections, none for all.
    """

    device: str = "cpu"
    quick: bool = False
    seconds: float = USUAL_SECONDS
    data: Path | None = None
    command: str = ""
    model: str = "neocog-small"
    precision: str = "fp16"
    sizes: tuple[str, ...] = ()
    sections: tuple[str, ...] = ()

    @property
    def on_gpu(self) -> bool:
        return self.device != "cpu"

    @property
    def number(self) -> int:
        return int(self.device.partition(":")[2] or 0)

    def about(self) -> Result:
        return about(self.command, gpu=self.on_gpu, number=self.number)


def of(name: str) -> Any:
    if name not in NAMES:
        raise UsageError(f"no experiment {name!r}; choose {', '.join(NAMES)}")
    return import_module(f"experiments.{name}.experiment")


def run(name: str, request: Request, save: Save) -> Result:
    """Run an experiment; ``save`` takes the result so far."""
    if request.on_gpu:
        need_device(name, request.number)
    result: Result = of(name).measure(request, save)
    return result


def run_all(
    names: Sequence[str], request: Request, keep: Callable[[Mapping[str, Result]], None]
) -> dict[str, Result]:
    """Run experiments one after another; return results by name, ``failed`` in what broke off.

    ``keep`` takes all results so far. On a GPU each has a process of its own: what breaks the
    device for one, or a profiler that slows it down, does not touch the others.
    """
    results: dict[str, Result] = {}
    for name in names or NAMES:
        of(name)
    for name in names or NAMES:
        progress(f"experiment {name}")
        own = replace(request, command=f"{request.command} --only {name}")
        work = partial(_attempt, name, own, keep, dict(results))
        if request.on_gpu:
            with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                done = pool.submit(work)
            broken = done.exception()
            results[name] = done.result() if broken is None else {"failed": told(broken)}
        else:
            results[name] = work()
        keep(results)
    return results


def _attempt(
    name: str, request: Request, keep: Callable[[Mapping[str, Result]], None], before: Mapping[str, Result]
) -> Result:
    """Run one of several; where it breaks off, what it has so far and why."""
    so_far: Result = {}

    def save(found: Result) -> None:
        so_far.update(found)
        keep({**before, name: found})

    try:
        return run(name, request, save)
    except Exception as failure:  # told at the end; the others still run
        traceback.print_exc()
        return {**so_far, "failed": f"{type(failure).__name__}: {_first_line(failure)}"}


def faults(results: Mapping[str, Result]) -> list[str]:
    """Return a line for everything that failed or is wrong."""
    lines = []
    for name, result in results.items():
        own = [result["failed"]] if "failed" in result else of(name).faults(result)
        lines += [f"{name}: {line}" for line in own]
    return lines


def load(paths: Sequence[Path]) -> dict[str, Result]:
    """Return results by name from files: of all experiments, or of one (named by the file)."""
    results: dict[str, Result] = {}
    for path in paths:
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except OSError as failure:
            raise InputError(f"{path}: {failure.strerror}") from None
        except ValueError:
            raise InputError(f"{path}: not JSON, expected a result of neocog bench") from None
        if not isinstance(data, dict):
            raise InputError(f"{path}: not a result of neocog bench")
        found = {name: data[name] for name in NAMES if isinstance(data.get(name), dict)}
        single = data.get("experiment", path.stem)
        if not found and single in NAMES:
            found = {single: data}
        if not found:
            known = ", ".join(NAMES)
            raise InputError(f"{path}: no result of {known}; name the file after its experiment")
        results |= found
    return results


def need_device(name: str, number: int) -> None:
    """Raise a DeviceError unless there is the GPU that an experiment wants."""
    from neocog.cuda import devices

    why = devices.trouble()
    if why is not None:
        raise DeviceError(f"bench {name}: {why.partition(';')[0]}; add --cpu for counts alone")
    if number >= devices.count():
        raise DeviceError(f"bench {name}: there is no cuda:{number}")


def tried(work: Callable[[], Result], healthy: Callable[[], Any]) -> Result:
    """Return what ``work`` returns, or ``failed``, why not; others can still run.

    ``healthy`` raises if the device no longer works; then a DeviceError ends the run.
    """
    try:
        return work()
    except Exception as error:  # every library has errors of its own
        try:
            healthy()
        except Exception:
            raise DeviceError(f"the GPU stopped working: {told(error)}; run it again") from error
        return {"failed": told(error)}


def synchronise(gpu: Any) -> None:
    """Wait for a GPU of :mod:`neocog.cuda`; raises if it no longer works."""
    getattr(gpu.xp.cuda.runtime, "deviceSynchronize", lambda: None)()


def told(error: BaseException) -> str:
    """Return an error in a line: what ours says, others by their name."""
    line = _first_line(error)[:200]
    return line if isinstance(error, NeocogError) and line else f"{type(error).__name__}: {line}"


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]


def progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
