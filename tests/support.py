"""Digits of straight strokes, pages of them, a tiny model that reads them, and the commands."""

from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from typer.testing import CliRunner, Result

from neocog.cli import app
from neocog.learning.edges import edge_references
from neocog.network import fields, reference
from neocog.network.model import Model, SWeights
from neocog.network.spec import preset
from neocog.network.u0 import u0_from_digits
from neocog.vision.normalise import normalise

_CORNERS = {"a": (0, 0), "b": (0, 1), "c": (1, 0), "d": (1, 1), "e": (2, 0), "f": (2, 1)}
_STROKES = {
    0: "ab bf fe ea", 1: "bf", 2: "ab bd dc ce ef", 3: "ab bf fe cd", 4: "ac cd bf",
    5: "ba ac cd df fe", 6: "ba ae ef fd dc", 7: "ab be", 8: "ab bf fe ea cd", 9: "dc ca ab bf fe",
}  # fmt: skip


def glyph(digit: int, height: int = 60, pen: float = 6.0) -> NDArray[np.float32]:
    """Ink 0..1 of one digit made of straight strokes, ``height`` rows."""
    margin = pen
    width = round(0.6 * height)
    rows, columns = np.mgrid[:height, :width]
    nearest = np.full((height, width), np.inf)
    for stroke in _STROKES[digit].split():
        (r0, c0), (r1, c1) = (
            np.array(_CORNERS[name]) * (height / 2 - margin, width - 2 * margin) + margin
            for name in stroke
        )
        step = np.array([r1 - r0, c1 - c0])
        along = ((rows - r0) * step[0] + (columns - c0) * step[1]) / (step**2).sum()
        along = np.clip(along, 0, 1)
        nearest = np.minimum(
            nearest, np.hypot(rows - r0 - along * step[0], columns - c0 - along * step[1])
        )
    return np.clip(pen / 2 + 0.5 - nearest, 0, 1).astype(np.float32)


def page(text: str, *, height: int = 60) -> NDArray[np.uint8]:
    """A grey page with dark digits on light paper, a line of it for each line of ``text``."""
    lines = text.split("\n")
    margin = 2 * height
    shape = (
        2 * margin + (2 * len(lines) - 1) * height,
        2 * margin + max(map(len, lines)) * height,
    )
    ink = np.zeros(shape, np.float32)
    for row, line in enumerate(lines):
        for column, char in enumerate(line):
            digit = glyph(int(char), height)
            top, left = margin + 2 * row * height, margin + column * height
            ink[top : top + digit.shape[0], left : left + digit.shape[1]] = digit
    noise = np.random.default_rng(len(text)).normal(0, 2, shape)
    return np.clip(225 - 180 * ink + noise, 0, 255).astype(np.uint8)


def save_page(path: Path, text: str) -> Path:
    Image.fromarray(page(text)).save(path)
    return path


def digits_of(labels: str) -> NDArray[np.uint8]:
    """(N, 28, 28) digits in MNIST's form."""
    return np.stack([normalise(glyph(int(label))) for label in labels])


def run(*words: str | Path) -> Result:
    """Run a command as a user types it: ``run("read", path)``."""
    return CliRunner().invoke(app, [str(word) for word in words])


@cache
def tiny_model() -> Model:
    """A model that has seen each of the ten glyphs once: 20/30/10 planes."""
    spec = preset("neocog")
    u = reference.contrast(u0_from_digits(digits_of("0123456789")), spec.contrast)
    layers: list[SWeights] = []
    blurs = tuple(fields.blur_kernel(c).astype(np.float32) for c in spec.c)
    for stage, s in enumerate(spec.s):
        c = fields.bell(s.kernel, s.c).astype(np.float32)
        if stage == 0:
            seen = edge_references(spec)
        elif stage < 3:
            seen = _busiest(reference.windows(u, s.kernel, s.padding), 2 if stage == 1 else 3)
        else:
            seen = reference.windows(u, s.kernel, s.padding)[:, :, 2, 2].astype(np.float32)
        layers.append(SWeights(seen, c, s.threshold, s.q))
        if stage < 3:
            u = reference.s_response(u, seen, c, threshold=s.threshold, q=s.q, padding=s.padding)
            u = reference.c_response(u, blurs[stage], padding=spec.c[stage].padding, kind=spec.psi)
    s1, s2, s3, s4 = layers
    w1, w2, w3 = blurs
    return Model("tiny", spec, (s1, s2, s3, s4), (w1, w2, w3), np.arange(10), temperature=0.005)


def _busiest(windows: NDArray[np.float64], count: int) -> NDArray[np.float32]:
    """The ``count`` windows of each picture that see most, not next to each other."""
    energy = (windows**2).sum(axis=(1, 4, 5))
    found = []
    for picture in range(len(energy)):
        left = energy[picture].copy()
        for _ in range(count):
            row, column = np.unravel_index(left.argmax(), left.shape)
            found.append(windows[picture, :, row, column])
            left[max(row - 3, 0) : row + 4, max(column - 3, 0) : column + 4] = 0
    return np.stack(found).astype(np.float32)
