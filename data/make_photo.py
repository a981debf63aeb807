"""Draw the photograph of the README: a sheet with a person's numbers on a desk.

    python data/make_photo.py STROKES [docs/photo.jpg]

STROKES is ``strokes.npz`` of pendigits: paths of a pen, drawn here at full size. The digit models
and the finder did not learn from this writer; the line model did. The same file gives the same picture.
"""

import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.float32]

LINES = ("20619", "7384", "055192")
WRITER = "pen_tes_10"
SHEET = (1100, 1300)  # rows, columns, before the camera looks at it
SIZE = (720, 960)  # of the picture
HEIGHT = 120  # of a digit on the sheet
PITCH = 250  # between two lines
INK = np.array([46, 42, 120], np.float32)
LEFT_TOP = (300, 290)


def digits_of(strokes: Path, writer: str) -> dict[int, list[list[NDArray[np.float32]]]]:
    """Return the strokes of one writer's digits by label, points in -0.5 .. 0.5 of the height."""
    with np.load(strokes) as held:
        points, starts = held["points"].astype(np.float32), held["stroke_start"]
        samples, labels, writers = held["sample_start"], held["labels"], held["writers"]
    found: dict[int, list[list[NDArray[np.float32]]]] = {digit: [] for digit in range(10)}
    for i in np.flatnonzero(writers == writer):
        lines = [points[a:b] for a, b in pairwise(starts[samples[i] : samples[i + 1] + 1])]
        whole = np.concatenate(lines)
        low, high = whole.min(axis=0), whole.max(axis=0)
        middle, tall = (low + high) / 2, max(high[1] - low[1], 1)
        found[int(labels[i])].append([(line - middle) / tall for line in lines])
    return found


def noise(shape: tuple[int, int], cells: float, rng: np.random.Generator) -> Image:
    """Return smooth noise of standard deviation 1 whose blotches are ``cells`` pixels wide."""
    field = cv2.GaussianBlur(rng.standard_normal(shape, np.float32), (0, 0), cells)
    return np.asarray(field / field.std(), np.float32)


def write(cover: Image, lines: list[NDArray[np.float32]], x: float, y: float,
          rng: np.random.Generator) -> None:  # fmt: skip
    """Draw one digit about (x, y); a pen presses harder where it goes down."""
    high = HEIGHT * rng.uniform(0.93, 1.07)
    for line in lines:
        path = np.round((line * high + (x, y)) * 16).astype(np.int32)
        for a, b in pairwise(path):
            wide = 5 if b[1] - a[1] > abs(b[0] - a[0]) / 2 else 4
            cv2.line(cover, a.tolist(), b.tolist(), 1.0, wide, cv2.LINE_AA, 4)


def sheet(
    strokes: Path, rng: np.random.Generator, lines: Sequence[str] = LINES, size: tuple[int, int] = SHEET
) -> Image:
    """Return the sheet from above, in colour: squared paper, lines by one hand."""
    rows, columns = size
    paper = np.full((rows, columns, 3), (243, 241, 233), np.float32)
    paper += noise((rows, columns), 1.2, rng)[..., None] + 1.5 * noise((rows, columns), 9, rng)[..., None]
    for at in range(60, rows, 62):
        paper[at : at + 2] -= (40, 22, 10)
    paper[:, 150:153] -= (8, 60, 60)
    hand = digits_of(strokes, WRITER)
    cover = np.zeros((rows, columns), np.float32)
    for number, text in enumerate(lines):
        x, y = LEFT_TOP[0] + rng.uniform(-20, 20), float(LEFT_TOP[1] + number * PITCH)
        for char in text:
            mark = hand[int(char)].pop(int(rng.integers(len(hand[int(char)]))))
            begin = min(float(line[:, 0].min()) for line in mark) * HEIGHT
            write(cover, mark, x - begin, y + rng.normal(0, 4), rng)
            x += max(float(line[:, 0].max()) for line in mark) * HEIGHT - begin + rng.uniform(28, 48)
            y += 0.6
    ink = cv2.GaussianBlur(np.minimum(cover, 1), (0, 0), 0.8)
    ink = ink * np.clip(0.86 + 0.08 * noise((rows, columns), 2.5, rng), 0.5, 1)
    return np.asarray(paper * (1 - ink[..., None]) + INK * ink[..., None], np.float32)


def desk(rng: np.random.Generator, size: tuple[int, int] = SIZE) -> Image:
    """Return a wooden desk: long fibres, boards."""
    rows, columns = size
    fibres = cv2.resize(rng.standard_normal((rows, 24), np.float32), (columns, rows))
    waves = cv2.resize(
        rng.standard_normal((40, 5), np.float32), (columns, rows), interpolation=cv2.INTER_CUBIC
    )
    grain = 7 * fibres + 11 * waves
    return np.asarray((126, 88, 58) + grain[..., None] * (1.0, 0.85, 0.65), np.float32)


def photograph(strokes: Path) -> NDArray[np.uint8]:
    """Return the picture, RGB."""
    rng = np.random.default_rng(4)
    rows, columns = SIZE
    paper = sheet(strokes, rng)
    corners = np.array([(0, 0), (SHEET[1], 0), (SHEET[1], SHEET[0]), (0, SHEET[0])], np.float32)
    seen = np.array([(128, 66), (838, 26), (912, 672), (60, 690)], np.float32)
    view = cv2.getPerspectiveTransform(corners, seen)
    flat = cv2.warpPerspective(paper, view, (columns, rows), flags=cv2.INTER_AREA)
    on = cv2.warpPerspective(np.ones(SHEET, np.float32), view, (columns, rows))
    under = cv2.GaussianBlur(np.roll(on, (10, 12), (0, 1)), (0, 0), 9)
    picture = desk(rng) * (1 - 0.55 * under[..., None])
    picture = picture * (1 - on[..., None]) + flat * on[..., None]
    y, x = np.mgrid[0:rows, 0:columns].astype(np.float32) / columns
    light = 1.08 - 0.34 * np.hypot(x - 0.25, y - 0.1)
    shadow = np.zeros(SIZE, np.float32)
    cv2.ellipse(shadow, (930, 640), (330, 190), -32, 0, 360, 1.0, -1)
    light -= 0.30 * cv2.GaussianBlur(shadow, (0, 0), 26)
    picture *= light[..., None] * np.array([1.02, 0.99, 0.93], np.float32)
    picture = cv2.GaussianBlur(picture, (0, 0), 0.7) + 2.2 * rng.standard_normal((*SIZE, 3), np.float32)
    return np.clip(picture, 0, 255).astype(np.uint8)


def main() -> None:
    path = Path(sys.argv[2] if len(sys.argv) > 2 else "docs/photo.jpg")
    picture = photograph(Path(sys.argv[1]))
    cv2.imwrite(str(path), picture[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 88])


if __name__ == "__main__":
    main()
