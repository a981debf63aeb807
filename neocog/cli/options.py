"""Options that several commands share, and the class of commands."""

import re
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand


class Command(TyperCommand):
    """A command whose help has no types of Python beside its arguments."""

    def get_help(self, ctx: Any) -> str:
        """Return the help text."""
        words = super().get_help(ctx)
        return re.sub(r" <(list\[)?(str|path|Path)\]?>", lambda found: " " * len(found[0]), words)


Model = Annotated[
    str, typer.Option("--model", metavar="NAME|PATH", help="A shipped model, or a model file.")
]
Device = Annotated[
    str, typer.Option("--device", metavar="auto|cpu|cuda|cuda:N", help="Where the network runs.")
]
Precision = Annotated[
    str | None,
    typer.Option(
        "--precision",
        metavar="fp32|tf32|fp16|bf16",
        help="Number format on CUDA [default: fp16; fp32 on old GPUs].",
    ),
]
Plan = Annotated[
    str,
    typer.Option(
        "--plan",
        metavar="default|auto|card|STAGE=VERSION,...|FILE",
        help="CUDA kernel for each stage; auto measures all of them once and keeps the fastest.",
    ),
]
Batch = Annotated[
    int | None,
    typer.Option(
        "--batch", metavar="N", min=1, help="Digits per batch [default: chosen for the device]."
    ),
]
MinP = Annotated[
    float | None,
    typer.Option(
        "--min-p",
        metavar="P",
        help="Print ? for a digit whose probability is below P [default: the model's own].",
    ),
]
MaxError = Annotated[
    str | None,
    typer.Option(
        "--max-error",
        metavar="SHARE",
        help="Choose the threshold of ? so that at most this fraction of the printed digits is "
        "wrong, e.g. 0.1%.",
    ),
]
Pattern = Annotated[
    str | None,
    typer.Option(
        "--pattern",
        metavar="FORM",
        help="Form of each line, # for a digit, e.g. '##-####'.",
    ),
]
Finder = Annotated[
    str | None,
    typer.Option(
        "--finder",
        metavar="FILE",
        help="File of the network that finds the digits [default: the shipped one].",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite FILE if it exists.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]

DEFAULT_MODEL = "neocog"


def check_new(path: str | Path, option: str, *, force: bool) -> None:
    """Refuse a file that exists, unless ``force``, and one that cannot be written."""
    from neocog.files import check_output

    if Path(path).exists() and not force:
        raise typer.BadParameter(f"{path} exists; add --force to overwrite it, or name another")
    check_output(path, option)
