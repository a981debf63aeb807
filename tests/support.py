"""Handwritten digits, pages of them, a tiny model that reads them, and the commands."""

import csv
import gzip
import io
import json
import struct
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from typer.testing import CliRunner, Result

from neocog.batch.output import open_sink
from neocog.cli import app
from neocog.learning.selforganise import edge_references
from neocog.network import reference
from neocog.network.blurs import blur_kernel
from neocog.network.lines import ALPHABET, Head, LineModel
from neocog.network.model import Model, SWeights
from neocog.network.spec import REJECT, bell, preset
from neocog.network.u0 import u0_from_digits
from neocog.reading.formats import Format
from neocog.reading.results import PageReading
from neocog.vision.normalise import normalise


def write_digits(
    folder: Path, prefix: str, images: NDArray[Any], labels: NDArray[Any], *, packed: bool = False
) -> None:
    """Write IDX files of a part, ``train`` or ``t10k``."""
    for name, array in (("images-idx3", images), ("labels-idx1", labels)):
        head = struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape)
        data = head + array.astype(np.uint8).tobytes()
        place = folder / f"{prefix}-{name}-ubyte{'.gz' * packed}"
        place.write_bytes(gzip.compress(data, 1) if packed else data)


def write_mnist(folder: Path, count: int = 120) -> Path:
    """A folder with digits 0 to 9 over and over as MNIST's files, the same to learn and to test."""
    labels = np.arange(count) % 10
    for prefix in ("train", "t10k"):
        write_digits(folder, prefix, digits_of("0123456789")[labels], labels, packed=True)
    return folder


def write_hands(folder: Path) -> Path:
    """A folder of sets to draw lines with: two writers of each, two pages; of both one is kept apart."""
    lines, digits = folder / "lines/free", np.arange(40) % 10
    writers = {"mnist": ("1", "2"), "swiss": ("0007_CH3M", "x"), "pendigits": ("pen_tes_2", "y")}
    (lines / "lectaurep").mkdir(parents=True)
    for name, (held, free) in writers.items():
        place = folder / "mnist" if name == "mnist" else folder / "hands/free" / name
        place.mkdir(parents=True)
        write_digits(place, "train", digits_of("0123456789")[digits], digits, packed=True)
        told = lines / "qmnist-writers.txt.gz" if name == "mnist" else place / "train-writers.txt.gz"
        told.write_bytes(gzip.compress("\n".join([held] * 20 + [free] * 20).encode()))
    strokes = [STROKES[str(d)] for d in digits]
    every = [10 * stroke for own in strokes for stroke in own]
    np.savez(
        place / "strokes.npz", points=np.concatenate(every).astype(np.int16),
        stroke_start=np.cumsum([0, *map(len, every)]), sample_start=np.cumsum([0, *map(len, strokes)]),
    )  # fmt: skip
    jpegs = [cv2.imencode(".jpg", page(text)[90:210])[1].ravel() for text in ("12", "34", "34")]
    np.savez(
        lines / "lectaurep/a.npz", images=np.concatenate(jpegs), start=np.cumsum([0, *map(len, jpegs)]),
        text=["1 2", "34", "34"], page=["FRAN_0025_0073_L-0", "other", "other"],
    )  # fmt: skip
    return folder


def until(done: Callable[[], Any], seconds: float = 60) -> Any:
    """Wait until something is true, and return it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := done():
            return value
        time.sleep(0.01)
    raise TimeoutError(f"still not so after {seconds} s")


def children_of(process: int) -> list[int]:
    """The processes that a process of Linux has started."""
    tasks = Path(f"/proc/{process}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def few(values: Iterable[Any], *quick: Any) -> list[Any]:
    """Return the values of a test's parameter, slow those that are not quick."""
    slow = pytest.mark.slow
    return [value if value in quick else pytest.param(value, marks=slow) for value in values]


# a digit each of pendigits (UCI, CC BY 4.0), from 0 to 9: strokes by their points x,y
_POINTS = """\
27,2 27,0 8,37 1,62 2,87 6,94 12,99 22,100 33,98 44,91 54,81 68,56 67,32 62,22 54,15 40,12 25,17
2,46 0,49 24,20 33,0 25,39 21,94 24,100
0,34 2,18 14,4 28,0 41,0 47,4 49,16 42,35 6,88 3,97 13,100 62,97
22,19 20,15 22,9 34,1 45,1 53,6 55,11 52,24 34,49 47,53 57,59 62,68 62,74 54,85 39,94 21,100 0,98
8,0 5,1 0,33 2,51 10,55 41,52; 40,35 37,29 35,45 38,100
16,6 16,4 11,11 6,39 24,36 34,41 44,57 45,78 37,94 27,100 10,97 0,87; 6,17 11,10 19,5 38,0 61,2
50,1 45,0 36,7 15,30 4,51 0,72 5,89 18,99 35,100 49,93 54,88 58,76 54,66 45,62 31,64 12,73 4,85
13,11 12,8 16,2 30,0 39,5 46,15 42,48 24,98 26,100; 1,68 30,62 48,63
28,7 22,0 12,4 5,15 4,24 9,30 35,51 42,62 43,75 35,92 24,99 12,99 4,94 0,82 2,64 17,12 17,4 10,3
3,22 4,32 12,35 33,32 52,19 54,10 52,6 42,1 23,1 4,10 0,19 3,26 13,28 53,20 59,20 49,71 49,100
"""
STROKES = {  # in hundredths of a digit's height
    str(digit): [np.array(stroke.replace(",", " ").split(), int).reshape(-1, 2) for stroke in line.split(";")]
    for digit, line in enumerate(_POINTS.splitlines())
}


def glyph(digit: int, height: int = 60, pen: float = 6.0) -> NDArray[np.float32]:
    """Ink 0..1 of one handwritten digit, ``height`` rows."""
    ink = np.zeros((height, round(0.75 * height)), np.uint8)
    for stroke in STROKES[str(digit)]:
        points = np.round(16 * (pen + stroke / 100 * (height - 2 * pen))).astype(np.int32)
        cv2.polylines(ink, [points], False, 255, round(pen), cv2.LINE_AA, 4)
    return ink.astype(np.float32) / 255


def page(text: str, *, height: int = 60) -> NDArray[np.uint8]:
    """A grey page with dark digits on light paper, a line of it for each line of ``text``."""
    lines = text.split("\n")
    margin = 2 * height
    shape = (2 * margin + (2 * len(lines) - 1) * height, 2 * margin + max(map(len, lines)) * height)
    ink = np.zeros(shape, np.float32)
    for row, line in enumerate(lines):
        for column, char in enumerate(line):
            digit = glyph(int(char), height)
            top, left = margin + 2 * row * height, margin + column * height
            ink[top : top + digit.shape[0], left : left + digit.shape[1]] = digit
    noise = np.random.default_rng(len(text)).normal(0, 2, shape)
    return np.clip(225 - 180 * ink + noise, 0, 255).astype(np.uint8)


def sheet(text: str, shift: int = 0) -> bytes:
    """A printed sheet with digits in its one field, or without."""
    grey = np.full((800, 600), 240, np.uint8)
    for row in range(8):
        words = f"Line {row}, to be filled in: abcdefghij"[row:]
        cv2.putText(grey, words, (40, 60 + 40 * row + 160 * (row > 5)), cv2.FONT_HERSHEY_SIMPLEX, 0.8, 40, 2)
    cv2.rectangle(grey, (120, 360), (360, 480), 90, 2)
    for place, char in enumerate(text):
        ink = glyph(int(char), 50)
        part = grey[395:445, 140 + 45 * place :][:, : ink.shape[1]]
        part[:] = np.minimum(part, 240 - 200 * ink)
    return file_of(Image.fromarray(np.roll(grey, shift, axis=1)))


def save_page(path: Path, text: str) -> Path:
    Image.fromarray(page(text)).save(path)
    return path


def page_file(*texts: str, kind: str = "PNG", mode: str = "L") -> bytes:
    """Pages of digits in one file."""
    first, *more = (Image.fromarray(page(text)).convert(mode) for text in texts)
    several = {"save_all": True, "append_images": more} if more else {}
    return file_of(first, kind, **several)


def digits_of(labels: str) -> NDArray[np.uint8]:
    """(N, 28, 28) digits in MNIST's form."""
    return np.stack([normalise(glyph(int(label))) for label in labels])


def run(*words: str | Path) -> Result:
    """Run a command as a user types it: ``run("read", path)``."""
    return CliRunner().invoke(app, [str(word) for word in words])


def refused(told: str, *words: str | Path, code: int = 2) -> str:
    """Run a command that ends with one line on stderr and nothing else, and return the line."""
    result = run(*words)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (code, "", 1), result.output
    assert told in result.stderr
    return result.stderr


def failing(error: BaseException) -> Callable[..., None]:
    """A function that raises an error."""

    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def records(text: str | Path) -> list[dict[str, Any]]:
    """The records of lines of JSON, in a text or a file."""
    return [json.loads(line) for line in (text if isinstance(text, str) else text.read_text()).splitlines()]


def table_of(path: Path, delimiter: str = ",") -> list[dict[str, str]]:
    """The rows of a table with a header."""
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream, delimiter=delimiter))


def write_records(path: Path, form: Format, *readings: PageReading) -> Path:
    """A file of records, or of none, as a run writes it."""
    with open_sink(form, path) as sink:
        for reading in readings:
            sink.put(sink.format.render(reading))
    return path


@cache
def tiny_model() -> Model:
    """A model that has seen each of the ten glyphs once: 20/30/10 planes."""
    spec = preset("neocog")
    u = reference.contrast(u0_from_digits(digits_of("0123456789")), spec.contrast)
    layers: list[SWeights] = []
    blurs = tuple(blur_kernel(c).astype(np.float32) for c in spec.c)
    for stage, s in enumerate(spec.s):
        c = bell(s.kernel, s.c).astype(np.float32)
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


@cache
def tiny_lines() -> LineModel:
    return from_digits(replace(tiny_model(), labels=np.arange(1, 11)), seed=0, inner=12)


@cache
def digit_strip() -> NDArray[np.float32]:
    """The strip (48, 144) of "325", a digit in 48 columns."""
    return np.concatenate([u0[8:56, 8:56] for u0 in u0_from_digits(digits_of("325"))], axis=1)


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


def file_of(picture: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, kind, **options)
    return stream.getvalue()


def scene(width: int = 60, height: int = 40, mode: str = "L") -> Image.Image:
    """White paper with a dark block at its upper left."""
    picture = Image.new("L", (width, height), 255)
    picture.paste(20, (5, 5, 20, 15))
    return picture.convert(mode)


def from_digits(model: Model, *, seed: int, inner: int = 160) -> LineModel:
    """Return a line model that has learned nothing yet: a digit model's layers, its labels, a random head."""
    rng, planes = np.random.default_rng(seed), model.planes[2]
    n = len(ALPHABET) + 1
    own = rng.normal(0, 0.05, (n, planes))
    own[np.where(model.labels == REJECT, n - 1, model.labels), np.arange(planes)] += 8
    bias = np.zeros(n, np.float32)
    bias[-1] = 2
    w1 = rng.normal(0, np.sqrt(2 / (10 * planes)), (inner, 2 * planes, 5)).astype(np.float32)
    w2 = rng.normal(0, np.sqrt(2 / (5 * inner)), (inner, inner, 5)).astype(np.float32)
    w3 = rng.normal(0, 0.1 / np.sqrt(inner), (n, inner, 1)).astype(np.float32)
    b1, b2, b3 = (np.zeros(len(w), np.float32) for w in (w1, w2, w3))
    digits = replace(model, name=f"{model.name}-lines", card={}, version="")
    return LineModel(digits, Head(own.astype(np.float32), bias, (w1, w2, w3), (b1, b2, b3)))
