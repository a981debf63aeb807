"""The command line: it parses, calls the package, and prints.

Results go to stdout, messages and progress to stderr. Exit codes: those of `neocog.errors`; 0 also where the
reader of stdout leaves (``| head``), 1 also if an overlay or report could not be saved, 6 also if the system
refused anything else, 130 after Ctrl-C (docs/records.md).
"""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from neocog import __version__
from neocog.cli import data, learn, live, measure, models, options, read, serve, tools
from neocog.cli.streams import ReaderLeft, open_streams
from neocog.errors import DeviceError, EndedEarly, NeocogError, UsageError, no_opencv
from neocog.text import printable, tell

_ARGUMENT = re.compile(r"(?<![\w./-])(min_p|max_error|long_side)(?![\w./:-])")  # as Python calls an option
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
        return
    except ReaderLeft:  # it has enough
        sys.exit(0)
    except _BadUsage as error:
        error.message = "\n".join(map(printable, error.message.split("\n")))
        raise
    except NeocogError as error:
        words, code = str(error), error.exit_code
        if isinstance(error, UsageError):
            words = _ARGUMENT.sub(lambda name: "--" + name[0].replace("_", "-"), words)
    except ImportError as error:
        if error.name != "cv2":
            raise
        words, code = str(no_opencv(error)), DeviceError.exit_code
    except KeyboardInterrupt:
        words, code = "interrupted", 130
    except (OSError, MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and str(error) != "can't start new thread":
            raise
        what = getattr(error, "strerror", None) or str(error) or "no memory is left"
        place = getattr(error, "filename", None)
        words, code = (f"{place}: {what}" if place else what), EndedEarly.exit_code
    tell(words)
    sys.exit(code)


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


for _name, _command in (
    ("read", read.read), ("live", live.live), ("cameras", live.cameras), ("serve", serve.serve),
    ("train", learn.train), ("eval", measure.evaluate), ("timing", measure.timing),
    ("explain", tools.explain), ("export", tools.export), ("doctor", tools.doctor),
):  # fmt: skip
    app.command(_name, cls=options.Command)(_command)
app.command("bench", context_settings=tools.OF_BENCH)(tools.bench)
app.add_typer(models.app, name="models")
app.add_typer(data.app, name="data")


def main() -> None:
    open_streams()
    with _errors_as_lines():
        app()
