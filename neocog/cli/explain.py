"""``neocog explain``: why a digit was read so."""

from pathlib import Path
from typing import Annotated, Any

import typer

from neocog.cli import options
from neocog.cli.options import option
from neocog.errors import InputError, NothingToRead, UsageError
from neocog.text import to_json


def explain(
    picture: Annotated[str, typer.Argument(metavar="PICTURE", help="A picture of digits.")],
    digit: Annotated[
        int, option("--digit", "N", "Which digit (for lines: line), in reading order from 1.")
    ] = 1,
    output: Annotated[
        str | None, option("-o --output", "FILE", "Draw it over the ink, e.g. why.png.")
    ] = None,
    maps: Annotated[str | None, option("--maps", "FILE", "Draw every plane of every layer.")] = None,
    model: options.Model = options.DEFAULT_MODEL,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Say which planes and places of US4, US3 and US2 carried an answer.

    What is named is taken away, one after another, and the network answers again; and what the
    runner-up lacked is put in until it wins. A model of lines: where each character of a line
    stands, and which planes of US4 spoke for it.
    """
    from neocog.evaluation.explain import explain as explained
    from neocog.evaluation.explain_lines import explain_line
    from neocog.files import atomic_write
    from neocog.network.registry import find_model, kind_of
    from neocog.reading.records import DRAWN

    lines = kind_of(find_model(model)) == "lines"
    if lines and maps is not None:
        raise UsageError("--maps is for models of digits; leave it out")
    formats = {}
    for named, path in (("-o", output), ("--maps", maps)):
        if path is not None:
            options.check_new(path, named, force=force)
            formats[path] = DRAWN.get(Path(path).suffix.lower())
            if formats[path] is None:
                raise typer.BadParameter(f"{path}: expected a name that ends in .png or .jpg")
    try:
        if lines:
            found: Any = explain_line(picture, line=digit, model=model)
        else:
            found = explained(picture, digit=digit, model=model)
    except (InputError, NothingToRead) as error:
        raise type(error)(f"{picture}: {error}") from None
    print(to_json(found.to_dict()) if as_json else found)
    for path, draw in ((output, "plot"), (maps, "plot_maps")):
        if path is not None:
            with atomic_write(path) as stream:
                getattr(found, draw)().save(stream, format=formats[path])
