"""How far a long run over pictures is, on stderr, while that is a terminal."""

import sys
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any

from neocog.messages import printable, tell

if TYPE_CHECKING:
    from collections.abc import Callable

    from neocog.batch.tasks import Block


class Bar:
    """A bar with inputs done, their rate and the time left; messages stand above it.

    Parameters
    ----------
    total : callable
        Tells how many inputs there are, or None; it may take its time.
    to_file : bool
        Whether records go to a file: on the screen they would stand in the bar's way.
    """

    def __init__(self, total: "Callable[[], int | None]", *, to_file: bool) -> None:
        self._total = total
        self._shown = sys.stderr.isatty() and (to_file or not sys.stdout.isatty())
        self._progress: Any = None
        self._task: Any = None
        self._failed = 0

    def __enter__(self) -> "Bar":
        if self._shown:
            self._progress = _progress()
            self._task = self._progress.add_task("reading", total=None, failed="")
            self._progress.start()
            threading.Thread(target=self._count, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def add(self, block: "Block") -> None:
        """Count a block, and tell what it has to say."""
        for line in block.said:
            self._tell(line)
        if self._progress is not None:
            self._failed += block.failed
            failed = f"{self._failed:,} failed" if self._failed else ""
            self._progress.update(self._task, advance=block.inputs, failed=failed)

    def _tell(self, line: str) -> None:
        if self._progress is None:
            tell(line)
        else:
            line = f"neocog: {printable(line)}"
            self._progress.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _count(self) -> None:
        total = self._total()
        if total is not None:
            self._progress.update(self._task, total=total)


def _progress() -> Any:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Any) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{speed:,.0f}/s")

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        Rate(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[failed]}"),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
