"""Runs the papers' experiments, reads and judges their results.

Each is a folder: README.md, modules ``experiment`` (``measure``, ``faults``) and ``tables`` (``plots`` too).
"""

import json
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from experiments.harness.record import facts, spread
from neocog.cuda import devices
from neocog.cuda.compiler import build
from neocog.cuda.kernel import Kernel
from neocog.errors import DeviceError, InputError, NeocogError, UsageError
from neocog.network.parallel import cores

Result = dict[str, Any]
Save = Callable[[Result], None]

FOLDER = Path(__file__).resolve().parents[1]
NAMES = ("convpool", "winograd", "slayer")  #: the papers, in the order of the page


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of an experiment on a device; of slayer also networks (``sizes``) and sections."""

    device: str = "cpu"
    quick: bool = False
    seconds: float = 600.0
    data: Path | None = None
    command: str = ""
    sizes: tuple[str, ...] = ()
    sections: tuple[str, ...] = ()

    @property
    def on_gpu(self) -> bool:
        return self.device != "cpu"

    @property
    def number(self) -> int:
        return int(self.device.partition(":")[2] or 0)

    def about(self) -> Result:
        return facts(self.command, gpu=self.on_gpu, number=self.number)


def in_time(left: list[Any], request: Request, quick_seconds: float) -> Iterator[Any]:
    """Take cases off a list as long as time is left; what stays in it is not run."""
    seconds = min(request.seconds, quick_seconds) if request.quick else request.seconds
    end = time.monotonic() + seconds
    while left and time.monotonic() < end:
        yield left.pop(0)


def needed(module: str) -> Any:
    """Return a module; UsageError if it is not installed."""
    try:
        return import_module(module)
    except ImportError:
        extra = "onnx" if module == "onnxruntime" else "bench"
        raise UsageError(f"{module} is not installed; install neocog[{extra}]") from None


def of(name: str, module: str = "experiment") -> Any:
    return import_module(f"experiments.{name}.{module}")


def load(path: Path) -> Result:
    """Return the result of an experiment from a file; InputError if it is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as failure:
        raise InputError(f"{path}: {failure.strerror}") from None
    except ValueError:
        raise InputError(f"{path}: not JSON, expected a result of neocog bench") from None
    if not isinstance(found, dict) or found.get("experiment") not in NAMES:
        raise InputError(f"{path}: no result of {', '.join(NAMES)}")
    return found


def need_device(number: int) -> None:
    """Raise a DeviceError unless there is the GPU that an experiment wants."""
    if (why := devices.trouble()) is not None:
        raise DeviceError(f"{why.partition(';')[0]}; --device cpu does what needs no GPU")
    if number >= devices.count():
        raise DeviceError(f"there is no cuda:{number}")


def tried(work: Callable[[], Result], healthy: Callable[[], Any]) -> Result:
    """Return what ``work`` returns, or why not (``failed``); DeviceError if ``healthy`` raises then."""
    try:
        return work()
    except Exception as error:  # every library has errors of its own
        try:
            healthy()
        except Exception:
            raise DeviceError(f"the GPU stopped working: {message_of(error)}; run it again") from error
        return {"failed": message_of(error)}


def synchronise(gpu: Any) -> None:
    """Wait for a GPU of :mod:`neocog.cuda`; raises if it no longer works."""
    getattr(gpu.xp.cuda.runtime, "deviceSynchronize", lambda: None)()


def message_of(error: BaseException) -> str:
    """Return an error in a line: what ours says, others by their name."""
    line = str(error).strip().partition("\n")[0][:200]
    return line if isinstance(error, NeocogError) and line else f"{type(error).__name__}: {line}"


def progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def build_all(gpu: Any, kernels: Collection[Kernel]) -> None:
    """Build kernels in processes of their own and keep them; why one does not build is told at its launch."""
    defines = (("PROGRAMMATIC", 1),) if gpu.programmatic else ()
    for _ in spread(partial(_build, arch=gpu.arch, defines=defines), kernels, min(cores(), 32)):
        pass


def _build(kernel: Kernel, arch: int, defines: tuple[tuple[str, int], ...]) -> None:
    with suppress(NeocogError):
        build(kernel, arch, defines=defines)
