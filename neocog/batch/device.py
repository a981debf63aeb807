"""Which device the network runs on: every command asks here."""

import re
from types import ModuleType
from typing import TYPE_CHECKING

from neocog.errors import DeviceError, UsageError
from neocog.messages import tell

if TYPE_CHECKING:
    from neocog.network.engine import AnyEngine
    from neocog.network.model import Model

DEVICES = ("auto", "cpu", "cuda")

FINDER_ARCH = 80
"""Compute capability, times ten, that the finder's kernels need."""

_said: set[str] = set()


def choose_device(name: str) -> str:
    """Turn what was asked for into a device that can read.

    Parameters
    ----------
    name : str
        ``"auto"``, ``"cpu"``, ``"cuda"`` (every GPU) or ``"cuda:N"``. ``auto`` is CUDA where it
        can be used, else the CPU; if there is an NVIDIA driver all the same, the reason is told
        on stderr, once.

    Raises
    ------
    UsageError
        If there is no device of that name.
    DeviceError
        If it is not there.
    """
    if not re.fullmatch(r"cuda:\d+", name):
        _check(name, "cuda:N")
    if name == "cpu":
        return "cpu"
    from neocog.cuda import devices

    if name != "auto":
        devices.numbers(name)
        return name
    reason = devices.trouble()
    if reason is None:
        return "cuda"
    if devices.driver_version() is not None:
        told(reason)
    return "cpu"


def open_engine(
    model: "Model",
    *,
    device: str = "auto",
    precision: str | None = None,
    plan: str = "default",
    threads: int | None = None,
) -> "AnyEngine":
    """Return the engine of a device.

    Parameters
    ----------
    model : Model
        What to recognise with.
    device : str
        As :func:`choose_device`.
    precision : str, optional
        ``"fp32"``, ``"tf32"``, ``"fp16"`` or ``"bf16"``; on CUDA fp16 by default where the device
        multiplies matrices of it. The CPU has fp32 alone; where ``"auto"`` takes the CPU, a line
        on stderr says so.
    plan : str
        Which versions of the CUDA kernels: see :func:`neocog.cuda.plan.parse_plan`.
    threads : int, optional
        Threads of the CPU engine; all cores by default.

    Raises
    ------
    DeviceError
        If the device is not there.
    UsageError
        If device, precision or plan are unknown.
    """
    from neocog.network.engine import Engine

    check_names(precision, plan)
    chosen = choose_device(device)
    if chosen != "cpu":
        from neocog.cuda.engine import CudaEngine

        try:
            engine = CudaEngine(model, device=chosen, precision=precision, plan=plan)
            if device == "auto":
                engine.check()
            return engine
        except DeviceError as error:
            if device != "auto":
                raise
            told(str(error))
    if device == "auto":
        told_unused(precision, plan)
        return Engine(model, threads=threads)
    if precision not in (None, "fp32"):
        raise UsageError(f"precision '{precision}' needs --device cuda; the CPU computes in fp32")
    if plan != "default":
        raise UsageError(f"plan '{plan}' needs --device cuda; the CPU has no kernels to choose")
    return Engine(model, threads=threads)


def finder_device(engine: "AnyEngine") -> str:
    """Where the finder runs beside an engine: on its GPU, if that has what the finder needs."""
    if engine.device == "cpu":
        return "cpu"
    from neocog.cuda.devices import numbers
    from neocog.cuda.launcher import gpu

    number = numbers(engine.device)[0]
    return f"cuda:{number}" if gpu(number).arch >= FINDER_ARCH else "cpu"


def check_names(precision: str | None, plan: str) -> None:
    """Refuse precisions and plans that are none, wherever the network runs."""
    if precision is not None:
        from neocog.cuda.engine import precision_on

        precision_on(0, precision)
    if plan != "default":
        from neocog.cuda.plan import parse_plan

        parse_plan(plan)


def told(reason: str) -> None:
    """Say on stderr why ``auto`` takes the CPU, each reason once."""
    _say_once(f"reading on the CPU: {reason}")


def told_unused(precision: str | None, plan: str) -> None:
    """Say on stderr what ``auto`` has no use for on the CPU, once."""
    if precision not in (None, "fp32"):
        _say_once(f"precision '{precision}' is for CUDA; the CPU computes in fp32")
    if plan != "default":
        _say_once(f"plan '{plan}' is for CUDA; the CPU has no kernels to choose")


def _say_once(line: str) -> None:
    if line not in _said:
        _said.add(line)
        tell(line)


def learning_module(name: str) -> ModuleType:
    """Turn "auto", "cpu" or "cuda" into the array module that learning runs on, numpy or cupy.

    ``auto`` is CUDA if CuPy and a GPU are there, else the CPU.

    Raises
    ------
    UsageError, DeviceError
        If there is no device of that name, or it is not there.
    """
    from neocog.network.arrays import module_of_device

    _check(name)
    if name != "auto":
        return module_of_device(name)
    try:
        return module_of_device("cuda")
    except DeviceError:
        return module_of_device("cpu")


def _check(name: str, *more: str) -> None:
    if name not in DEVICES:
        known = ", ".join((*DEVICES, *more))
        raise UsageError(f"device '{name}' is unknown: choose one of {known}")
