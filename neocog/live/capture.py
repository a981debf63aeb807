"""The thread that takes frames from a source: paced, and reopened when the source is lost."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from neocog.errors import InputError, NothingToRead
from neocog.live.frames import BoundedQueue, Closed, Frame
from neocog.live.sources import Source, SourceLost

_FIRST_WAIT = 0.25  # seconds before a lost source is tried again
_LONGEST_WAIT = 8.0  # the wait doubles up to this, also where a source is back for a moment only
_STEADY = 10.0  # seconds after which a source that is back counts as back for good


@dataclass(frozen=True, slots=True)
class Notice:
    """What happened to a source: it is open, was lost, or is back."""

    kind: Literal["open", "lost", "back"]
    text: str


class Capture(threading.Thread):
    """Takes frames from a source, which it opens and closes, and puts them into a queue.

    Parameters
    ----------
    source : Source
    out : BoundedQueue of Frame
        Closed at the end.
    pace : float, optional
        Frames a second at which frames are handed on, each at its own time and not before.
    own_pace : bool
        Hand frames on at the rate of the source, where it has one and does not pace itself.
    tell : callable
        Receives notices, in this thread.
    note : callable
        Receives the milliseconds that decoding a frame took, in this thread.
    """

    def __init__(
        self,
        source: Source,
        out: BoundedQueue[Frame],
        *,
        pace: float | None = None,
        own_pace: bool = False,
        tell: Callable[[Notice], None] = lambda notice: None,
        note: Callable[[float], None] = lambda ms: None,
    ) -> None:
        super().__init__(name="neocog-capture", daemon=True)
        self.error: BaseException | None = None
        self.running = threading.Event()
        self.running.set()
        self.count = 0
        self._source, self._out, self._tell, self._note = source, out, tell, note
        self._pace, self._own_pace = pace, own_pace
        self._ending = threading.Event()
        self._epoch, self._size = 0, (0, 0)
        self._start = self._held = self._late = 0.0
        self._wait, self._back = _FIRST_WAIT, 0.0  # before the next try, and when the last one did

    def hold(self, held: bool) -> None:
        """Take no more frames until told to go on."""
        if held:
            self.running.clear()
            self._held = time.perf_counter()
        elif not self.running.is_set():
            self._late += time.perf_counter() - self._held
            self.running.set()

    def stop(self) -> None:
        """End after the frame at hand."""
        self._ending.set()
        self.running.set()
        if interrupt := getattr(self._source, "interrupt", None):
            interrupt()

    def run(self) -> None:
        """Take frames until the source ends or `stop` is called."""
        try:
            self._tell(Notice("open", self._source.open()))
            if self._own_pace and not self._source.live:
                self._pace = self._pace or self._source.fps
            while not self._ending.is_set() and self._step():
                pass
        except Closed:
            pass
        except BaseException as error:  # told by whoever waits for the frames
            self.error = error
        finally:
            self._out.close()
            with suppress(Exception):
                self._source.close()

    def _step(self) -> bool:
        """Take one frame; return whether there may be more."""
        self.running.wait()
        try:
            if not self._source.grab():
                return False
            arrived = time.perf_counter()
            pixels = self._source.retrieve()
            self._note(1e3 * (time.perf_counter() - arrived))
        except SourceLost as error:
            if self._ending.is_set():
                return False
            if not self._source.returns:
                raise
            return self._reopen(str(error))
        height, width = pixels.shape[:2]
        if self._size != (width, height):
            self._epoch += self._size != (0, 0)
            self._size = (width, height)
        if self.count == 0:
            self._start = arrived
        t = arrived - self._start
        if not self._source.live and self._source.fps:
            t = self.count / self._source.fps
        if self._pace:
            arrived = self._due(self._pace)
        frame = Frame(self.count, pixels, t, arrived, self._epoch)
        self.count += 1
        self._out.put(frame)
        return True

    def _due(self, pace: float) -> float:
        """Wait until the next frame is due; return when it was."""
        if self.count == 0:
            self._start = time.perf_counter()
        due = self._start + self._late + self.count / pace
        left = due - time.perf_counter()
        if left > 0:
            self._ending.wait(left)
        elif self._own_pace:  # a file that is shown waits for whoever is slow
            self._late -= left
            due -= left
        return due

    def _reopen(self, why: str) -> bool:
        """Open a lost source again, with longer and longer waits; False when told to stop."""
        self._tell(Notice("lost", why))
        self._source.close()
        self._epoch += 1
        if time.perf_counter() - self._back > _STEADY:
            self._wait = _FIRST_WAIT
        while not self._ending.wait(self._wait):
            self._wait = min(2 * self._wait, _LONGEST_WAIT)
            try:
                granted = self._source.open()
            except (InputError, NothingToRead):
                continue
            self._back = time.perf_counter()
            self._tell(Notice("back", granted))
            return True
        return False
