"""``neocog train``: a model from labelled digits, without gradients."""

import sys
from typing import Annotated

import typer

from neocog.cli.progress import Counter


def train(
    data: Annotated[
        str, typer.Option("--data", metavar="DIR", help="Labelled digits, or the name mnist.")
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="The model: a .safetensors file.")
    ],
    recipe: Annotated[
        str, typer.Option("--recipe", metavar="NAME", help="How to learn; 'list' shows all.")
    ] = "neocog",
    seed: Annotated[int, typer.Option("--seed", min=0, help="Fixes the order of the digits.")] = 0,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Learn from so many digits, the first.")
    ] = None,
    split: Annotated[
        str,
        typer.Option(
            "--split",
            metavar="learning|train",
            help="Part of the set: all training digits, or those before the validation part.",
        ),
    ] = "learning",
    precision: Annotated[
        str, typer.Option("--precision", metavar="fp16|fp32", help="Numbers in the file.")
    ] = "fp16",
) -> None:
    """Learn a network from labelled digits. The same seed gives the same file."""
    from pathlib import Path

    from neocog.errors import UsageError
    from neocog.learning.datasets import open_digits
    from neocog.learning.recipes import RECIPES
    from neocog.learning.recipes import train as learn

    if recipe not in RECIPES:
        raise UsageError(f"recipe '{recipe}' is unknown: choose one of {', '.join(RECIPES)}")
    if precision not in ("fp16", "fp32"):
        raise UsageError(f"precision '{precision}' is unknown: choose fp16 or fp32")
    place = Path(output).absolute().parent
    if Path(output).is_dir() or not place.is_dir():
        raise UsageError(f"{output}: not a file in a folder that is there; give another -o")
    digits = open_digits(data, split=split)[:limit]
    print(f"{len(digits)} digits of {digits.name}, recipe {recipe}, seed {seed}", file=sys.stderr)
    model = learn(
        RECIPES[recipe], digits.images, digits.labels, seed=seed, progress=Counter, on_stage=_stage
    )
    saved = model.save(output, precision=precision)
    print(f"{output}  {saved.id}  planes {'/'.join(map(str, saved.planes))}")


def _stage(name: str, figures: object) -> None:
    print(f"{name}  {figures}", file=sys.stderr)
