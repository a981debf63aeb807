"""What every test may ask for."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of the real sets (mnist, usps, photos, strings), named by NEOCOG_DATA."""
    place = os.environ.get("NEOCOG_DATA")
    if not place:
        pytest.skip("the real sets are needed: set NEOCOG_DATA to their folder")
    folder = Path(place)
    if not folder.is_dir():
        pytest.fail(f"NEOCOG_DATA names {folder}, which is not a folder")
    return folder
