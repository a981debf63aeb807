"""A process that searches: started as a program of its own, by its name.

It needs no more of the program that started it than two pipes, and memory that both see where the
system has that, for the frame. It ends when the pipes are closed, however that ended.
"""

import mmap
import os
import pickle
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from neocog.live.child import Child
from neocog.live.finder import Finder, Searched
from neocog.live.frames import Frame
from neocog.live.look import Ready, Roi
from neocog.live.quiet import one_thread_each, settle
from neocog.live.split import Hints, Task, scout
from neocog.live.tracks import Track
from neocog.network.shares import cores

_STARTS = 60.0  # seconds in which a process is ready
_ANSWERS = 4.0  # seconds in which it answers; who takes longer hangs
_PLENTY = 16  # cores from which on OpenCV may take more threads than one: a tenth of a search less
_MANY = 3  # threads that it may take then

BROKEN = (OSError, EOFError, ValueError, pickle.UnpicklingError)
"""What asking raises when the process is no more."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a search process; the frame itself comes by the board or after this.

    Attributes
    ----------
    index : int
        Number of the frame.
    shape : tuple of int
        Of its pixels.
    roi, tracks, steps
        As `Finder.find`.
    task : Task
        What it does of the frame; all of it, unless said otherwise.
    epoch : int
        Of the frame.
    """

    index: int
    shape: tuple[int, ...]
    roi: Roi | None = None
    tracks: tuple[Track, ...] = field(default=())
    steps: bool = False
    task: Task = field(default_factory=Task)
    epoch: int = 0


class Board:
    """Memory in which processes see a frame; a file without a name, gone with the last of them.

    Parameters
    ----------
    file : int, optional
        Descriptor of the memory; a new one without it. Where there is none, nothing fits.
    """

    def __init__(self, file: int | None = None) -> None:
        self.file = _memory() if file is None else file
        self._map: mmap.mmap | None = None

    def put(self, pixels: NDArray[np.uint8]) -> bool:
        """Lay a frame down; False where that cannot be."""
        if self.file is None:
            return False
        try:
            if self._map is None or len(self._map) < pixels.nbytes:
                os.ftruncate(self.file, pixels.nbytes)
                self._map = mmap.mmap(self.file, pixels.nbytes)
            self._seen(pixels.shape)[:] = pixels
        except (OSError, ValueError):
            self.close()
            return False
        return True

    def get(self, shape: tuple[int, ...]) -> NDArray[np.uint8]:
        """Return the frame that lies there."""
        assert self.file is not None
        size = int(np.prod(shape))
        if self._map is None or len(self._map) < size:
            self._map = mmap.mmap(self.file, size)
        return self._seen(shape)

    def close(self) -> None:
        """Give the memory back."""
        file, self.file, self._map = self.file, None, None
        if file is not None:
            os.close(file)

    def _seen(self, shape: tuple[int, ...]) -> NDArray[np.uint8]:
        assert self._map is not None
        size = int(np.prod(shape))
        return np.frombuffer(self._map, np.uint8, size).reshape(shape)


class Process(Child):
    """A search process, seen from the program that starts it.

    Parameters
    ----------
    board : Board
        Where frames are laid.
    cuts : bool
        Whether marks that may be several digits are kept.

    Raises
    ------
    OSError
        If it cannot be started.
    """

    def __init__(self, board: Board, *, cuts: bool = True) -> None:
        files = () if board.file is None else (board.file,)
        words = [str(int(cuts)), *map(str, files)]
        super().__init__("neocog.live.process", words, files=files, limit=_STARTS)

    def answer(self) -> Any:
        """Wait for the answer to a question; the first one says that it is ready.

        Raises
        ------
        OSError, EOFError, ValueError, UnpicklingError
            If the process is no more; one that does not answer in time is ended.
        """
        with self.awaited() as (_, answers):
            answer = pickle.load(answers)
        self.limit = _ANSWERS
        return answer

    def ask(self, question: Question, pixels: NDArray[np.uint8] | None = None) -> None:
        """Ask; the pixels come along where they lie on no board.

        Raises
        ------
        OSError, ValueError
            If the process is no more.
        """
        with self.awaited() as (asks, _):
            pickle.dump((question, pixels is None), asks)
            if pixels is not None:
                asks.write(np.ascontiguousarray(pixels).data)
            asks.flush()


def serve(asks: BinaryIO, answers: BinaryIO, *, cuts: bool, board: Board) -> None:
    """Search the frames that are asked for through a pipe until it is closed."""
    finder = Finder(cuts=cuts)
    finder.warm()
    settle()
    answer: Any = None
    while True:
        pickle.dump(answer, answers)
        answers.flush()
        question, lies = pickle.load(asks)
        pixels = np.empty(0 if lies else question.shape, np.uint8)
        if not lies and asks.readinto(pixels.data.cast("B")) != pixels.size:  # type: ignore[attr-defined]
            return
        try:
            pixels = board.get(question.shape) if lies else pixels
            frame = Frame(question.index, pixels, 0.0, 0.0, question.epoch)
            answer = _answer(finder, frame, question)
        except Exception as error:  # raised again where the frame came from
            answer = _portable(error)


def _portable(error: Exception) -> Exception:
    """Return an error that can be sent: itself, or what it says."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _answer(finder: Finder, frame: Frame, question: Question) -> Searched | Hints:
    roi, tracks, steps, task = question.roi, question.tracks, question.steps, question.task
    if task.scouts:
        return scout(frame, task, roi=roi, tracks=tracks)
    done = finder.search(frame, task, roi=roi, tracks=tracks, steps=steps)
    return replace(done, marks={n: Ready(marks.digits()) for n, marks in done.marks.items()})


def _memory() -> int | None:
    """Return a descriptor of memory that other processes may see; None where there is none."""
    create = getattr(os, "memfd_create", None)  # some builds of Python lack it, on Linux too
    try:
        return int(create("neocog-frame")) if create else None
    except OSError:
        return None


def main() -> None:
    """Serve the program that started this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where a session of its own does not keep it off
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what others print is no answer
    one_thread_each(pictures=_MANY if cores() >= _PLENTY else 1)
    cuts, *files = map(int, sys.argv[1:])
    with suppress(EOFError, OSError):
        serve(sys.stdin.buffer, answers, cuts=bool(cuts), board=Board(*files))


if __name__ == "__main__":
    main()
