"""What every test may ask for."""

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Run the whole suite in several processes, each file in one of them.

    A file that is named on the command line, tests for a GPU and the debugger run in this process.
    """
    cores = min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1, 4)
    if (
        cores > 1
        and config.pluginmanager.hasplugin("xdist")
        and not hasattr(config, "workerinput")  # of a worker
        and config.option.numprocesses is None
        and config.args_source is pytest.Config.ArgsSource.TESTPATHS
        and "not gpu" in config.option.markexpr
        and not config.option.usepdb
    ):
        config.option.dist = "loadfile"
        config.option.tx = ["popen"] * (cores + 1)  # some wait most of the time


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of the real sets (mnist, usps, photos, strings), named by NEOCOG_DATA."""
    folder = Path(os.environ.get("NEOCOG_DATA") or pytest.skip("needs the real sets: set NEOCOG_DATA"))
    if not folder.is_dir():
        pytest.fail(f"NEOCOG_DATA names {folder}, which is not a folder")
    return folder


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The file of a tiny model."""
    from tests.support import tiny_model

    path = tmp_path_factory.mktemp("model") / "tiny.safetensors"
    tiny_model().save(path)
    return str(path)


@pytest.fixture(scope="session")
def hands_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of small sets that lines are drawn with."""
    from tests.support import write_hands

    return write_hands(tmp_path_factory.mktemp("hands"))


@pytest.fixture(scope="session")
def reader() -> Any:
    """A reader with a tiny model."""
    from neocog import Reader
    from tests.support import tiny_model

    return Reader(tiny_model(), device="cpu")


@pytest.fixture(scope="session")
def emulator() -> Any:
    """A machine that runs kernels on the CPU."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++: the emulator builds kernels with it")
    from tests.emulator import Emulator

    return Emulator()


@pytest.fixture(scope="session")
def nvrtc() -> None:
    """What builds cubins, no GPU needed."""
    from neocog.cuda import compiler
    from neocog.errors import DeviceError

    try:
        compiler.nvrtc_library()
    except DeviceError as error:
        pytest.skip(f"needs NVRTC: {error}")


@pytest.fixture
def tells_again() -> None:
    """What is told once is told again."""
    from neocog.reading import device

    device._tell_once.cache_clear()


# A background job of a shell ignores Ctrl-C, and so would every process that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
