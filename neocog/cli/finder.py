"""``neocog train --finder``: the finder of digits, from made pages."""

import hashlib
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from neocog.errors import UsageError

Finder = Annotated[
    str | None,
    typer.Option(
        "--finder",
        metavar="plain|deep|wide",
        help="Train the digit finder instead, on synthetic pages written with the strokes and "
        "scans of --data (a folder with mnist and hands/free): a convolutional network of 69 000, "
        "120 000 or 294 000 weights (shipped: wide). --start continues from the run.safetensors "
        "of another run.",
    ),
]
Fonts = Annotated[
    str | None,
    typer.Option("--fonts", metavar="DIR", help="Fonts for printed words on these pages."),
]
Chunks = Annotated[
    int,
    typer.Option(
        "--chunks",
        metavar="N",
        min=1,
        help="Train on this many chunks of 4 096 pages instead of for --minutes.",
    ),
]


_GENTLER = 0.5  # of the rate, where a run begins with learned weights
_USED = "finder fonts chunks data output seed minutes device checkpoints start"


def check_given(context: typer.Context, data: list[str]) -> None:
    """Raise UsageError where options were given that a finder has no use for, or several sets."""
    given = []
    for option in context.command.params:
        source = context.get_parameter_source(option.name or "")
        if source is not None and source.name != "DEFAULT" and option.name not in _USED.split():
            given.append(option.opts[0])
    if given:
        raise UsageError(f"--finder does not use {', '.join(given)}; leave it out")
    if len(data) > 1:
        raise UsageError("--finder takes one --data: a folder that holds mnist and hands/free")


def learn(
    front: str,
    data: str,
    place: str,
    *,
    seed: int,
    chunks: int,
    minutes: float | None,
    device: str,
    folder: str | None,
    fonts: str | None,
    start: str | None = None,
) -> None:
    """Train a finder and write its file; a run in ``folder`` goes on where it stopped."""
    try:
        import torch
    except ImportError:
        raise UsageError("PyTorch is not installed; install neocog[train]") from None
    from neocog.learning.finder.networks import FRONTS
    from neocog.learning.finder.training import FinderTraining, train_finder
    from neocog.learning.teacher.bank import build_bank
    from neocog.network.parallel import cores
    from neocog.vision.finder_model import load_finder, save_finder

    cuda = torch.cuda.is_available() if device == "auto" else device == "cuda"
    runs = Path(folder or Path(place).with_suffix(".run"))
    if front not in FRONTS:
        raise UsageError(f"finder '{front}' is unknown: choose {', '.join(FRONTS)}")
    if start is not None and not Path(start).is_file():
        raise UsageError(f"--start {start}: no such file; give the run.safetensors of another run")
    sources = hashlib.sha256(f"{Path(data).resolve()} {fonts}".encode()).hexdigest()[:8]
    bank = runs / f"bank-{sources}.npz"
    if not bank.is_file():
        print("tracing the strokes of the scanned digits, once", file=sys.stderr)
        runs.mkdir(parents=True, exist_ok=True)
        build_bank(Path(data), fonts=_files(fonts)).save(bank)
    settings = FinderTraining(
        front=front,
        seed=seed,
        chunks=chunks,
        seconds=None if minutes is None else 60 * minutes,
        mixed=cuda,
        start=start,
        rate=FinderTraining().rate * (1 if start is None else _GENTLER),
    )
    network = train_finder(
        bank,
        runs,
        settings,
        workers=cores() if cuda else max(1, cores() // 2),
        device="cuda" if cuda else "cpu",
        tell=lambda text: print(text, file=sys.stderr),
    )
    graph = network.graph()
    card = {"front": front, "seed": seed, "minutes": minutes, "chunks": chunks, "start": start}
    save_finder(Path(place), graph.nodes, graph.tensors, card)
    print(f"{place}  {load_finder(place).id}  {os.path.getsize(place):,} bytes")


def _files(fonts: str | None) -> list[Path]:
    from neocog.learning.pages.conditions import FACES

    if fonts is None:
        return []
    found = sorted(file for end in ("ttf", "otf") for file in Path(fonts).glob(f"*.{end}"))
    if not found:
        raise UsageError(f"--fonts {fonts}: holds no .ttf or .otf file")
    kept = {name for names in FACES.values() for name in names.split()}
    for file in found:
        if file.stem in kept:
            raise UsageError(
                f"--fonts {fonts}: {file.name} is held out for measuring (pages/conditions.py)"
            )
    return found
