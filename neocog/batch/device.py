"""Which device the network runs on: every command asks here."""

from types import ModuleType

from neocog.errors import DeviceError, UsageError

DEVICES = ("auto", "cpu", "cuda")


def choose_device(name: str) -> str:
    """Turn what was asked for into a device that can read.

    Parameters
    ----------
    name : {"auto", "cpu", "cuda"}
        ``auto`` is the CPU: the engine has no other yet.

    Raises
    ------
    UsageError
        If there is no device of that name.
    DeviceError
        If it is not there.
    """
    _check(name)
    if name == "cuda":
        raise DeviceError(
            "device 'cuda': this version reads on the CPU only; use --device cpu or auto"
        )
    return "cpu"


def learning_module(name: str) -> ModuleType:
    """Turn what was asked for into the array module that learning runs on.

    Parameters
    ----------
    name : {"auto", "cpu", "cuda"}
        ``auto`` is CUDA if CuPy and a GPU are there, else the CPU.

    Returns
    -------
    module
        numpy or cupy.

    Raises
    ------
    UsageError
        If there is no device of that name.
    DeviceError
        If it is not there.
    """
    from neocog.network.arrays import module_of_device

    _check(name)
    if name != "auto":
        return module_of_device(name)
    try:
        return module_of_device("cuda")
    except DeviceError:
        return module_of_device("cpu")


def _check(name: str) -> None:
    if name not in DEVICES:
        raise UsageError(f"device '{name}' is unknown: choose one of {', '.join(DEVICES)}")
