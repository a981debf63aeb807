"""``neocog train``: a model from labelled digits, without gradients."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neocog.cli.progress import Counter

if TYPE_CHECKING:
    from neocog.learning.datasets import Digits


def _list(wanted: bool) -> None:
    if wanted:
        from neocog.learning.recipes import RECIPES

        for recipe in RECIPES.values():
            print(f"{recipe.name:16s} {recipe.about}")
        raise typer.Exit


def train(
    data: Annotated[
        str, typer.Option("--data", metavar="DIR", help="Labelled digits, or the name mnist.")
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="The model: a .safetensors file.")
    ],
    recipe: Annotated[
        str, typer.Option("--recipe", metavar="NAME", help="How to learn; see --recipes.")
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
    ] = "fp32",
    device: Annotated[
        str,
        typer.Option("--device", metavar="cpu|cuda", help="Where to compute; cuda needs CuPy."),
    ] = "cpu",
    recipes: Annotated[
        bool,
        typer.Option("--recipes", callback=_list, is_eager=True, help="List the recipes."),
    ] = False,
) -> None:
    """Learn a network from labelled digits. The same seed gives the same file."""
    from pathlib import Path

    from neocog.errors import UsageError
    from neocog.learning.datasets import open_digits
    from neocog.learning.recipes import RECIPES
    from neocog.learning.recipes import train as learn
    from neocog.network.arrays import module_of_device

    xp = module_of_device(device)
    if recipe not in RECIPES:
        raise UsageError(f"recipe '{recipe}' is unknown: choose one of {', '.join(RECIPES)}")
    if precision not in ("fp16", "fp32"):
        raise UsageError(f"precision '{precision}' is unknown: choose fp16 or fp32")
    place = Path(output).absolute().parent
    if Path(output).is_dir() or not place.is_dir():
        raise UsageError(f"{output}: not a file in a folder that is there; give another -o")
    digits = open_digits(data, split=split)[:limit]
    print(f"{len(digits)} digits of {digits.name}, recipe {recipe}, seed {seed}", file=sys.stderr)
    apart = _validation(data) if split == "learning" else None
    model = learn(
        RECIPES[recipe],
        digits.images,
        digits.labels,
        seed=seed,
        validation=(apart.images, apart.labels) if apart else None,
        progress=Counter,
        on_stage=_stage,
        xp=xp,
    )
    saved = model.save(output, precision="fp16" if precision == "fp16" else "fp32")
    print(f"{output}  {saved.id}  planes {'/'.join(map(str, saved.planes))}")


def _validation(data: str) -> "Digits | None":
    from neocog.errors import InputError
    from neocog.learning.datasets import open_digits

    try:
        return open_digits(data, split="validation")
    except InputError:  # a set without parts
        return None


def _stage(name: str, figures: dict[str, Any]) -> None:
    words = ", ".join(f"{key} {value}" for key, value in figures.items())
    print(f"{name:10s} {words}", file=sys.stderr)
