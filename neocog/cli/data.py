"""``neocog data``: data sets to learn from and to measure with."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from neocog.cli import options
from neocog.cli.options import option
from neocog.text import tell

app = typer.Typer(help="Download data sets, make test pages.", no_args_is_help=True, rich_markup_mode=None)


@app.command("fetch", cls=options.Command)
def fetch(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The set: mnist.")],
    source: Annotated[str | None, option("DIR",
        "Copy from this folder instead of downloading.", "--from")] = None,
    to: Annotated[str | None, option("DIR",
        "Destination folder [default: $NEOCOG_DATA/mnist, else ~/.cache/neocog/mnist].")] = None,
) -> None:  # fmt: skip
    """Download a data set, check it, and print its folder. Files that are there and right stay."""
    from neocog.cli.progress import Counter
    from neocog.learning.fetch import fetch as bring

    bars: dict[str, Counter] = {}

    def progress(file: str, here: int, size: int) -> None:
        bars.setdefault(file, Counter(file))(here, size)
        if here == size:
            print(f"{file}  {size} bytes", file=sys.stderr)

    print(bring(name, to=to, source=source, progress=progress))


@app.command("make-pages", cls=options.Command)
def make_pages(
    folder: Annotated[Path, typer.Argument(metavar="OUT", help="Folder to write to.")],
    count: Annotated[int, option("N", "Pages in all.", min=1)] = 100,
    conditions: Annotated[str, option("A,B", "Conditions to use in turn [default: all with digits].")] = "",
    seed: Annotated[int, option("N", "The same seed gives the same pages.", min=0)] = 0,
    digits: Annotated[str | None, option("PATH", "Digits to write with: the folder of MNIST, or another set "
        "of single digits [default: the downloaded MNIST, else scikit-learn's].")] = None,
) -> None:  # fmt: skip
    """Draw test pages of handwriting and their labels.csv.

    They have shadows, folds, ruled paper, blur and so on; many are as hard to read as those that the finder
    learns from. Empty pages are drawn only if --conditions has "empty".
    """
    from neocog.learning.drawing.page import known_conditions, pen_digits, write_pages

    names = known_conditions([name for name in conditions.split(",") if name])
    made = write_pages(folder, pen_digits(digits, tell=tell), conditions=names, count=count, seed=seed)
    print(f"{folder}: {made} pages, labels.csv")
