"""Which device the network runs on: every command asks here."""

import re
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from neocog.errors import DeviceError, UsageError
from neocog.network.lines import ROWS, LineModel
from neocog.text import tell

if TYPE_CHECKING:
    from neocog.cuda.finder import CudaFinder
    from neocog.network.engine import AnyEngine
    from neocog.network.model import Model
    from neocog.vision.finder import FinderSettings, Finding
    from neocog.vision.finder_model import FinderModel, OpenCV

DEVICES = ("auto", "cpu", "cuda")


def choose_device(name: str) -> str:
    """Turn "auto", "cpu", "cuda" (the first GPU) or "cuda:N" into a device that can read.

    ``auto`` is CUDA where it can be used, else the CPU; if there is an NVIDIA driver all the same, the reason
    is told on stderr, once. UsageError if there is no device of that name, DeviceError if it is not there.
    """
    if name not in DEVICES and not re.fullmatch(r"cuda:\d+", name):
        raise UsageError(f"device '{name}' is unknown: choose one of {', '.join(DEVICES)}, cuda:N")
    if name == "cpu":
        return "cpu"
    from neocog.cuda import devices

    if name != "auto":
        devices.number_of(name)
        return name
    reason = devices.trouble()
    if reason is None:
        return "cuda"
    if devices.driver_version() is not None:
        _tell_once(f"reading on the CPU: {reason}")
    return "cpu"


def open_engine(
    model: "Model | LineModel", *, device: str = "auto", precision: str | None = None, plan: str = "default",
    threads: int | None = None,
) -> Any:  # fmt: skip
    """Return the engine of digits or of lines that runs a model on a device, named as for `choose_device`.

    Of a digit model ``precision`` is fp16 by default on CUDA where the device multiplies matrices of it, and
    fp32 on the CPU; plans: ``"default"``, ``"card"``. The CPU takes ``threads``, all cores by default.
    """
    from neocog.network.engine import Engine
    from neocog.network.line_engine import LineEngine

    lines = isinstance(model, LineModel)
    if lines and (precision, plan) != (None, "default"):
        raise UsageError("--precision and --plan are for models of digits; leave them out")
    check_names(precision, plan)
    chosen = choose_device(device)
    if chosen != "cpu":
        from neocog.cuda.engine import CudaEngine
        from neocog.cuda.lines import CudaLineEngine

        try:
            if isinstance(model, LineModel):
                reader = CudaLineEngine(model, device=chosen)
                reader.likelihoods([np.zeros((ROWS, 32), np.float32)])  # it runs, or says why not
                return reader
            engine = CudaEngine(model, device=chosen, precision=precision, plan=plan)
            if device == "auto":
                engine.check()
            return engine
        except DeviceError as error:
            if device != "auto":
                raise
            _tell_once(f"reading {'lines ' * lines}on the CPU: {error}")
    for asked, why, usual in (
        (f"precision '{precision}'", "the CPU computes in fp32", precision in (None, "fp32")),
        (f"plan '{plan}'", "the CPU has no kernels to choose", plan == "default"),
    ):
        if not usual and device != "auto":
            raise UsageError(f"{asked} needs --device cuda; {why}")
        if not usual:
            _tell_once(f"{asked} is for CUDA; {why}")
    kind: Any = LineEngine if lines else Engine
    return kind(model, threads=threads)


def open_finder(model: "FinderModel", device: "str | AnyEngine" = "cpu") -> "OpenCV | GpuFinder":
    """Return the finder on a device, or beside an engine: on its GPU, if that runs the finder's kernels.

    It is opened when it is first asked: DeviceError or ModelError if a GPU cannot run it.
    """
    from neocog.vision.finder_model import OpenCV

    if not isinstance(device, str):
        device = device.device
        if device != "cpu":
            from neocog.cuda.devices import number_of
            from neocog.cuda.launcher import gpu

            device = device if gpu(number_of(device)).arch >= 80 else "cpu"  # compute capability, times ten
    return OpenCV(model) if device == "cpu" else GpuFinder(model, device)


class GpuFinder:
    """A finder on a GPU, opened when it is first asked; it may go to another process."""

    def __init__(self, model: "FinderModel", device: str) -> None:
        self.model, self.device = model, device

    def __reduce__(self) -> tuple[Any, ...]:
        return GpuFinder, (self.model, self.device)

    @cached_property
    def _network(self) -> "CudaFinder":
        from neocog.cuda.finder import CudaFinder

        return CudaFinder(self.model.nodes, self.model.tensors, device=self.device)

    def __call__(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.asarray(self._network(x))

    def find(self, grey: NDArray[np.uint8], settings: "FinderSettings") -> "Finding":
        return self._network.find(grey, settings)


def check_names(precision: str | None, plan: str) -> None:
    """Refuse precisions and plans that are none, wherever the network runs."""
    if precision is not None:
        from neocog.cuda.kernel import precision_on

        precision_on(0, precision)
    if plan != "default":
        from neocog.cuda.plan import plan_of

        plan_of(plan, "fp32")


@cache
def _tell_once(line: str) -> None:
    tell(line)
