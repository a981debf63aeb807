"""``neocog read``: pictures in, digits out."""

import os
import sys
from typing import Annotated

import typer

from neocog.cli import options


def read(
    inputs: Annotated[
        list[str], typer.Argument(metavar="INPUT", help="Pictures, and folders of pictures.")
    ],
    model: options.Model = options.DEFAULT_MODEL,
    device: options.Device = "auto",
    form: Annotated[
        str, typer.Option("--format", metavar="text|jsonl|csv", help="Form of the result.")
    ] = "text",
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Write there, not stdout.")
    ] = None,
    overlay: Annotated[
        str | None,
        typer.Option(
            "--save-overlay", metavar="DIR", help="Save pictures with the reading drawn over them."
        ),
    ] = None,
    debug: Annotated[
        str | None,
        typer.Option("--debug", metavar="DIR", help="Save a picture of each step of the search."),
    ] = None,
    min_p: Annotated[
        float | None,
        typer.Option("--min-p", metavar="P", help="Put ? for answers less probable than this."),
    ] = None,
    timings: Annotated[
        bool, typer.Option("--timings", help="Add the time of each stage to JSON records.")
    ] = False,
    batch: options.Batch = 32,
) -> None:
    """Read the handwritten digits in pictures.

    A picture that cannot be read is told on stderr, the others are still read, and the exit
    code is 1.
    """
    from neocog.batch.overlays import OverlayFolder, StepFolder
    from neocog.batch.reader import Reader
    from neocog.batch.sinks import open_sink, printable
    from neocog.batch.sources import expand
    from neocog.errors import UsageError

    if output and os.path.realpath(output) in map(os.path.realpath, inputs):
        raise UsageError(f"{output}: is one of the inputs; give another -o")
    reader = Reader(model, device=device, min_p=min_p, batch=batch)
    folders: list[OverlayFolder | StepFolder] = []
    if overlay:
        folders.append(OverlayFolder(overlay))
    if debug:
        folders.append(StepFolder(debug, reader))
    names = len(inputs) > 1 or os.path.isdir(inputs[0])
    read_count = failed = 0
    with open_sink(form, output, names=names, timings=timings) as sink:
        for reading in reader.read_many(expand(inputs)):
            sink.write(reading)
            read_count += 1
            if reading.error is not None:
                failed += 1
                print(f"neocog: {printable(reading.source)}: {reading.error}", file=sys.stderr)
                continue
            if form == "text" and not reading.digits:
                print(f"neocog: {printable(reading.source)}: no digits found", file=sys.stderr)
            for folder in folders:
                folder.save(reading)
    if failed:
        if read_count > 1:
            print(f"neocog: {failed} of {read_count} could not be read", file=sys.stderr)
        raise typer.Exit(1)
