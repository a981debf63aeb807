"""Ctrl-C before a command begins, and when it is done: it ends the program at once, in one line.

There is nothing to clean up then. It imports nothing that takes time: `signal` itself would.
"""

import _signal  # type: ignore[import-not-found]
import os


def leave_at_once() -> None:
    """Have Ctrl-C end the program from now on, unless it is ignored altogether."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, leave)


def leave(*_: object) -> None:
    """Say that the program is interrupted, and end it."""
    try:
        os.write(2, b"neocog: interrupted\n")
    finally:
        os._exit(130)
