"""Options that several commands share."""

from typing import Annotated

import typer

Model = Annotated[
    str, typer.Option("--model", metavar="NAME|PATH", help="A shipped model, or a model file.")
]
Device = Annotated[
    str, typer.Option("--device", metavar="auto|cpu|cuda", help="Where the network runs.")
]
Batch = Annotated[int, typer.Option("--batch", min=1, help="Digits per pass of the network.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]

DEFAULT_MODEL = "neocog"
