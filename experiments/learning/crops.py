"""What the reader hands to the digit network: crops of made pages at the finder's boxes.

Pages are drawn (:mod:`neocog.learning.teacher`), searched by the finder and cut as the reader cuts
them. Boxes that hold a digit of the page give digits; boxes that the finder was wrong about, signs
and boxes between neighbours give marks that are none.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from neocog.learning.blocks import in_blocks
from neocog.learning.teacher.bank import SOURCES, load_bank
from neocog.learning.teacher.page import draw_page
from neocog.vision.crops import digit_of_box
from neocog.vision.finder import SIGNS, find, overlaps
from neocog.vision.finder_model import OpenCV, load_finder

Digits = NDArray[np.uint8]
Boxes = NDArray[np.float32]

_BLOCK = 50  # pages
_WITHIN = 0.55  # of the union, from which a box holds a digit
_BESIDE = 0.25  # of the union, up to which it holds none
_JITTER = 0.06  # of a digit's size: how far boxes are off at random
_SEED = 7_000_000  # pages that the finder did not learn from
#: Signs that may pass for a digit, or for a piece of one.
_ALIKE = "/(),-"
_LEAST = 25 * 255  # a picture with less ink is left out
#: Sets whose last fifth is counted otherwise than their validation part, so that all of it is kept.
_APART = ("bhmsds", "optdigits")


@dataclass(frozen=True, slots=True)
class Crops:
    """Crops of pages, each (N, 28, 28) uint8, ink 255."""

    digits: Digits
    labels: NDArray[np.int64]  #: of the digits
    marks: Digits  #: what is no digit


def crops(pages: int, bank: Path, finder: Path, *, seed: int = 0, jobs: int = 1) -> Crops:
    """Cut digits and marks out of made pages, which a ``bank`` writes and a ``finder`` searches."""
    parts = in_blocks(_block, pages, _BLOCK, bank, finder, seed, jobs=jobs)
    return Crops(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def _block(
    bank: Path, finder: Path, seed: int, number: int, size: int
) -> tuple[Digits, NDArray[np.int64], Digits]:
    hands, network = load_bank(bank), OpenCV(load_finder(finder))
    apart = np.isin(np.array(SOURCES)[hands.sources], _APART)
    hands = replace(hands, held=hands.held | apart)
    digits: list[Digits] = []
    labels: list[int] = []
    marks: list[Digits] = []
    for page in range(size):
        at = _SEED + 1_000_000 * seed + number * _BLOCK + page
        rng = np.random.default_rng([at, 5])
        drawn = draw_page(hands, at)
        rows = drawn.marks
        image = np.ascontiguousarray(drawn.image[: drawn.extent[0], : drawn.extent[1]])
        asked = rows[:, 0] >= 0
        boxes = np.c_[rows[:, 1:3] - rows[:, 3:5] / 2, rows[:, 3:5]].astype(np.float32)
        found = find(image, network).boxes
        written = boxes[asked & (rows[:, 0] < 10)]
        for box in _moved(np.concatenate([found, written]), rng):
            share = overlaps(box[None], boxes)[0][0]
            best = int(share.argmax()) if len(share) else -1
            label = int(rows[best, 0]) if best >= 0 else -1
            if best < 0 or share[best] < _BESIDE:
                marks.append(digit_of_box(image, box))
            elif share[best] > _WITHIN and 0 <= label < 10:
                digits.append(digit_of_box(image, box))
                labels.append(label)
            elif share[best] > _WITHIN and label >= 10 and SIGNS[label - 10] not in _ALIKE:
                marks.append(digit_of_box(image, box))
        for box in _between(written, rng):
            if overlaps(box[None], boxes)[0].max() < _BESIDE + 0.15:
                marks.append(digit_of_box(image, box))
    inked, seen = (_stack(pictures) for pictures in (digits, marks))
    kept = inked.sum(axis=(1, 2)) > _LEAST
    return inked[kept], np.array(labels, np.int64)[kept], seen[seen.sum(axis=(1, 2)) > _LEAST]


def _moved(boxes: Boxes, rng: np.random.Generator) -> Boxes:
    """Boxes that are a little off, as the finder's are."""
    if not len(boxes):
        return boxes
    size = boxes[:, 2:].max(axis=1, keepdims=True)
    moved = boxes + rng.normal(0, _JITTER, (len(boxes), 4)) * size
    moved[:, 2:] = np.maximum(moved[:, 2:], 2)
    return np.asarray(moved, np.float32)


def _between(boxes: Boxes, rng: np.random.Generator) -> Boxes:
    """Boxes half on one digit and half on what is beside it; one page's at random."""
    if not len(boxes):
        return boxes
    some = boxes[rng.integers(len(boxes), size=1 + len(boxes) // 6)]
    side = rng.choice([-1, 1], len(some)) * rng.uniform(0.6, 0.8, len(some))
    moved = some.copy()
    moved[:, 0] += side * (some[:, 2] + 0.15 * some[:, 3])
    return np.asarray(moved, np.float32)


def _stack(pictures: list[Digits]) -> Digits:
    return np.stack(pictures) if pictures else np.zeros((0, 28, 28), np.uint8)
