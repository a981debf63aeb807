"""Draw lines of hands and styles that nothing is learned from: python -m experiments.lines.drawn DATA OUT."""

import csv
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import cv2
import numpy as np
import torch
import typer
from torch.nn import functional

from neocog.learning import augment
from neocog.learning.drawing.bank import drawn_lines
from neocog.learning.drawing.hands import load_hands
from neocog.learning.lines import batch_of

KINDS = ("amount", "amount", "date", "time", "phone", "grade", "groups", "marked")


def scanned(ink: Any, rng: np.random.Generator) -> Any:
    """Ordinary scans of ink (B, 1, 48, w): any paper and pen, 24 to 48 rows, a little blur and noise."""
    ends, each = ((150, 250), (0.35, 0.95), (0, 6)), (len(ink), 1, 1, 1)
    paper, contrast, noise = (
        torch.from_numpy(rng.uniform(low, high, each).astype(np.float32)) for low, high in ends
    )
    size = (int(rng.integers(24, 49)), ink.shape[3])
    grey = paper * (1 - contrast * ink.clamp(0, 1))
    grey = functional.interpolate(grey, size, mode="bilinear", antialias=True)
    grey = (grey + noise * torch.randn_like(grey)).clamp(0, 255).round()
    return functional.interpolate(grey, ink.shape[2:], mode="bilinear")


def main(
    data: Path, out: Path,
    count: Annotated[int, typer.Option(help="Lines.")] = 2000,
    seed: Annotated[int, typer.Option(help="Of the lines and of their pictures.")] = 4_100_000_000,
    signs: Annotated[bool, typer.Option(help="Only kinds of numbers with signs.")] = True,
    hard: Annotated[bool, typer.Option(help="As they are learned from: much of it hard to read.")] = False,
) -> None:  # fmt: skip
    """Write grey pictures 48 rows high and labels.csv (file, text, kind)."""
    out.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed % 2**31)
    rows = []
    kinds: list[str | None] = [*KINDS] if signs else [None]
    hands, each = load_hands(data, held=True), -(-count // len(kinds))
    draw = partial(drawn_lines, hands, each, ink=not hard)
    lines = [(line, kind) for k, kind in enumerate(kinds)
             for line in draw(seed=seed + k, kind=kind, negatives=kind is None)]  # fmt: skip
    for at in range(0, len(lines), 32):
        some = lines[at : at + 32]
        x, widths, texts = batch_of([line for line, _ in some], "cpu")
        x, wide = augment.warped(x, widths, int(widths.max()) + 32, rng)
        grey = x if hard else scanned(x / 255, rng)
        for k, (text, (_, kind)) in enumerate(zip(texts, some, strict=True)):
            name = f"{at + k:05}.png"
            cv2.imwrite(str(out / name), grey[k, 0, :, : wide[k]].numpy().round().astype(np.uint8))
            rows.append((name, text, kind or "any"))
    with (out / "labels.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([("file", "text", "kind"), *rows[:count]])


if __name__ == "__main__":
    typer.run(main)
