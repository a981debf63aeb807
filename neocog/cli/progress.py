"""How far a long command is: one bar on stderr, while that is a terminal."""

import atexit
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from neocog.text import printable, tell

if TYPE_CHECKING:
    from neocog.batch.tasks import Block


class Counter:
    """Shows what is done, the rate and the time left, on a terminal; messages stand above it."""

    def __init__(self, what: str, *, shown: bool = True) -> None:
        self._what, self._failed = what, 0
        self._bar: Any = None
        self._shown = shown and sys.stderr.isatty()

    def __call__(self, done: int, total: int) -> None:
        """Tell that ``done`` of ``total`` are done."""
        self._update(completed=done, total=total)
        if done >= total:
            self.close()

    def start(self, total: Callable[[], int | None]) -> None:
        """Show the bar before anything is done; ``total``, or None, may take its time."""
        if self._shown:
            self._update()
            threading.Thread(target=lambda: self._update(total=total()), daemon=True).start()

    def add(self, block: "Block") -> None:
        """Count a block of pictures, and print its messages."""
        for line in block.messages:
            if self._bar is None:
                tell(line)
            else:
                line = f"neocog: {printable(line)}"
                self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
        self._failed += block.failed
        self._update(advance=block.inputs, note=f"{self._failed:,} failed" if self._failed else "")

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            atexit.unregister(self._bar.stop)
            self._bar, self._shown = None, False

    def _update(self, **fields: Any) -> None:
        if not self._shown:
            return
        if self._bar is None:
            from rich import console, progress

            text = progress.TextColumn
            self._bar = progress.Progress(
                text("{task.description}"), progress.BarColumn(), progress.MofNCompleteColumn(),
                text("{task.fields[rate]}"), progress.TimeRemainingColumn(), text("{task.fields[note]}"),
                transient=True, console=console.Console(stderr=True), redirect_stdout=False,
                redirect_stderr=False,
            )  # fmt: skip
            self._bar.add_task(self._what, total=None, note="", rate="")
            atexit.register(self._bar.stop)  # whatever ends the command, the cursor comes back
            self._bar.start()
        (task,) = self._bar.tasks
        self._bar.update(task.id, rate=f"{task.speed:,.0f}/s" if task.speed else "", **fields)
