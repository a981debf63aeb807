"""Processes that are forked from one that has loaded what they need.

They take no module from the current folder, hear no Ctrl-C, and end when their starter does.
"""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any, NoReturn

from neocog.errors import EndedEarly
from neocog.messages import printable
from neocog.programs import python

_ANSWERS = 60.0  # seconds that it may take to load what is wanted, and then to fork
_LOOKS = 0.1  # seconds in which who waits for that notices that nobody wants it any more
_LINGERS = 5.0  # seconds that a process may take to end once its connection is closed


class ForkServer:
    """The process that others are forked from; it is started when the first is wanted.

    ``modules`` are loaded before; ``variables`` are added to the environment. Many threads may use
    it.
    """

    def __init__(self, *modules: str, variables: Mapping[str, str] | None = None) -> None:
        self._modules, self._variables = modules, dict(variables or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._link: Connection | None = None
        self._lock = threading.RLock()
        self._closed = False

    def start(self) -> tuple[Connection, int]:
        """Fork a process; return a connection to it, and its number.

        It waits for what `pack` gives, to be sent over the connection with ``send_bytes``.
        EndedEarly if that cannot be done, though the server was started anew.
        """
        with self._lock:
            try:
                return self._forked()
            except (OSError, EOFError):
                self._end()
            try:
                return self._forked()
            except (OSError, EOFError) as error:
                self._end()
                why = str(error) or "the process that starts them ended"
                raise EndedEarly(f"worker processes cannot be started: {why}; try again") from None

    def end_of(self, number: int) -> int | None:
        """Wait for the end of a process whose connection is closed; return its exit code.

        One that lingers is killed; None where nobody knows.
        """
        with self._lock, suppress(OSError, EOFError, EndedEarly):
            if self._link is not None:
                self._link.send(number)
                return self._answer()
        return None

    def close(self) -> None:
        """End the server, and all that it forked; none is started any more."""
        self._closed = True  # a thread that waits for an answer lets go of the lock
        with self._lock:
            self._end()

    def _end(self) -> None:
        process, link, self._process, self._link = self._process, self._link, None, None
        if link is not None:
            link.close()
        if process is not None:
            try:
                process.wait(_LINGERS)
            except subprocess.TimeoutExpired:
                if self._closed:  # nobody else would end what it forked
                    os.killpg(process.pid, signal.SIGKILL)
                process.kill()
                process.wait()

    def _forked(self) -> tuple[Connection, int]:
        if self._closed:
            raise EndedEarly("the run has ended")
        if self._link is None or self._process is None:
            self._link, own = Pipe()
            with own:
                self._process = subprocess.Popen(
                    python("-c", _SERVE, str(own.fileno()), *self._modules),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,  # what decoders print is no record
                    env=os.environ | self._variables,
                    pass_fds=[own.fileno()],
                    start_new_session=True,  # Ctrl-C is for the process that writes
                )
        ours, theirs = Pipe()
        with theirs:
            self._link.send(None)
            send_handle(self._link, theirs.fileno(), self._process.pid)
            number = self._answer()
        assert number is not None
        return ours, number

    def _answer(self) -> int | None:
        assert self._link is not None
        late = time.monotonic() + _ANSWERS
        while not self._link.poll(_LOOKS):
            if self._closed:
                raise EndedEarly("the run has ended")
            if time.monotonic() > late:
                raise TimeoutError(f"the process that starts them did not answer for {_ANSWERS:.0f} s")
        answer: int | str | None = self._link.recv()
        if isinstance(answer, str):
            raise EndedEarly(f"worker processes cannot be started: {answer}")
        return answer


def pack(target: Callable[..., None], *args: Any) -> bytes:
    """Pack what a forked process is to do: ``target(connection, *args)``.

    It finds the modules that this process finds, but none of the current folder.
    """
    path = [place for place in sys.path if os.path.isabs(place)]
    return pickle.dumps((path, pickle.dumps((target, args))))


_SERVE = "from neocog.forkserver import main; main()"


def main() -> None:
    """Fork a process for each connection that comes; the body of the server."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # it may come ignored: nobody could be waited for
    link = Connection(int(sys.argv[1]))
    children: set[int] = set()
    trouble = None
    try:
        for module in sys.argv[2:]:
            import_module(module)
    except BaseException as error:
        trouble = f"{type(error).__name__}: {error}".partition("\n")[0]
    with suppress(OSError, EOFError):
        while True:
            number = link.recv()
            if number is None:
                with Connection(recv_handle(link)) as connection:
                    link.send(trouble or _fork(link, connection, children))
            else:
                children.discard(number)
                link.send(_end_of(number, _LINGERS))
    for child in children:  # who started them is no more, or wants no more of them
        _end_of(child, 0.0)


def _fork(link: Connection, connection: Connection, children: set[int]) -> int | str:
    try:
        number = os.fork()
    except OSError as error:
        return str(error)
    if number == 0:
        link.close()
        _run(connection)
    children.add(number)
    return number


def _run(connection: Connection) -> NoReturn:
    """Do what is asked for; the body of a forked process."""
    code = 1
    try:
        sys.path[:], wanted = pickle.loads(connection.recv_bytes())
        target, args = pickle.loads(wanted)
        target(connection, *args)
        code = 0
    except (ConnectionError, EOFError):  # nobody is there any more
        pass
    except BaseException as error:
        what = printable(f"{type(error).__name__}: {error}".partition("\n")[0])
        with suppress(OSError, ValueError, AttributeError):
            print(f"neocog: a worker process failed: {what}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)


def _end_of(number: int, patience: float) -> int | None:
    """Wait for a forked process, end it where that takes too long, and return its exit code.

    None where it is the child of a server that was before this one.
    """
    end = time.monotonic() + patience
    try:
        done, status = os.waitpid(number, os.WNOHANG)
        while not done and time.monotonic() < end:
            time.sleep(0.005)
            done, status = os.waitpid(number, os.WNOHANG)
        if not done:
            os.kill(number, signal.SIGKILL)
            _, status = os.waitpid(number, 0)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status)
