"""``neocog train``: a model from labelled digits, the finder of digits, or a reader of lines."""

import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neocog.cli.options import flag, option
from neocog.cli.progress import Counter
from neocog.errors import DeviceError, InputError, UsageError
from neocog.files import atomic_write, check_output
from neocog.learning.settings import REJECTING, USUAL, Settings
from neocog.learning.settings import augmentation as strengths
from neocog.network.registry import SUFFIX
from neocog.text import tell

if TYPE_CHECKING:
    from neocog.learning.mix import Mix
    from neocog.network.model import Model

SPLITS = ("learning", "train")
USUALLY = Settings()
_PANEL = "Recipes by gradient"
#: Options that a finder, and a reader of lines, have a use for.
_OF_A_FINDER = "finder fonts chunks data output seed minutes device checkpoints start"
_OF_LINES = "lines steps data output seed minutes device checkpoints start precision"
_SETTINGS = "seed epochs minutes batch rate lean marks variants pool last"  # of `Settings`, as they are given
_GENTLER = 0.5  # of a finder's rate, where a run begins with learned weights

_gradient = partial(option, rich_help_panel=_PANEL)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _list(wanted: bool) -> None:
    if wanted:
        from neocog.learning.recipes import RECIPES, STARTS

        for recipe in (*RECIPES.values(), *STARTS.values()):
            print(f"{recipe.name:16s} {recipe.about}")
        raise typer.Exit


Recipes = flag("List the recipes.", callback=_list, is_eager=True)


def train(
    context: typer.Context,
    data: Annotated[list[str], option("PATH[:WEIGHT]", "Labelled digits: a folder of IDX files (MNIST's "
        "form), of USPS text (zip.train), or of folders 0 to 9 with a picture per digit; or the name mnist. "
        "For several sets, weights say how often each set is shown: --data mnist:2 --data SWISS.")],
    output: Annotated[str, option("FILE", "The model: a .safetensors file.", "--output", "-o")],
    recipe: Annotated[str, option("NAME", "How to learn; --recipes lists them.")] = "neocog",
    seed: Annotated[int, option("N", "Seed of all random choices.", min=0, max=2**32 - 1)] = 0,
    limit: Annotated[int | None, option("N",
        "Use the first N digits; with several sets, N digits drawn by weight.", min=1)] = None,
    split: Annotated[str, option("|".join(SPLITS), "learning: training digits minus validation digits, which "
        "calibrate the probabilities. train: all training digits (no calibration).")] = "learning",
    precision: Annotated[str, option("fp16|fp32", "Number format in the file.")] = "fp32",
    device: Annotated[str, option("auto|cpu|cuda",
        "Where to compute; cuda needs CuPy, auto uses it if installed.")] = "cpu",
    recipes: Annotated[bool, Recipes] = False,
    planes: Annotated[str | None, _gradient("K2/K3/K4", "Plane counts, e.g. 40/160/100.")] = None,
    epochs: Annotated[float, _gradient("N", "Passes over the training digits.")] = USUALLY.epochs,
    minutes: Annotated[float | None, _gradient("N",
        "Train for so many minutes; with --lines or --finder, stop then, the run kept.")] = None,
    batch: Annotated[int, _gradient("N", "Pictures per step.")] = USUALLY.batch,
    rate: Annotated[float, _gradient("RATE", "Highest learning rate of Adam.")] = USUALLY.rate,
    reject: Annotated[int, _gradient("N", "Planes for 'no digit'; 0: none.", min=0)] = REJECTING,
    lean: Annotated[float, _gradient("BONUS", "Bonus for the logit of 'no digit' in training; a larger one "
        "makes the planes for it respond less.")] = USUALLY.lean,
    marks: Annotated[float, _gradient("SHARE", "Fraction of a batch that is no digit; a larger one makes the "
        "model reject more.", min=0)] = USUALLY.marks,
    variants: Annotated[float, _gradient("SHARE", "Fraction of a batch that looks like a coarse scan or a "
        "crop of the reader.", min=0)] = USUALLY.variants,
    pool: Annotated[int, _gradient("N",
        "Number of variants, and of marks, drawn before training.", min=0)] = USUALLY.pool,
    augmentation: Annotated[str, _gradient("NAME[,STRENGTH=X]",
        "Augmentation of the digits: none, geometry, strokes, scans, pages; e.g. scans,elastic=2.")] = USUAL,
    checkpoints: Annotated[str | None, _gradient("FOLDER",
        "Folder for checkpoints and curves; the same command resumes from it.")] = None,
    start: Annotated[str | None, _gradient("MODEL", "Continue from this model.")] = None,
    last: Annotated[bool, _gradient(None,
        "Keep the last network, not the best on validation digits.")] = USUALLY.last,
    finder: Annotated[str | None, option("wide", "Train the digit finder instead, on pages drawn with the "
        "digits of --data (a folder with mnist, hands/free and lines/free): a convolutional network of 294 "
        "000 weights. --start continues from the file of another.")] = None,
    fonts: Annotated[str | None, option("DIR", "Fonts for printed words on these pages, and "
        "for pages of other scripts.")] = None,
    chunks: Annotated[int, option("N", "Chunks of 4 096 pages that a finder learns from.", min=1)] = 150,
    lines: Annotated[bool, flag("Train a reader of whole lines instead, on lines drawn with the digits of "
        "--data (a folder with mnist, hands/free and lines/free) and on real ones. --start is the digit "
        "model that it begins with [default: neocog] or a line model to continue from. --checkpoints keeps "
        "the run [default: beside the model].")] = False,
    steps: Annotated[int, option("N", "Steps of --lines.", min=1)] = 20_000,
) -> None:  # fmt: skip
    """Train a model on labelled digits. The model is named after its file.

    On a CPU, the same seed and name give the same file. For gradient recipes this
    also requires the same OMP_NUM_THREADS and no --minutes. On a GPU, two runs differ slightly.
    """
    from neocog.learning import recipes as learning
    from neocog.learning.mix import open_mix
    from neocog.network.arrays import module_of_device

    args = SimpleNamespace(**context.params)
    by_gradient, whole = recipe in learning.STARTS, lines or finder is not None
    options: list[Any] = list(context.command.params)
    what, used = f"recipe '{recipe}'", {o.name for o in options} - {"fonts", "chunks", "steps"}
    panel = {o.name for o in options if getattr(o, "rich_help_panel", None) == _PANEL}
    if whole:
        what = "--lines" if finder is None else "--finder"
        used = {*(_OF_LINES if finder is None else _OF_A_FINDER).split()}
    elif not by_gradient:
        if recipe not in learning.RECIPES:
            names = ", ".join((*learning.RECIPES, *learning.STARTS))
            raise UsageError(f"recipe '{recipe}' is unknown: choose one of {names}")
        used -= panel
    source = context.get_parameter_source
    given = [o for o in options if (found := source(o.name or "")) and found.name != "DEFAULT"]
    if useless := {o.name: o.opts[0] for o in given if o.name not in used}:
        advise = what[0] == "r" and panel.issuperset(useless)
        other = f", or give --recipe {' or '.join(learning.STARTS)}" * advise
        raise UsageError(f"{what} does not use {', '.join(useless.values())}; leave it out{other}")
    if precision not in ("fp16", "fp32"):
        raise UsageError(f"precision '{precision}' is unknown: choose fp16 or fp32")
    if whole:
        if len(data) > 1:
            raise UsageError(f"{what} takes one --data: a folder that holds mnist and hands/free")
        _learn_whole(args, _place(output), _torch_device(device, what))
        return
    if split not in SPLITS:
        raise UsageError(f"split '{split}' is not for learning: choose {' or '.join(SPLITS)}")
    xp: Any = None if by_gradient else module_of_device(device)
    fixed = [o.opts[0] for o in given if o.name in ("planes", "reject")]
    if start is not None and fixed:
        raise UsageError(f"--start already fixes the planes; leave out --start or {' and '.join(fixed)}")
    place = _place(output)
    mix = open_mix(data, split=split).first(limit)
    names = ", ".join(hand.digits.name for hand in mix.hands)
    tell(f"{len(mix)} digits of {names}, recipe {recipe}, seed {seed}")
    apart, reason = None, "--split train keeps no digits for that"
    if split == "learning":
        try:
            apart = open_mix(data, split="validation")
        except InputError as error:
            reason = str(error)
    if apart is None:
        tell(f"the probabilities are not calibrated: {reason}")
    if by_gradient:
        model = _by_gradient(args, mix, apart)
    else:
        model = learning.train(
            learning.RECIPES[recipe], mix.images, mix.labels, seed=seed, validation=apart, progress=Counter,
            on_stage=lambda name, own: _say(f"{name:10s} {', '.join(f'{k} {v}' for k, v in own.items())}"),
            xp=xp,
        )  # fmt: skip
    saved = replace(model, name=Path(place).stem).save(place, precision=args.precision)
    added = "" if place == output else f"  ({SUFFIX} added to its name)"
    print(f"{place}  {saved.id}  planes {'/'.join(map(str, saved.planes))}{added}")


def _place(output: str) -> str:
    suffix = Path(output).suffix
    if suffix not in ("", SUFFIX):
        raise UsageError(f"{output}: a model is a {SUFFIX} file, not {suffix}; choose another -o")
    place = output if suffix else output + SUFFIX
    check_output(output if os.path.isdir(output) else place, "-o")
    return place


def _torch_device(name: str, what: str) -> str:
    try:
        import torch
    except ImportError:
        raise UsageError(f"{what} needs PyTorch, which is not installed; install neocog[train]") from None
    if name not in ("auto", "cpu", "cuda"):
        raise UsageError(f"device '{name}' is unknown: choose auto, cpu or cuda")
    there = torch.cuda.is_available()
    if name == "cuda" and not there:
        raise DeviceError("device 'cuda': PyTorch finds no GPU; use --device cpu")
    return "cuda" if there and name != "cpu" else "cpu"


def _by_gradient(args: Any, mix: "Mix", validation: "Mix | None") -> "Model":
    if validation is None:
        raise UsageError("recipes by gradient need validation digits: give --split learning")
    device = _torch_device(args.device, f"recipe '{args.recipe}'")
    from neocog.learning.calibrate import calibrated
    from neocog.learning.checkpoint import start_of_run
    from neocog.learning.finetune import Finetuner
    from neocog.learning.recipes import recipe_of
    from neocog.network.parallel import cores

    own = {name: getattr(args, name) for name in _SETTINGS.split()}
    settings = Settings(augmentation=strengths(args.augmentation), **own)
    if args.start is not None:
        settings = replace(settings, soft_share=0.0)
    settings.check()
    kept = None
    if args.checkpoints is not None:
        check_output(args.checkpoints, "--checkpoints", folder=True, make=True)
        kept = Path(args.checkpoints) / "start.safetensors"
    recipe = recipe_of(args.recipe, args.planes)
    begin, data = start_of_run(
        kept, args.start, recipe, mix, seed=args.seed, reject=args.reject, progress=Counter
    )
    run = Finetuner(
        begin, mix, validation, settings, device=device, folder=args.checkpoints, jobs=cores(),
        report=lambda own: _say(", ".join(f"{k.replace('_', ' ')} {v:.5g}" for k, v in own.items())),
    )  # fmt: skip
    if kept is not None and not kept.exists():  # not before it is sure that it can be learned from
        with atomic_write(kept) as stream:  # as it was read, so that it has the same id
            stream.write(data)
    if run.position.finished:
        tell(f"the run in {args.checkpoints} has finished and this is its model; to continue from it, "
             "give --start MODEL and another --checkpoints")  # fmt: skip
    return calibrated(run.run(), validation)


def _learn_whole(args: Any, place: str, device: str) -> None:
    """Train a finder, or a reader of lines, and write its file; a run that was kept goes on."""
    from neocog.network.parallel import cores

    workers, data = cores() if device == "cuda" else max(1, cores() // 2), Path(args.data[0])
    runs = Path(args.checkpoints or Path(place).with_suffix(".run"))
    if args.finder is None:
        from neocog.learning import lines

        own = lines.LineTraining(seed=args.seed, steps=args.steps, mixed=device == "cuda")
        network = lines.start(args.start or "neocog", own)
        run = lines.LineRun(network, data, runs, own, device=device, workers=workers, tell=_say)
        if not run.learn(minutes=args.minutes):
            tell(f"{runs} keeps the run, {run.step} of {args.steps} steps: the same command goes on with it")
            return
        found = run.model(Path(place).stem).save(place, precision=args.precision).id
    else:
        from neocog.learning.finder.training import FinderTraining, train_finder
        from neocog.vision.finder_model import load_finder, save_finder

        if args.finder != "wide":
            raise UsageError(f"finder '{args.finder}' is unknown: choose wide")
        faces, rate = _fonts(args.fonts), FinderTraining().rate * (_GENTLER if args.start else 1)
        about = {"seed": args.seed, "chunks": args.chunks, "start": args.start}
        graph = train_finder(
            data, runs, FinderTraining(rate=rate, **about), fonts=faces, device=device, workers=workers,
            minutes=args.minutes, tell=_say,
        ).graph()  # fmt: skip
        save_finder(Path(place), graph.nodes, graph.tensors, {"front": args.finder, **about})
        found = load_finder(place).id
    print(f"{place}  {found}  {os.path.getsize(place):,} bytes")


def _fonts(folder: str | None) -> list[Path]:
    from neocog.learning.drawing.glyphs import HELD_OUT

    found = [] if folder is None else sorted([*Path(folder).glob("*.ttf"), *Path(folder).glob("*.otf")])
    if folder is not None and not found:
        raise UsageError(f"--fonts {folder}: holds no .ttf or .otf file")
    if held := [file.name for file in found if file.stem in HELD_OUT["faces"]]:
        why = "is held out for measuring (learning/drawing/held.json)"
        raise UsageError(f"--fonts {folder}: {held[0]} {why}")
    return found
