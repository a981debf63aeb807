"""Write the pictures of ``data/samples``: lines of real handwritten digits on made paper.

    python data/make_samples.py [FOLDER]

The digits come from scikit-learn's copy of the UCI set "Optical Recognition of Handwritten Digits"
(8 x 8 cells, each the number of ink pixels, 0..16, in a 4 x 4 block of the scan). The same seed
writes the same pictures.
"""

import argparse
import csv
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_digits

Floats = NDArray[np.float64]

NEIGHBOURS = 12  # a digit is clear when its nearest neighbours all carry its label
WRITER = 130  # neighbouring entries of the set come from one hand; about this many each
FINE = 8  # a cell of the set is redrawn with this many pixels a side


@dataclass(frozen=True, slots=True)
class Note:
    """One picture: what is written, how, and on which paper."""

    file: str
    lines: tuple[str, ...]
    hand: int  # first entry of the writer's digits
    size: tuple[int, int] = (640, 480)  # width, height
    height: float = 64.0  # of a digit, pixels
    ink: tuple[int, int, int] = (38, 48, 98)  # RGB
    paper: tuple[int, int, int] = (244, 241, 232)
    tilt: float = 0.0  # degrees, anticlockwise
    ruled: bool = False
    grain: float = 3.0  # standard deviation of the noise, grey levels
    shade: float = 0.10  # how much darker the darkest corner is


NOTES = (
    Note("postcode.png", ("90412",), 520, size=(640, 300), height=84, grain=1.5),
    Note("phone.jpg", ("01632960857",), 1300, size=(800, 300), height=58, ink=(32, 32, 36)),
    Note("meter.jpg", ("048317",), 1300, height=76, ink=(58, 58, 62), paper=(214, 214, 210), grain=4.5),
    Note("dates.jpg", ("1979", "2003"), 780, height=70, ink=(24, 60, 128), ruled=True, grain=2.0),
    Note("note.jpg", ("3846", "52071", "9265"), 1170, height=62, paper=(246, 236, 206)),
    Note("tilted.jpg", ("27549", "6038"), 650, height=66, ink=(120, 28, 34), tilt=5.0, shade=0.16),
)


def clear_digits() -> tuple[Floats, NDArray[np.int64], NDArray[np.bool_]]:
    """Return the set's cells (N, 8, 8) in 0..1, its labels (N,), and which digits are clear."""
    cells, labels = load_digits(return_X_y=True)
    squares = (cells**2).sum(axis=1)
    distance = squares[:, None] + squares[None, :] - 2 * cells @ cells.T
    nearest = np.argsort(distance, axis=1, kind="stable")[:, 1 : NEIGHBOURS + 1]
    clear = (labels[nearest] == labels[:, None]).all(axis=1)
    return cells.reshape(-1, 8, 8) / 16, labels, clear


def trace(cells: Floats) -> Floats:
    """Return a smooth height map, positive on ink, whose cells hold as much ink as ``cells`` say.

    The cells (8, 8) give the share of ink in each block of the scan; the map has FINE pixels a
    cell, 12 cells a side: a border of two is added. Each step adds what is missing in a cell
    and smooths the whole.
    """
    wanted = np.pad(cells, 2)
    side = wanted.shape[0]

    def enlarge(grid: Floats) -> Floats:
        return cv2.resize(grid, (side * FINE, side * FINE), interpolation=cv2.INTER_CUBIC)

    field = enlarge(wanted) - 0.5
    for _ in range(80):
        ink = 1 / (1 + np.exp(-6 * field))
        held = cv2.resize(ink, (side, side), interpolation=cv2.INTER_AREA)
        field += enlarge(wanted - held)
        field = np.clip(cv2.GaussianBlur(field, (0, 0), 0.16 * FINE), -1, 1)
    return field


def glyph(cells: Floats, height: float, rng: np.random.Generator) -> Floats:
    """Draw one digit (8, 8) ``height`` pixels high, a little askew; ink 0..1 with a soft edge."""
    field = trace(cells)
    size = round(height * 1.5)
    scale = 8 * FINE / height * rng.uniform(0.95, 1.05)
    lean, turn = rng.normal(0, 0.05), rng.normal(0, 0.03)
    matrix = scale * np.array([[1.10, lean + turn], [-turn, 1.0]])  # from the glyph to the field
    offset = (field.shape[0] - 1) / 2 - matrix @ np.full(2, (size - 1) / 2)
    field = cv2.warpAffine(
        field,
        np.column_stack([matrix, offset]),
        (size, size),
        flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
        borderMode=cv2.BORDER_REPLICATE,
    )
    return 1 / (1 + np.exp(-0.25 * height * (field - 0.05)))


class Hand:
    """The clear digits of one hand: those among ``WRITER`` entries from ``first`` on."""

    def __init__(self, first: int) -> None:
        self.cells, labels, clear = clear_digits()
        entries = [i for i in range(first, first + WRITER) if clear[i]]
        entries.sort(key=lambda i: smear(self.cells[i]))
        self.left = {digit: [i for i in entries if labels[i] == digit] for digit in range(10)}

    def take(self, digit: int, rng: np.random.Generator) -> Floats:
        """Return the cells (8, 8) of one of the three neatest digits left."""
        left = self.left[digit]
        return self.cells[left.pop(int(rng.integers(0, min(3, len(left)))))]


def smear(cells: Floats) -> float:
    """Say how far the strokes of a digit (8, 8) are blotted (full 2 x 2 blocks) or faint."""
    full = cells > 0.85
    blots = full[:-1, :-1] & full[1:, :-1] & full[:-1, 1:] & full[1:, 1:]
    ink = 1 / (1 + np.exp(-6 * trace(cells)))
    return float(blots.sum() + 100 * (ink * (1 - ink)).mean())


def write_line(ink: Floats, text: str, top: float, note: Note, rng: np.random.Generator, hand: Hand) -> None:
    """Write ``text`` into the ink map (H, W), centred, its digits' upper ends near row ``top``."""
    step = note.height * 0.98
    left = (ink.shape[1] - step * len(text)) / 2 + rng.uniform(-0.2, 0.2) * step
    for place, char in enumerate(text):
        mark = glyph(hand.take(int(char), rng), note.height, rng)
        columns = np.flatnonzero(mark.max(axis=0) > 0.3)
        middle = (columns[0] + columns[-1]) / 2
        x = round(left + (place + 0.5) * step - middle + rng.normal(0, 0.03) * step)
        y = round(top - 0.25 * note.height + rng.normal(0, 0.03) * note.height)
        area = ink[max(y, 0) : y + mark.shape[0], max(x, 0) : x + mark.shape[1]]
        part = mark[max(-y, 0) :, max(-x, 0) :][: area.shape[0], : area.shape[1]]
        np.maximum(area, part, out=area)


def cloud(shape: tuple[int, int], cell: int, rng: np.random.Generator) -> Floats:
    """Return smooth noise (H, W) in about -1..1 whose blotches are ``cell`` pixels wide."""
    coarse = rng.normal(0, 0.5, (shape[0] // cell + 3, shape[1] // cell + 3))
    return cv2.resize(coarse, shape[::-1], interpolation=cv2.INTER_CUBIC)


def draw(note: Note, rng: np.random.Generator) -> Image.Image:
    """Return the picture of a note."""
    width, height = note.size
    hand = Hand(note.hand)
    ink = np.zeros((height, width))
    pitch = note.height * 1.75
    first = (height - pitch * (len(note.lines) - 1) - note.height) / 2
    for number, text in enumerate(note.lines):
        write_line(ink, text, first + number * pitch, note, rng, hand)
    turn = cv2.getRotationMatrix2D((width / 2, height / 2), note.tilt, 1.0)
    ink = cv2.warpAffine(ink, turn, (width, height), flags=cv2.INTER_LINEAR)
    ink *= 0.86 + 0.10 * cloud(ink.shape, 9, rng)  # a pen does not press evenly

    rows, columns = np.mgrid[0:height, 0:width] / max(width, height)
    angle = rng.uniform(0, 2 * np.pi)
    slope = np.cos(angle) * columns + np.sin(angle) * rows
    light = 1 - note.shade * (slope - slope.min()) / np.ptp(slope) + 0.012 * cloud(ink.shape, 60, rng)
    paper = np.multiply.outer(light, np.array(note.paper, dtype=float))
    if note.ruled:
        rules = ((np.arange(height) - first - note.height * 1.2) % pitch < 1.5) * 0.10
        paper *= 1 - rules[:, None, None] * np.array([1.0, 0.6, 0.2])
    picture = paper * (1 - ink[..., None]) + light[..., None] * np.array(note.ink) * ink[..., None]
    picture += rng.normal(0, note.grain, ink.shape)[..., None]
    picture = cv2.GaussianBlur(picture, (0, 0), 0.6)
    return Image.fromarray(np.clip(picture, 0, 255).astype(np.uint8))


def write_labels(folder: Path) -> None:
    """Write ``labels.csv``: what stands in each picture."""
    with open(folder / "labels.csv", "w", newline="") as stream:
        table = csv.writer(stream, lineterminator="\n")
        table.writerow(["file", "text", "digits"])
        for note in NOTES:
            table.writerow([note.file, "|".join(note.lines), "".join(note.lines)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parent / "samples")
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    write_labels(folder)
    for seed, note in enumerate(NOTES):
        picture = draw(note, np.random.default_rng(seed))
        if note.file.endswith(".png"):
            picture = picture.convert("L")  # grain does not compress: one channel is enough
        picture.save(folder / note.file, quality=88, optimize=True)


if __name__ == "__main__":
    main()
