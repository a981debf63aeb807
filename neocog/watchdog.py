"""Processes that hang are ended from outside: they could not do it themselves."""

import threading
from collections.abc import Callable, Iterable
from typing import Protocol


class Watched(Protocol):
    """A process that others wait for."""

    def wait_id(self) -> object | None:
        """What tells the present wait for it from another; None while nobody waits."""

    def kill(self) -> None:
        """End it; called on the watchdog's thread."""


class Watchdog:
    """A thread that ends processes whose answer takes longer than ``limit()`` seconds.

    It looks at what ``watched()`` returns ``every`` so many seconds. Looks are counted, not time:
    while this program itself was stopped, nobody listened.
    """

    def __init__(
        self, watched: Callable[[], Iterable[Watched]], limit: Callable[[], float], *, every: float = 0.25
    ) -> None:
        self._watched, self._limit, self._every = watched, limit, every
        self._closed = threading.Event()
        threading.Thread(target=self._run, name="neocog-watchdog", daemon=True).start()

    def close(self) -> None:
        """End the thread."""
        self._closed.set()

    def _run(self) -> None:
        seen: dict[int, tuple[object, int]] = {}
        while not self._closed.wait(self._every):
            before, seen = seen, {}
            for one in self._watched():
                wait = one.wait_id()
                if wait is None:
                    continue
                last, looks = before.get(id(one), (None, 0))
                looks = looks + 1 if wait is last else 0
                seen[id(one)] = wait, looks
                if looks * self._every >= self._limit():
                    one.kill()
