"""A program of ours at the other end of two pipes, ended when it does not answer."""

import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import BinaryIO

from neocog.programs import python

_LOOKED = 0.25  # seconds between two looks whether it hangs
_ENDS = 1.0  # seconds in which a killed process is gone


class Child:
    """A process that answers; it ends with its pipes, however the program that started it ends.

    Parameters
    ----------
    module : str
        Of neocog, run as a program.
    words : sequence of str
        Its arguments.
    files : sequence of int
        Descriptors that it gets.
    limit : float
        Seconds in which it answers; may be changed.

    Raises
    ------
    OSError
        If it cannot be started.
    """

    def __init__(
        self, module: str, words: Sequence[str] = (), *, files: Sequence[int] = (), limit: float
    ) -> None:
        self._process = subprocess.Popen(
            python("-m", module, *words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=files,
            start_new_session=True,  # Ctrl-C is for the program that started it, from the first on
        )
        self.pid = self._process.pid
        self._wait: object = None  # tells one wait for it from another; None while nobody waits
        self.limit = limit
        self._closed = threading.Event()
        try:
            threading.Thread(target=self._watch, name="neocog-watch", daemon=True).start()
        except BaseException as error:
            self.close()
            if isinstance(error, RuntimeError):  # no thread more can be had
                raise OSError(str(error)) from error
            raise

    def kill(self) -> None:
        """End it, without waiting until it is gone; whoever waits for its answer is told."""
        self._closed.set()
        self._process.kill()

    def close(self) -> None:
        """End it. It is gone before its pipes are closed: who waits at them holds their locks."""
        self.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_ENDS)
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError, ValueError):
                pipe.close()  # type: ignore[union-attr]

    @contextmanager
    def awaited(self) -> Iterator[tuple[BinaryIO, BinaryIO]]:
        """Give the pipes, to it and from it; who waits at them too long finds them closed."""
        asks, answers = self._process.stdin, self._process.stdout
        assert asks is not None
        assert answers is not None
        self._wait = object()
        try:
            yield asks, answers  # type: ignore[misc]
        finally:
            self._wait = None

    def _watch(self) -> None:
        """End the process if it hangs. Looks count, not time: this one may be held as well."""
        seen, looks = None, 0
        while not self._closed.wait(_LOOKED):
            wait = self._wait
            looks = looks + 1 if wait is not None and wait is seen else 0
            seen = wait
            if looks * _LOOKED >= self.limit:
                self.kill()
