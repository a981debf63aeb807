"""Frames, the threads that they pass through, and how they are taken from a source."""

import threading
import time
from collections.abc import Callable, Generator, Iterator
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


class Ahead(Generic[T]):
    """Goes through ``items`` in a thread of its own, so that the next one is there when it is taken.

    One waits, and the thread with it (for a file); or, with ``merge`` (for a camera), it gives way to the
    next: ``merge``, given both, returns what is kept. What ends the items is raised where they are taken.
    """

    def __init__(self, items: Iterator[T], name: str, merge: Callable[[T, T], T] | None = None) -> None:
        self.dropped = 0
        self._items, self._merge = items, merge
        self._waiting: list[T] = []
        self._changed = threading.Condition()
        self._end: BaseException | None = None
        self.thread = threading.Thread(target=self._run, name=f"neocog-{name}", daemon=True)

    def _run(self) -> None:
        end: BaseException = StopIteration()
        try:
            for item in self._items:
                with self._changed:
                    if self._merge and self._waiting:
                        item = self._merge(self._waiting.pop(), item)
                        self.dropped += 1
                    self._changed.wait_for(lambda: not self._waiting or self._end)
                    if self._end:
                        break
                    self._waiting.append(item)
                    self._changed.notify_all()
        except BaseException as error:  # of whoever takes the items
            end = error
        with self._changed:
            self._end = self._end or end
            self._changed.notify_all()
        if isinstance(self._items, Generator):
            self._items.close()

    def next(self, timeout: float | None = None) -> T | None:
        """Take an item, None if none comes in ``timeout`` seconds; StopIteration at the end, or an error."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._waiting or self._end, timeout):
                return None
            self._changed.notify_all()
            if self._waiting:
                return self._waiting.pop()
            assert self._end is not None
            raise self._end

    def stop(self) -> None:
        """Go through no more items; one that waits is forgotten."""
        with self._changed:
            self._end = self._end or StopIteration()
            self._waiting.clear()
            self._changed.notify_all()


class Capture:
    """Takes frames from a source, which it opens, opens again when it is lost, and closes.

    ``pace`` is the rate at which frames are due; ``own_pace``: a file's frames at its own rate, waiting for
    whoever is slow. Frames are mirrored left to right, then turned clockwise by degrees. ``tell`` receives
    what happened to the source (``"open"``, ``"lost"``, ``"back"``) and what there is to say of it, ``note``
    the milliseconds that decoding a frame took.
    """

    def __init__(
        self, source: Source, *, pace: float | None = None, own_pace: bool = False,
        rotate: int = 0, mirror: bool = False, tell: Callable[[str, str], None] = lambda state, text: None,
        note: Callable[[float], None] = lambda ms: None,
    ) -> None:  # fmt: skip
        if rotate not in TURNS:
            raise UsageError(f"rotate {rotate}: expected 0, 90, 180 or 270 degrees")
        self.count = 0
        self.running = threading.Event()
        self.running.set()
        self._source, self._tell, self._note = source, tell, note
        self._pace, self._own_pace, self._rotate, self._mirror = pace, own_pace, rotate, mirror
        self._ending = threading.Event()
        self._due = 0.0  # when the next frame is
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

    def frames(self) -> Iterator[Frame]:
        """Frames until the source ends or `stop` is called."""
        source, epoch, size, start = self._source, 0, (0, 0), 0.0
        try:
            self._tell("open", source.open())
            pace = self._pace or (source.fps if self._own_pace and not source.live else None)
            while self.running.wait() and not self._ending.is_set():
                try:
                    if (pixels := source.read()) is None:
                        return
                except SourceLost as error:
                    if not (self._ending.is_set() or source.live):
                        raise
                    self._reopen(str(error))
                    epoch += 1
                    continue
                pixels = np.asarray(cv2.flip(pixels, 1), np.uint8) if self._mirror else pixels
                if self._rotate:
                    pixels = np.asarray(cv2.rotate(pixels, self._rotate // 90 - 1), np.uint8)
                arrived = source.arrived
                self._note(1e3 * (time.perf_counter() - arrived))
                epoch += size not in ((0, 0), pixels.shape[:2])
                size = pixels.shape[:2]
                if self.count == 0:
                    start = self._due = arrived
                t = self.count / source.fps if source.fps and not source.live else arrived - start
                if pace:
                    if (late := time.perf_counter() - self._due) < 0:
                        self._ending.wait(-late)
                    elif self._own_pace:
                        self._due += late
                    arrived, self._due = self._due, self._due + 1 / pace
                yield Frame(self.count, pixels, t, arrived, epoch)
                self.count += 1
        finally:
            with suppress(Exception):
                source.close()

    def _reopen(self, why: str) -> None:
        """Open a lost source again, with waits that double up to 8 seconds, or until told to stop."""
        if self._ending.is_set():
            return
        self._tell("lost", why)
        self._source.close()
        if time.perf_counter() - self._back > 10.0:  # it was back for good, not for a moment
            self._wait = _FIRST_WAIT
        while not self._ending.wait(self._wait):
            self._wait = min(2 * self._wait, 8.0)
            with suppress(InputError, NothingToRead):
                granted = self._source.open()
                self._back = time.perf_counter()
                self._tell("back", granted)
                return
