"""``neocog data``: data sets to learn from and to measure with."""

from typing import Annotated

import typer

app = typer.Typer(help="Data sets to learn from.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _group() -> None:
    """Data sets to learn from."""


@app.command("fetch")
def fetch(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The set: mnist.")],
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="DIR", help="Copy from this folder, without internet."),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="DIR",
            help="Where it shall lie [default: $NEOCOG_DATA/mnist, else ~/.cache/neocog/mnist].",
        ),
    ] = None,
) -> None:
    """Fetch a data set, check it, and print the folder it lies in.

    A transfer that broke off goes on where it stopped.
    """
    from neocog.learning import fetch as fetching

    print(fetching.fetch(name, to=to, source=source, progress=fetching.show_progress))
