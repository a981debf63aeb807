"""One line on stderr that tells how far a long command is."""

import sys
import time


class Counter:
    """Shows ``done/total`` while stderr is a terminal, and nothing otherwise."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._shown = 0.0
        self._start = time.monotonic()
        self._active = sys.stderr.isatty()

    def __call__(self, done: int, total: int) -> None:
        """Tell that ``done`` of ``total`` are done."""
        now = time.monotonic()
        if not self._active or (done < total and now - self._shown < 0.1):
            return
        self._shown = now
        rate = done / max(now - self._start, 1e-9)
        left = (total - done) / rate if rate else 0.0
        text = f"{self._what} {done}/{total}  {rate:.0f}/s  {left:.0f} s left"
        end = "\n" if done >= total else ""
        print(f"\r\x1b[K{text}", end=end, file=sys.stderr, flush=True)
