"""Runs experiments, each attended where it needs a GPU, and reads and judges their results.

An experiment is a folder with a module ``experiment`` that has ``measure``, ``faults``, ``tables``
and ``plots``, and a README.md, its page.
"""

import json
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from experiments.harness.attended import Result, Save, Watch, attend, faults_of, need_device
from experiments.harness.machine import about
from neocog.errors import InputError, UsageError

#: In the order of the page.
NAMES = ("convpool", "winograd", "slayer", "network")
USUAL_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of an experiment.

    Attributes
    ----------
    device : str
        ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.
    quick : bool
        Less of everything.
    seconds : float
        What is left after this time is not run.
    data : Path or None
        A folder that holds ``mnist``.
    command : str
        What was asked for, as the result tells it.
    """

    device: str = "cpu"
    quick: bool = False
    seconds: float = USUAL_SECONDS
    data: Path | None = None
    command: str = ""

    @property
    def on_gpu(self) -> bool:
        """Whether there is a GPU to measure."""
        return self.device != "cpu"

    @property
    def number(self) -> int:
        """Which GPU, where one is enough."""
        return int(self.device.partition(":")[2] or 0)

    def about(self) -> Result:
        """Return command, machine, date, commit and versions."""
        return about(self.command, gpu=self.on_gpu, number=self.number)


def of(name: str) -> Any:
    """Return an experiment's module."""
    if name not in NAMES:
        raise UsageError(f"no experiment {name!r}; choose {', '.join(NAMES)}")
    return import_module(f"experiments.{name}.experiment")


def run(name: str, request: Request, save: Save) -> Result:
    """Run an experiment; on a GPU in a process that is begun again if a kernel hangs or breaks it.

    ``save`` takes the result so far.
    """
    module = of(name)
    if not request.on_gpu:
        result: Result = module.measure(
            request, watch=Watch(), earlier={}, seconds=request.seconds, save=save
        )
        return result
    need_device(name, request.number)
    if request.quick:
        request = replace(request, seconds=min(request.seconds, module.QUICK_SECONDS))
    work = partial(module.measure, request)
    return attend(
        work, {}, seconds=request.seconds, save=save, log=progress, start=module.START_SECONDS
    )


def run_all(
    names: Sequence[str], request: Request, keep: Callable[[Mapping[str, Result]], None]
) -> dict[str, Result]:
    """Run experiments one after another; return results by name, ``failed`` in what broke off.

    ``keep`` takes all results so far.
    """
    results: dict[str, Result] = {}
    modules = {name: of(name) for name in names or NAMES}
    for name, module in modules.items():

        def so_far(found: Result, name: str = name) -> None:
            results[name] = found
            keep(results)

        progress(f"experiment {name}")
        own = replace(request, command=f"{request.command} --only {name}")
        try:
            asked = getattr(module, "asked", lambda request: request)
            so_far(run(name, asked(own), so_far))
        except Exception as failure:  # told at the end; the others still run
            traceback.print_exc()
            line = (str(failure).splitlines() or [""])[0]
            so_far({**results.get(name, {}), "failed": f"{type(failure).__name__}: {line}"})
    return results


def faults(results: Mapping[str, Result]) -> list[str]:
    """Return a line for everything that failed or is wrong."""
    lines = []
    for name, result in results.items():
        own = [result["failed"]] if "failed" in result else of(name).faults(result)
        lines += [f"{name}: {line}" for line in [*faults_of(result), *own]]
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


def progress(line: str) -> None:
    """Print a line of progress on stderr."""
    print(line, file=sys.stderr, flush=True)
