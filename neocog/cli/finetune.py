"""``neocog train --recipe finetuned``: the start without gradients, then all of it with them."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neocog.cli.progress import Counter
from neocog.errors import DeviceError, UsageError
from neocog.files import atomic_write, check_output
from neocog.learning.settings import Settings

if TYPE_CHECKING:
    from neocog.learning.mix import Mix
    from neocog.network.model import Model

_PANEL = "Recipes by gradient"
_KEPT = "start.safetensors"  # in the folder of a run: what it began with
#: What the options are where they are not given.
USUALLY = Settings()
#: What a model that is gone on from has already.
_OF_A_NEW_START = ("--planes", "--reject")


def _option(name: str, words: str, **more: Any) -> Any:
    return typer.Option(name, help=words, rich_help_panel=_PANEL, **more)


Planes = Annotated[
    str | None, _option("--planes", "Plane counts, e.g. 40/160/100.", metavar="K2/K3/K4")
]
Epochs = Annotated[float, _option("--epochs", "Passes over the training digits.", metavar="N")]
Minutes = Annotated[
    float | None, _option("--minutes", "Train for so many minutes instead.", metavar="N")
]
Batch = Annotated[int, _option("--batch", "Pictures per step.", metavar="N")]
Rate = Annotated[float, _option("--rate", "Highest learning rate of Adam.", metavar="RATE")]
Reject = Annotated[
    int, _option("--reject", "Planes that stand for 'no digit'.", metavar="N", min=0)
]
Lean = Annotated[
    float, _option("--lean", "Bonus for the logit of 'no digit' in training.", metavar="BONUS")
]
Variants = Annotated[
    float,
    _option(
        "--variants",
        "Share of a batch that looks like a coarse scan or a crop of the reader.",
        metavar="SHARE",
        min=0,
    ),
]
Pool = Annotated[
    int,
    _option(
        "--pool", "Number of variants, and of marks, drawn before training.", metavar="N", min=0
    ),
]
Marks = Annotated[
    float, _option("--marks", "Share of a batch that is not a digit.", metavar="SHARE", min=0)
]
Start = Annotated[
    str | None,
    _option("--start", "Continue from this model.", metavar="MODEL"),
]
Last = Annotated[
    bool,
    _option("--last", "Keep the last network, not the best on validation digits."),
]
Changes = Annotated[
    str,
    _option(
        "--augmentation",
        "Augmentation of the digits: none, geometry, strokes, scans, pages; e.g. scans,elastic=2.",
        metavar="NAME[,STRENGTH=X]",
    ),
]
Checkpoints = Annotated[
    str | None,
    _option(
        "--checkpoints",
        "Folder for checkpoints and curves; the same command resumes from it.",
        metavar="FOLDER",
    ),
]


def check_given(context: typer.Context, recipe: str, *, by_gradient: bool) -> None:
    """Raise UsageError where options were given that a recipe, or ``--start``, has no use for."""
    from neocog.learning.recipe import STARTS

    given = []
    for option in context.command.params:
        source = context.get_parameter_source(option.name or "")
        by_user = source is not None and source.name != "DEFAULT"
        if by_user and getattr(option, "rich_help_panel", None) == _PANEL:
            given.append(option.opts[0])
    if given and not by_gradient:
        raise UsageError(
            f"recipe '{recipe}' learns without gradients and does not use {', '.join(given)}; "
            f"leave it out, or give --recipe {' or '.join(STARTS)}"
        )
    useless = [option for option in _OF_A_NEW_START if option in given]
    if "--start" in given and useless:
        raise UsageError(
            f"--start already fixes the planes; leave out --start or {' and '.join(useless)}"
        )


def learn(
    recipe: str,
    mix: "Mix",
    validation: "Mix | None",
    settings: Settings,
    *,
    planes: str | None,
    reject: int,
    start: str | None,
    folder: str | None,
    device: str,
) -> "Model":
    """Learn a start, or take the one named, and fine-tune it.

    UsageError or DeviceError say what is missing: PyTorch, digits to validate with, a GPU.
    """
    if validation is None:
        raise UsageError("recipes by gradient need validation digits: give --split learning")
    device = _device(device, recipe)
    from neocog.learning.batches import Pools
    from neocog.learning.calibrate import calibrated
    from neocog.learning.finetune import Finetuner
    from neocog.network.parallel import cores
    from neocog.network.spec import LABELS

    settings = replace(settings, precision="fp32" if device == "cpu" else "tf32")
    if start is not None:
        settings = replace(settings, soft_share=0.0)
    settings.check()
    kept = None
    if folder is not None:
        check_output(folder, "--checkpoints", folder=True, make=True)
        kept = Path(folder) / _KEPT
    begin, data = _start(recipe, mix, kept, start, planes, seed=settings.seed, reject=reject)
    marks = begin.classes > LABELS
    run = Finetuner(
        begin,
        mix,
        validation,
        settings,
        device=device,
        folder=folder,
        report=_report,
        pools=Pools.draw(mix, validation, settings, marks=marks, jobs=cores()),
    )
    if kept is not None and not kept.exists():  # not before it is sure that it can be learned from
        with atomic_write(kept) as stream:  # as it was read, so that it has the same id
            stream.write(data)
    if run.position.finished:
        print(
            f"neocog: the run in {folder} has finished and this is its model; to continue from it, "
            "give --start MODEL and another --checkpoints",
            file=sys.stderr,
        )
    return calibrated(run.run(), validation)


def _start(
    name: str, mix: "Mix", place: Path | None, named: str | None, planes: str | None,
    *, seed: int, reject: int,
) -> "tuple[Model, bytes]":  # fmt: skip
    """What learning begins with, and its file: one kept before, the one named, or a new one."""
    from neocog.learning.start import check_start, described, recipe_of, start_model
    from neocog.network.model import from_bytes, load_model, to_bytes
    from neocog.network.registry import find_model

    recipe = recipe_of(name, planes)
    model = load_model(named) if named is not None else None
    if place is not None and place.exists():
        kept = load_model(place)
        if model is None:
            check_start(place, kept, described(recipe, mix.digest, seed=seed, reject=reject))
        elif kept.id != model.id:
            raise UsageError(
                f"{place} is {kept.id}, not {model.id}; give the options of the run "
                "there, or another --checkpoints"
            )
        return kept, place.read_bytes()
    if model is not None and named is not None:
        return model, find_model(named).read_bytes()
    data = to_bytes(start_model(recipe, mix, seed=seed, reject=reject, progress=Counter))
    return from_bytes(data, source=name), data


def _device(name: str, recipe: str) -> str:
    try:
        import torch
    except ImportError:
        raise UsageError(
            f"recipe '{recipe}' needs PyTorch, which is not installed; install neocog[train]"
        ) from None
    if name not in ("auto", "cpu", "cuda"):
        raise UsageError(f"device '{name}' is unknown: choose auto, cpu or cuda")
    there = torch.cuda.is_available()
    if name == "cuda" and not there:
        raise DeviceError("device 'cuda': PyTorch finds no GPU; use --device cpu")
    return "cuda" if there and name != "cpu" else "cpu"


def _report(figures: dict[str, float]) -> None:
    words = ", ".join(f"{key.replace('_', ' ')} {value:.5g}" for key, value in figures.items())
    print(words, file=sys.stderr, flush=True)
