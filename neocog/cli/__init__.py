"""The command line: it parses, calls the package, and prints.

Results go to stdout, messages and progress to stderr. Exit codes: 0 all read, 1 some inputs
failed, 2 usage, 3 nothing to read, 4 model, 5 device, 130 interrupted.
"""

import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from neocog.cli import bench, data, doctor, learn, live, measure, models, read
from neocog.errors import NeocogError


class _Group(TyperGroup):
    """Turns the errors of the package into one line on stderr and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except NeocogError as error:
            print(f"neocog: {error}", file=sys.stderr)
            raise typer.Exit(error.exit_code) from None
        except KeyboardInterrupt:
            print("neocog: interrupted", file=sys.stderr)
            raise typer.Exit(130) from None
        except BrokenPipeError:
            _forget_output()  # whoever read it has enough
            raise typer.Exit(0) from None
        except OSError as error:
            _forget_output()
            place = f"{error.filename}: " if error.filename else "cannot write the result: "
            print(f"neocog: {place}{error.strerror or error}", file=sys.stderr)
            raise typer.Exit(1) from None


def _forget_output() -> None:
    """Send what is left in stdout's buffer nowhere, or the interpreter fails on it at its end."""
    with suppress(OSError, ValueError):  # a test's stdout has no file behind it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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
        typer.Option("--version", callback=_show_version, is_eager=True, help="Say the version."),
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
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # records are UTF-8, whatever the locale says
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    app()
