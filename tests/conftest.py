"""What every test may ask for."""

import os
import signal
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of the real sets (mnist, usps, photos, strings), named by NEOCOG_DATA."""
    place = os.environ.get("NEOCOG_DATA")
    if not place:
        pytest.skip("needs the real sets: set NEOCOG_DATA to their folder")
    folder = Path(place)
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


# A background job of a shell ignores Ctrl-C, and so would every process that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
