"""The command line: it parses, calls the package, and prints.

Results go to stdout, messages and progress to stderr. Exit codes:

   0  all was read and written; also where the reader of stdout leaves (``| head``)
   1  some inputs failed, or an overlay or report could not be saved; there is a record of every input
   2  an option or argument makes no sense
   3  there is nothing to read
   4  the model is missing or broken
   5  the device is not there
   6  the run ended early: a full disk, an output that was removed or replaced, a list that breaks off, or
      the system refused anything else; what was written is valid
 130  interrupted by Ctrl-C
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from neocog import __version__
from neocog.cli import data, learn, live, measure, models, options, read, serve, tools
from neocog.cli.streams import ReaderLeft, open_streams
from neocog.errors import EndedEarly, NeocogError
from neocog.text import printable, tell

_BadUsage: Any = typer.BadParameter.__mro__[1]  # typer keeps the name of its base to itself


class _Group(TyperGroup):
    """Turns the errors of the package into one line on stderr and an exit code."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command; a picture or folder in its place is read."""
        if (word := args[0]) not in self.commands:
            from neocog.reading.addresses import is_address
            from neocog.reading.pictures import is_picture_name

            names = word == "-" or word.startswith("@") or is_picture_name(os.path.basename(word))
            if names or is_address(word) or os.path.exists(word):
                args = ["read", *args]
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with _errors_as_lines():
            return super().invoke(ctx)


@contextmanager
def _errors_as_lines() -> Iterator[None]:
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
        sys.exit(130)
    except (OSError, MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and str(error) != "can't start new thread":
            raise
        what = getattr(error, "strerror", None) or str(error) or "no memory is left"
        place = getattr(error, "filename", None)
        tell(f"{place}: {what}" if place else what)
        sys.exit(EndedEarly.exit_code)
    except _BadUsage as error:
        error.message = "\n".join(map(printable, error.message.split("\n")))
        raise


app = typer.Typer(
    cls=_Group, name="neocog", no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False,
    help="Read handwritten digits with a ten-layer neocognitron.\n\n"
    "'neocog PICTURE' is short for 'neocog read PICTURE'.",
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"neocog {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", "-V", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Options of the program itself."""


app.command("read", cls=options.Command)(read.read)
app.command("live", cls=options.Command)(live.live)
app.command("cameras", cls=options.Command)(live.cameras)
app.command("serve", cls=options.Command)(serve.serve)
app.command("train", cls=options.Command)(learn.train)
app.command("eval", cls=options.Command)(measure.evaluate)
app.command("timing", cls=options.Command)(measure.timing)
app.command("bench", context_settings=tools.OF_BENCH)(tools.bench)
app.add_typer(models.app, name="models")
app.add_typer(data.app, name="data")
app.command("explain", cls=options.Command)(tools.explain)
app.command("export", cls=options.Command)(tools.export)
app.command("doctor", cls=options.Command)(tools.doctor)


def main() -> None:
    open_streams()
    with _errors_as_lines():
        app()
