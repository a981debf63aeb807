"""``neocog train --finder``: the finder of digits, from made pages."""

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
        metavar="plain|neocog",
        help="Learn the finder of digits instead, from pages drawn with the pen strokes and scans "
        "of --data, a folder that holds mnist and hands/free: a plain convolutional network or "
        "one with the neocognitron's layers in front.",
    ),
]
Fonts = Annotated[
    str | None,
    typer.Option(
        "--fonts", metavar="DIR", help="Typefaces that words on those pages are printed in."
    ),
]
Chunks = Annotated[
    int,
    typer.Option("--chunks", min=1, help="So many times 4 096 pages, without --minutes."),
]


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
) -> None:
    """Train a finder and write its file; a run in ``folder`` goes on where it stopped."""
    try:
        import torch
    except ImportError:
        raise UsageError("PyTorch is not installed; install neocog[train]") from None
    from neocog.learning.finder.training import FinderTraining, train_finder
    from neocog.learning.teacher.bank import build_bank
    from neocog.network.parallel import cores
    from neocog.vision.finder_model import load_finder, save_finder

    cuda = torch.cuda.is_available() if device == "auto" else device == "cuda"
    runs = Path(folder or Path(place).with_suffix(".run"))
    bank = runs / "bank.npz"
    if not bank.is_file():
        print("strokes of the scanned digits are traced, once", file=sys.stderr)
        runs.mkdir(parents=True, exist_ok=True)
        build_bank(Path(data), fonts=_files(fonts)).save(bank)
    settings = FinderTraining(
        front=front,
        seed=seed,
        chunks=chunks,
        seconds=None if minutes is None else 60 * minutes,
        mixed=cuda,
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
    card = {"front": front, "seed": seed, "minutes": minutes, "chunks": chunks}
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
            raise UsageError(f"--fonts {fonts}: {file.name} only measures (pages/conditions.py)")
    return found
