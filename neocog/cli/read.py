"""``neocog read``: pictures in, digits out."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neocog.cli import options

if TYPE_CHECKING:
    from neocog.batch.overlays import OverlayFolder, StepFolder
    from neocog.batch.reader import Reader
    from neocog.batch.records import PageReading

Inputs = Annotated[
    list[str], typer.Argument(metavar="INPUT", help="Pictures, and folders of pictures.")
]
Format = Annotated[
    str, typer.Option("--format", metavar="text|jsonl|csv", help="Form of the result.")
]
Output = Annotated[
    str | None, typer.Option("--output", "-o", metavar="FILE", help="Write there, not stdout.")
]
Overlay = Annotated[
    str | None,
    typer.Option(
        "--save-overlay",
        metavar="DIR",
        help="Save NAME.read.png for each picture: the reading drawn over it.",
    ),
]
Debug = Annotated[
    str | None,
    typer.Option("--debug", metavar="DIR", help="Save a picture of each step of the search."),
]
Timings = Annotated[
    bool, typer.Option("--timings", help="Add the time of each stage to JSON records.")
]


def read(
    inputs: Inputs,
    model: options.Model = options.DEFAULT_MODEL,
    device: options.Device = "auto",
    precision: options.Precision = None,
    plan: options.Plan = "default",
    form: Format = "text",
    output: Output = None,
    overlay: Overlay = None,
    debug: Debug = None,
    min_p: options.MinP = None,
    max_error: options.MaxError = None,
    timings: Timings = False,
    batch: options.Batch = None,
) -> None:
    """Read the handwritten digits in pictures.

    A picture that cannot be read is told on stderr, the others are still read, and the exit
    code is 1.
    """
    from neocog.batch.policy import parse_share
    from neocog.batch.reader import Reader
    from neocog.batch.sinks import open_sink

    sources = _sources(inputs, output)
    reader = Reader(
        model,
        device=device,
        precision=precision,
        plan=plan,
        min_p=min_p,
        max_error=None if max_error is None else parse_share(max_error),
        batch=batch,
    )
    folders = _folders(overlay, debug, reader, sources)
    names = len(inputs) > 1 or os.path.isdir(inputs[0])
    count = failed = 0
    with open_sink(form, output, names=names, timings=timings) as sink:
        for reading in reader.read_many(sources):
            sink.write(reading)
            _tell(reading, form)
            count += 1
            failed += reading.error is not None
            for folder in folders:
                folder.save(reading)
    if failed:
        if count > 1:
            print(f"neocog: {failed} of {count} could not be read", file=sys.stderr)
        raise typer.Exit(1)


def _sources(inputs: list[str], output: str | None) -> list[Path]:
    """All files that are going to be read; ``output`` must be none of them."""
    from neocog.batch.sources import Files, expand
    from neocog.errors import UsageError

    sources = list(expand(inputs))
    if output and output in Files(sources):
        raise UsageError(f"{output}: is one of the inputs; give another -o")
    return sources


def _folders(
    overlay: str | None, debug: str | None, reader: "Reader", sources: list[Path]
) -> "list[OverlayFolder | StepFolder]":
    from neocog.batch.overlays import OverlayFolder, StepFolder

    folders: list[OverlayFolder | StepFolder] = []
    if overlay:
        folders.append(OverlayFolder(overlay, sources=sources))
    if debug:
        folders.append(StepFolder(debug, reader, sources=sources))
    return folders


def _tell(reading: "PageReading", form: str) -> None:
    """Say on stderr what is wrong with a page."""
    from neocog.batch.sinks import printable

    if reading.error is not None:
        print(f"neocog: {printable(reading.source)}: {reading.error}", file=sys.stderr)
    elif form == "text" and not reading.digits:
        print(f"neocog: {printable(reading.source)}: no digits found", file=sys.stderr)
