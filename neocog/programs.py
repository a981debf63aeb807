"""Python programs of ours take nothing from the current folder. This module imports nothing that could."""

import os
import sys

_HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# neocog itself imports nothing: nothing that lies beside it gets in while its folder is on the path
_FIND = f"import sys; sys.path.insert(0, {_HOME!r}); import neocog; del sys.path[0]\n"


def python(option: str, what: str, *words: str) -> list[str]:
    """Return a command for this Python: ``-m`` and a module of neocog, or ``-c`` and code; and arguments."""
    if option == "-m":
        what = f"import runpy; runpy.run_module({what!r}, run_name='__main__', alter_sys=True)"
    alone = "-I" if sys.flags.isolated else "-P"
    return [sys.executable, alone, "-c", _FIND + what, *words]


def leave_folder() -> None:
    """Take the current folder, and what PYTHONPATH names relative to it, off the path; of children too."""
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    kept = [name for name in named if os.path.isabs(name)]
    try:
        here = {os.path.abspath(name) for name in ("", *named)}
    except OSError:  # the folder is gone, and its modules with it
        here = set()
    sys.path[:] = [place for place in sys.path if place and (place in kept or place not in here)]
    os.environ["PYTHONPATH"] = os.pathsep.join(kept)
    os.environ["PYTHONSAFEPATH"] = "1"
