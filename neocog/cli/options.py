"""Options that several commands share, and the class of commands."""

import re
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from neocog.errors import UsageError
from neocog.files import check_output
from neocog.network.registry import LINES


class Command(TyperCommand):
    """A command whose flags have no opposite, and whose help has no types of Python beside its arguments."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for option in self.params:
            option.secondary_opts = []

    def get_help(self, ctx: Any) -> str:
        words = super().get_help(ctx)
        return re.sub(r" <(list\[)?(str|path|Path)\]?>", lambda found: " " * len(found[0]), words)


def option(metavar: str | None, words: str, *names: str, **more: Any) -> Any:
    """An option: what stands for its value, its help, names other than that of its parameter."""
    return typer.Option(*names, metavar=metavar, help=words, **more)


flag = partial(option, None)


Model = Annotated[str, option("NAME|PATH", "A shipped model, or a model file.")]
PageModel = Annotated[str | None, option("NAME|PATH",
    "A shipped model, or a model file; a digit model reads pages box by box "
    f"[default: {LINES}].")]  # fmt: skip
Valid = Annotated[str | None, option("FILE", "A list of the numbers that may occur, one on each line.")]
Device = Annotated[str, option("auto|cpu|cuda|cuda:N", "Where the network runs.")]
Precision = Annotated[str | None, option("fp32|fp16",
    "Number format on CUDA, of digit models [default: fp16; fp32 on old GPUs].")]  # fmt: skip
Plan = Annotated[str, option("default|card",
    "CUDA kernels of digit models: the fastest, or direct sums and Winograd (slower).")]  # fmt: skip
Batch = Annotated[int | None, option("N",
    "Digits per batch of a digit model [default: chosen for the device].", min=1)]  # fmt: skip
MinP = Annotated[float | None, option("P", "Print ? for a number, or digit, whose probability is below P "
    "[default: reading in 'neocog models show NAME --card', else 0.4].")]  # fmt: skip
MaxError = Annotated[str | None, option("SHARE",
    "Print ? so at most SHARE (2%) of the printed numbers (--isolated: digits) are wrong.")]  # fmt: skip
Pattern = Annotated[str | None, option("FORM", "Form of each line: # is a digit, or DD.MM.YYYY.")]
Finder = Annotated[str | None, option("FILE",
    "File of the network that finds the digits [default: the shipped one].")]  # fmt: skip
Force = Annotated[bool, flag("Overwrite FILE if it exists.")]
Json = Annotated[bool, flag("Print one JSON object instead of a table.", "--json")]


def check_new(path: str | Path, option: str, *, force: bool) -> None:
    """Refuse a file that exists, unless ``force``, and one that cannot be written."""
    if Path(path).exists() and not force:
        raise UsageError(f"{path}: exists; add --force to overwrite it, or name another")
    check_output(path, option)
