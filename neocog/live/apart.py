"""The search in a process of its own.

Search and network are Python as much as they are OpenCV and NumPy, and threads of one process take
turns at Python. What searches is started as a program of its own, by its name: it needs no more of
the program that started it than two pipes, and ends when they are closed, however that ended.
"""

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from neocog.live.finder import Finder
from neocog.live.frames import Frame
from neocog.live.look import Found, Ready, Roi
from neocog.live.tracks import Track

_ENDS = 1.0  # seconds in which the process ends when it is told to


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
        self._process: subprocess.Popen[bytes] | None = None

    def warm(self) -> None:
        """Start the process, and wait until it has loaded all that it needs."""
        self._process = _started(self._cuts)
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
            try:
                answer = self._asked(self._process, frame, (roi, tuple(tracks), steps))
            except (OSError, EOFError, ValueError, pickle.UnpicklingError):
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
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError, ValueError):
                pipe.close()  # type: ignore[union-attr]
        try:
            process.wait(_ENDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _asked(self, process: "subprocess.Popen[bytes]", frame: Frame, how: Any) -> Any:
        asks, answers = process.stdin, process.stdout
        assert asks is not None
        assert answers is not None
        pickle.dump((frame.index, frame.pixels.shape, how), asks)
        asks.write(np.ascontiguousarray(frame.pixels).data)
        asks.flush()
        return pickle.load(answers)


def _started(cuts: bool) -> "subprocess.Popen[bytes] | None":
    """Start the process and wait until it is ready; None if that cannot be."""
    import neocog

    home = str(Path(neocog.__file__).resolve().parent.parent)
    paths = [home, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "neocog.live.apart", str(int(cuts))]
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        assert process.stdout is not None
        pickle.load(process.stdout)
    except (OSError, EOFError, pickle.UnpicklingError):
        return None
    return process


def serve(asks: BinaryIO, answers: BinaryIO, *, cuts: bool) -> None:
    """Search the frames that come through a pipe until it is closed."""
    finder = Finder(cuts=cuts)
    finder.warm()
    answer: Any = None
    while True:
        pickle.dump(answer, answers)
        answers.flush()
        index, shape, (roi, tracks, steps) = pickle.load(asks)
        pixels = np.empty(shape, np.uint8)
        if asks.readinto(pixels.data.cast("B")) != pixels.size:  # type: ignore[attr-defined]
            return
        try:
            found = finder.find(Frame(index, pixels, 0.0, 0.0), roi=roi, tracks=tracks, steps=steps)
            lines = [search.digits() for search in found.searches]
            answer = found.parts, found.bounds, lines, found.steps
        except Exception as error:  # raised again where the frame came from
            answer = error


def main() -> None:
    """Serve the program that started this one."""
    from neocog.live.quiet import one_thread_each

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends when its pipes are closed
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what others print is no answer
    one_thread_each()
    with suppress(EOFError, OSError):
        serve(sys.stdin.buffer, answers, cuts=sys.argv[1:] != ["0"])


if __name__ == "__main__":
    main()
