"""``neocog data``: data sets to learn from and to measure with."""

from pathlib import Path
from typing import Annotated

import typer

from neocog.messages import tell

app = typer.Typer(
    help="Data sets to learn from and to measure with.", no_args_is_help=True, rich_markup_mode=None
)


@app.callback()
def _group() -> None:
    """Data sets to learn from and to measure with."""


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


@app.command("make-pages")
def make_pages(
    folder: Annotated[Path, typer.Argument(metavar="OUT", help="Folder to write to.")],
    count: Annotated[int, typer.Option("--count", min=1, help="Pages in all.")] = 100,
    conditions: Annotated[
        str,
        typer.Option(
            "--conditions",
            metavar="A,B",
            help="Conditions, which take turns [default: all that carry digits].",
        ),
    ] = "",
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same seed, the same pages.")] = 0,
    digits: Annotated[
        str | None,
        typer.Option(
            "--digits",
            metavar="PATH",
            help="Digits to write with: the folder of MNIST, or another set of single digits "
            "[default: MNIST as fetched, else scikit-learn's].",
        ),
    ] = None,
) -> None:
    """Write pages of handwriting under hard conditions, with labels.csv.

    The conditions are those that the reader is measured under: shadows, folds, ruled paper,
    defocus and so on; also pages without any digit, if they are named.
    """
    from neocog.learning.pages import write

    names = write.known_conditions([name for name in conditions.split(",") if name])
    pens = write.pen_digits(digits, tell=tell)
    made = write.write_pages(folder, pens, conditions=names, count=count, seed=seed)
    print(f"{folder}: {made} pages, labels.csv")
