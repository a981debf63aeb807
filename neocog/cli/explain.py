"""``neocog explain``: why a line, or a digit, was read so."""

from pathlib import Path
from typing import Annotated, Any

import typer

from neocog.cli import options
from neocog.cli.options import option
from neocog.errors import InputError, NothingToRead, UsageError
from neocog.network.registry import DEFAULT, LINES, find_model, kind_of
from neocog.text import to_json

Digit = option("--digit", "N", "Which digit, in reading order from 1.", min=1)
Line = option("--line", "N", "Which line, from the top [default: 1, without --digit].", min=1)
Model = option(
    "--model", "NAME|PATH",
    f"A shipped model, or a model file [default: {LINES}; with --digit or --maps {DEFAULT}].",
)  # fmt: skip


def explain(
    picture: Annotated[str, typer.Argument(metavar="PICTURE", help="A picture of numbers.")],
    digit: Annotated[int | None, Digit] = None,
    line: Annotated[int | None, Line] = None,
    output: Annotated[str | None, option("-o --output", "FILE", "Draw it over the ink: why.png.")] = None,
    maps: Annotated[str | None, option("--maps", "FILE", "Draw every plane of every layer.")] = None,
    model: Annotated[str | None, Model] = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Say why a line, or a digit, was read so.

    A line: where each character stands, and which planes of US4 spoke for it. A digit: which
    planes and places of US4, US3 and US2 carried its answer. What is named is taken away, one after
    another, and the network answers again; and what the runner-up lacked is put in until it wins.
    """
    from neocog.evaluation.explain import explain as explained
    from neocog.evaluation.explain_lines import explain_line
    from neocog.files import atomic_write
    from neocog.reading.records import DRAWN

    model = model or (LINES if digit is None and maps is None else DEFAULT)
    lines = kind_of(find_model(model)) == "lines"
    for name, value in (("--digit", digit), ("--maps", maps)) if lines else (("--line", line),):
        if value is not None:
            raise UsageError(f"{name} is not for model {model}, which reads {'lines' if lines else 'digits'}")
    formats = {}
    for name, path in (("-o", output), ("--maps", maps)):
        if path is not None:
            options.check_new(path, name, force=force)
            formats[path] = DRAWN.get(Path(path).suffix.lower())
            if formats[path] is None:
                raise typer.BadParameter(f"{path}: expected a name that ends in .png or .jpg")
    try:
        if lines:
            found: Any = explain_line(picture, line=line or 1, model=model)
        else:
            found = explained(picture, digit=digit or 1, model=model)
    except (InputError, NothingToRead) as error:
        raise type(error)(f"{picture}: {error}") from None
    print(to_json(found.to_dict()) if as_json else found)
    for path, draw in ((output, "plot"), (maps, "plot_maps")):
        if path is not None:
            with atomic_write(path) as stream:
                getattr(found, draw)().save(stream, format=formats[path])
