"""Options that several commands share."""

from typing import Annotated

import typer

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
        help="Type of maps and products on CUDA [default: fp16, fp32 on old devices].",
    ),
]
Plan = Annotated[
    str,
    typer.Option(
        "--plan",
        metavar="default|auto|card|direct|STAGE=VERSION,...|FILE",
        help="CUDA kernels of each stage; auto times them all on this device, once.",
    ),
]
Batch = Annotated[
    int | None,
    typer.Option("--batch", min=1, help="Digits per pass [default: what the device likes]."),
]
MinP = Annotated[
    float | None,
    typer.Option(
        "--min-p", metavar="P", help="Put ? for answers less probable [default: the model's own]."
    ),
]
MaxError = Annotated[
    str | None,
    typer.Option(
        "--max-error",
        metavar="SHARE",
        help="Put ? so that at most this share of the digits given is wrong, such as 0.1%.",
    ),
]
Pattern = Annotated[
    str | None,
    typer.Option(
        "--pattern",
        metavar="FORM",
        help="Form of each line, # for a digit, such as '##-####'; no digit is made up.",
    ),
]
Finder = Annotated[
    str | None,
    typer.Option("--finder", metavar="FILE", help="What finds the digits [default: as shipped]."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]

DEFAULT_MODEL = "neocog"
