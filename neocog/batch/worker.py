"""A worker process: it decodes, finds and writes records; the networks of its starter answer it.

Messages are pickles: tasks and answers come on stdin, pairs (kind, what) leave on stdout.
"""

import faulthandler
import os
import pickle
import signal
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from neocog.errors import NeocogError, no_opencv

MEMORY = 1_500_000_000  # bytes that a worker may allocate beyond what it has when it starts: it has one page
NO_MEMORY = 75  # exit code of one that asked for more
STARTS = 60.0  # seconds that a worker may take to start
READY, QUESTION, BLOCK, ERROR = "ready", "question", "block", "error"  # what a worker sends


@dataclass(frozen=True)
class _Network:
    """A network of the starter, as the engine or the finder of a reader here; ``ask`` has it answer."""

    model: Any
    batch: int
    ask: Callable[..., Any]
    device: str = "cpu"

    def recognise(self, *question: Any, batch: int | None = None) -> Any:
        return self.ask(*question)

    likelihoods = find = recognise


def main() -> None:
    """Do task after task, until the process that started this one closes the pipe or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_after(STARTS)
    received, sent = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)  # what decoders print is no record
    try:
        sys.path[:] = pickle.load(received)
        job, patience = pickle.load(received)
        _work(job, patience, received, sent)
    except Exception as error:
        what = f"{type(error).__name__}: {error}".partition("\n")[0]
        if isinstance(error, ImportError) and error.name == "cv2":
            what = str(no_opencv(error))
        _send(sent, ERROR, what)
    finally:
        os._exit(1)


def _work(job: Any, patience: float, received: IO[bytes], sent: IO[bytes]) -> None:
    """Do tasks, in ``patience`` seconds from each beat to the next, and no longer than each may take."""
    end = 0.0

    def beat() -> None:
        end_after(max(1e-3, min(patience, end - time.monotonic())))

    def ask(*question: Any) -> Any:
        end_after(0)
        _send(sent, QUESTION, question)
        answer = _or_exit(pickle.load, received)
        beat()
        return answer

    from neocog.vision import decode, page  # noqa: F401 (before the limit of memory)

    limit_process()
    reader = job.reader
    reader.engine = _Network(reader.model, reader.batch, ask)
    if reader.finder.device != "cpu":
        reader.finder = _Network(reader.finder.model, 1, ask)
    if sys.platform == "linux":  # a decoder that asks for too much shall fail, not the machine
        import resource

        most = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + MEMORY
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        if hard == resource.RLIM_INFINITY or most < hard:
            resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    end_after(0)
    _send(sent, READY)
    while True:
        task = _or_exit(pickle.load, received)
        end = time.monotonic() + task.limit
        beat()
        try:
            result = BLOCK, job.do(task, beat=beat)
        except MemoryError:
            os._exit(NO_MEMORY)
        except Exception as error:
            result = ERROR, error if isinstance(error, NeocogError) else f"{type(error).__name__}: {error}"
        end_after(0)
        _send(sent, *result)


def end_after(seconds: float) -> None:
    """Have the system end this process after so many seconds (0: no more), whatever a decoder holds."""
    if hasattr(signal, "setitimer"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})  # a starter may have blocked it
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, seconds)
    elif seconds:  # Windows
        faulthandler.dump_traceback_later(seconds, exit=True, file=1)  # by then devnull
    else:
        faulthandler.cancel_dump_traceback_later()


def _send(stream: IO[bytes], kind: str, what: Any = None) -> None:
    _or_exit(pickle.dump, (kind, what), stream)
    _or_exit(stream.flush)


def _or_exit(transfer: Callable[..., Any], *what: Any) -> Any:
    """Send or receive a message; end this process if that cannot be done whole."""
    try:
        return transfer(*what)
    except MemoryError:
        os._exit(NO_MEMORY)
    except (EOFError, OSError, pickle.UnpicklingError):  # nobody is there any more
        os._exit(0)


def limit_process() -> None:
    """Hold this process to one thread of OpenCV and BLAS, and suppress remarks of decoders."""
    import cv2
    from threadpoolctl import threadpool_limits

    cv2.setNumThreads(1)
    threadpool_limits(1)
    warnings.simplefilter("ignore")
