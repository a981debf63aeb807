"""``neocog train --recipe finetuned``: the start without gradients, then all of it with them."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neocog.cli.progress import Counter
from neocog.learning.settings import Settings, augmentation

if TYPE_CHECKING:
    from neocog.learning.mix import Mix
    from neocog.network.model import Model

_PANEL = "Recipes by gradient"
_KEPT = "start.safetensors"  # in the folder of a run: what it began with
#: What the options are where they are not given.
USUALLY = Settings()
#: What a model that is gone on from has already.
_OF_A_NEW_START = ("--planes", "--reject")

Planes = Annotated[
    str | None,
    typer.Option(
        "--planes", metavar="K2/K3/K4", help="Plane counts, e.g. 40/160/100.",
        rich_help_panel=_PANEL,
    ),
]  # fmt: skip
Epochs = Annotated[
    float, typer.Option("--epochs", help="Times all digits are shown.", rich_help_panel=_PANEL)
]
Minutes = Annotated[
    float | None,
    typer.Option("--minutes", help="Learn so long instead.", rich_help_panel=_PANEL),
]
Batch = Annotated[
    int, typer.Option("--batch", help="Pictures of a step.", rich_help_panel=_PANEL)
]  # fmt: skip
Rate = Annotated[
    float, typer.Option("--rate", help="Largest rate of Adam.", rich_help_panel=_PANEL)
]
Reject = Annotated[
    int,
    typer.Option(
        "--reject", min=0, help="Planes that answer to what is no digit.", rich_help_panel=_PANEL
    ),
]
Lean = Annotated[
    float,
    typer.Option(
        "--lean", help="What the logit of no digit is given more.", rich_help_panel=_PANEL
    ),
]
Variants = Annotated[
    float,
    typer.Option(
        "--variants",
        min=0,
        help="Share of a step that coarse scanners and the reader would hand over.",
        rich_help_panel=_PANEL,
    ),
]
Pool = Annotated[
    int,
    typer.Option(
        "--pool",
        min=0,
        help="Variants, and marks, that are drawn beforehand.",
        rich_help_panel=_PANEL,
    ),
]
Marks = Annotated[
    float,
    typer.Option(
        "--marks", min=0, help="Share of a step that is no digit.", rich_help_panel=_PANEL
    ),
]
Start = Annotated[
    str | None,
    typer.Option(
        "--start",
        metavar="MODEL",
        help="Go on from this model, not from a self-organised network.",
        rich_help_panel=_PANEL,
    ),
]
Last = Annotated[
    bool,
    typer.Option(
        "--last",
        help="Keep the network at the end, not the one that read validation digits best.",
        rich_help_panel=_PANEL,
    ),
]
Changes = Annotated[
    str,
    typer.Option(
        "--augmentation",
        metavar="NAME[,STRENGTH=X]",
        help="How digits are changed: none, geometry, strokes, scans, pages; as scans,elastic=2.",
        rich_help_panel=_PANEL,
    ),
]
Checkpoints = Annotated[
    str | None,
    typer.Option(
        "--checkpoints",
        metavar="FOLDER",
        help="Where the run keeps what it needs to go on after it was stopped, and its curves.",
        rich_help_panel=_PANEL,
    ),
]


def check_given(context: typer.Context, recipe: str, *, by_gradient: bool) -> None:
    """Raise UsageError where options were given that a recipe, or ``--start``, has no use for."""
    from neocog.errors import UsageError
    from neocog.learning.start import STARTS

    given = []
    for option in context.command.params:
        source = context.get_parameter_source(option.name or "")
        by_user = source is not None and source.name != "DEFAULT"
        if by_user and getattr(option, "rich_help_panel", None) == _PANEL:
            given.append(option.opts[0])
    if given and not by_gradient:
        raise UsageError(
            f"recipe '{recipe}' learns without gradients and has no use for {', '.join(given)}; "
            f"leave that out, or give --recipe {' or '.join(STARTS)}"
        )
    useless = [option for option in _OF_A_NEW_START if option in given]
    if "--start" in given and useless:
        raise UsageError(
            f"{' and '.join(useless)}: the model of --start has planes of its own; give one or "
            "the other"
        )


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the recipes by gradient, as they were given."""

    planes: str | None
    epochs: float
    minutes: float | None
    batch: int
    rate: float
    reject: int
    lean: float
    marks: float
    variants: float
    pool: int
    augmentation: str
    checkpoints: str | None
    start: str | None
    last: bool
    device: str


def learn(
    name: str, mix: "Mix", validation: "Mix | None", *, seed: int, options: Options
) -> "Model":
    """Learn a start and fine-tune it.

    Raises
    ------
    UsageError
        If PyTorch is not installed, there are no digits to validate with, or an option is wrong.
    DeviceError
        If PyTorch finds no GPU where one is asked for.
    """
    from neocog.errors import UsageError

    if validation is None:
        raise UsageError("recipes by gradient need validation digits: give --split learning")
    device = _device(options.device, name)
    from neocog.learning.calibrate import calibrated
    from neocog.learning.finetune import Finetuner
    from neocog.learning.lessons import Pools
    from neocog.network.parallel import cores
    from neocog.network.spec import LABELS

    settings = Settings(
        seed=seed,
        epochs=options.epochs,
        minutes=options.minutes,
        batch=options.batch,
        rate=options.rate,
        lean=options.lean,
        marks=options.marks,
        last=options.last,
        variants=options.variants,
        pool=options.pool,
        augmentation=augmentation(options.augmentation),
        precision="fp32" if device == "cpu" else "tf32",
    )
    if options.start is not None:
        settings = replace(settings, soft_share=0.0)
    settings.check()
    folder = _folder(options.checkpoints)
    start, data = _start(name, mix, folder, seed=seed, options=options)
    marks = start.classes > LABELS
    run = Finetuner(
        start,
        mix,
        validation,
        settings,
        device=device,
        folder=folder,
        report=_report,
        pools=Pools.draw(mix, validation, settings, marks=marks, jobs=cores()),
    )
    if folder is not None:  # not before it is sure that it can be learned from
        _keep(folder, data)
    if run.position.finished:
        print(
            f"neocog: the run in {folder} has finished and this is its model; to go on from it "
            "give --start MODEL and another --checkpoints",
            file=sys.stderr,
        )
    return calibrated(run.run(), validation)


def _start(
    name: str, mix: "Mix", folder: Path | None, *, seed: int, options: Options
) -> "tuple[Model, bytes]":
    """What learning begins with, and its file: one kept before, the one named, or a new one."""
    from neocog.errors import UsageError
    from neocog.learning.start import check_start, described, recipe_of, start_model
    from neocog.network.model import from_bytes, load_model, to_bytes
    from neocog.network.registry import find_model

    recipe = recipe_of(name, options.planes)
    place = folder / _KEPT if folder else None
    kept = load_model(place) if place is not None and place.exists() else None
    named = load_model(options.start) if options.start is not None else None
    if kept is not None and place is not None:
        if named is None:
            given = described(recipe, mix.digest, seed=seed, reject=options.reject)
            check_start(place, kept, given)
        elif kept.id != named.id:
            raise UsageError(
                f"{place} is {kept.id}, not {named.id}; give the options that the run there began "
                "with, or another --checkpoints"
            )
        return kept, place.read_bytes()
    if named is not None and options.start is not None:
        return named, find_model(options.start).read_bytes()
    made = start_model(recipe, mix, seed=seed, reject=options.reject, progress=Counter)
    data = to_bytes(made)
    return from_bytes(data, source=name), data


def _keep(folder: Path, data: bytes) -> None:
    """Write a start as it was read, so that it has the same id, where none is kept."""
    from neocog.files import atomic_write

    if not (folder / _KEPT).exists():
        with atomic_write(folder / _KEPT) as stream:
            stream.write(data)


def _device(name: str, recipe: str) -> str:
    from neocog.errors import DeviceError, UsageError

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


def _folder(name: str | None) -> Path | None:
    from neocog.errors import UsageError

    if name is None:
        return None
    folder = Path(name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{name}: cannot be made a folder ({error.strerror}); give another --checkpoints"
        ) from None
    return folder


def _report(figures: dict[str, float]) -> None:
    words = ", ".join(f"{key.replace('_', ' ')} {value:.5g}" for key, value in figures.items())
    print(words, file=sys.stderr, flush=True)
