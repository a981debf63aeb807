"""Which device the network runs on."""

from neocog.errors import DeviceError, UsageError

DEVICES = ("auto", "cpu", "cuda")


def choose_device(name: str) -> str:
    """Turn what was asked for into a device that is there.

    Parameters
    ----------
    name : {"auto", "cpu", "cuda"}
        ``auto`` takes the best there is.

    Raises
    ------
    UsageError
        If there is no device of that name.
    DeviceError
        If it is not there.
    """
    if name not in DEVICES:
        raise UsageError(f"device '{name}' is unknown: choose one of {', '.join(DEVICES)}")
    if name == "cuda":
        raise DeviceError(
            "device 'cuda': this version runs on the CPU only; use --device cpu or auto"
        )
    return "cpu"
