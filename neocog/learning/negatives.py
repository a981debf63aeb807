"""Marks that are no digits, in the form of isolated digits: what planes of US4 learn to reject.

Letters and signs of fonts that cv2 and Pillow carry, written as by hand; strokes, spots, pieces
and pairs of digits (:mod:`neocog.learning.marks`). Each is drawn as ink and brought to 28 x 28 by
the same function that brings found ink there, or its strokes keep their width. Letters, signs and
pieces that pass for a digit (O, l, /, ...) are left out. Other kinds and fonts are *held out*:
nothing is learned from them (:mod:`neocog.learning.marks.held`).
"""

import numpy as np
from numpy.typing import NDArray

from neocog.errors import UsageError
from neocog.learning.blocks import in_blocks
from neocog.learning.marks import glyphs, remains, spots, strokes
from neocog.learning.marks.held import HELD
from neocog.learning.marks.source import AS_WRITTEN, Digits, Draw, Source, as_written
from neocog.vision.normalise import SIDE, normalise

_BLOCK = 5000
_LEAST = 25 * 255  # a picture with less ink is drawn again

#: Kinds to learn from, with their shares; ``experiments/accuracy/reject.py`` measures what passes.
KINDS: dict[Draw, float] = {
    glyphs.letter: 7, glyphs.sign: 3.5, glyphs.word: 1.5,
    remains.pair: 3, remains.part_of_next: 1, remains.piece: 1, remains.struck: 0.7,
    strokes.scribble: 1.5, strokes.zigzag: 1, strokes.cross: 1.5, strokes.bar: 1,
    strokes.polygon: 1.2, strokes.crossed_ring: 0.6, strokes.figure: 1.5,
    strokes.arrow: 0.8, strokes.tick: 0.5, strokes.box: 0.8, strokes.face: 0.6, strokes.plant: 0.8,
    spots.blot: 0.8, spots.specks: 0.8, spots.paper: 0.8, spots.noise: 0.6,
}  # fmt: skip


def negatives(
    count: int,
    digits: Digits,
    labels: NDArray[np.int64],
    *,
    seed: int,
    held: bool = False,
    jobs: int = 1,
) -> tuple[Digits, NDArray[np.int64], tuple[str, ...]]:
    """Draw marks that are no digits, as (count, 28, 28) uint8; their kinds, (count,), and names.

    Digits (N, 28, 28) uint8 and their labels are broken and joined. The same seed gives the same
    marks, on any number of processes (``jobs``). ``held`` draws the kinds and fonts that are held
    out. UsageError if there are no digits.
    """
    if not len(digits):
        raise UsageError("got no digits, expected some to break and join")
    source = Source(digits, labels)
    parts = in_blocks(_block, count, _BLOCK, source, seed, held, jobs=jobs)
    marks, kind = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return marks, kind, tuple(draw.__name__ for draw in (HELD if held else KINDS))


def _block(
    source: Source, seed: int, held: bool, number: int, size: int
) -> tuple[Digits, NDArray[np.int64]]:
    kinds = HELD if held else KINDS
    draws, shares = list(kinds), np.array(list(kinds.values()))
    rng = np.random.default_rng([seed, int(held), 11, *[number] * (number > 0)])
    kind = rng.choice(len(draws), size=size, p=shares / shares.sum())
    marks = np.zeros((size, SIDE, SIDE), np.uint8)
    for i, k in enumerate(kind):
        for _ in range(20):
            ink = draws[k](rng, source)
            other_form = not held and rng.random() < AS_WRITTEN
            marks[i] = as_written(ink) if other_form else normalise(ink)
            if marks[i].sum() > _LEAST:
                break
    return marks, kind.astype(np.int64)
