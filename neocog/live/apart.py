"""The search in a process of its own.

Search and network are Python as much as they are OpenCV and NumPy, and threads of one process take
turns at Python.
"""

import time
from collections.abc import Sequence
from typing import Any

from neocog.live.finder import Finder
from neocog.live.frames import Frame
from neocog.live.look import Found, Ready, Roi
from neocog.live.process import BROKEN, Board, Process, Question
from neocog.live.tracks import Track


class Apart:
    """Searches frames in another process, as `Finder` does in this one; marks come normalised.

    Where no process can be started, or when it ends, this one searches.

    Parameters
    ----------
    cuts : bool
        Whether marks that may be several digits are kept; they are not cut apart.
    """

    def __init__(self, *, cuts: bool = True) -> None:
        self._finder, self._cuts = Finder(cuts=cuts), cuts
        self._board = Board()
        self._process: Process | None = None

    def warm(self) -> None:
        """Start the process, and wait until it has loaded all that it needs."""
        self._process = next(iter(begun(1, self._board, cuts=self._cuts)), None)
        if self._process is not None:  # known already: it is ended when the wait is broken off
            self._process = next(iter(ready([self._process])), None)
        if self._process is None:
            self._finder.warm()

    def find(
        self,
        frame: Frame,
        *,
        roi: Roi | None = None,
        tracks: Sequence[Track] = (),
        steps: bool = False,
    ) -> Found:
        """Find the marks of a frame that may be digits; as `Finder.find`."""
        if self._process is not None:
            start = time.perf_counter()
            question = asked(frame, roi, tracks, steps)
            try:
                answer = self._asked(self._process, frame, question)
            except BROKEN:
                self.close()
            else:
                if isinstance(answer, Exception):
                    raise answer
                parts, bounds, lines, pictures = answer
                spent = 1e3 * (time.perf_counter() - start)
                return Found(frame, tuple(map(Ready, lines)), parts, bounds, spent, pictures)
        return self._finder.find(frame, roi=roi, tracks=tracks, steps=steps)

    @property
    def apart(self) -> bool:
        """Whether the process is there."""
        return self._process is not None

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.close()
        self._board.close()

    def _asked(self, process: Process, frame: Frame, question: Question) -> Any:
        lies = self._board.put(frame.pixels)
        process.ask(question, None if lies else frame.pixels)
        return process.answer()


def asked(frame: Frame, roi: Roi | None, tracks: Sequence[Track], steps: bool) -> Question:
    """Put into a question what a frame is searched for."""
    shape = frame.pixels.shape
    return Question(frame.index, shape, roi, tuple(tracks), steps, epoch=frame.epoch)


def begun(count: int, board: Board, *, cuts: bool) -> list[Process]:
    """Start processes, all at once; those that can be started."""
    processes: list[Process] = []
    try:
        for _ in range(count):
            processes.append(Process(board, cuts=cuts))
    except OSError:
        pass
    except BaseException:  # Ctrl-C: nobody knows of them yet
        for process in processes:
            process.close()
        raise
    return processes


def ready(processes: list[Process]) -> list[Process]:
    """Wait until processes are ready; return those that are."""
    able = []
    for process in processes:
        try:
            process.answer()
        except BROKEN:
            process.close()
        else:
            able.append(process)
    return able
