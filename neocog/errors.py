"""The exceptions that neocog raises on purpose, and the exit code that each one stands for.

A message is one line: what came, what was wanted, what to do.
"""

OPENCV_NEEDS = "on a bare server: apt-get install -y --no-install-recommends libgl1 libglib2.0-0"


class NeocogError(Exception):
    """Base of everything that neocog raises on purpose."""

    exit_code = 1


class InputError(NeocogError):
    """One input (picture, data file, record) cannot be read; others may be."""


class UsageError(NeocogError):
    """An option or argument has a value that makes no sense."""

    exit_code = 2


class NothingToRead(NeocogError):
    """No input was found where inputs were asked for."""

    exit_code = 3


class ModelError(NeocogError):
    """A model is missing, broken, or does not fit the network that it names."""

    exit_code = 4


class DeviceError(NeocogError):
    """The device that was asked for is not there or cannot be used."""

    exit_code = 5


class EndedEarly(NeocogError):
    """The run ended before all inputs were read (a full disk, dying workers); what was written stands."""

    exit_code = 6


def no_opencv(error: ImportError) -> DeviceError:
    """The error where OpenCV's wheel misses a library of the system: of ImportErrors with the name cv2."""
    return DeviceError(f"OpenCV cannot be imported: {error}; {OPENCV_NEEDS}")
