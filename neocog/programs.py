"""How programs of ours start and end: by this Python, with this neocog; Ctrl-C is one line.

It imports nothing that takes time: `signal` itself would.
"""

import _signal  # type: ignore[import-not-found]
import os
import sys

_HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# neocog itself imports nothing: nothing that lies beside it gets in while its folder is on the path
_FIND = f"import sys; sys.path.insert(0, {_HOME!r}); import neocog; del sys.path[0]\n"


def python(option: str, what: str, *words: str) -> list[str]:
    """Return a command for this Python; it takes no module from the folder in which it is run.

    Parameters
    ----------
    option : {"-m", "-c"}
        Whether ``what`` is a module of neocog, or code.
    what : str
    *words : str
        Its arguments.
    """
    if option == "-m":
        what = f"import runpy; runpy.run_module({what!r}, run_name='__main__', alter_sys=True)"
    alone = "-I" if sys.flags.isolated else "-P"
    return [sys.executable, alone, "-c", _FIND + what, *words]


def leave_folder() -> None:
    """Have this program, and all that it starts, import nothing from the current folder.

    ``python -m`` and an empty or relative name in PYTHONPATH put it on the path.
    """
    here = [""]
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    try:
        if "-m" in sys.orig_argv and not sys.flags.safe_path and sys.path[0] == os.getcwd():
            del sys.path[0]
        here += [os.path.abspath(name) for name in named if not os.path.isabs(name)]
    except OSError:  # the folder is gone, and its modules with it
        pass
    sys.path[:] = [place for place in sys.path if place not in here or place in named]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(os.path.isabs, named))
    os.environ["PYTHONSAFEPATH"] = "1"


def leave_at_once() -> None:
    """Have Ctrl-C end the program from now on, unless it is ignored altogether.

    It is so before a command begins, and when it is done: there is nothing to clean up then.
    """
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, leave)


def leave(*_: object) -> None:
    """Say that the program is interrupted, and end it."""
    try:
        os.write(2, b"neocog: interrupted\n")
    finally:
        os._exit(130)
