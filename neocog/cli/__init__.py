"""The command line: it parses, calls the package, and prints.

Results go to stdout, messages and progress to stderr. Exit codes:

====  ============================================================================================
   0  all was read and written; also where the reader of stdout leaves (``| head``)
   1  some inputs failed, or a page or picture for people (``--report``, ``--save-overlay``) could
      not be saved; there is a record of every input
   2  an option or argument makes no sense
   3  there is nothing to read
   4  the model is missing or broken
   5  the device is not there
   6  the run ended early: the disk of stdout or ``-o`` is full, the file was removed or replaced,
      a list breaks off, or the system refused anything else; what was written is valid
 130  interrupted by Ctrl-C
====  ============================================================================================
"""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from neocog.cli import bench, data, doctor, learn, live, measure, models, read
from neocog.cli.streams import ReaderLeft, open_streams
from neocog.errors import EndedEarly, NeocogError
from neocog.interrupts import leave
from neocog.messages import printable, tell

_BadUsage: Any = typer.BadParameter.__mro__[1]  # typer keeps the name of its base to itself


class _Group(TyperGroup):
    """Turns the errors of the package into one line on stderr and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        with _told(), _interruptible():
            return super().invoke(ctx)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Have Ctrl-C raise `KeyboardInterrupt` in the block where it would end the program at once."""
    if signal.getsignal(signal.SIGINT) is not leave:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, leave)


@contextmanager
def _told() -> Iterator[None]:
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except ReaderLeft:  # it has enough
        sys.exit(0)
    except NeocogError as error:
        tell(str(error))
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        tell("interrupted")
        exec("")  # had it come in one, as in the making of a dataclass, Python would end by SIGINT
        sys.exit(130)
    except (OSError, MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and str(error) != "can't start new thread":
            raise
        what = (isinstance(error, OSError) and error.strerror) or str(error) or "no memory is left"
        place = getattr(error, "filename", None)
        tell(f"{place}: {what}" if place else what)
        sys.exit(EndedEarly.exit_code)
    except _BadUsage as error:
        error.message = printable(error.message)
        raise


app = typer.Typer(
    cls=_Group,
    name="neocog",
    help="A ten-layer neocognitron that reads handwritten digits.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from neocog import __version__

        print(f"neocog {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """A ten-layer neocognitron that reads handwritten digits."""


app.command("read")(read.read)
app.command("live")(live.live)
app.command("cameras")(live.cameras)
app.command("train")(learn.train)
app.command("eval")(measure.evaluate)
app.command("timing")(measure.timing)
app.add_typer(bench.app, name="bench")
app.add_typer(models.app, name="models")
app.add_typer(data.app, name="data")
app.command("doctor")(doctor.doctor)


def main() -> None:
    """Run the command line and exit."""
    open_streams()
    with _told():
        app()
