"""Options that several commands share, and the class of commands."""

import re
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from neocog.errors import UsageError
from neocog.files import check_output
from neocog.network.registry import LINES


class Command(TyperCommand):
    """A command whose help has no types of Python beside its arguments."""

    def get_help(self, ctx: Any) -> str:
        words = super().get_help(ctx)
        return re.sub(r" <(list\[)?(str|path|Path)\]?>", lambda found: " " * len(found[0]), words)


def option(names: str, metavar: str | None, words: str, **more: Any) -> Any:
    """An option: its names, what stands for its value, its help, and what else typer takes."""
    return typer.Option(*names.split(), metavar=metavar, help=words, **more)


Model = Annotated[str, option("--model", "NAME|PATH", "A shipped model, or a model file.")]
PageModel = Annotated[str | None, option("--model", "NAME|PATH",
    "A shipped model, or a model file; a digit model reads pages box by box "
    f"[default: {LINES}].")]  # fmt: skip
Valid = Annotated[str | None, option("--valid", "FILE",
    "A list of the numbers that may occur, one on each line.")]  # fmt: skip
Device = Annotated[str, option("--device", "auto|cpu|cuda|cuda:N", "Where the network runs.")]
Precision = Annotated[str | None, option("--precision", "fp32|fp16",
    "Number format on CUDA, of digit models [default: fp16; fp32 on old GPUs].")]  # fmt: skip
Plan = Annotated[str, option("--plan", "default|card",
    "CUDA kernels of digit models: the fastest, or direct sums and Winograd (slower).")]  # fmt: skip
Batch = Annotated[int | None, option("--batch", "N",
    "Digits per batch of a digit model [default: chosen for the device].", min=1)]  # fmt: skip
MinP = Annotated[float | None, option("--min-p", "P", "Print ? for a number, or digit, whose probability is "
    "below P [default: reading in 'neocog models show NAME --card', else 0.4].")]  # fmt: skip
MaxError = Annotated[str | None, option("--max-error", "SHARE",
    "Print ? so at most SHARE (2%) of the printed numbers (--isolated: digits) are wrong.")]  # fmt: skip
Pattern = Annotated[str | None, option("--pattern", "FORM",
    "Form of each line, # for a digit, e.g. '##/##/####'.")]  # fmt: skip
Finder = Annotated[str | None, option("--finder", "FILE",
    "File of the network that finds the digits [default: the shipped one].")]  # fmt: skip
Force = Annotated[bool, option("--force", None, "Overwrite FILE if it exists.")]
Json = Annotated[bool, option("--json", None, "Print one JSON object instead of a table.")]


def check_new(path: str | Path, option: str, *, force: bool) -> None:
    """Refuse a file that exists, unless ``force``, and one that cannot be written."""
    if Path(path).exists() and not force:
        raise UsageError(f"{path}: exists; add --force to overwrite it, or name another")
    check_output(path, option)
