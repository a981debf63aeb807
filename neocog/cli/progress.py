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

    def __init__(self, what: str, *, shown: bool | None = None) -> None:
        self._what = what
        self._bar: Any = None
        self._shown = sys.stderr.isatty() if shown is None else shown

    def __call__(self, done: int, total: int) -> None:
        """Tell that ``done`` of ``total`` are done."""
        self.update(completed=done, total=total)
        if done >= total:
            self.close()

    def update(self, **fields: Any) -> None:
        if not self._shown:
            return
        if self._bar is None:
            from rich import console, progress

            text, bar = progress.TextColumn, progress.BarColumn()
            rate = text("{task.fields[rate]}")
            self._bar = progress.Progress(
                text("{task.description}"), bar, progress.MofNCompleteColumn(), rate,
                progress.TimeRemainingColumn(), text("{task.fields[note]}"), transient=True,
                console=console.Console(stderr=True), redirect_stdout=False, redirect_stderr=False,
            )  # fmt: skip
            self._bar.add_task(self._what, total=None, note="", rate="")
            atexit.register(self._bar.stop)  # whatever ends the command, the cursor comes back
            self._bar.start()
        (task,) = self._bar.tasks
        self._bar.update(task.id, rate=f"{task.speed:,.0f}/s" if task.speed else "", **fields)

    def tell(self, line: str) -> None:
        if self._bar is None:
            tell(line)
        else:
            line = f"neocog: {printable(line)}"
            self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            atexit.unregister(self._bar.stop)
            self._bar, self._shown = None, False


class ReadingBar(Counter):
    """The bar of a run over pictures; a context manager.

    ``total`` tells how many inputs there are, or None; it may take its time. ``to_file``: whether records go
    to a file: on the screen they would stand in the bar's way.
    """

    def __init__(self, total: Callable[[], int | None], *, to_file: bool, quiet: bool = False) -> None:
        shown = not quiet and sys.stderr.isatty() and (to_file or not sys.stdout.isatty())
        super().__init__("reading", shown=shown)
        self._total, self._failed = total, 0

    def __enter__(self) -> "ReadingBar":
        if self._shown:
            self.update()
            threading.Thread(target=lambda: self.update(total=self._total()), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, block: "Block") -> None:
        """Count a block, and print its messages."""
        for line in block.messages:
            self.tell(line)
        self._failed += block.failed
        note = f"{self._failed:,} failed" if self._failed else ""
        self.update(advance=block.inputs, note=note)
