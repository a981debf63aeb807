"""``neocog train``: a model from labelled digits."""

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neocog.cli import finder as finders
from neocog.cli import finetune
from neocog.cli.progress import Counter
from neocog.errors import UsageError
from neocog.learning.settings import REJECTING, USUAL, Settings
from neocog.learning.settings import augmentation as strengths
from neocog.messages import tell

if TYPE_CHECKING:
    from neocog.learning.mix import Mix
    from neocog.network.model import Model

SUFFIX = ".safetensors"
SPLITS = ("learning", "train")


def _list(wanted: bool) -> None:
    if wanted:
        from neocog.learning.recipe import RECIPES, STARTS

        for recipe in (*RECIPES.values(), *STARTS.values()):
            print(f"{recipe.name:16s} {recipe.about}")
        raise typer.Exit


Data = Annotated[
    list[str],
    typer.Option(
        "--data",
        metavar="PATH[:WEIGHT]",
        help="Labelled digits: a folder of IDX files (MNIST's form), of USPS text (zip.train), "
        "or of folders 0 to 9 with a picture per digit; or the name mnist. For several sets, "
        "weights say how often each set is shown: --data mnist:2 --data SWISS.",
    ),
]
Output = Annotated[
    str, typer.Option("--output", "-o", metavar="FILE", help="The model: a .safetensors file.")
]
RecipeName = Annotated[
    str, typer.Option("--recipe", metavar="NAME", help="How to learn; --recipes lists them.")
]
Seed = Annotated[
    int,
    typer.Option("--seed", metavar="N", min=0, max=2**32 - 1, help="Seed of all random choices."),
]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit",
        metavar="N",
        min=1,
        help="Use the first N digits; with several sets, N digits drawn by weight.",
    ),
]
Split = Annotated[
    str,
    typer.Option(
        "--split",
        metavar="|".join(SPLITS),
        help="learning: the training digits without the validation part, which is used to "
        "calibrate the probabilities; train: all of them.",
    ),
]
Precision = Annotated[
    str, typer.Option("--precision", metavar="fp16|fp32", help="Number format in the file.")
]
Device = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="auto|cpu|cuda",
        help="Where to compute; cuda needs CuPy, auto uses it if it is installed.",
    ),
]
Recipes = Annotated[
    bool, typer.Option("--recipes", callback=_list, is_eager=True, help="List the recipes.")
]


def train(
    context: typer.Context,
    data: Data,
    output: Output,
    recipe: RecipeName = "neocog",
    seed: Seed = 0,
    limit: Limit = None,
    split: Split = "learning",
    precision: Precision = "fp32",
    device: Device = "cpu",
    recipes: Recipes = False,
    planes: finetune.Planes = None,
    epochs: finetune.Epochs = finetune.USUALLY.epochs,
    minutes: finetune.Minutes = None,
    batch: finetune.Batch = finetune.USUALLY.batch,
    rate: finetune.Rate = finetune.USUALLY.rate,
    reject: finetune.Reject = REJECTING,
    lean: finetune.Lean = finetune.USUALLY.lean,
    marks: finetune.Marks = finetune.USUALLY.marks,
    variants: finetune.Variants = finetune.USUALLY.variants,
    pool: finetune.Pool = finetune.USUALLY.pool,
    augmentation: finetune.Changes = USUAL,
    checkpoints: finetune.Checkpoints = None,
    start: finetune.Start = None,
    last: finetune.Last = finetune.USUALLY.last,
    finder: finders.Finder = None,
    fonts: finders.Fonts = None,
    chunks: finders.Chunks = 150,
) -> None:
    """Train a model on labelled digits. The model is named after its file.

    On a CPU, the same seed and name give the same file. Recipes by gradient also need the same
    number of threads (OMP_NUM_THREADS) and no --minutes. On a GPU, two runs differ slightly.
    """
    from neocog.learning.mix import open_mix
    from neocog.learning.recipe import STARTS

    if finder is not None:
        finders.check_given(context, data)
        finders.learn(
            finder, data[0], _place(output), seed=seed, chunks=chunks, minutes=minutes,
            device=device, folder=checkpoints, fonts=fonts, start=start,
        )  # fmt: skip
        return
    if precision not in ("fp16", "fp32"):
        raise UsageError(f"precision '{precision}' is unknown: choose fp16 or fp32")
    if split not in SPLITS:
        raise UsageError(f"split '{split}' is not for learning: choose {' or '.join(SPLITS)}")
    by_gradient = recipe in STARTS
    follow = None if by_gradient else _follow(recipe, device)
    finetune.check_given(context, recipe, by_gradient=by_gradient)
    place = _place(output)
    mix = open_mix(data, split=split).first(limit)
    names = ", ".join(hand.digits.name for hand in mix.hands)
    tell(f"{len(mix)} digits of {names}, recipe {recipe}, seed {seed}")
    apart = _validation(data, split)
    if follow is None:
        settings = Settings(
            seed=seed, epochs=epochs, minutes=minutes, batch=batch, rate=rate, lean=lean,
            marks=marks, variants=variants, pool=pool, last=last,
            augmentation=strengths(augmentation),
        )  # fmt: skip
        model = finetune.learn(
            recipe, mix, apart, settings, planes=planes, reject=reject, start=start,
            folder=checkpoints, device=device,
        )  # fmt: skip
    else:
        model = follow(mix, apart, seed)
    saved = replace(model, name=Path(place).stem).save(place, precision=precision)  # type: ignore[arg-type]
    added = "" if str(place) == output else f"  ({SUFFIX} added to its name)"
    print(f"{place}  {saved.id}  planes {'/'.join(map(str, saved.planes))}{added}")


def _follow(name: str, device: str) -> "Callable[[Mix, Mix | None, int], Model]":
    """Return what learns by a recipe without gradients, once it is sure that it can."""
    from neocog.batch.device import learning_module
    from neocog.learning.recipe import RECIPES, STARTS
    from neocog.learning.recipes import train as learn

    xp = learning_module(device)
    if name not in RECIPES:
        names = ", ".join((*RECIPES, *STARTS))
        raise UsageError(f"recipe '{name}' is unknown: choose one of {names}")

    def follow(mix: "Mix", apart: "Mix | None", seed: int) -> "Model":
        more: dict[str, Any] = {"progress": Counter, "on_stage": _stage, "xp": xp}
        return learn(RECIPES[name], mix.images, mix.labels, seed=seed, validation=apart, **more)

    return follow


def _place(output: str) -> str:
    """The file that the model goes to, once it is sure that it can be written there."""
    from neocog.files import check_output

    suffix = Path(output).suffix
    if suffix not in ("", SUFFIX):
        raise UsageError(f"{output}: a model is a {SUFFIX} file, not {suffix}; choose another -o")
    place = output if suffix else output + SUFFIX
    check_output(output if os.path.isdir(output) else place, "-o")
    return place


def _validation(data: list[str], split: str) -> "Mix | None":
    """The digits that set the probabilities, if there are some that are not learned from."""
    from neocog.errors import InputError
    from neocog.learning.mix import open_mix

    if split == "learning":
        try:
            return open_mix(data, split="validation")
        except InputError as error:
            reason = str(error)
    else:
        reason = "--split train keeps no digits for that"
    tell(f"the probabilities are not calibrated: {reason}")
    return None


def _stage(name: str, figures: dict[str, Any]) -> None:
    words = ", ".join(f"{key} {value}" for key, value in figures.items())
    print(f"{name:10s} {words}", file=sys.stderr)
