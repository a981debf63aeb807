"""A frame, and the bounded queues between the threads."""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Frame:
    """One picture of a source.

    Attributes
    ----------
    index : int
        Number of the picture, from 0, those that were dropped counted.
    pixels : ndarray of uint8, shape (H, W, 3)
        Blue, green, red.
    t : float
        Seconds since the first frame; in a file by its own clock.
    arrived : float
        When the source gave it (or was due to), by `time.perf_counter`: ages count from here.
    epoch : int
        Grows when the source is opened again or changes its size: votes of an older epoch do not
        count.
    """

    index: int
    pixels: NDArray[np.uint8]
    t: float
    arrived: float
    epoch: int = 0

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        height, width = self.pixels.shape[:2]
        return width, height


class Closed(Exception):
    """The queue is closed, and nothing is left in it."""


class BoundedQueue(Generic[T]):
    """Hands items from one thread to another; at most ``depth`` wait.

    When it is full, `put` waits for room (for a file), or with ``newest`` the oldest item gives
    way (for a camera). ``merge``, given that item and the new one, returns what is kept of both.
    """

    def __init__(
        self, *, newest: bool, merge: Callable[[T, T], T] | None = None, depth: int = 1
    ) -> None:
        self._newest, self._merge, self._depth = newest, merge, depth
        self._items: deque[T] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self.dropped = 0

    def put(self, item: T) -> None:
        """Add an item, or raise Closed."""
        with self._changed:
            while len(self._items) >= self._depth and not self._closed:
                if self._newest:
                    old = self._items.popleft()
                    item = self._merge(old, item) if self._merge else item
                    self.dropped += 1
                else:
                    self._changed.wait()
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
            item = self._items.popleft()
            self._changed.notify_all()
            return item

    def close(self, *, forget: bool = False) -> None:
        """Take no more items; those that wait can still be taken unless they are forgotten."""
        with self._changed:
            self._closed = True
            if forget:
                self._items.clear()
            self._changed.notify_all()
