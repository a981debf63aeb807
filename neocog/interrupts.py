"""Ctrl-C: it ends the program at once, interrupts what has to be cleaned up, or is put off."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


def leave_at_once() -> None:
    """Have Ctrl-C end the program in one line from now on, unless it is ignored altogether."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


@contextmanager
def interruptible() -> Iterator[None]:
    """Have Ctrl-C raise `KeyboardInterrupt` in the block where it would end the program at once."""
    if signal.getsignal(signal.SIGINT) is not _leave:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, _leave)


@contextmanager
def unbroken() -> Iterator[None]:
    """Put Ctrl-C off to the end of the block."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came and callable(before):
            before(*came[0])


def _leave(*_: object) -> None:
    try:
        os.write(2, b"neocog: interrupted\n")
    finally:
        os._exit(130)
