"""How programs of ours are started: by this Python, with this neocog, whatever the folder holds."""

import os
import sys
from pathlib import Path


def python(*words: str) -> list[str]:
    """Return a command for this Python; it takes no module from the folder in which it is run."""
    return [sys.executable, "-P", *words]


def surroundings() -> dict[str, str]:
    """Return environment variables with which that Python finds this neocog."""
    import neocog

    home = str(Path(neocog.__file__).resolve().parent.parent)
    paths = [home, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
