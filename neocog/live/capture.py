"""Frames, the queues that they wait in, and the thread that takes them from a source."""

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

import cv2
import numpy as np

from neocog.errors import InputError, NothingToRead, UsageError
from neocog.live.video import Pixels, Source, SourceLost
from neocog.vision.page import TURNS

T = TypeVar("T")

_FIRST_WAIT = 0.25  # seconds before a lost source is tried again
_LONGEST_WAIT = 8.0  # the wait doubles up to this, also where a source is back for a moment only
_STEADY = 10.0  # seconds after which a source that is back counts as back for good


@dataclass(frozen=True, slots=True)
class Frame:
    """One picture of a source."""

    index: int  # from 0, those that were dropped counted
    pixels: Pixels  # (H, W, 3): blue, green, red
    t: float  # seconds since the first frame; in a file by its own clock
    arrived: float  # when the source gave it (or was due to), by time.perf_counter
    epoch: int = 0  # grows when the source is opened again or changes its size

    @property
    def size(self) -> tuple[int, int]:
        return self.pixels.shape[1], self.pixels.shape[0]


class Closed(Exception):
    """The queue is closed, and nothing is left in it."""


class BoundedQueue(Generic[T]):
    """Hands items from one thread to another; at most ``depth`` wait.

    When it is full, `put` waits (for a file), or with ``newest`` (for a camera) the oldest item gives way:
    ``merge``, given it and the new one, returns what is kept of both.
    """

    def __init__(
        self, *, newest: bool, merge: Callable[[T, T], T] = lambda old, new: new, depth: int = 1
    ) -> None:
        self._newest, self._merge, self._depth = newest, merge, depth
        self._items: deque[T] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self.dropped = 0

    def put(self, item: T) -> None:
        """Add an item, or raise Closed."""
        with self._changed:
            if self._newest and len(self._items) == self._depth:
                item = self._merge(self._items.popleft(), item)
                self.dropped += 1
            self._changed.wait_for(lambda: len(self._items) < self._depth or self._closed)
            if self._closed:
                raise Closed
            self._items.append(item)
            self._changed.notify_all()

    def get(self, timeout: float | None = None) -> T:
        """Take an item, or raise Closed, or TimeoutError after ``timeout`` seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: bool(self._items) or self._closed, timeout):
                raise TimeoutError
            if not self._items:
                raise Closed
            self._changed.notify_all()
            return self._items.popleft()

    def close(self, *, forget: bool = False) -> None:
        """Take no more items; those that wait can still be taken unless they are forgotten."""
        with self._changed:
            self._closed = True
            if forget:
                self._items.clear()
            self._changed.notify_all()


class Capture(threading.Thread):
    """Takes frames from a source, which it opens, opens again when it is lost, and closes.

    ``pace`` is the rate at which frames are due; ``own_pace``: a file's frames at its own rate, waiting for
    whoever is slow. Frames are mirrored left to right, then turned clockwise by degrees. In this thread
    ``tell`` receives what happened to the source (``"open"``, ``"lost"``, ``"back"``) and what there is to
    say of it, ``note`` the milliseconds that decoding a frame took.
    """

    def __init__(
        self, source: Source, out: BoundedQueue[Frame], *,
        pace: float | None = None, own_pace: bool = False, rotate: int = 0, mirror: bool = False,
        tell: Callable[[str, str], None] = lambda state, text: None,
        note: Callable[[float], None] = lambda ms: None,
    ) -> None:  # fmt: skip
        super().__init__(name="neocog-capture", daemon=True)
        if rotate not in TURNS:
            raise UsageError(f"rotate {rotate}: expected 0, 90, 180 or 270 degrees")
        self.error: BaseException | None = None
        self.count = 0
        self.running = threading.Event()
        self.running.set()
        self._source, self._out, self._tell, self._note = source, out, tell, note
        self._pace, self._own_pace, self._rotate, self._mirror = pace, own_pace, rotate, mirror
        self._ending = threading.Event()
        self._epoch, self._size = 0, (0, 0)
        self._start, self._due = 0.0, 0.0  # when the first frame came, and the next is due
        self._wait, self._back = _FIRST_WAIT, 0.0  # before the next try, and when the last one did

    def hold(self, held: bool) -> None:
        """Take no more frames until told to go on."""
        self._due = time.perf_counter()
        (self.running.clear if held else self.running.set)()

    def stop(self) -> None:
        """End after the frame at hand."""
        self._ending.set()
        self.running.set()
        self._source.interrupt()

    def run(self) -> None:
        """Take frames until the source ends or `stop` is called."""
        try:
            self._tell("open", self._source.open())
            if self._own_pace and not self._source.live:
                self._pace = self._pace or self._source.fps
            while self.running.wait() and not self._ending.is_set():
                try:
                    if (pixels := self._source.read()) is None:
                        break
                except SourceLost as error:
                    if not (self._ending.is_set() or self._source.live):
                        raise
                    self._reopen(str(error))
                else:
                    self._put(pixels, self._source.arrived)
        except Closed:
            pass
        except BaseException as error:  # told by whoever waits for the frames
            self.error = error
        finally:
            self._out.close()
            with suppress(Exception):
                self._source.close()

    def _put(self, pixels: Pixels, arrived: float) -> None:
        """Hand a frame on, once it is due."""
        pixels = np.asarray(cv2.flip(pixels, 1), np.uint8) if self._mirror else pixels
        if self._rotate:
            pixels = np.asarray(cv2.rotate(pixels, self._rotate // 90 - 1), np.uint8)
        self._note(1e3 * (time.perf_counter() - arrived))
        if self._size != pixels.shape[:2]:
            self._epoch += self._size != (0, 0)
            self._size = pixels.shape[:2]
        if self.count == 0:
            self._start = self._due = arrived
        own = not self._source.live and self._source.fps
        t = self.count / own if own else arrived - self._start
        if self._pace:
            if (late := time.perf_counter() - self._due) < 0:
                self._ending.wait(-late)
            elif self._own_pace:
                self._due += late
            arrived, self._due = self._due, self._due + 1 / self._pace
        self._out.put(Frame(self.count, pixels, t, arrived, self._epoch))
        self.count += 1

    def _reopen(self, why: str) -> None:
        """Open a lost source again, with longer and longer waits, or until told to stop."""
        if self._ending.is_set():
            return
        self._tell("lost", why)
        self._source.close()
        self._epoch += 1
        if time.perf_counter() - self._back > _STEADY:
            self._wait = _FIRST_WAIT
        while not self._ending.wait(self._wait):
            self._wait = min(2 * self._wait, _LONGEST_WAIT)
            with suppress(InputError, NothingToRead):
                granted = self._source.open()
                self._back = time.perf_counter()
                self._tell("back", granted)
                return
